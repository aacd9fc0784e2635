"""`Term`: one symbol of the page, as a row of data."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """One symbol."""

    symbol: str
    name: str
    words: str
    """One or two plain sentences."""
    formula: str = ""
    unit: str = ""
    """Unit, range, or the value that is healthy."""
    lab: str = ""
    """Name of the lab that explains it, a key of `labs.table.LABS`."""
    source: str = ""
    """Author and year, as `papers` has them, or with a number at arXiv or kexue.fm."""
    marks: tuple[str, ...] | None = None
    """How it stands in the page's texts, unmistakably; None: as the symbol alone."""
    fields: tuple[str, ...] = ()
    """Fields of a record, or statistics, whose symbol it is, where the same letter stands for other things too."""
