"""Cells of a map: the two fields and where their cells lie, and what a dataset of `explorer.sweep` has in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explorer.config import Config
from explorer.fields import Spec
from explorer.figures.axes import Axis, field_title
from explorer.figures.map.scales import SCALES, Scale
from explorer.numbers import number
from explorer.profile import Array
from explorer.training.recipe import Recipe

if TYPE_CHECKING:
    import xarray as xr

ALONE = 0.15
"""Half the width of a cell without a neighbor: decades, or the field's units."""
FAR = 8
"""Ratio of the last value to the first from which values may ask for a logarithmic axis."""
Mask = NDArray[np.bool_]


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


@dataclass(frozen=True, eq=False)
class Cells:
    """A map, `[y, x]` throughout; nan where a number is not there."""

    x: Side
    y: Side
    scale: Scale
    predicted: Array
    observed: Array
    """Measured, or trained."""
    low: Array
    high: Array
    """Lowest and highest value of the seeds."""
    asked: tuple[bool, bool]
    """Whether the map has predictions, and whether it has anything measured or trained."""
    theory_done: Mask
    done: Mask
    """Whether a cell was computed; one that failed was."""
    failure: NDArray[np.object_]
    """Why a cell has no values; "" where it has, or is still to come."""

    @property
    def failed(self) -> Mask:
        """Cells without a number, for a reason."""
        return np.asarray((self.failure != "") & ~np.isfinite(self.shown), dtype=bool)

    @property
    def shown(self) -> Array:
        """The number that gives a cell its color."""
        return np.where(self.done, self.observed, self.predicted)


def cells(dataset: xr.Dataset, statistic: str, x: str, y: str) -> Cells:
    """Reads one map.

    Raises:
        ValueError: there is no such statistic or field, or the dataset has more fields than two.
    """
    _check(dataset, statistic, x, y)
    across, up = _side(dataset, x), _side(dataset, y)
    origins = [str(name) for name in dataset["origin"].values]
    scale = SCALES[statistic]

    def values(variable: str, origin: str, missing: Any = np.nan) -> NDArray[Any]:
        if variable not in dataset or origin not in origins:
            return np.full([len(up.values), len(across.values)], missing)
        flat = dataset[variable].sel(origin=origin).transpose(y, x).values
        orders = [_order(dataset[name].values, side.numeric) for name, side in ((y, up), (x, across))]
        return np.asarray(flat[np.ix_(*orders)])

    def done(origin: str) -> Mask:
        known = np.isfinite(values("seconds", origin)) if "seconds" in dataset else ~np.isnan(values(statistic, origin))
        return np.asarray(known | (values("failure", origin, "").astype(str) != ""), dtype=bool)

    other = done(scale.origin)
    failure = np.where(other, values("failure", scale.origin, ""), values("failure", "predicted", "")).astype(object)
    return Cells(
        across, up, scale, values(statistic, "predicted").astype(float), values(statistic, scale.origin).astype(float),
        values(f"{statistic}_low", scale.origin).astype(float), values(f"{statistic}_high", scale.origin).astype(float),
        ("predicted" in origins, scale.origin in origins), done("predicted"), other, failure,
    )


def _check(dataset: xr.Dataset, statistic: str, x: str, y: str) -> None:
    if statistic not in SCALES or statistic not in dataset:
        known = ", ".join(name for name in SCALES if name in dataset)
        raise ValueError(f"statistic must be one of {known}; got {statistic!r}")
    fields = [str(name) for name in dataset[statistic].dims if name != "origin"]
    for name, value in (("x", x), ("y", y)):
        if value not in fields:
            raise ValueError(f"{name} must be one of {', '.join(fields)}; got {value!r}")
    if x == y:
        raise ValueError(f"x and y must be two fields; got {x!r} twice")
    if more := [name for name in fields if name not in (x, y)]:
        raise ValueError(f"a map has two fields; choose a value of {' and '.join(more)} first, as "
                         f"dataset.sel({more[0]}=…)")


def _side(dataset: xr.Dataset, name: str) -> Side:
    specs = {**Recipe.specs(), **Config.specs()}
    spec, values = specs[name], dataset[name].values
    side = Side(spec, values.tolist())
    return Side(spec, [side.values[place] for place in _order(values, side.numeric)])


def _order(values: NDArray[Any], numeric: bool) -> Sequence[int]:
    """Numbers rise; names keep their order."""
    return np.argsort(values, kind="stable").tolist() if numeric else list(range(len(values)))
