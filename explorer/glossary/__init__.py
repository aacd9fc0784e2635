"""The glossary: every symbol of the page, a row each, and how it is found in a text."""

from __future__ import annotations

from explorer.glossary import design, signal, training
from explorer.glossary.papers import cited
from explorer.glossary.term import Term

__all__ = ["TERMS", "Term", "cited", "marks", "term_of"]

TERMS: tuple[Term, ...] = (*signal.ROWS, *design.ROWS, *training.ROWS)


def marks() -> dict[str, int]:
    """What is a symbol wherever it stands by itself in a text, to its row's place in `TERMS`; the longest first.

    Raises:
        ValueError: two rows claim the same.
    """
    found: dict[str, int] = {}
    for place, row in enumerate(TERMS):
        for mark in (row.symbol,) if row.marks is None else row.marks:
            if found.setdefault(mark, place) != place:
                raise ValueError(f"{mark!r} is a mark of {TERMS[found[mark]].name} and of {row.name}")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def term_of(field: str, symbol: str) -> int:
    """Place in `TERMS` of a field's symbol; −1 where it has none."""
    named = [place for place, row in enumerate(TERMS) if symbol and field in row.fields and row.symbol in symbol]
    return named[0] if named else marks().get(symbol, -1)
