"""Valid BibTeX, read by a parser of its own, that says no more than the rows it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from explorer.config import Config, preset
from explorer.export.bibtex import bibliography, escaped
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
            assert fields.keys() <= {"author", "key", "year", "eprint", "archivePrefix", "note"}
            assert ("author" in fields) != ("key" in fields)
            assert re.fullmatch(r"(19|20)\d\d", fields["year"])
            assert fields["year"] in fields["note"]
            assert ("eprint" in fields) == ("archivePrefix" in fields)
            assert "eprint" not in fields or fields["eprint"] in stated
            for value in fields.values():
                assert not UNESCAPED.search(value)


def test_each_number_at_arxiv_is_of_the_author_before_it() -> None:
    source = "Essay: Su Jianlin 2022, kexue 8994, after Wang et al. 2022, arXiv 2203.00555"
    found = entries(bibliography(sources=[source, "PaLM 2022; OLMo 2 2025, eq. 1"], year=2026))
    assert found["transformer-signal-explorer"]["year"] == "2026"
    assert "eprint" not in found["sujianlin2022"]
    assert found["sujianlin2022"]["author"] == "{Su Jianlin}"
    assert found["wang2022"] | {"note": ""} == {
        "author": "Wang and others", "year": "2022", "eprint": "2203.00555", "archivePrefix": "arXiv", "note": ""}
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
    assert "eprint" not in found["he2015-2"]
    assert found["wang2022"]["note"] == "DeepNet: Wang et al. 2022; Wang et al. 2022, figure 2"
    assert found["wang2022-2"]["note"] == "Magneto: Wang et al. 2022, section 3"


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
