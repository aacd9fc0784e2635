"""The course's model, its repairs as the lessons write them, and the ledger of their losses."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from test_notebooks import LESSONS, sources

import explorer as ex
from explorer.choices import ConfigError
from explorer.lessons import ledger, running
from explorer.lessons.picture import HEIGHT, WIDTH

MODULE = Path(running.__file__)


class Plain(ast.NodeTransformer):
    """Removes what a notebook does without: docstrings, types, and names of modules."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function without docstring and types."""
        node.returns = None
        return self._undocumented(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class without docstring."""
        return self._undocumented(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """An argument without its type."""
        node.annotation = None
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`torch.nn.Module` and `running.Model` as `Module` and `Model`."""
        if ast.unparse(node.value) in ("torch.nn", "torch.nn.functional", "running"):
            return ast.Name(node.attr)
        return self.generic_visit(node)

    def _undocumented(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node):
            node.body = node.body[1:]
        return self.generic_visit(node)


def definitions(code: str) -> dict[str, str]:
    """Classes and functions by name, as plain code."""
    tree = Plain().visit(ast.parse(code))
    return {
        node.name: ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }


def stored() -> dict[str, str]:
    """Classes and functions of the package's module."""
    return definitions(MODULE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("lesson", ledger.rows(), ids=lambda row: str(row.lesson))
def test_a_lesson_writes_the_model_of_its_row(lesson: ledger.Row) -> None:
    written = definitions("\n".join(sources(LESSONS[lesson.lesson - 1], "code")))
    names = [running.MODELS[lesson.lesson].__name__]
    if lesson.lesson == 1:
        names = ["batch", "Choices", "Weights", "Model", "train"]
    for name in names:
        assert written[name] == stored()[name]
    code = "\n".join(sources(LESSONS[lesson.lesson - 1], "code"))
    assert f"ex.ledger({lesson.lesson}, losses)" in code


def test_the_model_of_lesson_1_has_about_sixty_lines() -> None:
    names = ("batch", "Choices", "Weights", "Model", "train")
    lines = [line for name in names for line in stored()[name].splitlines()]
    assert sum(bool(line.strip()) for line in lines) <= 62


def test_each_repair_changes_at_most_two_methods() -> None:
    for lesson, model in running.MODELS.items():
        if lesson > 1:
            methods = {name for name in vars(model) if not name.startswith("__")}
            assert 1 <= len(methods) <= 2
            allowed = {*vars(running.Choices), "stream", "dense"}
            assert methods <= allowed, "it repairs choices, or wires of the model"


def test_rows_have_enough_seeds_and_one_for_each_model() -> None:
    assert [row.lesson for row in ledger.rows()] == list(running.MODELS)
    for row in ledger.rows():
        assert len(row.losses) == len(row.start) >= 4
        assert row.error < 0.03 * row.mean


@pytest.mark.parametrize("lesson", [2, 6, 9, 11, 12, 13])
def test_a_first_step_is_the_stored_one(lesson: int) -> None:
    row = ledger.rows()[lesson - 1]
    first = running.train(running.MODELS[lesson](seed=0), steps=1)[0]
    assert first == pytest.approx(row.start[0], abs=2e-3)


def test_theory_of_the_repairs_holds_at_the_start() -> None:
    """Each tolerance is four standard errors over the seeds, or a lesson's own."""
    first = {row.lesson: row.start for row in ledger.rows()}
    assert np.mean(first[2]) == pytest.approx(math.log(27) + 1 / 94, abs=0.02)
    error = np.std(first[4], ddof=1) / len(first[4]) ** 0.5
    assert np.mean(first[4]) == pytest.approx(math.log(27) + 0.5, abs=4 * error)
    torch.manual_seed(0)
    stream = running.Lesson9(seed=0).stream(running.batch()[0])
    assert stream[-1].square().mean().item() == pytest.approx(2, rel=0.2)


def test_with_24_layers_lesson_12_is_lesson_11() -> None:
    text = running.batch(2)[0]
    deep, shallow = running.Lesson12(0, layers=24, every=6), running.Lesson11(0)
    assert torch.allclose(deep(text), shallow(text), atol=1e-5)


def test_logits_of_another_text_do_not_add_up() -> None:
    model = running.Lesson11(seed=0)
    text = running.batch(2)[0]
    assert torch.equal(model(text), model(text))


def test_rotation_keeps_length_and_sees_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 64).expand(2, 16, 64)
    turned = running.rotated(q)
    assert torch.allclose(turned.norm(dim=-1), q.norm(dim=-1), rtol=1e-5)
    logits = turned @ running.rotated(k).mT
    assert torch.allclose(logits[1:, 1:], logits[:-1, :-1], atol=1e-3)


@pytest.mark.parametrize("lesson", [9, 11, 13])
def test_the_future_is_hidden(lesson: int) -> None:
    model = running.MODELS[lesson](seed=0)
    text = running.batch(2)[0]
    other = text.clone()
    other[:, -1] = (other[:, -1] + 1) % len(running.LETTERS)
    assert torch.equal(model(text)[:, :-1], model(other)[:, :-1])


def test_your_own_row_is_the_mean_of_the_last_steps() -> None:
    shown = ex.ledger(6, [9.0] * 180 + [2.0] * 20)
    assert shown.loss == 2.0
    assert [trace.name for trace in shown.figure().data][-1] == "yours"
    curve = shown.curve().data
    assert [len(trace.y) for trace in curve] == [200, 200]
    assert curve[1].y[0] == shown.rows[-1].mean
    html = shown._repr_html_()
    assert "yours" in html
    assert "2.000" in html
    assert f'width="{WIDTH}"' not in html, "the image is an address"
    assert "yours" not in ex.ledger(6)._repr_html_()
    counts = [
        shown._repr_html_().count("<img")
        for shown in (ex.ledger(1), ex.ledger(1, [3.0, 2.0]), ex.ledger(6), ex.ledger(6, 2.5))
    ]
    assert counts == [0, 1, 1, 1]
    assert html.count("<img") == 2
    assert len(repr(ex.ledger(3)).splitlines()) == 3


def test_a_lesson_without_a_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="lesson must be a whole number from 1 to"):
        ex.ledger(99)


def test_a_picture_is_an_image() -> None:
    lines = ex.picture(go.Figure().add_scatter(y=[1, 2], name="signal"))
    assert repr(lines) == "picture(signal)"
    assert lines._repr_html_().startswith("<img")
    assert HEIGHT < WIDTH
    maps = ex.picture(go.Figure(go.Heatmap(z=[[0, 1], [0.5, 0.5]], name="attention <A>")))
    assert maps._repr_html_().startswith("<img")
    with pytest.raises(TypeError, match="figure must be a plotly figure"):
        ex.picture([1, 2])  # type: ignore[arg-type]
