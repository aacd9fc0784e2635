"""Each exercise of the lessons is tried: with a solution, with two typical mistakes, and with answers that are none."""

from __future__ import annotations

from math import erf, exp, log10, pi, sqrt
from typing import Any

import numpy as np
import pytest

import explorer as ex
from explorer.lessons.exercises import EXERCISES, LLAMA, PLAIN


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
    "01.1": (gamma(3) ** -0.5, (gamma(3), "the value is 4 % too small"), (1 / gamma(3), "the value is 1 % too large")),
    "01.2": (lambda n: cut_normal(n, 0.02 / sqrt(gamma(2))),
             (lambda n: cut_normal(n, 0.02), "at n = 100000 the standard deviation is 10 % too small"),
             (lambda n: np.random.default_rng(0).normal(size=n) * 0.02,
              "at n = 100000 the largest |w| is 2 times too large")),
    "01.3": (2 / widening(0.99), (0.02, "the value is 30 times too small"),
             (widening(0.99), "the value is 6 times too large")),
    "02.1": (lambda n, m, v: m * v,
             (lambda n, m, v: n * v, "at n = 1024, m = 64, v = 0.02 the value is 20 times too large"),
             (lambda n, m, v: m * v**0.5, "the value is 20 times too large")),
    "02.2": (lambda n, m: 1 / sqrt(n * m),
             (lambda n, m: 2 / (n + m), "at n = 1024, m = 64 the value is 2 times too small"),
             (lambda n, m: 1 / (n * m), "at n = 256, m = 1024 the value is 500 times too small")),
    "02.3": (np.cumprod([1] + [0.4, 1.6] * 6), (0.64 ** np.arange(13), "number 12 is 10 times too small"),
             (np.cumprod([1] + [1.6, 0.4] * 6), "number 1 is 4 times too large")),
    "02.4": (PLAIN.replace(init_variance=2**0.5),
             (PLAIN.replace(init_variance=2.0), "second moment over the first is 4,000 times too large"),
             (ex.Config(init_variance=2**0.5), "only init_variance may differ from the design of the exercise")),
    "03.1": (lambda n: 1 / (n * 0.3557755198), (lambda n: 2 / n, "at n = 64 the value is 30 % too small"),
             (lambda n: 0.3557755198 / n, "at n = 64 the value is 8 times too small")),
    "03.2": (lambda z: (1 / (1 + exp(-z)) - 0.5) / sqrt(0.0433790359),
             (lambda z: 1 / (1 + exp(-z)) / sqrt(0.2933790359), "at z = -1 the value has the wrong sign"),
             (lambda z: (1 / (1 + exp(-z)) - 0.5) / sqrt(0.2933790359), "the value is 3 times too small")),
    "03.3": (0.9 * 0.4833410354 / 0.3752088322, (1.1778072, "the value is 2 % too large"),
             (0.4833410354 / 0.3942944904, "the value is 6 % too large")),
    "03.4": (2 / 1.0507009874**2, (2.0, "the value is 10 % too large"), (1.0, "the value is 40 % too small")),
    "04.1": (lambda a, b: np.array([a, b]) / sqrt((a * a + b * b) / 2),
             (lambda a, b: np.array([a, b]) / sqrt(a * a + b * b), "number 0 is 30 % too small"),
             (lambda a, b: np.sign([a - b, b - a]), "at a = 3, b = 4 number 0 has the wrong sign")),
    "04.2": (lambda v: v / 9, (lambda v: 0.1, "at v = 0.0008 the value is 1,000 times too large"),
             (lambda v: v / 10, "the value is 10 % too small")),
    "04.3": (44, (10, "the value is 4 times too small"), (22, "the value is 2 times too small")),
    "04.4": (lambda n, v: (1 - 2 / n) / v,
             (lambda n, v: (1 - 1 / n) / v, "at n = 4, v = 1 the value is 50 % too large"),
             (lambda n, v: (1 - 2 / n) / v**0.5, "at n = 64, v = 25 the value is 5 times too large")),
    "05.1": (0.064, (0.001, "the value is 60 times too small"), (4.096, "the value is 60 times too large")),
    "05.2": (lambda eta, c: (eta / c**2, eta / c),
             (lambda eta, c: (eta, eta), "at eta = 0.5, c = 2 SGD's rate is 4 times too large"),
             (lambda eta, c: (eta / c, eta / c), "at eta = 0.5, c = 2 SGD's rate is 2 times too large")),
    "05.3": (1 / 0.2933790359, (0.2933790359**-0.5, "the value is 50 % too small"),
             (0.2933790359, "the value is 10 times too small")),
    "05.4": (lambda eta, m: eta * 32 / m,
             (lambda eta, m: eta * (32 / m) ** 0.5, "at eta = 0.1, m = 2048 the value is 8 times too large"),
             (lambda eta, m: eta * m / 32, "at eta = 0.1, m = 2048 the value is 4,000 times too large")),
    "06.1": (lambda n, d: 1 / (n * d),
             (lambda n, d: 1 / n, "at n = 768, d = 128 the value is 100 times too large"),
             (lambda n, d: 1 / (n * sqrt(d)), "at n = 768, d = 128 the value is 10 times too large")),
    "06.2": (exp(32), (exp(8), "times too small"), (exp(64), "times too large")),
    "06.3": (lambda d: 3 * (1 + 2 / d), (lambda d: 3, "at d = 2 the value is 2 times too small"),
             (lambda d: 3 + 2 / d, "at d = 2 the value is 30 % too small")),
    "06.4": (lambda n, d: 1 / (n * sqrt(d)),
             (lambda n, d: 1 / n, "at n = 768, d = 128 the value is 10 times too large"),
             (lambda n, d: 1 / (n * d), "at n = 768, d = 128 the value is 10 times too small")),
    "07.1": (2**-2.5, (2**-1.5, "the value is 2 times too large"), (2**-5, "the value is 6 times too small")),
    "07.2": (lambda N, layer: 1 / (layer + 1),
             (lambda N, layer: (N + 1) / (layer + 1), "at N = 36, l = 0 the value is 40 times too large"),
             (lambda N, layer: 1 / (N + 1), "at N = 36, l = 0 the value is 40 times too small")),
    "07.3": (lambda layer: sqrt(4 ** (1 / layer) - 1),
             (lambda layer: sqrt(2 ** (1 / layer) - 1), "at l = 1 the value is 40 % too small"),
             (lambda layer: layer**-0.5, "at l = 1 the value is 40 % too small")),
    "07.4": (ex.Config(norm_placement="peri", n_layers=12, alpha=24**-0.5),
             (ex.Config(norm_placement="peri", n_layers=12, alpha=12**-0.5),
              "the last second moment over the first is 50 % too large"),
             (ex.Config(n_layers=12, alpha=24**-0.5), "only alpha may differ from the design of the exercise")),
    "08.1": (exp(-0.5), (1, "the value is 60 % too large"), (exp(0.5), "the value is 3 times too large")),
    "08.2": (lambda n: (8 * n) ** -0.5 / (2 * n) ** 0.25,
             (lambda n: (8 * n) ** -0.25 / (2 * n) ** 0.25, "at N = 1000 the value is 9 times too large"),
             (lambda n: (2 * n) ** -0.25, "at N = 1000 the value is 90 times too large")),
    "08.3": (sqrt(2**0.001 - 1), (2**0.001 - 1, "the value is 40 times too small"),
             (1000**-0.5, "the value is 20 % too large")),
    "08.4": (lambda n: (1 + 1 / n) ** (1 - n), (lambda n: 1 / n, "at N = 64 the value is 20 times too small"),
             (lambda n: 1.0, "at N = 64 the value is 3 times too large")),
    "09.1": (lambda depth: np.prod([1 + 1 / (2 + layer) for layer in range(depth)]),
             (lambda depth: 1.5**depth, "at L = 24 the value is 1,000 times too large"),
             (lambda depth: 1 + 1.5 * depth, "at L = 24 the value is 3 times too large")),
    "09.2": ((1.044836 / 1.29338) ** 12, (1.044836 / 1.29338, "the value is 10 times too large"),
             ((1.044836 / 1.29338) ** 24, "the value is 10 times too small")),
    "09.3": (100, (298, "the value is 3 times too large"), (66, "the value is 30 % too small")),
    "09.4": (ex.preset("deepnorm", n_layers=12),
             (ex.preset("peri_ln", n_layers=12), "the largest gradient² over the smallest is 30 times too large"),
             (ex.preset("deepnorm", n_layers=6), "the design must have 12 layers and softmax attention")),
    "12.1": (lambda n: n**-0.5 / 2, (lambda n: (8 * n) ** -0.25, "at N = 1000 the value is 7 times too large"),
             (lambda n: 1 / (4 * n), "at N = 1000 the value is 60 times too small")),
    "12.2": (lambda eta, n: 1 / (eta * (2 * n) ** 0.5),
             (lambda eta, n: 1 / (eta * 2 * n), "at eta = 0.001, N = 1000 the value is 40 times too small"),
             (lambda eta, n: 1 / eta, "at eta = 0.001, N = 1000 the value is 40 times too large")),
    "12.3": (ex.Config(norm_placement="post", n_layers=48, alpha=0.1683),
             (ex.Config(norm_placement="post", n_layers=48), "the token correlation is 2 times too large"),
             (ex.preset("pre_ln", n_layers=48), "only alpha may differ from the design of the exercise")),
    "12.4": ([4, 4], ([4, 2], "the factor is 2 times too small"), ([3, 4], "the layer is 20 % too small")),
    "10.1": (lambda k, T: (k + 1) / (2 * T), (lambda k, T: k / T, "at k = 64, T = 64 the value is 2 times too large"),
             (lambda k, T: k / (2 * T), "at k = 1, T = 64 the value is 2 times too small")),
    "10.2": (lambda beta: sqrt((1 - beta) / (1 + beta)),
             (lambda beta: 1 - beta, "at beta1 = 0.9 the value is 2 times too small"),
             (lambda beta: sqrt(1 - beta), "the value is 40 % too large")),
    "10.3": (lambda s: 3 / log10(1 + s * s), (lambda s: 3 / log10(2), "at s = 3 the value is 3 times too large"),
             (lambda s: 1000 / s**2, "at s = 1 the value is 100 times too large")),
    "10.4": (556, (500, "the value is 10 % too small"), (2000, "the value is 4 times too large")),
    "11.1": (0.25 * gamma(2), (0.25 * sqrt(gamma(2)), "the value is 10 % too large"),
             (0.25, "the value is 30 % too large")),
    "11.2": (lambda layer: (layer - 1) / layer,
             (lambda layer: sqrt((layer - 1) / layer), "at l = 2 the value is 40 % too large"),
             (lambda layer: 1 / layer, "at l = 12 the value is 10 times too small")),
    "11.3": (lambda c: 1 / sqrt(1 - c * c), (lambda c: 1 / (1 - c), "at c = 0.95 the value is 6 times too large"),
             (lambda c: 1 / (1 - c * c), "at c = 0.95 the value is 3 times too large")),
    "11.4": (lambda layer: (sqrt(layer), layer),
             (lambda layer: (layer, layer), "at l = 12 RealFormer's spread is 3 times too large"),
             (lambda layer: (1, 1), "at l = 12 the spread of the sums' product is 10 times too small")),
    "13.1": (lambda layer: 2.0 ** (1 - 2**layer),
             (lambda layer: 2.0**-layer, "at l = 4 the value is 2,000 times too large"),
             (lambda layer: 2.0 ** -(2**layer), "the value is 2 times too small")),
    "13.2": (lambda rho, c: (1 - rho * (1 + c) / 2) / (1 - rho),
             (lambda rho, c: (1 - rho * c) / (1 - rho), "at rho = 0.8, c = 0.5 the value is 50 % too large"),
             (lambda rho, c: (1 - rho * c / 2) / (1 - rho), "at rho = 0.8, c = 0.5 the value is 2 times too large")),
    "13.3": (lambda d, base: 2 * pi * base ** (1 - 2 / d),
             (lambda d, base: 2 * pi * base, "at d = 8, b = 10000 the value is 10 times too large"),
             (lambda d, base: base ** (1 - 2 / d), "the value is 6 times too small")),
    "13.4": (LLAMA.replace(mlp="gated", alpha=0.6737),
             (LLAMA.replace(mlp="gated", alpha=0.5**0.5), "the gradient² at the input is 10 % too large"),
             (LLAMA, "only alpha may differ from the design of the exercise")),
}
"""Of each exercise a solution, and two typical mistakes, each with words of its sentence."""


def test_every_exercise_is_tried() -> None:
    assert ANSWERS.keys() == EXERCISES.keys()


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


@pytest.mark.parametrize(("answer", "sentence"), [
    (float("nan"), "Not yet: the value is nan."), (0, "Not yet: the value is 0."),
    (-1, "Not yet: the value has the wrong sign."),
    ([1, 2], "Not yet: 01.1 asks for a number; got an array of shape (2,)."),
])
def test_strange_numbers_are_named(answer: object, sentence: str) -> None:
    assert repr(ex.check("01.1", answer)) == sentence


def test_an_answer_that_breaks_says_where() -> None:
    assert repr(ex.check("02.2", lambda n, m: 1 / (n - m))) == (
        "Not yet: at n = 256, m = 256 ZeroDivisionError: division by zero.")


@pytest.mark.parametrize(("number", "answer", "kind", "sentence"), [
    ("99.1", 1, ValueError, f"number must be one of {', '.join(EXERCISES)}; got '99.1'"),
    (1.1, 1, TypeError, "number must be a str; got 1.1 of type float"),
    ("02.1", 3, TypeError, "the answer to 02.1 must be a function of n, m and v; got 3"),
    ("02.4", 3, TypeError, "the answer to 02.4 must be a Config; got 3 of type int"),
])
def test_wrong_calls_are_refused(number: Any, answer: object, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as refused:
        ex.check(number, answer)
    assert str(refused.value) == sentence
