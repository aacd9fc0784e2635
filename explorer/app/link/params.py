"""`Params`: the parts of a link, taken one by one; and values and designs in a link: `n_layers=24`,
`design=post_ln`.

A part that is left over was not understood.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from explorer.app.view import label
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import Choices, ConfigError
from explorer.config import Config, changes_to
from explorer.display import shown
from explorer.fields import Spec
from explorer.schemes.preset import PRESETS

LONGEST = 12_000
"""Characters of a link that are read: a browser, or a server before us, refuses longer ones."""
MOST = 400
"""Parts of a link that are read."""
LONGEST_POSITION = 8
"""Digits of a position that are read."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
SWITCH = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
LONGEST_NUMBER = 40
"""Characters of a number that are read as one: a longer text is none, and refused as the text it
is."""
Fields = dict[str, object]
Chosen = TypeVar("Chosen", bound=Choices)


class Params:
    """Keys and values.

    Args:
        text: an address, a query with or without its question mark, or nothing.
    Raises:
        ValueError: it is no text, or too long.
    """

    def __init__(self, text: object) -> None:
        if not isinstance(text, str):
            raise ValueError(f"a link must be a text; got {shown(text)}")
        if len(text) > LONGEST:
            raise ValueError(f"a link must have at most {LONGEST:,} characters; got {len(text):,}")
        query = text.strip().partition("#")[0]
        query = query.partition("?")[2] if "?" in query else "" if "://" in query else query
        try:
            self._pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST)
        except ValueError:
            raise ValueError(f"a link must have at most {MOST} parts; got more") from None
        self.sentences: list[str] = []

    def take_all(self, key: str) -> list[str]:
        """Every value of a key."""
        taken = [value for name, value in self._pairs if name == key]
        self._pairs = [(name, value) for name, value in self._pairs if name != key]
        return taken

    def take(self, key: str, default: str = "") -> str:
        """The value of a key; of several, the last counts."""
        values = self.take_all(key)
        if len(values) > 1:
            self.sentences.append(f"{key} is given {len(values)} times: the last counts")
        return values[-1] if values else default

    def one_of(self, value: str, key: str, options: Collection[str], default: str) -> str:
        """The value of a key that has options; the default where it is none of them."""
        if value in options:
            return value
        self.sentences.append(f"{key} must be one of {', '.join(options)}; got {shown(value)}")
        return default

    def position(self, key: str, default: int, low: int, high: int) -> int:
        """A number that counts something, between two ends; the default where it is none."""
        text = self.take(key, str(default))
        is_number = text.isascii() and text.isdecimal() and len(text) < LONGEST_POSITION
        if is_number and low <= int(text) <= high:
            return int(text)
        got = shown(int(text) if is_number else text)
        self.sentences.append(f"{key} must be a whole number between {low} and {high}; got {got}")
        return default

    def fields(self, kind: type[Choices], prefix: str = "") -> dict[str, Any]:
        """The values of all keys that name a field, by its name or its label, after a prefix."""
        given: dict[str, str] = {}
        for name in dict.fromkeys(name for name, _ in self._pairs if name.startswith(prefix)):
            if field := field_named(kind, name.removeprefix(prefix)):
                given[field] = self.take(name)
        return typed(kind, given)

    def accepted(self, kind: type[Chosen], fields: Mapping[str, object], part: str) -> Chosen:
        """Choices from their fields; a field that is refused keeps its default, and a sentence says
        why.

        Args:
            part: the name of the choices in the sentences.
        """
        waiting, choices = dict(fields), kind()
        try:
            return kind(**waiting)
        except ConfigError:
            pass
        while True:  # one by one, again as long as that helps: a field may need another one first
            refused = {}
            for name, value in waiting.items():
                try:
                    choices = choices.replace(**{name: value})
                except ConfigError as error:
                    refused[name] = refusal_in_words(error)
            if len(refused) == len(waiting):
                self.sentences += [f"{part}: {sentence}" for sentence in refused.values()]
                return choices
            waiting = {name: waiting[name] for name in refused}

    def settings(self, kind: type[Chosen], part: str) -> Chosen:
        """The choices of a part of the page, whose name stands before each field."""
        return self.accepted(kind, self.fields(kind, f"{part}."), part)

    def has(self, key: str) -> bool:
        """Whether a key is given and was not taken."""
        return any(name == key for name, _ in self._pairs)

    def drop(self, prefix: str) -> None:
        """Forgets every key that starts so."""
        self._pairs = [(name, value) for name, value in self._pairs if not name.startswith(prefix)]

    def rest(self) -> Iterator[str]:
        """A sentence for each key that is left."""
        for name in dict.fromkeys(name for name, _ in self._pairs):
            yield f"{shown(name)} is not a part of a link"


# Values and designs as they stand in a link.


def write_value(value: object) -> str:
    """A value of a field: a number to its last digit, a switch as true or false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_value(spec: Spec, text: str) -> object:
    """The value that a text stands for; the text itself where it is none of the field's kind, to be
    refused as such."""
    if spec.kind == "switch":
        return SWITCH.get(text.lower(), text)
    if spec.kind in ("choice", "text") or len(text) > LONGEST_NUMBER or not NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def field_named(kind: type[Choices], name: str) -> str:
    """The field that a person means by its name or its label (`depth` is `n_layers`); empty where
    there is none."""
    return name if name in kind.specs() else _labels(kind).get(name.lower(), "")


@cache
def _labels(kind: type[Choices]) -> dict[str, str]:
    """A field's label as it stands in a link, and the field."""
    return {label(item): field for field, item in kind.specs().items()}


def changed(choices: Choices) -> Fields:
    """The fields that differ from the defaults."""
    return dict(choices.__repr_args__())


def differing(fields: Mapping[str, object], base: Mapping[str, object]) -> Fields:
    """The fields of a Config that differ from those of a named design; both without the
    defaults."""
    if fields == base:
        return {}
    specs = Config.specs()
    wanted = {
        name: fields.get(name, specs[name].default) for name in dict.fromkeys((*fields, *base))
    }
    return {
        name: value
        for name, value in wanted.items()
        if value != base.get(name, specs[name].default)
    }


@cache
def named_fields(preset: str) -> Mapping[str, object]:
    """Fields in which a named design differs from the default one, with its values."""
    specs = Config.specs()
    return {
        name: value for name, value in changes_to(preset).items() if value != specs[name].default
    }


def write_design(fields: Mapping[str, object], *, named: bool = False) -> tuple[str, Fields]:
    """The shortest way to say a design: a named one and what differs from it.

    Args:
        fields: those that differ from the defaults.
        named: whether a design without a name is to be avoided where another is as short.
    Returns:
        The name, empty for the default design, and the other fields.
    """
    ways: list[tuple[str, Fields]] = [
        (name, differing(fields, named_fields(name))) for name in PRESETS
    ]
    plain: tuple[str, Fields] = ("", dict(fields))
    return min([*ways, plain] if named else [plain, *ways], key=lambda way: len(way[1]))


def read_design(preset: str, where: str) -> tuple[Fields, list[str]]:
    """The fields of a named design, and a sentence where there is none of that name."""
    if preset and preset not in PRESETS:
        return {}, [
            f"{where} must be a named design, such as {next(iter(PRESETS))}; got {shown(preset)}"
        ]
    return dict(named_fields(preset)) if preset else {}, []


def typed(kind: type[Choices], texts: Mapping[str, str]) -> dict[str, Any]:
    """Values of fields from their texts."""
    specs = kind.specs()
    return {name: read_value(specs[name], text) for name, text in texts.items()}
