"""`Store`: the cells of a sweep in a Zarr group, each written as it is found; who runs the sweep again reads them.

The arrays `numbers` `[origin, *over, number]` and `failure` `[origin, *over]` have a chunk a cell, which is written
whole or not at all. With the coordinates beside them, `xarray.open_zarr(path, consolidated=False)` shows what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

from explorer.choices import ConfigError
from explorer.display import shown
from explorer.profile import Array
from explorer.sweeping.grid import Grid, Place

Words = np.ndarray[Any, np.dtype[Any]]


class Store:
    """A Zarr store that holds one sweep.

    Args:
        where: a folder, or whatever zarr takes for a store.
        grid: whose cells it holds.
        names: of the numbers of a cell; the last is the state, nan where there is none yet.
        version: the package's.
    Raises:
        ConfigError: another sweep is in it, or another version's (says what differs), something else, or it can
            neither be read nor made.
    """

    def __init__(self, where: Any, grid: Grid, names: Sequence[str], version: str) -> None:
        self.where, self.trouble = where, ""
        keys = grid.keys(version)
        spec = {"version": version, **grid.spec()}
        try:
            self._group = _opened(where) or _made(where, grid, names, spec, keys)
        except (OSError, ValueError) as error:
            raise ConfigError(f"store must be a place where a Zarr store can be read or made; got {shown(where)} "
                              f"({_said(error)})") from None
        self._check(spec, keys)

    def _check(self, spec: dict[str, Any], keys: Words) -> None:
        """Raises ConfigError if another sweep is in it."""
        held = dict(self._group.attrs).get("sweep")
        if not isinstance(held, dict) or "numbers" not in self._group or "keys" not in self._group:
            raise ConfigError(f"store must be empty or hold a sweep; got {shown(self.where)}, which holds neither")
        differences = [f"{name} is {shown(there)} there and {shown(here)} here" for name, there, here
                       in _differences(held, spec)]
        if not differences and not np.array_equal(self._array("keys")[:], keys):
            differences = ["its designs are others, though their settings read alike"]
        if differences:
            raise ConfigError(f"store must hold this sweep; got {shown(self.where)}, which holds another: "
                              f"{'; '.join(differences)}")

    def read(self) -> tuple[Array, Words]:
        """Numbers `[origin, *over, number]`, and failures `[origin, *over]`."""
        return self._array("numbers")[:], self._array("failure")[:].astype(object)

    def _array(self, name: str) -> Any:  # zarr types the items of a group as anything that numpy knows
        return self._group[name]

    def write(self, place: Place, numbers: Array, failure: str) -> None:
        """Writes a cell; where that fails, `trouble` says so in a sentence, and nothing more is written."""
        if self.trouble:
            return
        try:
            if failure:
                self._array("failure")[place] = failure
            self._array("numbers")[place] = numbers  # last: with it the cell is there
        except OSError as error:
            self.trouble = f"the store {self.where} cannot be written ({_said(error)}): cells from here on are not kept"


def _opened(where: Any) -> zarr.Group | None:
    """The group that is there; None where nothing is."""
    try:
        return zarr.open_group(where, mode="r+")
    except FileNotFoundError:
        return None


def _made(where: Any, grid: Grid, names: Sequence[str], spec: dict[str, Any], keys: Words) -> zarr.Group:
    """An empty one, whose attributes are written last: one without them is of nobody."""
    group = zarr.open_group(where, mode="a")
    axes = ["origin", *grid.over]
    cell = (1,) * len(axes)
    group.create_array("numbers", shape=(*grid.shape, len(names)), chunks=(*cell, len(names)), dtype="float64",
                       fill_value=float("nan"), dimension_names=[*axes, "number"])
    group.create_array("failure", shape=grid.shape, chunks=cell, dtype=str, fill_value="", dimension_names=axes)
    group.create_array("keys", shape=keys.shape, chunks=keys.shape, dtype=str, dimension_names=axes)[:] = keys
    for name, values in {"origin": list(grid.origins), **grid.over, "number": list(names)}.items():
        data = np.array(values)
        group.create_array(name, shape=data.shape, dtype=str if data.dtype.kind in "US" else data.dtype,
                           dimension_names=[name])[:] = data
    group.attrs["sweep"] = spec
    return group


def _differences(there: Any, here: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves in which two records differ: name, and both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        return [found for key in dict.fromkeys([*there, *here])
                for found in _differences(there.get(key), here.get(key), f"{name}.{key}".removeprefix("."))]
    return [] if there == here else [(name, there, here)]


def _said(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip()
