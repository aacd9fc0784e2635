"""The glossary: every symbol of the page, a table of `terms.toml` each, and how it is found in a text."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from explorer.glossary.lessons import rows
from explorer.glossary.papers import cited

__all__ = ["TERMS", "Term", "cited", "marks", "term_of"]


class Term(NamedTuple):
    """One symbol of the page; the keys of a table of `terms.toml`."""

    symbol: str
    name: str
    words: str
    """One or two plain sentences."""
    formula: str = ""
    unit: str = ""
    """Unit, range, or the value that is healthy."""
    lesson: str = ""
    """Name of the lesson that derives it, a key of `lessons.LESSONS`."""
    source: str = ""
    """Author and year, as `papers` has them, or with a number at arXiv or kexue.fm."""
    marks: tuple[str, ...] | None = None
    """The spellings that can mean nothing else in the page's texts; None: the symbol alone."""
    fields: tuple[str, ...] = ()
    """Fields of a record, or statistics, that have this symbol, where the same letter has other meanings too."""


TABLE = Path(__file__).with_name("terms.toml")
TERMS = tuple(Term(**row) for row in rows(TABLE, "term"))


def marks() -> dict[str, int]:
    """Symbols that a text may hold as words of their own, to the place of their row in `TERMS`; the longest first.

    Raises:
        ValueError: two rows claim the same.
    """
    places: dict[str, int] = {}
    for place, row in enumerate(TERMS):
        for mark in (row.symbol,) if row.marks is None else row.marks:
            if places.setdefault(mark, place) != place:
                raise ValueError(f"{mark!r} is a mark of {TERMS[places[mark]].name} and of {row.name}")
    return dict(sorted(places.items(), key=lambda item: -len(item[0])))


def term_of(field: str, symbol: str) -> int:
    """Place in `TERMS` of a field's symbol; −1 where it has none."""
    named = [place for place, row in enumerate(TERMS) if symbol and field in row.fields and row.symbol in symbol]
    return named[0] if named else marks().get(symbol, -1)
