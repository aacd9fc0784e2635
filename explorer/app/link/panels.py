"""Each panel's part of a link: `design=post_ln&pin=pre_ln`, `map.x=alpha`,
`racer=post_ln,warmup:300`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from explorer.app.explore.pins import Pins
from explorer.app.explore.selections import ALL, MATRIX_WORDS
from explorer.app.link.params import (
    Params,
    changed,
    field_named,
    read_design,
    typed,
    write_design,
    write_value,
)
from explorer.app.map import plan as maps
from explorer.app.page import ExplorePart
from explorer.app.race import lineup
from explorer.app.roster import Entry, Roster
from explorer.choices import Choices
from explorer.config import Config
from explorer.display import shown
from explorer.figures import BY_CHOICE

FLAGS = {"visible": "hidden"}
"""Words for a switch that is not as it usually is, where its own name would say the opposite."""
HUE = "hue"
MOST = 32
"""Designs read from a link, at most; a roster takes fewer, with a notice."""
EMPTY = "none"
"""Stands for a list without entries, where the usual one has some."""


def write_entries(entries: Iterable[Entry], kind: type[Roster[Any]]) -> Iterator[str]:
    """Each design of a roster."""
    beside, start = kind(), kind.entry(config=Config())
    for entry in entries:
        usual = beside.add(kind.entry(**{name: getattr(entry, name) for name in _choices(kind)}))
        given = {
            name: value
            for name in kind.recorded
            if name not in _choices(kind)
            if (value := getattr(entry, name)) not in (getattr(usual, name), getattr(start, name))
        }
        beside.change(usual.number, **given)
        yield ",".join(_parts(kind, entry, given))


def _parts(kind: type[Roster[Any]], entry: Entry, given: Mapping[str, Any]) -> Iterator[str]:
    """An entry's parts: the named design first, then fields, then what a person said of it."""
    preset, fields = write_design(changed(entry.config), named=True)
    yield from [preset] if preset else []
    yield from map(_part, fields.items())
    start = kind.entry(config=Config())
    for name in _choices(kind):
        if name != "config":
            chosen, first = getattr(entry, name), getattr(start, name)
            yield from map(_part, [pair for pair in chosen if pair[1] != getattr(first, pair[0])])
    for name, value in given.items():
        if isinstance(value, bool):
            yield FLAGS.get(name, name)
        else:
            yield f"{HUE}:{value}" if name == "index" else f"{name}:{quote(value, safe=' ')}"


def _part(pair: tuple[str, object]) -> str:
    """A field and its value within a list, where a comma of the value would end it."""
    name, value = pair
    return f"{name}:{quote(write_value(value), safe=' +')}"


def _choices(kind: type[Roster[Any]]) -> dict[str, type[Choices]]:
    """The records of choices that an entry has."""
    return {name: record for name, record in kind.recorded.items() if issubclass(record, Choices)}


def read_entries(params: Params, key: str, kind: type[Roster[Any]]) -> tuple[Any, ...]:
    """A roster's entries from the values of a key, as the roster itself would have them."""
    texts = [text for text in params.take_all(key) if text != EMPTY]
    roster = kind()
    params.sentences += roster.restore(
        [
            _read(text, f"{key} {number}", kind, params)
            for number, text in enumerate(texts[:MOST], start=1)
        ]
    )
    if len(texts) > MOST:
        params.sentences.append(f"{key} can be given {MOST} times; got {len(texts)}")
    return roster.entries


def _read(text: str, where: str, kind: type[Roster[Any]], params: Params) -> Any:
    start, values = kind.entry(config=Config()), dict[str, Any]()
    preset, _, rest = text.partition(",")
    if ":" in preset or preset in _flags(kind):
        preset, rest = "", text
    fields, sentences = read_design(preset, where)
    params.sentences += sentences
    choices = {name: dict(getattr(start, name).__repr_args__()) for name in _choices(kind)} | {
        "config": fields
    }
    for part in filter(None, rest.split(",")):
        name, colon, value = part.partition(":")
        home = next((record for record, of in _choices(kind).items() if field_named(of, name)), "")
        if home and colon:
            field = field_named(_choices(kind)[home], name)
            choices[home] |= typed(_choices(kind)[home], {field: unquote(value)})
        elif (known := _known(kind, start, name, value)) is not None:
            values |= known
        else:
            params.sentences.append(f"{where}: {shown(part)} is not understood")
    return kind.entry(
        **values,
        **{
            name: params.accepted(of, choices[name], f"{where}, {name}")
            for name, of in _choices(kind).items()
        },
    )


def _flags(kind: type[Roster[Any]]) -> dict[str, str]:
    """A switch's word, and the switch."""
    return {FLAGS.get(name, name): name for name, value in kind.recorded.items() if value is bool}


def _known(kind: type[Roster[Any]], start: Any, name: str, value: str) -> dict[str, Any] | None:
    """An entry's switch, color or text that is no field of its record; None where the name is
    unknown."""
    if name in _flags(kind) and not value:
        return {_flags(kind)[name]: not getattr(start, _flags(kind)[name])}
    if name == HUE and value.isascii() and value.isdecimal() and len(value) < 3:
        return {"index": int(value)}
    return {name: unquote(value)} if kind.recorded.get(name) is str else None


Pairs = Iterator[tuple[str, str]]
FIRST = ExplorePart()
LISTS = {"matrix": (ALL, *MATRIX_WORDS), "statistic": tuple(BY_CHOICE)}
"""Options of the lists below the charts."""
MAP_DESIGN, RACER, SELECTED = "map.design", "racer", "race.selected"


def write_settings(part: str, choices: Choices) -> Pairs:
    """Fields that differ from the defaults, their names after the part's."""
    yield from ((f"{part}.{name}", write_value(value)) for name, value in changed(choices).items())


def write_explore(part: ExplorePart) -> Pairs:
    """The Explore panel's part of a link."""
    preset, fields = write_design(changed(part.design))
    if preset:
        yield "design", preset
    yield from ((name, write_value(value)) for name, value in fields.items())
    yield from (("pin", text) for text in write_entries(part.pins, Pins))
    for name, value, first in zip(
        ("layer", "head"), part.pattern_of, FIRST.pattern_of, strict=True
    ):
        if value != first:
            yield name, str(value)
    if part.tokens_of:
        yield "tokens", str(part.tokens_of)
    yield from (
        (name, value) for name in LISTS if (value := getattr(part, name)) != getattr(FIRST, name)
    )


def read_explore(params: Params) -> ExplorePart:
    """Settings of the Explore panel from a link."""
    fields, sentences = read_design(params.take("design"), "design")
    params.sentences += sentences
    design = params.accepted(Config, fields | params.fields(Config), "design")
    return ExplorePart(
        design,
        read_entries(params, "pin", Pins),
        (
            params.position("layer", 1, 1, design.n_layers),
            params.position("head", 0, 0, design.n_heads - 1),
        ),
        **{
            name: params.one_of(params.take(name, options[0]), name, options, options[0])
            for name, options in LISTS.items()
        },
        tokens_of=params.position("tokens", 0, 0, design.n_layers),
    )


def write_map(part: maps.MapPart) -> Pairs:
    """The Map panel's part of a link; the first map is left out."""
    if part.design != maps.FIRST_DESIGN:
        preset, fields = write_design(changed(part.design))
        yield MAP_DESIGN, ",".join([preset, *map(_part, fields.items())])
    yield from write_settings("map", part.plan)


def read_map(params: Params) -> maps.MapPart:
    """Settings of the Map panel from a link."""
    design = _map_design(params) if params.has(MAP_DESIGN) else maps.FIRST_DESIGN
    return maps.MapPart(design, params.settings(maps.Plan, "map"))


def _map_design(params: Params) -> Config:
    """The fields of `post_ln,n_layers:24`; of the default design where it is empty."""
    preset, *parts = params.take(MAP_DESIGN).split(",")
    fields, sentences = read_design(preset, MAP_DESIGN)
    params.sentences += sentences
    for part in filter(None, parts):
        name, colon, value = part.partition(":")
        if (field := field_named(Config, name)) and colon:
            fields |= typed(Config, {field: unquote(value)})
        else:
            params.sentences.append(f"{MAP_DESIGN}: {shown(part)} is not understood")
    return params.accepted(Config, fields, MAP_DESIGN)


def write_race(part: lineup.RacePart) -> Pairs:
    """The Race panel's part of a link; the usual line-up is left out."""
    if part.contenders != lineup.RacePart().contenders:
        yield from (
            (RACER, text) for text in [*write_entries(part.contenders, lineup.Lineup)] or [EMPTY]
        )
    yield from write_settings("race", part.plan)
    if part.selected:
        yield SELECTED, str(part.selected)


def read_race(params: Params) -> lineup.RacePart:
    """Settings of the Race panel from a link."""
    usual = lineup.RacePart().contenders
    racers = read_entries(params, RACER, lineup.Lineup) if params.has(RACER) else usual
    return lineup.RacePart(
        racers,
        params.settings(lineup.Plan, "race"),
        params.position(SELECTED, 0, 0, max(0, len(racers) - 1)),
    )


PARTS: Mapping[str, tuple[Callable[[Any], Pairs], Callable[[Params], Any]]] = {
    "explore": (write_explore, read_explore),
    "map": (write_map, read_map),
    "race": (write_race, read_race),
}
"""Writer and reader of a panel's part, for each panel that has one."""
