"""Lists of designs in a link: pins and contenders, `pin=post_ln,n_layers:24,name:Deep`.

What an entry would be given of itself, its name and its hue, is left out: a roster beside tells what that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from explorer.app.link.params import Params
from explorer.app.link.values import Fields, field_named, plain, read_design, typed, write_design, write_value
from explorer.app.roster import Roster, RosterError
from explorer.choices import Choices
from explorer.config import Config
from explorer.display import shown

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
    for record in records:
        choices = {name: plain(choice, record.get(name, {})) for name, choice in _choices(kind).items()}
        try:
            usual = beside.add(kind.entry(**{name: _choices(kind)[name](**fields) for name, fields in choices.items()}))
        except RosterError:  # as the roster itself will have it
            continue
        given = {name: record.get(name, getattr(usual, name)) for name in kind.recorded if name not in choices}
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
