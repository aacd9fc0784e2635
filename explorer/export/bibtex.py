"""Sources as BibTeX: this tool, and the papers that the rows of what a design uses name.

A row says author and year; the glossary has numbers at arXiv and titles, as far as they are known. What a row calls by
no author is a note.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import users
from explorer.glossary.papers import HOSTS, TITLES
from explorer.glossary.papers import cited as numbered
from explorer.schemes.preset import PRESETS

TOOL = "transformer-signal-explorer"
TITLE = "Transformer Signal Explorer"
WHO = r"[A-Z][\w.'’-]*(?: (?:[A-Z][\w.'’-]*|\d))*"
SOURCE = re.compile(rf"(?<!\w)(?P<who>{WHO}(?: (?:et al\.|& {WHO}))?) (?P<year>(?:19|20)\d\d)(?!\.?\w)")
NUMBER = re.compile(rf"\b({'|'.join(HOSTS)}) ([\d.]*\d)")
PERSON = re.compile(r"[A-Z][a-zà-ÿ'’-]+|[A-Z][a-z]+[A-Z][a-z]+")
"""A surname; teams and names of several words stand in braces, and a model's name alone is no author."""
ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v ", "\u0327": "c "}
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
           **{sign: f"\\{sign}" for sign in "&%$#_{}"}}


@dataclass
class Paper:
    """One source, from all rows that name it."""

    who: str
    year: str
    host: str
    """Of `HOSTS`, and the next its number there; empty where the paper has none."""
    number: str
    label: str
    """The name of its design, where rows say one: two papers of one year and author differ in it."""
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> tuple[str, ...]:
        """Title, and perhaps the venue; nothing where they are not known."""
        return TITLES.get(self.number) or TITLES.get(f"{self.who} {self.year}") or ()

    def is_that(self, other: Paper) -> bool:
        """Whether another row names the same one, as far as the rows say."""
        if self.number and other.number:
            return self.number == other.number
        if self.title and other.title:
            return self.title == other.title
        alike = (self.who, self.year) == (other.who, other.year)
        return alike and (self.label == other.label or not self.label or not other.label)


def bibliography(*records: Choices, sources: Sequence[str] = (), year: int | None = None) -> str:
    """Entries for this tool and for the sources of what some records use; each source once, by author and year.

    Args:
        records: designs, recipes, settings: the row of every choice that matters in them.
        sources: more of them, as rows have them, such as a lab's.
        year: in which this tool was used.
    """
    papers: list[Paper] = []
    rows = [*((source, "") for source in sources), *(row for one in records for row in cited(one))]
    for source, where in rows:
        for read_paper in read(source):
            paper = next((one for one in papers if one.is_that(read_paper)), read_paper)
            if paper is read_paper:
                papers.append(paper)
            paper.label = paper.label or read_paper.label
            paper.host, paper.number = (paper.host, paper.number) if paper.number else (
                read_paper.host, read_paper.number)
            notes = [f"{where}: {note}" if where else note for note in read_paper.notes]
            paper.notes = list(dict.fromkeys([*(paper.notes if paper is not read_paper else []), *notes]))
    keys: dict[str, int] = {}
    return "\n".join([tool(year), *(entry(_key(paper, keys), _fields(paper)) for paper in papers)])


def tool(year: int | None = None) -> str:
    """The entry of this tool, in the version that is installed."""
    used = f", used in {year}" if year else ""
    return entry(TOOL, {"title": f"{{{escaped(TITLE)}}}", **({"year": str(year)} if year else {}),
                        "note": f"Version {escaped(version(TOOL))}{used}"})


def cited(record: Choices) -> Iterator[tuple[str, str]]:
    """Source and place of the rows that a record uses; those of fields that do not matter in it are left out.

    A design that is a named one, whatever its size, has that row's, too.
    """
    specs = type(record).specs()
    if isinstance(record, Config):
        for row in PRESETS.values():
            if row.changes and all(getattr(record, name) == value for name, value in row.changes.items()):
                yield row.source, f"Design {row.title}"
    for name, spec in specs.items():
        value = getattr(record, name)
        needed = users(specs, name)
        matters = not needed or any(_uses(getattr(record, other), values) for other, values in needed.items())
        if matters and value in spec.about.options and (source := spec.about.options[value].source):
            yield source, f"{name} = {value}"


def _uses(value: object, values: tuple[str | bool, ...]) -> bool:
    return value in values if isinstance(value, str | bool) else (value != 0) in values


def read(source: str) -> Iterator[Paper]:
    """The sources in a row's text; what has no name and year is none."""
    for part in source.split(";"):
        words = part.strip()
        found = list(SOURCE.finditer(words))
        for place, one in enumerate(found):
            end = found[place + 1].start() if place + 1 < len(found) else len(words)
            number = NUMBER.search(numbered(words[one.start() if place else 0 : end]))
            host, digits = (number[1], number[2]) if number else ("", "")
            label = words[: one.start()].strip()
            yield Paper(one["who"], one["year"], host, digits, label if label.endswith(":") else "", [words])


def _fields(paper: Paper) -> dict[str, str]:
    several = paper.who.endswith(" et al.") or " & " in paper.who
    names = paper.who.removesuffix(" et al.").split(" & ")
    persons = several or (" " in paper.who and not paper.who[-1].isdigit()) or PERSON.fullmatch(paper.who)
    written = [name if PERSON.fullmatch(name) else f"{{{name}}}" for name in names]
    author = " and ".join([*written, *(["others"] if paper.who.endswith("et al.") else [])])
    title, *venue = paper.title or ("",)
    url = {"url": f"{HOSTS[paper.host]}{paper.number}"} if paper.number else {}
    arxiv = {"eprint": paper.number, "archivePrefix": "arXiv"} if paper.host == "arXiv" else {}
    return {**({"author": escaped(author, keep="{}")} if persons else {"key": escaped(paper.who)}),
            **({"title": f"{{{escaped(title)}}}"} if title else {}), "year": paper.year,
            **({"howpublished": escaped(venue[0])} if venue else {}), **arxiv, **url,
            "note": escaped("; ".join(paper.notes))}


def _key(paper: Paper, keys: dict[str, int]) -> str:
    """Author and year in plain letters, with a number where two would be alike."""
    letters = unicodedata.normalize("NFKD", paper.who.partition(" et al.")[0].partition(" & ")[0])
    key = re.sub("[^a-z0-9]", "", letters.encode("ascii", "ignore").decode().lower()) + paper.year
    keys[key] = keys.get(key, 0) + 1
    return key if keys[key] == 1 else f"{key}-{keys[key]}"


def entry(key: str, fields: Mapping[str, str]) -> str:
    """One entry; the values are escaped already."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}", ""])


def escaped(text: str, keep: str = "") -> str:
    """A text as BibTeX has it: signs that TeX reads are escaped, accents are TeX's; other letters stay, in UTF-8."""
    return "".join(_letter(letter, keep) for letter in text)


def _letter(letter: str, keep: str) -> str:
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if len(marks) == 1 and marks[0] in ACCENTS and base.isascii():
        return f"{{\\{ACCENTS[marks[0]]}{base}}}"
    return letter if letter in keep else SPECIAL.get(letter, letter)
