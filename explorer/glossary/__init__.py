"""The glossary: the symbols of the page (`terms.toml`), the lessons (`lessons.toml`) and the papers
(`papers.bib`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from explorer.translation import with_messages

FOLDER = Path(__file__).parent


def rows(table: Path, name: str) -> list[dict[str, Any]]:
    """The tables of a name in a TOML file, whose lists become tuples; none where there are none."""
    return [
        {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in tomllib.loads(table.read_text(encoding="utf-8")).get(name, ())
    ]


@with_messages("name", "words", "formula", "unit")
@dataclass(frozen=True)
class Term:
    """One symbol of the page; the keys of a table of `terms.toml`."""

    symbol: str
    name: str
    words: str
    """One or two plain sentences."""
    formula: str = ""
    unit: str = ""
    """Unit, range, or the value that is healthy."""
    lesson: str = ""
    """Name of the lesson that derives it, a key of `LESSONS`."""
    source: str = ""
    """Author and year, as `papers.bib` has them, or with a number at arXiv or kexue.fm."""
    marks: tuple[str, ...] | None = None
    """The spellings that can mean nothing else in the page's texts; None: the symbol alone."""
    fields: tuple[str, ...] = ()
    """Fields of a record, or statistics, that have this symbol, where the same letter has other
    meanings too."""


TERMS = tuple(Term(**row) for row in rows(FOLDER / "terms.toml", "term"))


def marks() -> dict[str, int]:
    """Symbols that a text may hold as words of their own, to the place of their row in `TERMS`; the
    longest first.

    Raises:
        ValueError: two rows claim the same.
    """
    places: dict[str, int] = {}
    for place, row in enumerate(TERMS):
        for mark in (row.symbol,) if row.marks is None else row.marks:
            if places.setdefault(mark, place) != place:
                raise ValueError(
                    f"{mark!r} is a mark of {TERMS[places[mark]].name} and of {row.name}"
                )
    return dict(sorted(places.items(), key=lambda item: -len(item[0])))


def term_of(field: str, symbol: str) -> int:
    """Place in `TERMS` of a field's symbol; −1 where it has none."""
    named = [
        place
        for place, row in enumerate(TERMS)
        if symbol and field in row.fields and row.symbol in symbol
    ]
    return named[0] if named else marks().get(symbol, -1)


# The lessons.


class Lesson(NamedTuple):
    """One lesson; the keys of a table of `lessons.toml`."""

    notebook: str
    title: str
    question: str
    minutes: int = 0
    essay: str = ""
    chinese: str = ""
    needs: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """The lesson's number, which its notebook's name begins with."""
        return int(self.name[:2])

    @property
    def name(self) -> str:
        """The notebook's name without its folder; rows of terms and charts refer to a lesson by
        it."""
        return self.notebook.rpartition("/")[2]

    @property
    def file(self) -> str:
        """The notebook's address, relative to the page's: the same in Voilà, in JupyterLab and in a
        folder."""
        return f"{self.notebook}.ipynb"

    @property
    def chinese_file(self) -> str:
        """The address of its translation; empty where there is none."""
        folder, _, name = self.file.rpartition("/")
        return f"{folder}/zh/{name}" if self.chinese else ""


ROWS = tuple(Lesson(**row) for row in rows(FOLDER / "lessons.toml", "lesson"))
LESSONS: Mapping[str, Lesson] = MappingProxyType({row.name: row for row in ROWS})


# The papers that rows name by author and year: entries, and their numbers at arXiv.


HOSTS: Mapping[str, str] = MappingProxyType(
    {
        "arXiv": "https://arxiv.org/abs/",
        "kexue": "https://kexue.fm/archives/",
    }
)
"""Addresses of papers and essays, before their number: only links, which nothing loads by
itself."""
ENTRY, FIELD = (
    re.compile(r"@misc\{([a-z0-9-]+),\n((?:  .+\n)+)\}"),
    re.compile(r"  (\w+) = \{(.*)\},\n"),
)


class Paper(NamedTuple):
    """One entry of `papers.bib`."""

    key: str
    fields: Mapping[str, str]
    """The fields of the entry, with BibTeX's escapes."""


def _papers() -> Mapping[str, Paper]:
    """Each paper by the words that name it: author and year, and a name before them where two
    papers share both."""
    papers: dict[str, Paper] = {}
    for key, body in ENTRY.findall((FOLDER / "papers.bib").read_text(encoding="utf-8")):
        fields = dict(FIELD.findall(body))
        names = fields.pop("names").split("; ")
        papers |= dict.fromkeys(names, Paper(key, MappingProxyType(fields)))
    return MappingProxyType(papers)


PAPERS = _papers()
_LONGEST_FIRST = sorted(PAPERS, key=len, reverse=True)


def papers_in(source: str) -> list[Paper]:
    """The papers that a source names, in turn, each once."""
    papers: dict[int, Paper] = {}
    for name in _LONGEST_FIRST:
        while name in source:
            papers[source.index(name)] = PAPERS[name]
            source = source.replace(name, " " * len(name), 1)
    return list({paper.key: paper for _, paper in sorted(papers.items())}.values())


def cited(source: str) -> str:
    """A source with the numbers of its papers: 'Xiong et al. 2020, arXiv 2002.04745'."""
    return ";".join(map(_numbered, source.split(";")))


def _numbered(part: str) -> str:
    key = next((key for key in _LONGEST_FIRST if key in part), "")
    if not key or "arXiv" in part or "eprint" not in PAPERS[key].fields:
        return part
    before, _, after = part.partition(key)
    return f"{before}{key}, arXiv {PAPERS[key].fields['eprint']}{after}"
