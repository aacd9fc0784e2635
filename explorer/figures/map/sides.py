"""The two fields of a map: their axes, and where their cells lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.fields import Spec
from explorer.figures.axes import Axis, field_title
from explorer.numbers import number
from explorer.profile import Array

ALONE = 0.15
"""Half the width of a cell without a neighbor: decades, or the field's units."""
FAR = 8
"""Ratio of the last value to the first from which values may ask for a logarithmic axis."""


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two fields, and its values in the order of the picture."""

    spec: Spec
    values: list[Any]

    @property
    def numeric(self) -> bool:
        """Whether it has an axis of numbers, and not of names."""
        return self.spec.kind in ("integer", "number")

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic: where its slider is, or where the values themselves lie so."""
        if not self.numeric or self.values[0] <= 0:
            return False
        return (self.spec.about.log and self.spec.low > 0) or _geometric(self.values)

    @property
    def places(self) -> list[Any]:
        """The middle of each cell: numbers, or names."""
        return [self.place(value) for value in self.values]

    def place(self, value: Any) -> Any:
        """A value as the axis has it: a number, or a name."""
        return ("off", "on")[value] if isinstance(value, bool) else value if self.numeric else str(value)

    @property
    def edges(self) -> Array:
        """Ends of the cells, half-way between neighbors as the axis has it; positions where the cells have names."""
        if not self.numeric:
            return np.arange(len(self.values) + 1.0) - 0.5
        at = self._even
        inner = (at[:-1] + at[1:]) / 2
        first, last = (inner[0], inner[-1]) if len(inner) else (at[0] + ALONE, at[0] - ALONE)
        return self._value(np.concatenate([[2 * at[0] - first], inner, [2 * at[-1] - last]]))

    @property
    def axis(self) -> Axis:
        """From the first cell's edge to the last one's."""
        ends = self.edges[[0, -1]]
        low, high = (np.log10(ends) if self.log else ends).tolist()
        return Axis(field_title(self.spec), (low, high), self.log, self.spec.kind == "integer" and not self.log)

    def at(self, steps: Array) -> Array:
        """Values at fractions of a step between cells, even on the axis."""
        return self._value(np.interp(steps, np.arange(len(self.values)), self._even))

    @property
    def _even(self) -> Array:
        """Values as the axis spaces them."""
        return np.asarray(np.log10(self.values) if self.log else np.array(self.values, dtype=float))

    def _value(self, even: Array) -> Array:
        return np.asarray(10.0**even if self.log else even)

    def number(self, at: int) -> str:
        """A cell's value, by its place."""
        return number(self.values[at], 4) if self.numeric else str(self.places[at])

    @property
    def reach(self) -> str:
        """The field with its first and last value, or all of its names."""
        ends = f"{self.number(0)} to {self.number(-1)} {self.spec.about.unit}".rstrip()
        return f"{self.spec.about.label} ({ends if self.numeric else ', '.join(self.places)})"

    def words(self, value: str) -> str:
        """A cell's value in a sentence of plotly's hover text, where `value` stands for it."""
        return f"{self.spec.about.label} {value} {self.spec.about.unit}".rstrip()


def _geometric(values: Sequence[float]) -> bool:
    """Whether values that rise are more evenly apart on a logarithmic axis than on an even one."""
    steps = np.diff(np.array(values, dtype=float)), np.diff(np.log(values))
    uneven, uneven_log = (float(step.std() / step.mean()) if len(step) > 1 else 0.0 for step in steps)
    return uneven_log < uneven / 4 and values[-1] >= FAR * values[0]
