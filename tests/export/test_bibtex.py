"""Valid BibTeX, read by a parser of its own, that says no more than the rows it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from explorer.config import Config, preset
from explorer.export.bibtex import bibliography, escaped
from explorer.figures.why import WHYS
from explorer.glossary import FOLDER, PAPERS, ROWS, TERMS, papers_in
from explorer.schemes.preset import PRESETS
from explorer_race.recipe import OPTIMIZERS, Recipe

Entry = tuple[str, dict[str, str]]
UNESCAPED = re.compile(r"(?<!\\)[&%$#_~^]")
YEAR = re.compile(r"\b(?:19|20)\d\d\b(?!\.)")


def entries(text: str) -> dict[str, dict[str, str]]:
    """Fields by key; strict: what is no entry, or a key that comes again, is an error."""
    found = list(_entries(text))
    keys = [key for key, _ in found]
    assert len(set(keys)) == len(keys)
    return dict(found)


def _entries(text: str) -> Iterator[Entry]:
    at = 0
    while at < len(text):
        head = re.compile(r"@misc\{([a-z0-9-]+),\n").match(text, at)
        assert head, text[at : at + 80]
        at, fields = head.end(), {}
        while field := re.compile(r"  (\w+) = \{").match(text, at):
            start = at = field.end()
            depth = 1
            while depth:
                sign = text[at]
                at += 2 if sign == "\\" else 1
                depth += (sign == "{") - (sign == "}")
            fields[field[1]] = text[start : at - 1]
            assert text[at : at + 2] == ",\n"
            at += 2
        tail = re.compile(r"\}\n\n?").match(text, at)
        assert tail, text[at : at + 80]
        at = tail.end()
        yield head[1], fields


def test_every_design_lesson_and_recipe_gives_valid_entries() -> None:
    records = [preset(name) for name in PRESETS]
    recipes = [Recipe(optimizer=name) for name in OPTIMIZERS]
    sources = [row.essay for row in ROWS]
    for text in (*map(bibliography, records), bibliography(*records, *recipes, sources=sources)):
        found = entries(text)
        tool = found.pop("transformer-signal-explorer")
        assert tool == {
            "author": "{The Transformer Signal Explorer authors}",
            "title": "{Transformer Signal Explorer}",
            "note": f"Version {version('transformer-signal-explorer')}",
        }
        for fields in found.values():
            assert fields["note"]
            assert not any(
                UNESCAPED.search(value) for name, value in fields.items() if name != "url"
            )
        assert len({fields.get("title") for fields in found.values()}) == len(found), (
            "each paper once"
        )


BARE = {"cohere2024"}
"""Entries without a title: a model that no paper describes."""


def test_every_entry_says_who_when_what_and_where() -> None:
    stored = (FOLDER / "papers.bib").read_text(encoding="utf-8")
    found = entries(stored.partition("\n\n")[2])
    assert found.keys() == {paper.key for paper in PAPERS.values()}
    assert {key for key, fields in found.items() if "title" not in fields} == BARE
    for key, fields in found.items():
        assert fields.keys() <= {
            "names",
            "author",
            "title",
            "year",
            "howpublished",
            "eprint",
            "archivePrefix",
            "url",
        }
        assert re.fullmatch(r"(19|20)\d\d", fields["year"])
        assert fields["author"].isascii()
        assert "title" not in fields or re.fullmatch(r"\{.+\}", fields["title"])
        assert ("eprint" in fields) == ("archivePrefix" in fields)
        assert (
            "eprint" not in fields or fields["url"] == f"https://arxiv.org/abs/{fields['eprint']}"
        )
        first = re.sub(r"\\\W|[^a-z]", "", fields["author"].partition(" and ")[0].lower())
        assert re.split(r"\d", key)[0] in first, key
    assert len({fields["eprint"] for fields in found.values() if "eprint" in fields}) == sum(
        "eprint" in fields for fields in found.values()
    )


def test_every_paper_that_a_row_cites_has_an_entry_and_every_entry_is_cited() -> None:
    options = [
        option.source
        for record in (Config, Recipe)
        for spec in record.specs().values()
        for option in spec.about.options.values()
    ]
    rows = (*PRESETS.values(), *TERMS, *WHYS.values())
    sources = (*options, *(row.source for row in rows), *(row.essay for row in ROWS))
    parts = {part.strip() for source in sources for part in source.split(";")}
    assert not [part for part in parts if len(papers_in(part)) != len(YEAR.findall(part))]
    assert {paper.key for part in parts for paper in papers_in(part)} == {
        paper.key for paper in PAPERS.values()
    }


def test_each_number_is_of_the_paper_before_it() -> None:
    source = "Essay: Su Jianlin 2022, kexue 8994, after Wang et al. 2022, arXiv 2203.00555"
    found = entries(
        bibliography(sources=[source, "PaLM 2022; OLMo 2 2025, eq. 1; a variant"], year=2026)
    )
    assert list(found) == [
        "transformer-signal-explorer",
        "sujianlin2022",
        "wang2022",
        "chowdhery2022",
        "olmo2024",
    ]
    assert found["transformer-signal-explorer"]["year"] == "2026"
    assert found["sujianlin2022"] == {
        "author": "{Su Jianlin}",
        "title": "{Why residuals? A view from DeepNet}",
        "year": "2022",
        "url": "https://kexue.fm/archives/8994",
        "note": source,
    }
    assert found["wang2022"]["eprint"] == "2203.00555"


def test_a_source_comes_once_and_says_where_it_is_used() -> None:
    found = entries(bibliography(Config(norm_placement="post")))
    assert found["vaswani2017"]["note"].startswith("Design Post-LN: Vaswani et al. 2017; ")
    assert r"attention\_scale = sqrt\_d: Vaswani et al. 2017" in found["vaswani2017"]["note"]


def test_papers_of_one_author_and_year_are_not_taken_for_each_other() -> None:
    sources = [
        "He et al. 2015, arXiv 1502.01852",
        "He et al. 2015",
        "DeepNet: Wang et al. 2022",
        "SubLN, in Magneto: Wang et al. 2022, section 3",
        "He et al. 2015, eq. 10",
    ]
    found = entries(bibliography(sources=sources))
    assert (found["he2015"]["eprint"], found["he2015"]["note"]) == ("1512.03385", "He et al. 2015")
    assert found["he2015-2"]["note"] == "He et al. 2015, arXiv 1502.01852; He et al. 2015, eq. 10"
    assert found["wang2022"]["note"] == "DeepNet: Wang et al. 2022"
    assert found["wang2022-2"]["title"] == "{Foundation Transformers}"


def test_an_entry_has_authors_title_venue_and_address() -> None:
    (_, found) = entries(bibliography(sources=["Kingma & Ba 2014"])).values()
    assert found == {
        "author": "Diederik P. Kingma and Jimmy Ba",
        "title": "{Adam: A Method for Stochastic Optimization}",
        "year": "2014",
        "howpublished": "ICLR 2015",
        "eprint": "1412.6980",
        "archivePrefix": "arXiv",
        "url": "https://arxiv.org/abs/1412.6980",
        "note": r"Kingma \& Ba 2014",
    }


def test_one_paper_that_rows_name_in_two_ways_is_one_entry() -> None:
    pairs = [
        ("Raffel 2019, arXiv 1910.10683", "Raffel et al. 2020"),
        ("PaLM 2022", "Chowdhery et al. 2022, section 2"),
        ("Kingma & Ba 2014", "Kingma & Ba 2015"),
        ("HybridNorm: Zhuo et al. 2025", "HybridNorm*: Zhuo et al. 2025"),
    ]
    for pair in pairs:
        for sources in (pair, pair[::-1]):
            assert len(entries(bibliography(sources=sources))) == 2, sources


def test_rows_that_do_not_matter_are_not_cited() -> None:
    assert "ba2016" in entries(bibliography(Config(norm="layer")))
    assert "ba2016" not in entries(bibliography(preset("rezero", norm="layer")))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Hägele & Çö", r"Hägele \& Çö"),
        ("50 % of $x_1^2 #{a}~\\", None),
        ("φ ≠ ½ √d", "φ ≠ ½ √d"),
    ],
)
def test_signs_are_escaped(text: str, written: str | None) -> None:
    assert not UNESCAPED.search(escaped(text))
    assert written is None or escaped(text) == written
    assert escaped("\\{}") == r"\textbackslash{}\{\}"
