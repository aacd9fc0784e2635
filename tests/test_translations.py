"""The lessons' translations: complete, of the text as it stands, with the same formulas, numbers,
code and links. Of code the strings and comments are translated; all numbers that come out are
the same."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from babel.messages.catalog import Message

from benchmarks import code_texts
from benchmarks.lessons import (
    CATALOGUES,
    FOLDER,
    LESSONS,
    catalogue,
    code_catalogue,
    code_cells,
    code_messages,
    extract,
    output_numbers,
    translated,
)

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


SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,} ")
"""Three English words."""
PRESETS = re.compile(r'"[a-z0-9_]+( [a-z0-9_]+)+"')
"""Names of presets in a row."""


@pytest.mark.parametrize("name", NAMED)
def test_each_text_of_a_lessons_code_is_translated(name: str) -> None:
    translations = messages(code_catalogue(NAMED[name]))
    assert [message.id for message in translations] == [
        message.id for message in code_messages(NAMED[name]) if message.id
    ], "run `python -m benchmarks.lessons --translate`, and translate what is new"
    assert [message.id for message in translations if message.fuzzy or not message.string] == []
    for message in translations:
        assert code_texts.kept(message.string) == code_texts.kept(message.id), message.id
        if SENTENCE.search(message.id) and not PRESETS.fullmatch(message.id):
            assert CHINESE.search(message.string), message.id


@pytest.mark.parametrize("name", NAMED)
def test_the_translated_notebook_is_written_from_its_catalogues(name: str) -> None:
    english = code_cells(nbformat.read(NAMED[name], as_version=4))
    expected = translated(NAMED[name])
    stored = nbformat.read(NAMED[name].parent / FOLDER / f"{name}.ipynb", as_version=4)
    for cell, original in zip(code_cells(stored), english, strict=True):
        assert output_numbers(cell) == output_numbers(original), cell.source
        kinds = [(output.output_type, sorted(output.get("data", {}))) for output in cell.outputs]
        assert kinds == [
            (output.output_type, sorted(output.get("data", {}))) for output in original.outputs
        ]
        assert "Not yet" not in str(cell.outputs)
        if SENTENCE.search(str([output.get("text", "") for output in original.outputs])):
            assert CHINESE.search(str(cell.outputs)), cell.source
    for cell in code_cells(stored) + code_cells(expected):
        cell.outputs = []
    assert stored == expected


def test_texts_of_code_are_found_and_replaced() -> None:
    code = 'x = ["the loss", "a", f"{y:.2f} of " "three"]  # what is left\n"""Its words."""\n'
    sources = [text.source for text in code_texts.texts(code)]
    assert sources == ['"the loss"', 'f"{y:.2f} of " "three"', "# what is left", '"""Its words."""']
    chinese = code_texts.replaced("# é → 损失\nloss(name='the loss')", {"'the loss'": "'损失'"})
    assert chinese == "# é → 损失\nloss(name='损失')"


def test_what_a_text_of_code_loses_is_seen() -> None:
    english = "f\"{'with' if x else 'no':4} 12 rows {y:.2f}\""
    assert code_texts.kept(english) == code_texts.kept("f\"{y:.2f} 12 行 {'有' if x else '无':4}\"")
    assert code_texts.kept(english) != code_texts.kept("f\"{y:.1f} 12 行 {'有' if x else '无':4}\"")
    assert code_texts.kept(english) != code_texts.kept("f\"{y:.2f} 13 行 {'有' if x else '无':4}\"")
    assert code_texts.kept("# 3 runs") == code_texts.kept("# 3 次") != code_texts.kept("# 次")
