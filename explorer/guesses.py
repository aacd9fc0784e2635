"""Guesses of a curve, made before it is measured: the depths asked for, and how far a guess is from what came out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from explorer.display import shown
from explorer.numbers import number
from explorer.profile import Array


def depths(first: int, last: int, most: int = 6) -> list[int]:
    """Whole depths from the first to the last layer, evenly spread, both ends among them; at most so many."""
    return list(dict.fromkeys(round(depth) for depth in np.linspace(first, last, most)))


def checked(guess: object, count: int, low: float, high: float) -> list[float]:
    """A guess that came from a browser, as numbers.

    Args:
        count: heights that it must have.
        low, high: ends of the axis; exponents where it is logarithmic.
    Raises:
        ValueError: it is not a list of so many finite numbers on the axis.
    """
    if not isinstance(guess, list) or len(guess) != count:
        raise ValueError(f"a guess must be a list of {count} heights; got {shown(guess)}")
    for height in guess:
        if isinstance(height, bool) or not isinstance(height, int | float) or not low <= height <= high:
            raise ValueError(f"each height of a guess must be between {low:g} and {high:g}; got {shown(height)}")
    return [float(height) for height in guess]


def between(at: ArrayLike, heights: Sequence[float], where: ArrayLike) -> Array:
    """Heights of the line through a guess, at other depths; beyond its ends it is level."""
    return np.asarray(np.interp(np.asarray(where, dtype=float), np.asarray(at, dtype=float), heights))


def apart(one: ArrayLike, other: ArrayLike, *, log: bool) -> float:
    """Distance of two curves: the mean factor between them, at least 1, or the mean absolute difference.

    Depths at which either has no place on the axis do not count; nan where none is left.

    Args:
        log: whether the axis is logarithmic, and the distance a factor: the geometric mean of those at each depth.
    """
    first, second = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    keep = np.isfinite(first) & np.isfinite(second) & (((first > 0) & (second > 0)) | (not log))
    if not keep.any():
        return math.nan
    first, second = first[keep], second[keep]
    return float(np.exp(np.mean(np.abs(np.log(first / second))))) if log else float(np.mean(np.abs(first - second)))


def in_words(distance: float, *, log: bool) -> str:
    """A mean distance: "by a factor of 1.9", "by 0.31"."""
    if math.isnan(distance):
        return "where nothing can be compared"
    return f"by a factor of {number(distance)}" if log else f"by {number(distance, 2)}"
