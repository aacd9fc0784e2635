"""The page's notebooks are thin: what they do is done by the package, where it is tested. Lessons are not: their code
is what is learned, in short cells. The outputs of both are nbval's to check."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from explorer.glossary import ROWS
from explorer.lessons.exercises import EXERCISES

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LESSONS = sorted((NOTEBOOKS[0].parent / "lessons").glob("*.ipynb"))
MAX_LINES, MAX_LESSON_LINES = 5, 15
MOST_BYTES = 400_000
SECTIONS = ("Break it", "Derive it", "Check it against theory", "Vary it live", "Where the popular version is wrong",
            "Exercises", "In a whole Transformer")
"""Of every lesson, in this order."""
THICK = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
    ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.If, ast.IfExp, ast.Match, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Raise, ast.Assert,
)
"""Syntax that belongs in the package: definitions, loops, branches."""


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return found


def thickness(source: str) -> list[str]:
    """What a code cell does beyond imports and short calls; empty when it is thin."""
    tree = ast.parse(source)
    faults = [f"{type(node).__name__} in line {node.lineno}" for node in ast.walk(tree) if isinstance(node, THICK)]
    lines = [line for line in source.splitlines() if line.strip()]
    if len(lines) > MAX_LINES:
        faults.append(f"{len(lines)} lines, at most {MAX_LINES} are thin")
    return faults


def test_there_are_notebooks() -> None:
    assert "explorer.ipynb" in [notebook.name for notebook in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_thin(notebook: Path) -> None:
    for cell in cells(notebook):
        if cell["cell_type"] == "code":
            assert not thickness("".join(cell["source"])), f"cell {cell['id']} of {notebook.name}"


@pytest.mark.parametrize("notebook", [*NOTEBOOKS, *LESSONS], ids=lambda path: path.name)
def test_notebook_was_run_from_top_to_bottom(notebook: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), "nbval compares nothing where a cell was never run"


def sources(notebook: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == kind]


def test_there_are_lessons() -> None:
    assert {"01_drawing_weights", "02_second_moment"} <= {lesson.stem for lesson in LESSONS}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name)
def test_a_lesson_has_its_sections_in_short_cells(lesson: Path) -> None:
    headings = [line for text in sources(lesson, "markdown") for line in text.splitlines() if line.startswith("## ")]
    assert headings == [f"## {number} · {title}" for number, title in enumerate(SECTIONS, start=1)]
    lengths = [sum(bool(line.strip()) for line in source.splitlines()) for source in sources(lesson, "code")]
    assert max(lengths) <= MAX_LESSON_LINES, lengths
    assert sum(text.count("$$") for text in sources(lesson, "markdown")) >= 4, "typeset derivations"
    checks = [line for source in sources(lesson, "code") for line in source.splitlines() if "ex.check(" in line]
    asked = [number for number in EXERCISES if number.startswith(lesson.stem[:2])]
    assert [line.split('"')[1] for line in checks] == asked
    assert len(asked) >= 3


def test_every_lesson_has_a_card_that_says_what_its_head_says() -> None:
    rows = {row.file: row for row in ROWS if row.minutes}
    assert set(rows) == {f"lessons/{lesson.name}" for lesson in LESSONS}
    for lesson in LESSONS:
        row, head = rows[f"lessons/{lesson.name}"], sources(lesson, "markdown")[0]
        assert f"{row.minutes} minutes" in head, lesson.name
        assert row.essay.split()[-1] in head, lesson.name
        assert f"Lesson {int(lesson.name[:2])} · " in head, lesson.name


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name)
def test_a_lesson_is_stored_as_text_and_stills(lesson: Path) -> None:
    """A reader without a kernel sees every figure; of a live one, nbval compares nothing: it is a picture."""
    assert lesson.stat().st_size < MOST_BYTES
    assert "widget" not in lesson.read_text(encoding="utf-8").replace("ex.live", "")
    for cell in cells(lesson):
        is_live = "ex.live(" in "".join(cell["source"])
        assert cell["metadata"].get("tags", []) == (["nbval-ignore-output"] if is_live else []), cell["id"]
        if is_live:
            (still,) = cell["outputs"]
            assert 'src="data:image/svg+xml;base64,' in "".join(still["data"]["text/html"]), cell["id"]
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"
            assert not repr(output.get("data", {}).get("text/plain", "")).count("Right."), "exercises are left to do"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def f():\n    pass", "FunctionDef in line 1"),
        ("a = 1\nfor x in (1, 2):\n    print(x)", "For in line 2"),
        ("[x for x in (1, 2)]", "ListComp in line 1"),
        ("x = 1 if y else 2", "IfExp in line 1"),
        ("a = 1\n" * 6, "6 lines, at most 5 are thin"),
    ],
)
def test_thick_cells_are_recognized(source: str, fault: str) -> None:
    assert thickness(source) == [fault]
