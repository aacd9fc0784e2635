"""The race's part of a link: `racer=post_ln,warmup:300&race.steps=700`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from explorer.app.link.entries import EMPTY, read_entries, write_entries
from explorer.app.link.params import Params
from explorer.app.link.values import plain, write_value
from explorer.app.race.lineup import Lineup, first_lineup
from explorer.app.race.plan import Plan
from explorer.app.widgets.record import record
from explorer.display import shown

PREFIX = "race."
RACER = "racer"
SELECTED = PREFIX + "selected"


def write(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of a link, of a panel's record; the usual line-up is left out."""
    contenders = state.get("contenders", _usual())
    if contenders != _usual():
        yield from ((RACER, text) for text in [*write_entries(contenders, Lineup)] or [EMPTY])
    yield from ((PREFIX + name, write_value(value)) for name, value in plain(Plan, state.get("plan", {})).items())
    if state.get("selected"):
        yield SELECTED, str(state["selected"])


@cache
def _usual() -> list[dict[str, Any]]:
    """The line-up of a page that opens."""
    return first_lineup().state()


def read(params: Params) -> dict[str, Any]:
    """A panel's record from the parts of a link."""
    racers = read_entries(params, RACER, Lineup) if params.has(RACER) else deepcopy(_usual())
    selected = params.position(SELECTED, 0)
    if not (isinstance(selected, int) and selected < max(1, len(racers))):
        params.sentences.append(f"{SELECTED} must be a contender's position, from 0; got {shown(selected)}")
        selected = 0
    plan = params.accepted(Plan, params.fields(Plan, PREFIX), "race")
    return record(contenders=racers, plan=plan, selected=selected)
