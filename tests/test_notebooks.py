"""The page's notebooks are thin: what they do is done by the package, where it is tested. Lessons
are not: their code is what is learned, in short cells. The outputs of both are nbval's to check."""

from __future__ import annotations

import ast
import builtins
import json
import re
import symtable
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lessons import EXERCISES as HOW_TO_ANSWER
from benchmarks.lessons import FOLDER, HOW, NAMED, first, way
from explorer.app.link.links import Links
from explorer.app.tabs import tabs
from explorer.glossary import LESSONS as GLOSSARY
from explorer.glossary import ROWS
from explorer.lessons.exercises import EXERCISES
from explorer_serve.server import TRAIN

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LESSONS = sorted((NOTEBOOKS[0].parent / "lessons").glob("*.ipynb"))
MAX_LINES, MAX_LESSON_LINES = 5, 15
MOST_BYTES = 400_000
DRAWN = ("ex.live(", "ex.picture(", "ex.ledger(")
"""Calls whose output is a picture, which nbval does not compare."""
SECTIONS = (
    "Break it",
    "Derive it",
    "Check it against theory",
    "Vary it live",
    "Where the popular version is wrong",
    "Exercises",
    "In a whole Transformer",
)
"""Of every lesson, in this order."""
THIN = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.Pass)
"""Statements of a thin cell; all others, which define, repeat or choose, belong in the package."""
BRANCHES = (ast.Lambda, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Expressions that belong there."""


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return found


def thickness(source: str) -> list[str]:
    """What a code cell does beyond imports and short calls; empty when it is thin."""
    tree = ast.parse(source)
    faults = [
        f"{type(node).__name__} in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, BRANCHES) or (isinstance(node, ast.stmt) and not isinstance(node, THIN))
    ]
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
    assert counts == list(range(1, len(counts) + 1)), (
        "nbval compares nothing where a cell was never run"
    )


def sources(notebook: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == kind]


def test_there_are_lessons() -> None:
    assert {"01_drawing_weights", "02_second_moment"} <= {lesson.stem for lesson in LESSONS}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name)
def test_a_lesson_has_its_sections_in_short_cells(lesson: Path) -> None:
    headings = [
        line
        for text in sources(lesson, "markdown")
        for line in text.splitlines()
        if line.startswith("## ")
    ]
    assert headings == [f"## {number} · {title}" for number, title in enumerate(SECTIONS, start=1)]
    lengths = [
        sum(bool(line.strip()) for line in source.splitlines())
        for source in sources(lesson, "code")
    ]
    assert max(lengths) <= MAX_LESSON_LINES, lengths
    assert sum(text.count("$$") for text in sources(lesson, "markdown")) >= 4, "typeset derivations"
    checks = [
        line
        for source in sources(lesson, "code")
        for line in source.splitlines()
        if "ex.check(" in line
    ]
    asked = [number for number in EXERCISES if number.startswith(lesson.stem[:2])]
    assert [line.split('"')[1] for line in checks] == asked
    assert len(asked) >= 3


def test_every_lesson_has_a_card() -> None:
    assert [row.file for row in ROWS if row.minutes] == [
        f"lessons/{lesson.name}" for lesson in LESSONS
    ]
    assert [row.number for row in ROWS if row.minutes] == list(range(1, len(LESSONS) + 1))
    for row in NAMED.values():
        assert row.chinese
        assert list(row.needs) == sorted(set(row.needs))
        assert all(1 <= number < row.number for number in row.needs), "what is needed comes before"


@pytest.mark.parametrize("language", ["en", FOLDER])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name)
def test_head_and_foot_of_a_lesson_follow_from_its_row(lesson: Path, language: str) -> None:
    row, folder = NAMED[lesson.stem], lesson.parent if language == "en" else lesson.parent / FOLDER
    texts = sources(folder / lesson.name, "markdown")
    line = way(row, language).replace("](zh/", "](../" if language == FOLDER else "](zh/")
    heading, under, leads, *rest = texts[0].split("\n\n")
    assert heading.startswith(
        f"# Lesson {row.number} · " if language == "en" else f"# 第 {row.number} 课 · "
    )
    assert under.startswith(first(row, language, ""))
    assert language == FOLDER or row.essay.split()[-1] in under
    assert (leads, rest[-1]) == (line, HOW[language])
    assert texts[-1].split("\n\n")[-1] == line
    exercises = next(text for text in texts if text.startswith("## 6 · "))
    assert exercises.split("\n\n")[1] == HOW_TO_ANSWER[language].format(number=f"{row.number:02}.1")


@pytest.mark.parametrize(
    "lesson",
    [*LESSONS, *(path.parent / FOLDER / path.name for path in LESSONS)],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_each_relative_link_of_a_lesson_leads_to_a_notebook(lesson: Path) -> None:
    targets = [
        target
        for text in sources(lesson, "markdown")
        for target in re.findall(r"\]\(([^)]+)\)", text)
    ]
    relative = [target for target in targets if "://" not in target]
    assert [
        target for target in relative if not (lesson.parent / target.partition("#")[0]).is_file()
    ] == []
    (page,) = [target for target in relative if "explorer.ipynb" in target]
    assert Links(tabs()).parse(f"?{page.partition('#')[2]}")[1] == [], (
        "the page understands its link"
    )


def test_from_the_first_lesson_next_leads_through_all() -> None:
    seen = [LESSONS[0].stem]
    while following := re.search(
        r"\]\((\w+)\.ipynb\) →", sources(LESSONS[len(seen) - 1], "markdown")[-1]
    ):
        seen.append(following[1])
    assert (
        seen == [lesson.stem for lesson in LESSONS] == [name for name in GLOSSARY if name in NAMED]
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name)
def test_a_lesson_is_stored_as_text_and_stills(lesson: Path) -> None:
    """A reader without a kernel sees every figure; of a live one, nbval compares nothing: it is a
    picture."""
    assert lesson.stat().st_size < MOST_BYTES
    assert "widget" not in lesson.read_text(encoding="utf-8").replace("ex.live", "")
    for cell in cells(lesson):
        source = "".join(cell["source"])
        is_live = any(call in source for call in DRAWN)
        tags = set(cell["metadata"].get("tags", [])) - {TRAIN}
        assert tags == ({"nbval-ignore-output"} if is_live else set()), cell["id"]
        if is_live:
            (still,) = cell["outputs"]
            html = "".join(still["data"]["text/html"])
            is_table = "ex.ledger(" in source and "<table>" in html
            assert is_table or 'src="data:image/svg+xml;base64,' in html, cell["id"]
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"
            assert not repr(output.get("data", {}).get("text/plain", "")).count("Right."), (
                "exercises are left to do"
            )


def within_functions(table: symtable.SymbolTable) -> Iterator[str]:
    """Names of the notebook that the functions and classes of a piece of code read."""
    for child in table.get_children():
        yield from (symbol.get_name() for symbol in child.get_symbols() if symbol.is_global())
        yield from within_functions(child)


def names(source: str) -> tuple[set[str], set[str]]:
    """Names that a cell reads of other cells, and names that it binds."""
    reads, binds = set[str](), set[str]()
    for statement in ast.parse(source).body:
        table = symtable.symtable(ast.unparse(statement), "cell", "exec")
        symbols = table.get_symbols()
        used = {symbol.get_name() for symbol in symbols if symbol.is_referenced()} | {
            *within_functions(table)
        }
        bound = {
            symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()
        }
        # `x = f(x)` reads an older x, `for x in …` does not
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            used -= bound
        reads |= used - binds
        binds |= bound
    return reads - set(dir(builtins)), binds


def binders(lesson: dict[int, str], order: Iterable[int]) -> dict[tuple[int, str], int | None]:
    """For each name that a cell reads the cell that last bound it, where the cells run in this
    order."""
    last, found = dict[str, int](), dict[tuple[int, str], int | None]()
    for place in order:
        reads, binds = names(lesson[place])
        found |= {(place, name): last.get(name) for name in reads}
        last |= dict.fromkeys(binds, place)
    return found


def test_names_of_a_cell_are_told_from_its_own() -> None:
    assert names("x = f(x)") == ({"f", "x"}, {"x"})
    assert names("for x in range(3):\n    print(x, y)") == ({"y"}, {"x"})
    assert names("def f(n):\n    return n * k\n\n\nprint(f(2))") == ({"k"}, {"f"})
    lesson = {0: "a = 1", 1: "b = a", 2: "print(b)"}
    assert binders(lesson, [0, 2, 1]) != binders(lesson, [0, 1, 2])


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name)
def test_cells_that_train_may_run_after_all_others(lesson: Path) -> None:
    """On a served page they wait for a button: each cell then reads names of the same cells as in
    the notebook."""
    code = {place: cell for place, cell in enumerate(cells(lesson)) if cell["cell_type"] == "code"}
    late = [place for place, cell in code.items() if TRAIN in cell["metadata"].get("tags", [])]
    texts = {place: "".join(cell["source"]) for place, cell in code.items()}
    served = [*(place for place in code if place not in late), *late]
    assert binders(texts, served) == binders(texts, code)
    assert not [
        place for place in late if "ex.check(" in texts[place] or "ex.live(" in texts[place]
    ]
    assert all(code[place]["metadata"]["seconds"] > 0 for place in late), (
        "as long as training takes, says the button"
    )


def test_lessons_train() -> None:
    assert (
        sum(
            TRAIN in cell["metadata"].get("tags", [])
            for lesson in LESSONS
            for cell in cells(lesson)
        )
        > 8
    )


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
