"""Sources as BibTeX: this tool, and the papers behind a design's choices, as `papers.bib` has
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from explorer.choices import Choices
from explorer.config import Config, matching
from explorer.glossary import Paper, papers_in
from explorer.schemes.preset import PRESETS

TOOL = "transformer-signal-explorer"
TITLE = "Transformer Signal Explorer"
AUTHORS = "The Transformer Signal Explorer authors"
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def bibliography(*records: Choices, sources: Sequence[str] = (), year: int | None = None) -> str:
    """Entries for this tool and for the papers that records use; each once, with its uses as a
    note.

    Args:
        records: designs, recipes, settings: the row of every choice that matters in them.
        sources: more of them, as rows have them.
        year: in which this tool was used.
    """
    papers: dict[str, Paper] = {}
    notes: dict[str, dict[str, None]] = {}
    rows = [
        *((source, "") for source in sources),
        *(row for record in records for row in cited(record)),
    ]
    for source, where in rows:
        for part in map(str.strip, source.split(";")):
            for paper in papers_in(part):
                papers.setdefault(paper.key, paper)
                notes.setdefault(paper.key, {})[f"{where}: {part}" if where else part] = None
    return "\n".join(
        [
            tool(year),
            *(
                entry(key, {**paper.fields, "note": escaped("; ".join(notes[key]))})
                for key, paper in papers.items()
            ),
        ]
    )


def tool(year: int | None = None) -> str:
    """The entry of this tool, in the version that is installed."""
    used = f", used in {year}" if year else ""
    authors = f"{{{escaped(AUTHORS)}}}"  # in braces of its own, or BibTeX takes the last word for a family's name
    return entry(
        TOOL,
        {
            "author": authors,
            "title": f"{{{escaped(TITLE)}}}",
            **({"year": str(year)} if year else {}),
            "note": f"Version {escaped(version(TOOL))}{used}",
        },
    )


def cited(record: Choices) -> Iterator[tuple[str, str]]:
    """Source and place of the rows that a record uses; those of fields that do not matter in it are
    left out.

    A design that is a named one, whatever its size, has that row's, too.
    """
    if isinstance(record, Config) and (name := matching(record)):
        yield PRESETS[name].source, f"Design {PRESETS[name].title}"
    for name, spec in type(record).specs().items():
        value = getattr(record, name)
        if (
            record.matters(name)
            and value in spec.about.options
            and (source := spec.about.options[value].source)
        ):
            yield source, f"{name} = {value}"


def entry(key: str, fields: Mapping[str, str]) -> str:
    """One entry; the values are escaped already."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}", ""])


def escaped(text: str) -> str:
    """A text as BibTeX has it: signs that TeX reads are escaped; letters stay, in UTF-8."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)
