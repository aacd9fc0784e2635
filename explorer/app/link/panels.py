"""Each panel's part of a link: `design=post_ln&pin=pre_ln&sweep=alpha`, `map.x=alpha`, `racer=post_ln,warmup:300`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

from explorer.app.explore.pins import Pins
from explorer.app.explore.selections import ALL
from explorer.app.link.params import Params
from explorer.app.link.values import Fields, field_named, plain, read_design, typed, write_design, write_value
from explorer.app.map import plan as maps
from explorer.app.race import lineup
from explorer.app.roster import Roster, RosterError
from explorer.app.widgets.record import changed, record
from explorer.choices import Choices
from explorer.config import Config
from explorer.display import shown
from explorer.ends import ENDS
from explorer.figures import BY_CHOICE

FLAGS = {"visible": "hidden"}
"""Words for a switch that is not as it usually is, where its own name would say the opposite."""
HUE = "hue"
MOST = 32
"""Designs read from a link, at most; a roster takes fewer, with a notice."""
EMPTY = "none"
"""Stands for a list without entries, where the usual one has some."""


def write_entries(records: Sequence[Mapping[str, Any]], kind: type[Roster[Any]]) -> Iterator[str]:
    """Each design of a roster's record."""
    beside = kind()
    for entry in records:
        choices = {name: plain(choice, entry.get(name, {})) for name, choice in _choices(kind).items()}
        try:
            usual = beside.add(kind.entry(**{name: _choices(kind)[name](**fields) for name, fields in choices.items()}))
        except RosterError:  # as the roster itself will have it
            continue
        given = {name: entry.get(name, getattr(usual, name)) for name in kind.recorded if name not in choices}
        beside.change(usual.number, **given)
        yield ",".join(_parts(kind, usual, choices, {
            name: value for name, value in given.items() if value != getattr(usual, name)}))


def _parts(
    kind: type[Roster[Any]], usual: Any, choices: Mapping[str, Fields], given: Mapping[str, Any],
) -> Iterator[str]:
    """An entry's parts: the named design first, then fields, then what a person said of it."""
    preset, fields = write_design(choices["config"], named=True)
    yield from [preset] if preset else []
    yield from (f"{name}:{write_value(value)}" for name, value in fields.items())
    start = kind.entry(config=Config())
    for name in choices:
        if name != "config":
            chosen, first = getattr(usual, name), getattr(start, name)
            yield from (f"{field}:{write_value(value)}" for field, value in chosen if value != getattr(first, field))
    for name, value in given.items():
        if isinstance(value, bool):
            yield FLAGS.get(name, name)
        else:
            yield f"{HUE}:{value}" if name == "index" else f"{name}:{quote(value, safe=' ')}"


def _choices(kind: type[Roster[Any]]) -> dict[str, type[Choices]]:
    """The records of choices that an entry has."""
    return {name: record for name, record in kind.recorded.items() if issubclass(record, Choices)}


def read_entries(params: Params, key: str, kind: type[Roster[Any]]) -> list[dict[str, Any]]:
    """A roster's record from the values of a key, as the roster itself would have it."""
    texts = [text for text in params.take_all(key) if text != EMPTY]
    roster = kind()
    params.sentences += roster.restore([
        _read(text, f"{key} {number}", kind, params) for number, text in enumerate(texts[:MOST], start=1)])
    if len(texts) > MOST:
        params.sentences.append(f"{key} can be given {MOST} times; got {len(texts)}")
    return roster.state()


def _read(text: str, where: str, kind: type[Roster[Any]], params: Params) -> dict[str, Any]:
    start, values = kind.entry(config=Config()), dict[str, Any]()
    preset, _, rest = text.partition(",")
    if ":" in preset or preset in _flags(kind):
        preset, rest = "", text
    fields, sentences = read_design(preset, where)
    params.sentences += sentences
    choices = {name: dict(getattr(start, name).__repr_args__()) for name in _choices(kind)} | {"config": fields}
    for part in filter(None, rest.split(",")):
        name, colon, value = part.partition(":")
        home = next((record for record, of in _choices(kind).items() if field_named(of, name)), "")
        if home and colon:
            field = field_named(_choices(kind)[home], name)
            choices[home] |= typed(_choices(kind)[home], {field: value})
        elif (known := _known(kind, start, name, value)) is not None:
            values |= known
        else:
            params.sentences.append(f"{where}: {shown(part)} is not understood")
    return choices | values


def _flags(kind: type[Roster[Any]]) -> dict[str, str]:
    """A switch's word, and the switch."""
    return {FLAGS.get(name, name): name for name, value in kind.recorded.items() if value is bool}


def _known(kind: type[Roster[Any]], start: Any, name: str, value: str) -> dict[str, Any] | None:
    """An entry's switch, color or text that is no field of its record; None where the name is unknown."""
    if name in _flags(kind) and not value:
        return {_flags(kind)[name]: not getattr(start, _flags(kind)[name])}
    if name == HUE and value.isascii() and value.isdecimal() and len(value) < 3:
        return {"index": int(value)}
    return {name: unquote(value)} if kind.recorded.get(name) is str else None


Pairs = Iterator[tuple[str, str]]
PATTERN = {"layer": 1, "head": 0}
"""The layer and the head whose pattern is shown at first."""
LISTS = {"matrix": ALL, "statistic": next(iter(BY_CHOICE))}
"""First choices of the lists below the charts."""
SWEPT = next(iter(ENDS))
"""The statistic that a sweep shows at first."""
MAP_DESIGN, RACER, SELECTED = "map.design", "racer", "race.selected"


def write_settings(part: str, kind: type[Choices], fields: object) -> Pairs:
    """Fields of a record that differ from the defaults, their names after the part's."""
    yield from ((f"{part}.{name}", write_value(value)) for name, value in plain(kind, fields).items())


def write_explore(state: Mapping[str, Any]) -> Pairs:
    """Parts of a link, of the Explore panel's record."""
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


def read_explore(params: Params) -> dict[str, Any]:
    """The Explore panel's record from the parts of a link."""
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


def write_map(state: Mapping[str, Any]) -> Pairs:
    """Parts of a link, of the Map panel's record; the first map is left out."""
    first = changed(maps.FIRST_DESIGN)
    design = plain(Config, state.get("design", first))
    if design != first:
        preset, fields = write_design(design)
        yield MAP_DESIGN, ",".join([preset, *(f"{name}:{write_value(value)}" for name, value in fields.items())])
    yield from write_settings("map", maps.Plan, state.get("plan", {}))


def read_map(params: Params) -> dict[str, Any]:
    """The Map panel's record from the parts of a link."""
    design = _map_design(params) if params.has(MAP_DESIGN) else changed(maps.FIRST_DESIGN)
    return record(design=design, plan=params.settings(maps.Plan, "map"))


def _map_design(params: Params) -> dict[str, object]:
    """The fields of `post_ln,n_layers:24`; of the default design where it is empty."""
    preset, *parts = params.take(MAP_DESIGN).split(",")
    fields, sentences = read_design(preset, MAP_DESIGN)
    params.sentences += sentences
    for part in filter(None, parts):
        name, colon, value = part.partition(":")
        if (field := field_named(Config, name)) and colon:
            fields |= typed(Config, {field: value})
        else:
            params.sentences.append(f"{MAP_DESIGN}: {shown(part)} is not understood")
    return params.accepted(Config, fields, MAP_DESIGN)


def write_race(state: Mapping[str, Any]) -> Pairs:
    """Parts of a link, of the Race panel's record; the usual line-up is left out."""
    contenders = state.get("contenders", _usual())
    if contenders != _usual():
        yield from ((RACER, text) for text in [*write_entries(contenders, lineup.Lineup)] or [EMPTY])
    yield from write_settings("race", lineup.Plan, state.get("plan", {}))
    if state.get("selected"):
        yield SELECTED, str(state["selected"])


@cache
def _usual() -> list[dict[str, Any]]:
    """The line-up of a page that opens."""
    return lineup.first_lineup().state()


def read_race(params: Params) -> dict[str, Any]:
    """The Race panel's record from the parts of a link."""
    racers = read_entries(params, RACER, lineup.Lineup) if params.has(RACER) else deepcopy(_usual())
    selected = params.position(SELECTED, 0)
    if not (isinstance(selected, int) and selected < max(1, len(racers))):
        params.sentences.append(f"{SELECTED} must be a contender's position, from 0; got {shown(selected)}")
        selected = 0
    return record(contenders=racers, plan=params.settings(lineup.Plan, "race"), selected=selected)


PARTS: Mapping[str, tuple[Callable[[Mapping[str, Any]], Pairs], Callable[[Params], dict[str, Any]]]] = {
    "explore": (write_explore, read_explore), "map": (write_map, read_map), "race": (write_race, read_race),
}
"""Writer and reader of a panel's record, for each panel that is no lab."""
