"""`Params`: the parts of a link, which are taken one by one; a part that is left over was not understood."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from explorer.app.link.values import field_named, typed
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import Choices, ConfigError
from explorer.display import shown

LONGEST = 12_000
"""Characters of a link that are read: a browser, or a server before us, refuses longer ones."""
MOST = 400
"""Parts of a link that are read."""
LONGEST_POSITION = 8
"""Digits of a position that are read."""
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
        """Choices from their fields; a field that is refused keeps its default, and a sentence says why.

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
