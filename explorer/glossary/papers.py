"""The papers that rows name by author and year: the entries of `papers.bib`, and their numbers at arXiv."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

HOSTS: Mapping[str, str] = MappingProxyType({
    "arXiv": "https://arxiv.org/abs/", "kexue": "https://kexue.fm/archives/",
})
"""Addresses of papers and essays, before their number: only links, which nothing loads by itself."""
ENTRY, FIELD = re.compile(r"@misc\{([a-z0-9-]+),\n((?:  .+\n)+)\}"), re.compile(r"  (\w+) = \{(.*)\},\n")


class Paper(NamedTuple):
    """One entry of `papers.bib`."""

    key: str
    fields: Mapping[str, str]
    """The fields of the entry, with BibTeX's escapes."""


def _papers() -> Mapping[str, Paper]:
    """Each paper by the words that name it: author and year, and a name before them where two papers share both."""
    papers: dict[str, Paper] = {}
    for key, body in ENTRY.findall(Path(__file__).with_name("papers.bib").read_text(encoding="utf-8")):
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
