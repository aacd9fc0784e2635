"""The live figures of every lesson without a browser: each control goes to both ends, and its
figure follows.

Of a lesson's code only that is run on which its figures depend. nbval runs all of it, and compares
the outputs; a browser opens some lessons."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_live import move, until, ys
from test_notebooks import LESSONS, sources

from explorer.lessons.live import LiveFigure


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """A scope and those within it."""
    yield table
    for inner in table.get_children():
        yield from scopes(inner)


def names_of(code: str) -> tuple[set[str], set[str]]:
    """The names that a statement gives a value, and those that it reads, at once or when its
    functions are called."""
    outer, *inner = scopes(symtable.symtable(code, "", "exec"))
    symbols = outer.get_symbols()
    bound = {
        symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()
    }
    read = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    return bound, read | {
        symbol.get_name() for table in inner for symbol in table.get_symbols() if symbol.is_global()
    }


def needed(source: str) -> str:
    """The statements on which the live figures depend, in their order; none that prints is among
    them."""
    statements = [ast.unparse(statement) for statement in ast.parse(source).body]
    rows = [(code, *names_of(code)) for code in statements if "print(" not in code]
    names, before = {"figures"}, set[str]()
    while names != before:
        before = set(names)
        names |= {name for _, bound, read in rows if bound & names for name in read}
    return "\n".join(code for code, bound, _ in rows if bound & names)


class Figures(list[LiveFigure]):
    """Collects live figures by `+=`."""

    def __iadd__(self, figure: Any) -> Figures:
        self.append(figure)
        return self


@pytest.fixture
def figures(lesson: Path) -> Iterator[Figures]:
    """The live figures of a lesson, drawn."""
    made = Figures()
    code = "\n".join(sources(lesson, "code")).replace("ex.live(", "figures += ex.live(")
    exec(needed(code), {"figures": made})  # noqa: S102 - the lesson's own code
    for figure in made:
        until(figure, "idle")
    yield made
    for figure in made:
        figure.close()


def ends(field: dict[str, Any]) -> list[Any]:
    """The values to which a person brings a control."""
    if field["look"] == "slider":
        return [field["steps"][0], field["steps"][-1]]
    if field["look"] == "switch":
        return [not field["initial"]]
    return [option["value"] for option in field["options"]]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_every_control_goes_to_both_ends_and_its_figure_follows(
    lesson: Path, figures: Figures
) -> None:
    assert len(figures) == "".join(sources(lesson, "code")).count("ex.live(") > 0
    for figure in figures:
        fields = [field for part in figure.panel.controls.sections for field in part["fields"]]
        start, still = ys(figure), list[str]()
        assert len(fields) >= 3
        for field in fields:
            seen = list[Any]()
            for value in [*ends(field), field["initial"]]:
                move(figure, **{field["name"]: value})
                until(figure, "idle")
                assert figure.panel.controls.values[field["name"]] == value
                seen.append(ys(figure))
            assert seen.pop() == start, "the figure comes back with the control"
            if all(numbers == start for numbers in seen):
                still.append(field["name"])
        assert len(still) <= 1, still
