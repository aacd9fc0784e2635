"""Notebooks are thin: what they do is done by the package, where it is tested. Their outputs are nbval's to check."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from explorer.labs.table import LABS

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
MAX_LINES = 5
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


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_was_run_from_top_to_bottom(notebook: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), "nbval compares nothing where a cell was never run"


@pytest.mark.parametrize("name", LABS)
def test_a_labs_notebook_opens_its_lab(name: str) -> None:
    """Those that train are not opened by nbval: they would be at work beside the next cell, and nobody looks."""
    (opens,) = [cell for cell in cells(NOTEBOOKS[0].with_name(f"{name}.ipynb")) if "ex.lab(" in "".join(cell["source"])]
    assert "".join(opens["source"]) == f'ex.lab("{name}")'
    tags = ["nbval-skip" if LABS[name].grows else "nbval-ignore-output"]
    assert opens["metadata"]["tags"] == tags


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
