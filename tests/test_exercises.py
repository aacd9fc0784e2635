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


ANSWERS: dict[str, tuple[Any, tuple[Any, str], tuple[Any, str]]] = {
    "01.1": (
        gamma(3) ** -0.5,
        (gamma(3), "this is γ(3), the share that is left"),
        (1 / gamma(3), "this is 1/γ(3), the factor on the variance"),
    ),
    "01.2": (
        lambda n: cut_normal(n, 0.02 / sqrt(gamma(2))),
        (lambda n: cut_normal(n, 0.02), "the normal had 0.02 before the cut, which leaves less"),
        (
            lambda n: np.random.default_rng(0).normal(size=n) * 0.02,
            "at n = 100000 the largest |w| is too large",
        ),
    ),
    "01.3": (
        2 / widening(0.99),
        (0.02, "at 0.02 the bounds stand at 100 standard deviations"),
        (widening(0.99), "this is c, the cut in standard deviations"),
    ),
    "02.1": (
        lambda n, m, v: m * v,
        (lambda n, m, v: n * v, "this is the factor on the signal, forward"),
        (lambda n, m, v: m * v**0.5, "the weights enter with their standard deviation"),
    ),
    "02.2": (
        lambda n, m: 1 / sqrt(n * m),
        (lambda n, m: 2 / (n + m), "this is Glorot's rule, the harmonic mean of 1/n and 1/m"),
        (lambda n, m: 1 / (n * m), "the root is missing"),
    ),
    "02.3": (
        np.cumprod([1] + [0.4, 1.6] * 6),
        (0.64 ** np.arange(13), "number 1 is too large"),
        (np.cumprod([1] + [1.6, 0.4] * 6), "the two factors have changed places"),
    ),
    "02.4": (
        PLAIN.replace(init_variance=2**0.5),
        (
            PLAIN.replace(init_variance=2.0),
            "this makes up for relu's ½ in each of the two matrices",
        ),
        (
            ex.Config(init_variance=2**0.5),
            "only init_variance may differ from the design of the exercise",
        ),
    ),
    "03.1": (
        lambda n: 1 / (n * 0.3557755198),
        (lambda n: 2 / n, "this is relu's variance, He's"),
        (lambda n: 0.3557755198 / n, "the second moment multiplies in place of dividing"),
    ),
    "03.2": (
        lambda z: (1 / (1 + exp(-z)) - 0.5) / sqrt(0.0433790359),
        (
            lambda z: 1 / (1 + exp(-z)) / sqrt(0.2933790359),
            "the second moment is 1, and the mean is not 0",
        ),
        (
            lambda z: (1 / (1 + exp(-z)) - 0.5) / sqrt(0.2933790359),
            "the mean is 0, divided by the second moment of the sigmoid before",
        ),
    ),
    "03.3": (
        0.9 * 0.4833410354 / 0.3752088322,
        (1.1778072, "this is χ at q = 1"),
        (0.4833410354 / 0.3942944904, "the slope is taken at 0.9 and tanh² at 1"),
    ),
    "03.4": (
        2 / 1.0507009874**2,
        (2.0, "this is relu's gain"),
        (1.0, "at 1 SELU has its fixed point"),
    ),
    "04.1": (
        lambda a, b: np.array([a, b]) / sqrt((a * a + b * b) / 2),
        (lambda a, b: np.array([a, b]) / sqrt(a * a + b * b), "this divides by the length"),
        (lambda a, b: np.sign([a - b, b - a]), "at a = 3, b = 4 number 0 has the wrong sign"),
    ),
    "04.2": (
        lambda v: v / 9,
        (lambda v: 0.1, "this ε does not depend on v"),
        (lambda v: v / 10, "this ε is 10 % of v"),
    ),
    "04.3": (44, (10, "this is 1/0.1, the time constant"), (22, "the value is too small")),
    "04.4": (
        lambda n, v: (1 - 2 / n) / v,
        (lambda n, v: (1 - 1 / n) / v, "one direction is taken out"),
        (lambda n, v: (1 - 2 / n) / v**0.5, "this is divided by the standard deviation"),
    ),
    "05.1": (
        0.064,
        (0.001, "this is the step itself"),
        (4.096, "this compares with the variance 1/m"),
    ),
    "05.2": (
        lambda eta, c: (eta / c**2, eta / c),
        (lambda eta, c: (eta, eta), "both rates stay as they are"),
        (lambda eta, c: (eta / c, eta / c), "SGD is treated like Adam"),
    ),
    "05.3": (
        1 / 0.2933790359,
        (0.2933790359**-0.5, "this is c, the factor under Adam"),
        (0.2933790359, "this is 1/c²"),
    ),
    "05.4": (
        lambda eta, m: eta * 32 / m,
        (lambda eta, m: eta * (32 / m) ** 0.5, "this keeps the change of the hidden layer"),
        (lambda eta, m: eta * m / 32, "the rate rises with the width"),
    ),
    "06.1": (
        lambda n, d: 1 / (n * d),
        (lambda n, d: 1 / n, "nothing makes up for the sum over d"),
        (lambda n, d: 1 / (n * sqrt(d)), "this divides the variance by √d"),
    ),
    "06.2": (exp(32), (exp(8), "this is e^σ"), (exp(64), "this is e^(σ²)")),
    "06.3": (
        lambda d: 3 * (1 + 2 / d),
        (lambda d: 3, "this is a normal's, the limit for large d"),
        (lambda d: 3 + 2 / d, "the 3 of the normal multiplies d², and not 2d"),
    ),
    "06.4": (
        lambda n, d: 1 / (n * sqrt(d)),
        (lambda n, d: 1 / n, "nothing makes up for the sum over d"),
        (lambda n, d: 1 / (n * d), "both matrices are divided by d"),
    ),
    "07.1": (2**-2.5, (2**-1.5, "this is the weight of F₅"), (2**-5, "the value is too small")),
    "07.2": (
        lambda N, layer: 1 / (layer + 1),
        (lambda N, layer: (N + 1) / (layer + 1), "this is the growth on the way down"),
        (lambda N, layer: 1 / (N + 1), "this is the gradient² at the end of the stack"),
    ),
    "07.3": (
        lambda layer: sqrt(4 ** (1 / layer) - 1),
        (lambda layer: sqrt(2 ** (1 / layer) - 1), "here the square of the weight is ½"),
        (lambda layer: layer**-0.5, "this leaves about e^(−½) for large l"),
    ),
    "07.4": (
        ex.Config(norm_placement="peri", n_layers=12, alpha=24**-0.5),
        (
            ex.Config(norm_placement="peri", n_layers=12, alpha=12**-0.5),
            "this counts one branch a layer",
        ),
        (
            ex.Config(n_layers=12, alpha=24**-0.5),
            "only alpha may differ from the design of the exercise",
        ),
    ),
    "08.1": (
        exp(-0.5),
        (1, "this is the first term of the logarithm alone"),
        (exp(0.5), "the sign of the second term is wrong"),
    ),
    "08.2": (
        lambda n: (8 * n) ** -0.5 / (2 * n) ** 0.25,
        (lambda n: (8 * n) ** -0.25 / (2 * n) ** 0.25, "β stands here once"),
        (lambda n: (2 * n) ** -0.25, "this is 1/α"),
    ),
    "08.3": (
        sqrt(2**0.001 - 1),
        (2**0.001 - 1, "this is ε²"),
        (1000**-0.5, "this lets the second moment grow by e"),
    ),
    "08.4": (
        lambda n: (1 + 1 / n) ** (1 - n),
        (lambda n: 1 / n, "this is the rule for branches of size 1"),
        (lambda n: 1.0, "N·ε² is 1, and the growth of the signal is left out"),
    ),
    "09.1": (
        lambda depth: np.prod([1 + 1 / (2 + layer) for layer in range(depth)]),
        (lambda depth: 1.5**depth, "here q stays 1 in every layer"),
        (lambda depth: 1 + 1.5 * depth, "this is the upper edge of the band, with attention"),
    ),
    "09.2": (
        (1.044836 / 1.29338) ** 12,
        (1.044836 / 1.29338, "this is one layer"),
        ((1.044836 / 1.29338) ** 24, "this counts 24 sublayers"),
    ),
    "09.3": (100, (298, "this is the lower edge of the band"), (66, "the value is too small")),
    "09.4": (
        ex.preset("deepnorm", n_layers=12),
        (ex.preset("peri_ln", n_layers=12), "Peri-LN's stream grows more than Pre-LN's"),
        (
            ex.preset("deepnorm", n_layers=6),
            "only norm_placement, residual, alpha may differ from the design of the exercise",
        ),
    ),
    "12.1": (
        lambda n: n**-0.5 / 2,
        (lambda n: (8 * n) ** -0.25, "this is DeepNorm's β, beside its s"),
        (lambda n: 1 / (4 * n), "this is β²"),
    ),
    "12.2": (
        lambda eta, n: 1 / (eta * (2 * n) ** 0.5),
        (lambda eta, n: 1 / (eta * 2 * n), "the root is missing"),
        (lambda eta, n: 1 / eta, "this is when α is 1"),
    ),
    "12.3": (
        ex.Config(norm_placement="post", n_layers=48, alpha=0.1683),
        (ex.Config(norm_placement="post", n_layers=48), "this is Post-LN as it is"),
        (ex.preset("pre_ln", n_layers=48), "only alpha may differ from the design of the exercise"),
    ),
    "12.4": (
        [4, 4],
        ([4, 2], "this factor is of the standard deviation"),
        ([3, 4], "3 is the block's number in the code, which counts from 0"),
    ),
    "10.1": (
        lambda k, T: (k + 1) / (2 * T),
        (lambda k, T: k / T, "this is the last rate over η"),
        (lambda k, T: k / (2 * T), "this is the area below a straight line from 0"),
    ),
    "10.2": (
        lambda beta: sqrt((1 - beta) / (1 + beta)),
        (lambda beta: 1 - beta, "this is the newest gradient's weight"),
        (lambda beta: sqrt(1 - beta), "the sum of the squared weights is another"),
    ),
    "10.3": (
        lambda s: 3 / log10(1 + s * s),
        (lambda s: 3 / log10(2), "this is the law for s = 1"),
        (lambda s: 1000 / s**2, "1 − ρ does not fall by the same amount in each layer"),
    ),
    "10.4": (
        556,
        (500, "r₅₀₀ is still below ½"),
        (2000, "this is about 2/(1 − β₂), where r is 0.83"),
    ),
    "11.1": (
        0.25 * gamma(2),
        (0.25 * sqrt(gamma(2)), "the cut is counted once"),
        (0.25, "the cut is left out"),
    ),
    "11.2": (
        lambda layer: (layer - 1) / layer,
        (lambda layer: sqrt((layer - 1) / layer), "this is RealFormer's correlation"),
        (lambda layer: 1 / layer, "this is the share that is new"),
    ),
    "11.3": (
        lambda c: 1 / sqrt(1 - c * c),
        (lambda c: 1 / (1 - c), "this adds standard deviations"),
        (lambda c: 1 / (1 - c * c), "this is the variance"),
    ),
    "11.4": (
        lambda layer: (sqrt(layer), layer),
        (lambda layer: (layer, layer), "RealFormer's logits are taken for the sums' product"),
        (lambda layer: (1, 1), "here the turn takes all growth away"),
    ),
    "13.1": (
        lambda layer: 2.0 ** (1 - 2**layer),
        (lambda layer: 2.0**-layer, "here each MLP multiplies by ½"),
        (lambda layer: 2.0 ** -(2**layer), "the ½ is counted once too often"),
    ),
    "13.2": (
        lambda rho, c: (1 - rho * (1 + c) / 2) / (1 - rho),
        (lambda rho, c: (1 - rho * c) / (1 - rho), "this turns all pairs"),
        (
            lambda rho, c: (1 - rho * c / 2) / (1 - rho),
            "the pairs that do not turn are counted as 0",
        ),
    ),
    "13.3": (
        lambda d, base: 2 * pi * base ** (1 - 2 / d),
        (lambda d, base: 2 * pi * base, "this is a pair i = d/2, which is not there"),
        (lambda d, base: base ** (1 - 2 / d), "this is a turn by one radian"),
    ),
    "13.4": (
        LLAMA.replace(mlp="gated", alpha=0.6737),
        (LLAMA.replace(mlp="gated", alpha=0.5**0.5), "this halves the branches' second moment"),
        (LLAMA, "only alpha may differ from the design of the exercise"),
    ),
}
"""Of each exercise a solution, and two typical mistakes, each with words of its sentence."""


def test_every_exercise_is_tried() -> None:
    assert ANSWERS.keys() == EXERCISES.keys() == TEXTS.keys()


@pytest.mark.parametrize("number", ANSWERS)
def test_a_solution_is_right_and_typical_mistakes_are_not(number: str) -> None:
    right, *wrong = ANSWERS[number]
    assert ex.check(number, right), ex.check(number, right)
    assert repr(ex.check(number, right)) == "Right."
    for answer, words in wrong:
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
    right = ANSWERS[number][0]

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
