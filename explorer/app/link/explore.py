"""The Explore panel's part of a link: `design=post_ln&n_layers=24&pin=pre_ln&matrix=W_Q`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from explorer.app.explore.pins import Pins
from explorer.app.explore.selections import ALL
from explorer.app.link.entries import read_entries, write_entries
from explorer.app.link.params import Params
from explorer.app.link.values import plain, read_design, write_design, write_value
from explorer.app.widgets.record import record
from explorer.config import Config
from explorer.figures import BY_CHOICE

PATTERN = {"layer": 1, "head": 0}
"""The layer and the head whose pattern is shown at first."""
LISTS = {"matrix": ALL, "statistic": next(iter(BY_CHOICE))}
"""What the lists below the charts show at first."""


def write(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of a link, of a panel's record."""
    preset, fields = write_design(plain(Config, state.get("design", {})))
    if preset:
        yield "design", preset
    yield from ((name, write_value(value)) for name, value in fields.items())
    yield from (("pin", text) for text in write_entries(state.get("pins", []), Pins))
    pattern, default = state.get("pattern", {}), dict(PATTERN)
    yield from ((name, str(pattern[name])) for name in PATTERN if pattern.get(name, default[name]) != default[name])
    yield from ((name, state[name]) for name, first in LISTS.items() if state.get(name, first) != first)


def read(params: Params) -> dict[str, Any]:
    """A panel's record from the parts of a link."""
    fields, sentences = read_design(params.take("design"), "design")
    params.sentences += sentences
    return record(
        design=params.accepted(Config, fields | params.fields(Config), "design"),
        pins=read_entries(params, "pin", Pins),
        pattern={name: params.position(name, first) for name, first in PATTERN.items()},
        **{name: params.take(name, first) for name, first in LISTS.items()},
    )
