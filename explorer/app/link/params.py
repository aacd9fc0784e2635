"""`Params`: the parts of a link, taken one by one; and designs in a link:
`design=post_ln&n_layers=24`.

A part that is left over was not understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from urllib.parse import parse_qsl

from explorer.app.view import label
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import ConfigError
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

    def position(self, key: str, default: int, low: int, high: int) -> int:
        """A number that counts something, between two ends; the default where it is none."""
        text = self.take(key, str(default))
        is_number = text.isascii() and text.isdecimal() and len(text) < LONGEST_POSITION
        if is_number and low <= int(text) <= high:
            return int(text)
        got = shown(int(text) if is_number else text)
        self.sentences.append(f"{key} must be a whole number between {low} and {high}; got {got}")
        return default

    def fields(self) -> Fields:
        """The values of all keys that name a field of a design, by its name or its label."""
        given: Fields = {}
        for key in dict.fromkeys(name for name, _ in self._pairs):
            name = field_named(key)
            if name:
                given[name] = read_value(Config.specs()[name], self.take(key))
        return given

    def design(self, fields: Mapping[str, object]) -> Config:
        """A design from its fields; one that is refused keeps its default, and a sentence says
        why."""
        waiting, config = dict(fields), Config()
        try:
            return Config(**waiting)
        except ConfigError:
            pass
        while True:  # one by one, again as long as that helps: a field may need another one first
            refused = {}
            for name, value in waiting.items():
                try:
                    config = config.replace(**{name: value})
                except ConfigError as error:
                    refused[name] = refusal_in_words(error)
            if len(refused) == len(waiting):
                self.sentences += [f"design: {sentence}" for sentence in refused.values()]
                return config
            waiting = {name: waiting[name] for name in refused}

    def named(self, name: str, key: str) -> Fields:
        """The fields of a named design; none, and a sentence, where there is none of that name."""
        if name in PRESETS:
            return dict(named_fields(name))
        if name:
            self.refuse_name(name, key)
        return {}

    def refuse_name(self, name: str, key: str) -> None:
        """Says that there is no named design of this name."""
        some = next(iter(PRESETS))
        self.sentences.append(f"{key} must be a named design, such as {some}; got {shown(name)}")

    def has(self, key: str) -> bool:
        """Whether a key is given and was not taken."""
        return any(name == key for name, _ in self._pairs)

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


def field_named(name: str) -> str:
    """The field that a person means by its name or its label (`depth` is `n_layers`); empty where
    there is none."""
    return name if name in Config.specs() else _labels().get(name.lower(), "")


@cache
def _labels() -> dict[str, str]:
    """A field's label as it stands in a link, and the field."""
    return {label(item): field for field, item in Config.specs().items()}


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


def write_design(config: Config) -> tuple[str, Fields]:
    """The shortest way to say a design: a named one and what differs from it.

    Returns:
        The name, empty for the default design, and the other fields.

    Example:
        >>> write_design(Config(norm_placement="post", n_layers=24))
        ('post_ln', {'n_layers': 24})
    """
    fields = config.changed
    ways: list[tuple[str, Fields]] = [("", dict(fields))]
    ways += [(name, differing(fields, named_fields(name))) for name in PRESETS]
    return min(ways, key=lambda way: len(way[1]))
