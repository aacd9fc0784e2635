"""The Explore panel's part of a link: `design=post_ln&n_layers=24&pin=pre_ln&sweep=alpha`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from explorer.app.explore.pins import Pins
from explorer.app.explore.selections import ALL
from explorer.app.link.entries import read_entries, write_entries
from explorer.app.link.params import Params
from explorer.app.link.values import field_named, plain, read_design, write_design, write_value
from explorer.app.widgets.record import record
from explorer.config import Config
from explorer.ends import ENDS
from explorer.figures import BY_CHOICE

PATTERN = {"layer": 1, "head": 0}
"""The layer and the head whose pattern is shown at first."""
LISTS = {"matrix": ALL, "statistic": next(iter(BY_CHOICE))}
"""First choices of the lists below the charts."""

SWEPT = next(iter(ENDS))
"""The statistic that a sweep shows at first."""


def write(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of a link, of a panel's record."""
    preset, fields = write_design(plain(Config, state.get("design", {})))
    if preset:
        yield "design", preset
    yield from ((name, write_value(value)) for name, value in fields.items())
    yield from (("pin", text) for text in write_entries(state.get("pins", []), Pins))
    pattern = state.get("pattern", {})
    yield from ((name, str(pattern[name])) for name, first in PATTERN.items() if pattern.get(name, first) != first)
    yield from ((name, state[name]) for name, first in LISTS.items() if state.get(name, first) != first)
    sweep: Mapping[str, str] = state.get("sweep") or {}
    if field := sweep.get("field"):
        statistic = sweep.get("statistic", SWEPT)
        yield "sweep", field if statistic == SWEPT else f"{field}:{statistic}"


def read(params: Params) -> dict[str, Any]:
    """A panel's record from the parts of a link."""
    fields, sentences = read_design(params.take("design"), "design")
    params.sentences += sentences
    return record(
        design=params.accepted(Config, fields | params.fields(Config), "design"),
        pins=read_entries(params, "pin", Pins),
        pattern={name: params.position(name, first) for name, first in PATTERN.items()},
        **{name: params.take(name, first) for name, first in LISTS.items()},
        sweep=_sweep(params.take("sweep")),
    )


def _sweep(text: str) -> dict[str, str] | None:
    """The record of a sweep from `alpha` or `alpha:token_correlation`; None while nothing is swept."""
    name, _, statistic = text.partition(":")
    return {"field": field_named(Config, name) or name, "statistic": statistic or SWEPT} if text else None
