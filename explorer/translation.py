"""Sentences of the package in the language of their reader: English, or the one that `language` has
set for the process, or `speaking` for a page.

Messages stand in English where they are used: in the code, as calls of `translated`; in tables of
TOML; and in rows, see `with_messages`. Each is translated when it is read, not when it is
written, so that pages in different languages may share a process.

The messages of a language are `locale/NAME/LC_MESSAGES/explorer.po`, as gettext's tools write and
merge them. The file is used as it is, so that no compiled one can be older than it.
`python -m benchmarks.lessons --translate` collects the messages."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

LOCALE = Path(__file__).with_name("locale")
LANGUAGES: Mapping[str, str] = {"en": "", "zh": "zh_CN"}
"""The languages, and the folders of their messages; English has none."""
FIELD = re.compile(r'^(msgid|msgstr) ((?:"(?:[^"\\]|\\.)*"\n?)+)', re.MULTILINE)
"""A message or its translation: strings in quotation marks, a line each."""
_of_process = "en"  # threads do not inherit a context: live figures are computed on their own
_of_context: ContextVar[str] = ContextVar("language", default="")
"""The language of a page; empty where it has the process's."""


def language(name: str) -> None:
    """Sets the language of the package: English is "en", Chinese "zh".

    A sentence that has no translation stays English. The setting is the process's, so that every
    thread has it.

    Raises:
        ValueError: there is no such language.

    Example:
        >>> ex.language("zh")
        >>> ex.check("02.1", lambda n, m, v: m * v)
        正确。
        >>> ex.language("en")
    """
    global _of_process
    _of_process = known_language(name)


def known_language(name: str) -> str:
    """The name, if it is a language's. ValueError if it is not."""
    if name not in LANGUAGES:
        raise ValueError(f"name must be one of {', '.join(LANGUAGES)}; got {name!r}")
    return name


def of_environment() -> str:
    """The language that the environment asks for, as gettext reads it; English where there are no
    messages of it."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    wanted = next(filter(None, map(os.environ.get, names)), "")[:2]
    return wanted if wanted in LANGUAGES else "en"


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """A block in which this thread's sentences are in another language than the process's."""
    token = _of_context.set(known_language(name))
    try:
        yield
    finally:
        _of_context.reset(token)


def spoken() -> str:
    """The language in which sentences are now."""
    return _of_context.get() or _of_process


class Note(str):
    """A sentence, or several, that a record keeps in English, and that is read in the language that
    is spoken: see `translated`.

    Args:
        message: a message with named fields.
        values: of the fields, which may be notes themselves.
    """

    parts: tuple[tuple[str, dict[str, object]], ...]
    """Messages and their values, of one sentence each."""

    def __new__(cls, message: str, /, **values: object) -> Self:
        note = super().__new__(cls, message.format(**values) if values else message)
        note.parts = ((message, values),)
        return note

    @classmethod
    def joined(cls, notes: Iterable[str]) -> Self:
        """Several notes as one."""
        every = [note if isinstance(note, Note) else Note(note) for note in notes]
        joined = cls("; ".join(every))
        joined.parts = tuple(part for note in every for part in note.parts)
        return joined

    def each(self) -> list[Note]:
        """The sentences, a note each."""
        return [Note(message, **values) for message, values in self.parts]


def translated(message: str, /, **values: object) -> str:
    """A message in the language that is spoken, with values in place of its named fields.

    Args:
        message: a whole sentence, a clause or a name in English, such as "the value is {name}"; or
            a `Note`.
        values: of the fields, in words or numbers; without any, braces are no fields.
    """
    if isinstance(message, Note):
        return translated("; ").join(_read(*part) for part in message.parts)
    text = catalog(LANGUAGES[spoken()]).get(message) or message
    return text.format(**values) if values else text


def _read(message: str, values: Mapping[str, object]) -> str:
    """A sentence of a note, with values in the same language."""
    words = {
        name: translated(value) if isinstance(value, Note) else value
        for name, value in values.items()
    }
    return translated(message, **words)


def sentences(texts: Iterable[str]) -> str:
    """Sentences one after the other, without the empty ones; after a full-width stop stands no
    space."""
    return " ".join(filter(None, texts)).replace("。 ", "。")


class TranslatedError(ValueError):
    """An error whose message is in the language of the process; see `translated`."""

    def __init__(self, message: str, /, **values: object) -> None:
        super().__init__(translated(message, **values))


class Message:
    """A field of a row that is written in English and read in the language that is spoken."""

    def __init__(self, name: str, index: int | None = None) -> None:
        self._name, self._index = name, index

    def __get__(self, row: Any, owner: type | None = None) -> str:
        if self._index is None:
            return translated(row.__dict__[self._name])
        return translated(tuple.__getitem__(row, self._index))

    def __set__(self, row: object, text: str) -> None:
        row.__dict__[self._name] = text


Row = TypeVar("Row", bound=type)


def with_messages(*names: str) -> Callable[[Row], Row]:
    """A decorator of a dataclass, or of a NamedTuple, some of whose fields are messages: they are
    written in English, and read in the language that is spoken."""

    def decorated(row: Row) -> Row:
        columns = getattr(row, "_fields", ())
        for name in names:
            index = columns.index(name) if name in columns else None
            setattr(row, name, Message(name, index))
        return row

    return decorated


class Texts(Mapping[str, str]):
    """Texts by name: written in English, and read in the language that is spoken."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.english = dict(texts)

    def __getitem__(self, name: str) -> str:
        return translated(self.english[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.english)

    def __len__(self) -> int:
        return len(self.english)


@cache
def catalog(folder: str) -> Mapping[str, str]:
    """The translation of each message; none of English."""
    if not folder:
        return {}
    file = LOCALE / folder / "LC_MESSAGES" / "explorer.po"
    fields = FIELD.findall(file.read_text(encoding="utf-8"))
    texts = ["".join(map(ast.literal_eval, quoted.splitlines())) for _, quoted in fields]
    # the first message is empty: its translation is the file's head
    return dict(zip(texts[2::2], texts[3::2], strict=True))
