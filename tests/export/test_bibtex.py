"""Valid BibTeX, read by a parser of its own, that says no more than the rows it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from explorer.config import Config, preset
from explorer.export.bibtex import bibliography, escaped, read
from explorer.glossary.papers import PAPERS, TITLES
from explorer.labs.table import LABS
from explorer.schemes.preset import PRESETS
from explorer.training.recipe import OPTIMIZERS, Recipe

Entry = tuple[str, dict[str, str]]
UNESCAPED = re.compile(r"(?<!\\)[&%$#_~^]")
NUMBER = re.compile(r"\d{4}\.\d{5}")


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


def test_every_design_lab_and_recipe_gives_valid_entries() -> None:
    records = [preset(name) for name in PRESETS]
    recipes = [Recipe(optimizer=name) for name in OPTIMIZERS]
    sources = [row.source for row in LABS.values()]
    stated = " ".join([*sources, *(row.source for row in PRESETS.values())])
    for text in (*map(bibliography, records), bibliography(*records, *recipes, sources=sources)):
        found = entries(text)
        tool = found.pop("transformer-signal-explorer")
        assert tool == {"title": "{Transformer Signal Explorer}",
                        "note": f"Version {version('transformer-signal-explorer')}"}
        assert not [key for key in found if key.startswith(("xiv", "arxiv"))]
        for fields in found.values():
            assert fields.keys() <= {"author", "key", "title", "year", "howpublished", "eprint", "archivePrefix", "url",
                                     "note"}
            assert "howpublished" not in fields or "title" in fields
            assert ("author" in fields) != ("key" in fields)
            assert re.fullmatch(r"(19|20)\d\d", fields["year"])
            assert fields["year"] in fields["note"]
            assert ("eprint" in fields) == ("archivePrefix" in fields)
            assert "eprint" not in fields or fields["eprint"] in stated or fields["eprint"] in PAPERS.values()
            for value in (value for name, value in fields.items() if name != "url"):
                assert not UNESCAPED.search(value)
            assert "eprint" not in fields or fields["url"] == f"https://arxiv.org/abs/{fields['eprint']}"
        titles = [fields["title"] for fields in found.values() if "title" in fields]
        assert len({*titles}) == len(titles), "each paper once"
        assert len(titles) > 0.85 * len(found) or len(found) - len(titles) == 1


def test_each_number_at_arxiv_is_of_the_author_before_it() -> None:
    source = "Essay: Su Jianlin 2022, kexue 8994, after Wang et al. 2022, arXiv 2203.00555"
    found = entries(bibliography(sources=[source, "PaLM 2022; OLMo 2 2025, eq. 1"], year=2026))
    assert found["transformer-signal-explorer"]["year"] == "2026"
    assert "eprint" not in found["sujianlin2022"]
    assert found["sujianlin2022"]["url"] == "https://kexue.fm/archives/8994"
    assert found["sujianlin2022"]["author"] == "{Su Jianlin}"
    assert found["wang2022"] | {"note": ""} == {
        "author": "Wang and others", "title": "{DeepNet: Scaling Transformers to 1,000 Layers}", "year": "2022",
        "eprint": "2203.00555", "archivePrefix": "arXiv", "url": "https://arxiv.org/abs/2203.00555", "note": ""}
    assert set(found) == {"transformer-signal-explorer", "sujianlin2022", "wang2022", "palm2022", "olmo22025"}
    assert found["palm2022"]["key"] == "PaLM"
    assert found["olmo22025"]["key"] == "OLMo 2"


def test_a_source_comes_once_and_says_where_it_is_used() -> None:
    found = entries(bibliography(Config(norm_placement="post")))
    assert found["vaswani2017"]["note"].startswith("Design Post-LN: Vaswani et al. 2017; ")
    assert r"attention\_scale = sqrt\_d: Vaswani et al. 2017" in found["vaswani2017"]["note"]


def test_papers_of_one_author_and_year_are_not_taken_for_each_other() -> None:
    sources = ["He et al. 2015, arXiv 1502.01852", "He et al. 2015", "DeepNet: Wang et al. 2022",
               "Magneto: Wang et al. 2022, section 3", "Wang et al. 2022, figure 2"]
    found = entries(bibliography(sources=sources))
    assert found["he2015"]["eprint"] == "1502.01852"
    assert found["he2015-2"]["eprint"] == "1512.03385"
    assert found["wang2022"]["note"] == "DeepNet: Wang et al. 2022; Wang et al. 2022, figure 2"
    assert found["wang2022-2"]["note"] == "Magneto: Wang et al. 2022, section 3"


def test_entries_have_title_venue_and_address_where_they_are_known() -> None:
    found = entries(bibliography(Config(norm_placement="post"), sources=["Nair & Hinton 2010", "Nobody 1999"]))
    assert found["vaswani2017"] | {"note": ""} == {
        "author": "Vaswani and others", "title": "{Attention Is All You Need}", "year": "2017",
        "howpublished": "NeurIPS 2017", "eprint": "1706.03762", "archivePrefix": "arXiv",
        "url": "https://arxiv.org/abs/1706.03762", "note": ""}
    assert found["nair2010"]["title"] == "{Rectified Linear Units Improve Restricted Boltzmann Machines}"
    assert "url" not in found["nair2010"]
    assert found["nobody1999"].keys() == {"author", "year", "note"}


def test_one_paper_that_rows_name_in_two_ways_is_one_entry() -> None:
    pairs = [("Raffel 2019, arXiv 1910.10683", "Raffel et al. 2020"),
             ("PaLM 2022", "Chowdhery et al. 2022, section 2"), ("Kingma & Ba 2014", "Kingma & Ba 2015"),
             ("HybridNorm: Zhuo et al. 2025", "HybridNorm*: Zhuo et al. 2025")]
    for pair in pairs:
        for sources in (pair, pair[::-1]):
            assert len(entries(bibliography(sources=sources))) == 2, sources


def test_every_title_is_of_a_source_that_rows_name() -> None:
    options = [option.source for record in (Config, Recipe, *(row.settings for row in LABS.values()))
               for spec in record.specs().values() for option in spec.about.options.values()]
    sources = [*options, *(row.source for row in (*PRESETS.values(), *LABS.values()))]
    named = {name for source in sources for one in read(source) for name in (one.number, f"{one.who} {one.year}")}
    assert {*TITLES} <= named


def test_rows_that_do_not_matter_are_not_cited() -> None:
    assert "ba2016" in entries(bibliography(Config(norm="layer")))
    assert "ba2016" not in entries(bibliography(preset("rezero", norm="layer")))


@pytest.mark.parametrize(("text", "written"), [
    ("Hägele & Çö", r'H{\"a}gele \& {\c C}{\"o}'), ("50 % of $x_1^2 #{a}~\\", None), ("φ ≠ ½ √d", "φ ≠ ½ √d"),
])
def test_signs_are_escaped(text: str, written: str | None) -> None:
    assert not UNESCAPED.search(escaped(text))
    assert written is None or escaped(text) == written
    assert escaped("\\{}") == r"\textbackslash{}\{\}"
