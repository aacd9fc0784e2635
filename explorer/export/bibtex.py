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
    rows = [(source, "") for source in sources]
    for record in records:
        rows += cited(record)
    papers: dict[str, Paper] = {}
    notes: dict[str, dict[str, None]] = {}  # each once, in turn
    for source, where in rows:
        for part in map(str.strip, source.split(";")):
            note = f"{where}: {part}" if where else part
            for paper in papers_in(part):
                papers[paper.key] = paper
                notes.setdefault(paper.key, {})[note] = None
    entries = [tool(year)]
    for key, paper in papers.items():
        note = escaped("; ".join(notes[key]))
        entries.append(entry(key, {**paper.fields, "note": note}))
    return "\n".join(entries)


def tool(year: int | None = None) -> str:
    """The entry of this tool, in the version that is installed."""
    # in braces of its own, or BibTeX takes the last word for a family's name
    fields = {"author": f"{{{escaped(AUTHORS)}}}", "title": f"{{{escaped(TITLE)}}}"}
    note = f"Version {escaped(version(TOOL))}"
    if year:
        fields["year"] = str(year)
        note += f", used in {year}"
    return entry(TOOL, {**fields, "note": note})


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
