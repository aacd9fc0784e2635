"""`Layout`: the numbers of a cell in one row, as they are kept and stored, and the labelled dataset that they make."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.ends import ENDS
from explorer.profile import STATISTICS, Array
from explorer.sweeping.cell import ORIGINS, Found
from explorer.sweeping.grid import Grid

if TYPE_CHECKING:
    import xarray as xr

OTHERS = {
    "held_out_loss": ("Held-out loss", "nats"),
    "loss_drop": ("Unigram level − held-out loss", "nats"),
    "steps": ("Steps that were trained", "steps"),
    "seconds": ("Time", "s"),
}
"""Numbers that are no statistic: label and unit."""


class Layout:
    """Where each number of a cell is in its row.

    Args:
        grid: whose cells.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        variables = dict.fromkeys(name for origin in grid.origins for name in ORIGINS[origin].names(grid.statistics))
        self.variables = (*variables, "seconds")
        designs = [point.cell.config.n_layers for point in grid.points.values() if point.cell]
        self.layers = max(designs, default=grid.config.n_layers)
        self._lengths = [self._length(name) for name in self.variables]
        self.starts = dict(zip(self.variables, accumulate(self._lengths, initial=0), strict=False))
        self.size = sum(self._lengths)

    def _length(self, name: str) -> int:
        return 1 if "@" not in name or name.endswith("@embed") else self.layers

    @property
    def names(self) -> list[str]:
        """Of every number of a row."""
        return [name if length == 1 else f"{name} {layer}" for name, length in zip(
            self.variables, self._lengths, strict=True) for layer in range(1, length + 1)]

    def pack(self, found: Found) -> Array:
        """The row of a cell; nan where there is nothing."""
        row = np.full(self.size, np.nan)
        for name, value in {**found.numbers, "seconds": found.seconds}.items():
            values = np.atleast_1d(np.asarray(value, dtype=float))
            row[self.starts[name] : self.starts[name] + len(values)] = values
        return row

    def dataset(self, numbers: Array, failures: np.ndarray[Any, Any], version: str) -> xr.Dataset:
        """The dataset of rows `[origin, *over, number]`."""
        import xarray as xr

        axes = ("origin", *self.grid.over)
        coordinates: dict[str, Any] = {"origin": ("origin", list(self.grid.origins))}
        for name, values in self.grid.over.items():
            about = self.grid.specs[name].about
            coordinates[name] = (name, values, _attributes(about.label, about.unit, symbol=about.symbol))
        variables: dict[str, Any] = {}
        for name, length in zip(self.variables, self._lengths, strict=True):
            part = numbers[..., self.starts[name] : self.starts[name] + length]
            held = ((*axes, "layer"), part) if length > 1 else (axes, part[..., 0])
            variables[name] = (*held, described(name))
        variables["failure"] = (axes, failures.astype(str), _attributes("Why a cell has no numbers", ""))
        if any(length > 1 for length in self._lengths):
            coordinates["layer"] = ("layer", np.arange(1, self.layers + 1), _attributes("Layer", ""))
        return xr.Dataset(variables, coordinates, {
            "title": "Transformer Signal Explorer: a sweep", "version": version, "sweep": json.dumps(self.grid.spec())})


def described(name: str) -> dict[str, str]:
    """Label and unit of a variable."""
    if name in OTHERS:
        return _attributes(*OTHERS[name])
    bare = name.removesuffix("_low").removesuffix("_high")
    row = STATISTICS[bare.split("@")[0]]
    title = ENDS[bare].title if bare in ENDS else row.label
    return _attributes(title + {"_low": ", lowest seed", "_high": ", highest seed"}.get(name[len(bare):], ""),
                       row.unit, symbol=row.symbol)


def _attributes(label: str, unit: str, **others: str) -> dict[str, str]:
    return {name: text for name, text in {"long_name": label, "units": unit, **others}.items() if text}
