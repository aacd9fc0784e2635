"""Cells of a map: numbers, failures and axes of a dataset of `explorer.sweep`, as its picture needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explorer.config import Config
from explorer.figures.map.scales import SCALES, Scale
from explorer.figures.map.sides import Side
from explorer.profile import Array
from explorer.training.recipe import Recipe

if TYPE_CHECKING:
    import xarray as xr

Mask = NDArray[np.bool_]


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

    def read(variable: str, origin: str, missing: Any = np.nan) -> NDArray[Any]:
        if variable not in dataset or origin not in origins:
            return np.full([len(up.values), len(across.values)], missing)
        flat = dataset[variable].sel(origin=origin).transpose(y, x).values
        orders = [_order(dataset[name].values, side.numeric) for name, side in ((y, up), (x, across))]
        return np.asarray(flat[np.ix_(*orders)])

    def done(origin: str) -> Mask:
        known = np.isfinite(read("seconds", origin)) if "seconds" in dataset else ~np.isnan(read(statistic, origin))
        return np.asarray(known | (read("failure", origin, "").astype(str) != ""), dtype=bool)

    other = done(scale.origin)
    failure = np.where(other, read("failure", scale.origin, ""), read("failure", "predicted", "")).astype(object)
    return Cells(
        across, up, scale, read(statistic, "predicted").astype(float), read(statistic, scale.origin).astype(float),
        read(f"{statistic}_low", scale.origin).astype(float), read(f"{statistic}_high", scale.origin).astype(float),
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
