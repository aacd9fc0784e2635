"""`check`: an exercise's answer beside an oracle. It says how far off an answer is and where, never the right one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.choices import ConfigError
from explorer.display import must_be, shown
from explorer.lessons.exercises import EXERCISES, Exercise
from explorer.numbers import number
from explorer.profile import Array

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
