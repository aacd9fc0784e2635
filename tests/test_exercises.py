"""Each exercise of the lessons is tried: with a solution, with two typical mistakes, and with
answers that are none."""

from __future__ import annotations

import inspect
import re
from math import ceil, erf, exp, log10, pi, sqrt
from typing import Any

import numpy as np
import pytest
import torch

import explorer as ex
from explorer.lessons.checking import checked_text
from explorer.lessons.exercises import EXERCISES, LLAMA, PLAIN, TEXTS


def gamma(c: float) -> float:
    return 1 - 2 * c * exp(-c * c / 2) / sqrt(2 * pi) / erf(c / sqrt(2))


def cut_normal(n: int, std: float) -> np.ndarray:
    rng = np.random.default_rng(7)
    w = rng.normal(size=n)
    while (far := np.abs(w) > 2).any():
        w[far] = rng.normal(size=far.sum())
    return std * w


def widening(share: float) -> float:
    """The c with that γ, by halving."""
    low, high = 0.1, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gamma(middle) < share else (low, middle)
    return low


ANSWERS: dict[str, Any] = {
    "01.1": gamma(3) ** -0.5,
    "01.2": lambda n: cut_normal(n, 0.02 / sqrt(gamma(2))),
    "01.3": 2 / widening(0.99),
    "02.1": lambda n, m, v: m * v,
    "02.2": lambda n, m: 1 / sqrt(n * m),
    "02.3": np.cumprod([1] + [0.4, 1.6] * 6),
    "02.4": PLAIN.replace(init_variance=2**0.5),
    "03.1": lambda n: 1 / (n * 0.3557755198),
    "03.2": lambda z: (1 / (1 + exp(-z)) - 0.5) / sqrt(0.0433790359),
    "03.3": 0.9 * 0.4833410354 / 0.3752088322,
    "03.4": 2 / 1.0507009874**2,
    "04.1": lambda a, b: np.array([a, b]) / sqrt((a * a + b * b) / 2),
    "04.2": lambda v: v / 9,
    "04.3": 44,
    "04.4": lambda n, v: (1 - 2 / n) / v,
    "05.1": 0.064,
    "05.2": lambda eta, c: (eta / c**2, eta / c),
    "05.3": 1 / 0.2933790359,
    "05.4": lambda eta, m: eta * 32 / m,
    "06.1": lambda n, d: 1 / (n * d),
    "06.2": exp(32),
    "06.3": lambda d: 3 * (1 + 2 / d),
    "06.4": lambda n, d: 1 / (n * sqrt(d)),
    "07.1": 2**-2.5,
    "07.2": lambda N, layer: 1 / (layer + 1),
    "07.3": lambda layer: sqrt(4 ** (1 / layer) - 1),
    "07.4": ex.Config(norm_placement="peri", n_layers=12, alpha=24**-0.5),
    "08.1": exp(-0.5),
    "08.2": lambda n: (8 * n) ** -0.5 / (2 * n) ** 0.25,
    "08.3": sqrt(2**0.001 - 1),
    "08.4": lambda n: (1 + 1 / n) ** (1 - n),
    "09.1": lambda depth: np.prod([1 + 1 / (2 + layer) for layer in range(depth)]),
    "09.2": (1.044836 / 1.29338) ** 12,
    "09.3": 100,
    "09.4": ex.preset("deepnorm", n_layers=12),
    "12.1": lambda n: n**-0.5 / 2,
    "12.2": lambda eta, n: 1 / (eta * (2 * n) ** 0.5),
    "12.3": ex.Config(norm_placement="post", n_layers=48, alpha=0.1683),
    "12.4": [4, 4],
    "10.1": lambda k, T: (k + 1) / (2 * T),
    "10.2": lambda beta: sqrt((1 - beta) / (1 + beta)),
    "10.3": lambda s: 3 / log10(1 + s * s),
    "10.4": 556,
    "11.1": 0.25 * gamma(2),
    "11.2": lambda layer: (layer - 1) / layer,
    "11.3": lambda c: 1 / sqrt(1 - c * c),
    "11.4": lambda layer: (sqrt(layer), layer),
    "13.1": lambda layer: 2.0 ** (1 - 2**layer),
    "13.2": lambda rho, c: (1 - rho * (1 + c) / 2) / (1 - rho),
    "13.3": lambda d, base: 2 * pi * base ** (1 - 2 / d),
    "13.4": LLAMA.replace(mlp="gated", alpha=0.6737),
}
"""A solution of each exercise."""
MISTAKES: list[tuple[str, Any, str]] = [
    (
        "01.2",
        lambda n: np.random.default_rng(0).normal(size=n) * 0.02,
        "at n = 100000 the largest |w| is too large",
    ),
    ("02.3", 0.64 ** np.arange(13), "number 1 is too large"),
    (
        "02.4",
        ex.Config(init_variance=2**0.5),
        "only init_variance may differ from the design of the exercise",
    ),
    ("04.1", lambda a, b: np.sign([a - b, b - a]), "at a = 3, b = 4 number 0 has the wrong sign"),
    ("04.3", 22, "the value is too small"),
    ("07.1", 2**-5, "the value is too small"),
    (
        "07.4",
        ex.Config(n_layers=12, alpha=24**-0.5),
        "only alpha may differ from the design of the exercise",
    ),
    ("09.3", 66, "the value is too small"),
    (
        "09.4",
        ex.preset("deepnorm", n_layers=6),
        "only norm_placement, residual, alpha may differ from the design of the exercise",
    ),
    (
        "12.3",
        ex.preset("pre_ln", n_layers=48),
        "only alpha may differ from the design of the exercise",
    ),
    ("13.4", LLAMA, "only alpha may differ from the design of the exercise"),
]
"""Answers that no table of `exercises.toml` has as a mistake, with words of their sentence."""


def test_every_exercise_is_tried() -> None:
    assert ANSWERS.keys() == EXERCISES.keys() == TEXTS.keys()


@pytest.mark.parametrize("number", ANSWERS)
def test_a_solution_is_right(number: str) -> None:
    checked = ex.check(number, ANSWERS[number])
    assert checked, checked
    assert repr(checked) == "Right."


@pytest.mark.parametrize(("number", "answer", "words"), MISTAKES)
def test_an_answer_beside_the_typical_mistakes_has_its_words(
    number: str, answer: Any, words: str
) -> None:
    checked = ex.check(number, answer)
    assert not checked
    assert words in repr(checked)
    assert repr(checked).startswith("Not yet: ")


# --- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", TEXTS)
def test_one_to_three_mistakes_are_named_each_with_a_question(number: str) -> None:
    mistakes = TEXTS[number].mistakes
    assert 1 <= len(mistakes) <= 3
    for mistake in mistakes:
        assert mistake.question.endswith("?")
        assert (
            repr(checked_text(number, mistake.answer))
            == f"Not yet: {mistake.words}. {mistake.question}"
        )


@pytest.mark.parametrize("number", TEXTS)
def test_the_solution_in_the_box_is_right(number: str) -> None:
    assert checked_text(number, TEXTS[number].answer)
    assert TEXTS[number].answer in repr(ex.solution(number))
    assert repr(ex.hint(number)) == TEXTS[number].hint
    assert TEXTS[number].answer not in TEXTS[number].hint or len(TEXTS[number].answer) < 4


@pytest.mark.parametrize(
    "number", [number for number, row in EXERCISES.items() if not row.base and not row.build]
)
def test_where_an_answer_is_off_is_said_and_not_how_far(number: str) -> None:
    """Nobody gets to the solution by the size of the miss: two answers that are off by other
    factors are told alike."""
    right = ANSWERS[number]

    def scaled(factor: float) -> Any:
        if callable(right):
            return _like(right, lambda *arguments: factor * np.asarray(right(*arguments)))
        return (
            [factor * np.asarray(right)[0], *np.asarray(right)[1:]]
            if np.ndim(right)
            else factor * right
        )

    for few, many in ((3.3, 47.0), (1 / 3.3, 1 / 47.0)):
        sentences = {repr(ex.check(number, scaled(factor))) for factor in (few, many)}
        unnamed = {text for text in sentences if "?" not in text}
        assert len(unnamed) <= 1, sentences
        assert not any(re.search(r"times|%", text) for text in unnamed)


def _like(function: Any, other: Any) -> Any:
    """The other function with the first one's arguments."""
    other.__signature__ = inspect.signature(function)
    return other


# --- tolerance ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("07.1", 0.177),
        ("08.3", 0.0263),
        ("05.3", 3.41),
        ("06.2", 7.9e13),
        ("12.3", 0.168),
        ("13.4", 0.674),
        ("02.4", 1.41),
        ("11.1", 0.19),
        ("11.1", 0.201),
        ("03.1", lambda n: 1 / (0.356 * n)),
        ("13.3", lambda d, b: 6.28 * b ** (1 - 2 / d)),
        ("12.2", lambda eta, N: ceil(1 / (eta * (2 * N) ** 0.5))),
        ("12.2", lambda eta, N: round(1 / (eta * (2 * N) ** 0.5))),
        ("01.1", np.float32(1.0136)),
        ("01.1", torch.tensor(1.0136)),
        ("01.1", torch.tensor([1.0136], requires_grad=True)),
        ("02.3", torch.tensor(np.cumprod([1] + [0.4, 1.6] * 6))),
    ],
)
def test_three_digits_a_measurement_and_whole_steps_are_right(number: str, answer: Any) -> None:
    if EXERCISES[number].fields:
        answer = EXERCISES[number].base.replace(**{EXERCISES[number].fields[0]: answer})
    assert ex.check(number, answer), ex.check(number, answer)


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("09.3", 99),
        ("09.3", 101),
        ("09.3", 99.33),
        ("04.3", 43),
        ("04.3", 43.7),
        ("10.4", 555),
        ("12.4", [4.2, 4]),
        ("12.2", lambda eta, N: 2 + 1 / (eta * (2 * N) ** 0.5)),
        ("12.2", lambda eta, N: 0.5 + 1 / (eta * (2 * N) ** 0.5)),
        ("07.1", 0.179),
        ("11.1", 0.22),
        ("09.4", ex.Config(n_layers=12, alpha=0.001)),
    ],
)
def test_nearly_right_is_not_right_where_something_is_counted_or_left_out(
    number: str, answer: Any
) -> None:
    assert not ex.check(number, answer)


# --- answers that are none ------------------------------------------------------------------------


def nothing(n: int, m: int) -> None:
    """Forgets its return."""


@pytest.mark.parametrize(
    ("number", "answer", "facts"),
    [
        ("01.1", float("nan"), "nan, which is no number: 0/0, or a root"),
        ("01.1", float("inf"), "infinite"),
        ("01.1", 0, "the value is 0."),
        ("01.1", -1, "the value has the wrong sign."),
        ("01.1", [1, 2], "got 2 numbers."),
        ("01.1", np.ones((2, 3)), "got an array of shape (2, 3)."),
        ("01.1", [[1], [2, 3]], "got a list whose parts differ in length."),
        ("01.1", None, "got None: is a return missing?"),
        ("01.1", "1.0136", "got the text '1.0136'"),
        ("01.1", True, "got True, which is no number."),
        ("01.1", 1j, "got the complex number 1j"),
        ("01.1", gamma, "got the function gamma: call it."),
        ("01.1", ex.Config(), "01.1 asks for a number; got a Config."),
        ("02.3", 3.0, "02.3 asks for an array of 13 numbers; got one number."),
        ("02.3", [0.8] * 12, "got 12 numbers."),
        ("02.1", 3, "02.1 asks for a function of n, m and v; got 3 of type int."),
        ("02.1", lambda n, m: n, "of n, m and v; got one of n, m."),
        ("02.1", lambda: 1, "got one of no arguments."),
        ("02.2", nothing, "at n = 256, m = 256 02.2 asks for a function of n and m; got None"),
        ("02.2", lambda n, m: 1 / (n - m), "at n = 256, m = 256 ZeroDivisionError"),
        (
            "02.2",
            lambda n, m: "1",
            "at n = 256, m = 256 02.2 asks for a function of n and m; got the text '1'",
        ),
        ("02.4", 3, "02.4 asks for a Config; got 3 of type int."),
        ("02.4", None, "got None: is a return missing?"),
        *(
            ("09.4", ex.Config(n_layers=12, norm_placement=placement, alpha=0), "without branches")
            for placement in ("pre", "post", "peri")
        ),
    ],
)
def test_each_wrong_kind_of_answer_has_its_sentence(
    number: str, answer: object, facts: str
) -> None:
    checked = ex.check(number, answer)
    assert not checked
    assert repr(checked).startswith("Not yet: ")
    assert facts in repr(checked)


@pytest.mark.parametrize("ask", [lambda number: ex.check(number, 1), ex.hint, ex.solution])
def test_an_exercise_that_is_not_there_is_refused(ask: Any) -> None:
    with pytest.raises(
        ValueError, match=f"^number must be one of {', '.join(EXERCISES)}; got '99.1'$"
    ):
        ask("99.1")
    with pytest.raises(TypeError, match=r"^number must be a str; got 1.1 of type float$"):
        ask(1.1)
