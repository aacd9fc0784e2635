"""`EXERCISES`: every exercise of the lessons with its oracle, by number: lesson, point, place in it; and `check`.

A check says how far off an answer is and where, never the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import truncnorm

from explorer.config import Config, ConfigError
from explorer.display import must_be, shown
from explorer.numbers import number
from explorer.profile import Array
from explorer.schemes.activation import ACTIVATIONS, SELU_SCALE
from explorer.theory import predict
from explorer.theory.gaussian import moments

DRAWS = 100_000
"""Weights that an answer which draws them is asked for."""


class Exercise(NamedTuple):
    """One exercise as a row of data."""

    asks: str
    """The kind of answer: "a number", "a function of n and m"."""
    oracle: Callable[..., Any]
    """From a place to the right value, a number or an array."""
    places: tuple[Mapping[str, float], ...] = ({},)
    """Arguments at which a function is compared, by their names; an answer that is no function has one empty place."""
    tolerance: float = 1e-3
    """Largest relative difference; four standard errors where the answer is drawn."""
    reduce: Callable[[Any], Any] = lambda answer: answer
    """From the answer, or a function's value, to the numbers that are compared."""
    parts: tuple[str, ...] = ()
    """Words for each of these numbers; their index serves where it is empty."""
    kind: type = object
    """The answer's type, where it is a record."""


def _left(c: float) -> float:
    """Share of a normal's variance that a cut at ±c standard deviations leaves."""
    return float(truncnorm(-c, c).var())


def _widened(share: float) -> float:
    """The c at which a cut leaves that share."""
    return float(brentq(lambda c: _left(c) - share, 0.1, 8, xtol=1e-12))


def _std_and_reach(weights: Any) -> Array:
    """Standard deviation and largest size of weights."""
    array = np.asarray(weights, dtype=float).ravel()
    return np.array([array.std(), np.abs(array).max()])


def _stack(width: int, other: int, depth: int) -> Array:
    """`[layer + 1]` second moment in layers width → other → width → …, of variance 2/(fan_in + fan_out)."""
    gains = [2 * fan_in / (width + other) for fan_in in (width, other)] * depth
    return np.cumprod(np.array([1.0, *gains[:depth]]))


def _only(field: str, config: Config, plain: Config) -> Config:
    """The design, which may differ from the plain one in this field alone."""
    if config.replace(**{field: getattr(plain, field)}) != plain:
        raise ConfigError(f"only {field} may differ from the design of the exercise; got {config}")
    return config


def _growth(config: Config) -> float:
    """Last second moment over the first, predicted."""
    squares = predict(config).stream("second_moment")[1][0]
    return float(squares[-1] / squares[0])


def _flow(activation: str) -> float:
    """Factor of an MLP after Post-LN on gradient²."""
    _, square, slope_square = moments(activation)
    return (1 + slope_square) / (1 + square)


def _rectified(t: int) -> float:
    """RAdam's factor on the step, at β₂ = 0.999."""
    limit, power = 1999, 0.999**t
    rho = limit - 2 * t * power / (1 - power)
    return float(((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) ** 0.5)


def _unevenness(config: Config) -> float:
    """Largest over smallest gradient² along the stream of 12 layers, predicted."""
    if (config.n_layers, config.attention) != (12, Config().attention):
        raise ConfigError(f"the design must have 12 layers and softmax attention; got {config}")
    gradient = predict(config).stream("activation_gradient")[1]
    return float(gradient.max() / gradient.min())


PLAIN = Config(attention="none", residual="absent", norm_placement="none", activation_rescaled=False, n_layers=12)
"""Twelve MLPs one after the other: no attention, no residual, no norm, and a relu as it is."""
LLAMA = Config(n_layers=12, norm="rms", activation="silu", activation_rescaled=False, position="rotary", causal=True)
"""Lesson 13's layers, still without a gate."""
WIDTHS = ({"n": 512, "d": 64}, {"n": 768, "d": 128})
"""Widths of a model and of its heads."""
GROWTH = "the last second moment over the first"

EXERCISES: Mapping[str, Exercise] = MappingProxyType({
    "01.1": Exercise("a number", lambda: _left(3) ** -0.5),
    "01.2": Exercise("a function of n that gives n weights", lambda n: [0.02, 2 * 0.02 * _left(2) ** -0.5],
                     ({"n": DRAWS},), 4 / (2 * DRAWS) ** 0.5, _std_and_reach,
                     ("the standard deviation", "the largest |w|")),
    "01.3": Exercise("a number", lambda: 2 / _widened(0.99), tolerance=5e-3),
    "02.1": Exercise("a function of n, m and v", lambda n, m, v: m * v,
                     ({"n": 256, "m": 1024, "v": 1 / 256}, {"n": 1024, "m": 64, "v": 0.02}), 1e-6),
    "02.2": Exercise("a function of n and m", lambda n, m: (n * m) ** -0.5,
                     ({"n": 256, "m": 256}, {"n": 256, "m": 1024}, {"n": 1024, "m": 64}), 1e-6),
    "02.3": Exercise("an array of 13 numbers", lambda: _stack(256, 1024, 12)),
    "02.4": Exercise("a Config", lambda: 1.0, tolerance=0.02, kind=Config, parts=(GROWTH,),
                     reduce=lambda config: _growth(_only("init_variance", config, PLAIN))),
    "03.1": Exercise("a function of n", lambda n: 1 / (n * moments("silu").square), ({"n": 64}, {"n": 512})),
    "03.2": Exercise("a function of z", lambda z: (ACTIVATIONS["sigmoid"].value(z) - 0.5)
                     / (moments("sigmoid").square - 0.25) ** 0.5, ({"z": -1}, {"z": 2})),
    "03.3": Exercise("a number", lambda: 0.9 * moments("tanh", 0.9).slope_square / moments("tanh", 0.9).square),
    "03.4": Exercise("a number", lambda: 2 / SELU_SCALE**2),
    "04.1": Exercise("a function of a and b", lambda a, b: np.array([a, b]) * 2**0.5 / np.hypot(a, b),
                     ({"a": 3, "b": 4}, {"a": 1, "b": -2})),
    "04.2": Exercise("a function of v", lambda v: v / 9, ({"v": 1}, {"v": 8e-4})),
    "04.3": Exercise("a number", lambda: np.ceil(np.log(0.01) / np.log(0.9))),
    "04.4": Exercise("a function of n and v", lambda n, v: (1 - 2 / n) / v, ({"n": 4, "v": 1}, {"n": 64, "v": 25})),
    "05.1": Exercise("a number", lambda: 0.001 * 4096**0.5),
    "05.2": Exercise("a function of eta and c", lambda eta, c: [eta / c**2, eta / c],
                     ({"eta": 0.01, "c": 1 / 16}, {"eta": 0.5, "c": 2}), 1e-6, parts=("SGD's rate", "Adam's rate")),
    "05.3": Exercise("a number", lambda: 1 / moments("sigmoid").square),
    "05.4": Exercise("a function of eta and m", lambda eta, m: eta * 32 / m, ({"eta": 0.1, "m": 2048},), 1e-6),
    "06.1": Exercise("a function of n and d", lambda n, d: 1 / (n * d), WIDTHS, 1e-6),
    "06.2": Exercise("a number", lambda: np.exp(64 / 2), tolerance=0.02),
    "06.3": Exercise("a function of d", lambda d: 3 + 6 / d, ({"d": 2}, {"d": 64}), 1e-6),
    "06.4": Exercise("a function of n and d", lambda n, d: 1 / (n * d**0.5), WIDTHS, 1e-6),
    "07.1": Exercise("a number", lambda: 2**-2.5),
    "07.2": Exercise("a function of N and l", lambda N, layer: 1 / (layer + 1), ({"N": 12, "l": 3}, {"N": 36, "l": 0}),
                     1e-6),
    "07.3": Exercise("a function of l", lambda layer: (4 ** (1 / layer) - 1) ** 0.5, ({"l": 1}, {"l": 24}), 1e-6),
    "07.4": Exercise("a Config", lambda: 2.0, tolerance=0.02, kind=Config, parts=(GROWTH,),
                     reduce=lambda config: _growth(_only("alpha", config, Config(norm_placement="peri", n_layers=12)))),
    "08.1": Exercise("a number", lambda: np.exp(-0.5)),
    "08.2": Exercise("a function of N", lambda n: (8 * n) ** -0.5 / (2 * n) ** 0.25,
                     ({"N": 12}, {"N": 1000}), 1e-6),
    "08.3": Exercise("a number", lambda: (2**1e-3 - 1) ** 0.5),
    "08.4": Exercise("a function of N", lambda n: (1 + 1 / n) ** (1 - n), ({"N": 2}, {"N": 64}), 1e-6),
    "09.1": Exercise("a function of L", lambda depth: 1 + depth / 2, ({"L": 6}, {"L": 24}), 1e-6),
    "09.2": Exercise("a number", lambda: _flow("sigmoid") ** 12, tolerance=5e-3),
    "09.3": Exercise("a number", lambda: (1.5 * 10**2 - 1) / 1.5, tolerance=0.015),
    "09.4": Exercise("a Config", lambda: 1.0, tolerance=0.5, reduce=_unevenness, kind=Config,
                     parts=("the largest gradient² over the smallest",)),
    "12.1": Exercise("a function of N", lambda n: n**-0.5 / 2, ({"N": 12}, {"N": 1000}), 1e-6),
    "12.2": Exercise("a function of eta and N", lambda eta, n: (2 * n) ** -0.5 / eta,
                     ({"eta": 3e-3, "N": 8}, {"eta": 1e-3, "N": 1000}), 1e-6),
    "12.3": Exercise("a Config", lambda: 0.5, tolerance=0.02, kind=Config, parts=("the token correlation",),
                     reduce=lambda config: predict(_only("alpha", config, Config(norm_placement="post", n_layers=48)))[
                         "token_correlation", "resid_post"][0, -1]),
    "12.4": Exercise("a layer and a factor", lambda: [4, 4], tolerance=0.1, parts=("the layer", "the factor")),
    "10.1": Exercise("a function of k and T", lambda k, T: (k + 1) / (2 * T), ({"k": 1, "T": 64}, {"k": 64, "T": 64}),
                     1e-6),
    "10.2": Exercise("a function of beta1", lambda beta: ((1 - beta) / (1 + beta)) ** 0.5,
                     ({"beta1": 0.9}, {"beta1": 0.5})),
    "10.3": Exercise("a function of s", lambda s: np.log(1000) / np.log1p(s * s), ({"s": 1}, {"s": 3})),
    "10.4": Exercise("a number", lambda: next(t for t in count(6) if _rectified(t) >= 0.5)),
    "11.1": Exercise("a number", lambda: 0.5**2 * _left(2)),
    "11.2": Exercise("a function of l", lambda layer: 1 - 1 / layer, ({"l": 2}, {"l": 12}), 1e-6),
    "11.3": Exercise("a function of c", lambda c: (1 - c * c) ** -0.5, ({"c": 0.5}, {"c": 0.95}), 1e-6),
    "11.4": Exercise("a function of l that gives two numbers", lambda layer: [layer**0.5, layer], ({"l": 4}, {"l": 12}),
                     1e-6, parts=("RealFormer's spread", "the spread of the sums' product")),
    "13.1": Exercise("a function of l", lambda layer: 2.0 ** (1 - 2**layer), ({"l": 1}, {"l": 4}), 1e-6),
    "13.2": Exercise("a function of rho and c", lambda rho, c: (1 - rho * (1 + c) / 2) / (1 - rho),
                     ({"rho": 0.4, "c": 0.7}, {"rho": 0.8, "c": 0.5}), 1e-6),
    "13.3": Exercise("a function of d and b", lambda d, base: 2 * np.pi * base ** (1 - 2 / d),
                     ({"d": 128, "b": 5e5}, {"d": 8, "b": 1e4}), 1e-6),
    "13.4": Exercise("a Config", lambda: _unevenness(LLAMA), tolerance=0.02, kind=Config,
                     reduce=lambda config: _unevenness(_only("alpha", config, LLAMA.replace(mlp="gated"))),
                     parts=("the gradient² at the input",)),
})


FAR = 10.0
"""Factor from which on an answer is off by a factor, and not by so many per cent."""


@dataclass(frozen=True)
class Checked:
    """The result of a check: true or false, and a sentence."""

    right: bool
    sentence: str

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.sentence


def check(number: str, answer: object) -> Checked:
    """Compares the answer to an exercise with what is right.

    Args:
        number: of the exercise, such as "02.1": lesson and place.
        answer: a number, an array, a function or a `Config`, as the exercise asks.
    Returns:
        A record that is true if the answer is right, and shows a sentence: how far off it is, and where.
    Raises:
        ValueError: there is no such exercise.
        TypeError: the answer is not of the kind that the exercise asks for.
    """
    if must_be(str, "number", number) not in EXERCISES:
        raise ValueError(f"number must be one of {', '.join(EXERCISES)}; got {shown(number)}")
    exercise = EXERCISES[number]
    if exercise.kind is not object:
        must_be(exercise.kind, f"the answer to {number}", answer)
    if exercise.places[0] and not callable(answer):
        raise TypeError(f"the answer to {number} must be {exercise.asks}; got {shown(answer)}")
    faults = []
    for place in exercise.places:
        where = ", ".join(f"{name} = {value:g}" for name, value in place.items())
        try:
            value = exercise.reduce(answer(*place.values()) if place else answer)  # type: ignore[operator]
            given = np.asarray(value, dtype=float)
        except Exception as error:  # noqa: BLE001 - the student's code; the sentence says what it did
            words = f"{error}" if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            return Checked(False, f"Not yet: {f'at {where} ' * bool(place)}{words}.")
        wanted = np.asarray(exercise.oracle(*place.values()), dtype=float)
        if given.shape != wanted.shape:
            return Checked(False, f"Not yet: {number} asks for {exercise.asks}; got an array of shape {given.shape}.")
        faults += _faults(given.ravel(), wanted.ravel(), where, exercise)
    if not faults:
        return Checked(True, "Right.")
    return Checked(False, f"Not yet: {max(faults, key=lambda fault: fault[0])[1]}.")


def _faults(given: Array, wanted: Array, where: str, exercise: Exercise) -> list[tuple[float, str]]:
    """Size and words of each difference above the tolerance."""
    faults = []
    for index, (value, right) in enumerate(zip(given, wanted, strict=True)):
        part = exercise.parts[index] if exercise.parts else f"number {index}" if len(wanted) > 1 else "the value"
        off = abs(value / right - 1) if np.isfinite(value) else np.inf
        if not off <= exercise.tolerance:
            faults.append((off, f"{f'at {where} ' * bool(where)}{part} {_distance(value, right)}"))
    return faults


def _distance(value: float, right: float) -> str:
    """How far a value is off, to one digit: enough to look for the mistake."""
    if not np.isfinite(value):
        return f"is {value}"
    ratio = value / right
    if ratio <= 0:
        return "has the wrong sign" if ratio else "is 0"
    side = "large" if ratio > 1 else "small"
    factor = max(ratio, 1 / ratio)
    return (f"is {number(factor, 1)} times too {side}" if factor > FAR or factor >= 1.95
            else f"is {number(100 * abs(ratio - 1), 1)} % too {side}")
