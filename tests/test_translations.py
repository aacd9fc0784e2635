"""The lessons' translations: complete, of the text as it stands, with the same formulas, numbers,
code and links."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from babel.messages.catalog import Message

from benchmarks.lessons import CATALOGUES, FOLDER, LESSONS, catalogue, extract, translated

KEPT = re.compile(r"\$[^$]+\$|`[^`]+`|\]\([^)]+\)|(?<![\w.])\.?\d+(?:[.,]\d+)*")
"""What a translation takes over as it is: formulas, code, targets of links, numbers."""
CHINESE = re.compile(r"[\u4e00-\u9fff]")
NAMED = {path.stem: path for path in LESSONS}
PAGES = {name: f"notebooks/lessons/{name}" for name in NAMED} | {"index": "docs/index"}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the messages of all lessons as they stand."""
    folder = tmp_path_factory.mktemp("templates")
    extract(folder)
    return folder


def messages(path: Path) -> list[Message]:
    """The messages of a catalogue, without its head."""
    return [message for message in catalogue(path) if message.id]


def kept(text: str) -> Counter[str]:
    """What a translation must take over from a text."""
    return Counter("".join(part.split()) for part in KEPT.findall(text))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_each_paragraph_of_a_lesson_is_translated(page: str, templates: Path) -> None:
    translations = messages(CATALOGUES / f"{page}.po")
    assert [message.id for message in translations] == [
        message.id for message in messages(templates / f"{page}.pot")
    ]
    assert [message.id for message in translations if message.fuzzy or not message.string] == []


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_translation_keeps_formulas_numbers_code_and_links(page: str) -> None:
    for message in messages(CATALOGUES / f"{page}.po"):
        assert kept(message.string) == kept(message.id), message.id
        words = re.sub(r"\$[^$]+\$|`[^`]+`|\([^)]+\)", "", message.id)
        if len(re.findall(r"(?<!\\)\b[a-z]{3,}\b", words)) > 4 and "\\" not in words:
            assert CHINESE.search(message.string), message.id


@pytest.mark.parametrize("name", NAMED)
def test_the_translated_notebook_is_written_from_its_catalogue(name: str) -> None:
    stored = nbformat.read(NAMED[name].parent / FOLDER / f"{name}.ipynb", as_version=4)
    assert stored == translated(NAMED[name])
