"""The box for an answer in a served lesson: expressions that are parsed and never run, and the part
around them."""

from __future__ import annotations

import time
from math import exp, pi, sqrt
from typing import Any

import pytest

import explorer as ex
from explorer.app.widgets.answer import Answer
from explorer.lessons.answers import form
from explorer.lessons.checking import checked_text
from explorer.lessons.exercises import EXERCISES
from explorer.lessons.expressions import DEEPEST, LONGEST, ExpressionError, evaluated, settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5e-3", -0.0025),
        ("2**-2.5", 2**-2.5),
        ("2^−2.5", 2**-2.5),
        ("1/(n*sqrt(d))", 1 / 32),
        ("√(2)·π", sqrt(2) * pi),
        ("n²", 16),
        (" exp(-1/2) ", exp(-0.5)),
        ("ln(e)", 1),
        ("+abs(-n)", 4),
        ("e", exp(1)),
    ],
)
def test_an_expression_has_its_value(text: str, value: float) -> None:
    assert evaluated(text, {"n": 4, "d": 64}) == (pytest.approx(value),)


def test_several_numbers_stand_between_commas_or_in_brackets() -> None:
    assert (
        evaluated("1, n", {"n": 2})
        == evaluated("[1, n]", {"n": 2})
        == evaluated("(1, n)", {"n": 2})
        == (1, 2)
    )


NO_CODE = "an answer has numbers, names, + - * / **, parentheses and functions such as sqrt alone"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the box is empty"),
        ("   ", "the box is empty"),
        ("1" * (LONGEST + 1), f"an answer has at most {LONGEST} characters; got {LONGEST + 1}"),
        ("2 n", "this is no expression: '2 n'"),
        ("1;2", "this is no expression"),
        ("x = 1", "this is no expression"),
        ("(" * 250, "this is no expression"),
        ("1\0", "this is no expression"),
        ("import os", "this is no expression"),
        ("10**10**10", "the value is too large for a number"),
        ("1e999", "the value is too large for a number"),
        ("9**9**9**9", "the value is too large for a number"),
        ("exp(1e6)", "the value is too large for a number"),
        ("1/0", "the expression divides by zero"),
        ("0**-1", "the expression divides by zero"),
        ("sqrt(-1)", "a function has no value there"),
        ("(-1)**0.5", "the value is no real number"),
        ("m", "the names that stand for numbers here are n, pi, e; got m"),
        ("gamma(3)", "the functions, each of one argument, are sqrt"),
        ("sqrt(1, 2)", "the functions, each of one argument"),
        ("__import__('os').system('true')", NO_CODE),
        ("().__class__", NO_CODE),
        ("n.real", NO_CODE),
        ("n[0]", NO_CODE),
        ("[n for n in (1,)]", NO_CODE),
        ("lambda: 1", NO_CODE),
        ("'a'*9", NO_CODE),
        ("f'{n}'", NO_CODE),
        ("True", NO_CODE),
        ("1j", NO_CODE),
        ("1 if n else 2", NO_CODE),
        ("n := 2", "this is no expression"),
        ("(n := 2)", NO_CODE),
        ("1 < 2", NO_CODE),
        ("7 // 2", NO_CODE),
        ("1 << 99999999", NO_CODE),
        ("~n", NO_CODE),
        ("sqrt(x=1)", "the functions"),
        ("exp(*[1])", NO_CODE),
        ("eval('1')", "the functions, each of one argument"),
        ("...", NO_CODE),
        ("()()", NO_CODE),
        ("+".join("1" * 30), f"an expression has at most {DEEPEST} levels of parts"),
        ("-" * 40 + "1", "levels of parts"),
    ],
)
def test_anything_else_is_refused_in_a_sentence_at_once(text: str, sentence: str) -> None:
    begun = time.process_time()
    with pytest.raises(ExpressionError) as refused:
        evaluated(text, {"n": 4})
    assert sentence in str(refused.value)
    assert time.process_time() - begun < 0.1


def test_settings_are_names_and_values() -> None:
    assert settings("norm_placement = post, alpha=1/4, residual='deepnorm'") == {
        "norm_placement": "post",
        "alpha": 0.25,
        "residual": "deepnorm",
    }
    for text in ("alpha", "**{}", "alpha = open('x')", "1, alpha = 2", "f).__class__("):
        with pytest.raises(ExpressionError):
            settings(text)


@pytest.mark.parametrize(
    ("number", "text", "sentence"),
    [
        ("02.2", "1/(n-m)", "Not yet: the expression divides by zero."),
        ("07.1", "0,177", "Not yet: 07.1 asks for a number; got 2 numbers."),
        ("02.4", "1, 4", "Not yet: one number is asked for; got 2. Decimals have a point: 0.5."),
        ("02.4", "init_variance = -1", "Not yet: init_variance must be"),
        ("09.4", "0.2", "Not yet: settings are written as name = value, with commas between them."),
        (
            "09.4",
            "n_layers = 2",
            "Not yet: the settings that may be changed are norm_placement, residual, alpha; got n_lay",
        ),
        ("09.4", "residual = nothing", "Not yet: residual must be one of"),
        ("09.4", "norm_placement = post, alpha = 0.1", "Right."),
        ("02.4", "sqrt(2)", "Right."),
        ("02.4", "init_variance = 1.414", "Right."),
        ("12.4", "4, 3.9", "Right."),
    ],
)
def test_a_text_in_the_box_is_checked_like_the_answer_of_a_cell(
    number: str, text: str, sentence: str
) -> None:
    assert repr(checked_text(number, text)).startswith(sentence)


def part(number: str = "07.1", answer: object = 2**-1.5) -> Answer:
    (box,) = ex.check(number, answer).box().top.children
    return box


def test_the_part_says_what_it_takes_and_answers_a_visitor() -> None:
    box = part()
    assert box.said == f"The code above gives an answer already. {ex.check('07.1', 2**-1.5)!r}"
    box.handle(["check", "2**-2.5"])
    assert (box.said, box.right) == ("Right.", True)
    box.handle(["hint"])
    assert box.said == f"Hint: {ex.hint('07.1')}"
    box.handle(["check", "1"])
    assert (box.said, box.right) == ("Not yet: the value is too large.", False)
    box.handle(["solution"])
    assert box.said == f"Solution: {ex.solution('07.1')}"


@pytest.mark.parametrize(
    "message", [None, 3, "check", [], ["check"], ["check", 3], ["check", "1", "2"], {"a": 1}]
)
def test_a_message_that_is_none_changes_nothing(message: Any) -> None:
    box = part()
    before = box.said
    box.handle(message)
    assert box.said == before


@pytest.mark.parametrize("number", EXERCISES)
def test_each_box_says_what_is_written_into_it_and_its_example_is_an_answer(number: str) -> None:
    takes, example = form(number)
    assert takes
    sentence = repr(checked_text(number, example))
    assert not any(
        words in sentence for words in ("no expression", "names that", "asks for", "settings")
    ) or (number == "02.3"), sentence  # thirteen numbers are no example


def test_a_cell_shows_the_box_where_its_code_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = ex.check("07.1", 1)
    assert checked._repr_mimebundle_() is None
    monkeypatch.setenv("VOILA_PREHEAT", "False")
    assert "application/vnd.jupyter.widget-view+json" in checked._repr_mimebundle_()[0]
