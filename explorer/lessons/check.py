"""`check`: an exercise's answer beside an oracle. It says how far off an answer is and where, never the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import truncnorm

from explorer.config import Config, ConfigError
from explorer.display import must_be, shown
from explorer.numbers import number
from explorer.profile import Array
from explorer.theory import predict

DRAWS = 100_000
"""Weights that an answer which draws them is asked for."""
FAR = 10.0
"""Factor from which on an answer is off by a factor, and not by so many per cent."""


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


def plain_mlps() -> Config:
    """Twelve MLPs one after the other: no attention, no residual, no norm, and a relu as it is."""
    return Config(attention="none", residual="absent", norm_placement="none", activation_rescaled=False, n_layers=12)


def _growth(config: Config) -> float:
    """Last second moment over the first of `plain_mlps` with another `init_variance`."""
    if config.replace(init_variance=1.0) != plain_mlps():
        raise ConfigError(f"only init_variance may differ from the plain design; got {config}")
    moments = predict(config).stream("second_moment")[1][0]
    return float(moments[-1] / moments[0])


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
    "02.4": Exercise("a Config", lambda: 1.0, tolerance=0.02, reduce=_growth, kind=Config,
                     parts=("the last second moment over the first",)),
})
"""By number: lesson, a point, and the exercise's place in it."""
