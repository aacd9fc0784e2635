"""Numbers of one design, or of several that are predicted side by side.

The recursions are the same for one design and for several of one structure. What is a float for one
is an array `[design]` for several that differ in it, and arrays have the axis of designs last:
`[position]` is `[position, design]` there, and `[pair]` is `[pair, design]`. So numbers multiply
arrays in either case. Numbers that all designs have in common stay floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray


def equals(x: Any, value: float) -> bool:
    """Whether a number is `value` in all designs, so that a step may be left out.

    A number that differs between designs is never equal: the step is then done for all."""
    return type(x) is not ndarray and x == value


def at_least(x: Any, least: float) -> Any:
    """The larger of a number and a bound."""
    return np.maximum(x, least) if type(x) is ndarray else max(x, least)


def at_most(x: Any, most: float) -> Any:
    """The smaller of a number and a bound."""
    return np.minimum(x, most) if type(x) is ndarray else min(x, most)


def quotient(x: Any, y: Any, otherwise: float = 0.0) -> Any:
    """x / y, and `otherwise` where y is not above 0."""
    if type(y) is ndarray:
        return np.where(y > 0, x / y, otherwise)
    return x / y if y > 0 else otherwise


def joined(records: Sequence[Any]) -> Any:
    """The record of several designs, of the record of each: where numbers differ, they are arrays
    `[design]`. All else has to be equal.

    Args:
        records: numbers; or tuples, lists and dicts of them, or objects with such attributes.
    """
    first = records[0]
    if len(records) == 1 or all(record == first for record in records):
        return first
    if isinstance(first, float | int):
        return np.array(records, float)
    if isinstance(first, dict):
        return {name: joined([record[name] for record in records]) for name in first}
    if isinstance(first, tuple | list):
        columns = [joined(column) for column in zip(*records, strict=True)]
        return first._make(columns) if hasattr(first, "_make") else type(first)(columns)
    out = object.__new__(type(first))
    vars(out).update(joined([vars(record) for record in records]))
    return out
