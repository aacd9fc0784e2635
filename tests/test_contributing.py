"""CONTRIBUTING: short, and every file that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import explorer

ROOT = Path(__file__).parents[1]
PACKAGE = Path(explorer.__file__).parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS = (ROOT, PACKAGE, ROOT / "tests" / "browser", PACKAGE / "diagnosis", PACKAGE / "schemes")
"""Where a path may begin, of those that the text gives."""
FILE = re.compile(r"`([\w./]+\.(?:py|js|toml|bib|npz|gz|txt))`")
MOST_WORDS, MOST_FILES = 1500, 30


def move_of_a_slider() -> str:
    """The sentence on the files that a slider's move passes."""
    _, _, section = TEXT.partition("## A slider's move, as one sentence\n\n")
    return section.partition("\n\n")[0]


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= MOST_WORDS


@pytest.mark.parametrize("name", sorted(set(FILE.findall(TEXT))))
def test_each_file_is_there(name: str) -> None:
    assert any((folder / name).is_file() for folder in FOLDERS)


def test_a_slider_s_move_is_one_sentence_from_the_control_to_the_chart() -> None:
    sentence = move_of_a_slider()
    files = FILE.findall(sentence)
    assert re.findall(r"\.(?=\s|$)", sentence) == ["."]
    assert files[0] == "app/widgets/controls.js"
    assert {"measuring/outside.py", "tasks/worker.py", "app/widgets/chart.js"} <= set(files)
    assert len(set(files)) == len(files) <= MOST_FILES
    assert all((PACKAGE / name).is_file() for name in files)
