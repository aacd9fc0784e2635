"""`Store`: the cells of a sweep in a Zarr group, each written as it is found; who runs the sweep
again reads them.

The arrays `numbers` `[origin, *over, number]` and `failure` `[origin, *over]` have a chunk a cell,
which is written whole or not at all. With the coordinates beside them, `xarray.open_zarr(path,
consolidated=False)` shows what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.errors import ContainsGroupError

from explorer.choices import ConfigError
from explorer.display import reason, shown
from explorer.sweeping.grid import Grid, Place
from explorer.vocabulary import Array

NAMED = 4
"""Differences between two sweeps that a refusal names, at most."""

Words = np.ndarray[Any, np.dtype[Any]]
"""An array of texts."""


class Store:
    """A Zarr store that holds one sweep; one whose making was broken off is finished.

    Args:
        where: a folder, or whatever zarr takes for a store.
        grid: whose cells it holds.
        names: of the numbers of a cell; the last is the state, nan where there is none yet.
        version: the package's.
    Raises:
        ConfigError: another sweep is in it, or another version's (says what differs), something
            else, or it can neither be read nor made.
    """

    def __init__(self, where: Any, grid: Grid, names: Sequence[str], version: str) -> None:
        self.where, self.trouble = where, ""
        spec = {"version": version, **grid.spec()}
        try:
            group = _opened(where)
            if group is None:
                group = _begun(where, spec)
            self._check(dict(group.attrs).get("sweep"), spec)
            self._finish(group, grid, names, grid.keys(version))
            self.numbers, self.failures = self._numbers[:], self._failure[:].astype(object)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - each kind of store has its own
            raise ConfigError(
                f"store must be a place where a Zarr store can be read or made; got {shown(where)} "
                f"({reason(where, error)})"
            ) from None

    def _check(self, stored: Any, spec: dict[str, Any]) -> None:
        """Raises ConfigError unless the record that a store has is the sweep's own; names what
        differs."""
        if not isinstance(stored, dict):
            raise ConfigError(
                f"store must be empty or hold a sweep; got {shown(self.where)}, which holds neither"
            )
        gaps = [
            f"{name} is {shown(there)} there and {shown(here)} here"
            for name, there, here in _differences(stored, spec)
        ]
        if len(gaps) > NAMED:
            gaps[NAMED:] = [f"and {len(gaps) - NAMED:,} more"]
        if gaps:
            self._refuse("; ".join(gaps))

    def _refuse(self, differences: str) -> None:
        """Raises ConfigError: the store holds another sweep."""
        raise ConfigError(
            f"store must hold this sweep; got {shown(self.where)}, which holds another: {differences}"
        )

    def _finish(self, group: zarr.Group, grid: Grid, names: Sequence[str], keys: Words) -> None:
        """Opens the arrays of cells, and makes every array that is not there yet.

        Args:
            names: of the numbers of a cell.
            keys: a hash of each cell, `[origin, *over]`; in a store of the same sweep it is the
                same.
        Raises:
            ConfigError: coordinates or hashes are others than the sweep's.
        """
        axes = ["origin", *grid.over]
        cell, shape = (1,) * len(axes), (*grid.shape, len(names))  # a chunk of a cell is one file
        self._numbers = _array(
            group,
            "numbers",
            shape=shape,
            chunks=(*cell, len(names)),
            dtype="float64",
            fill_value=float("nan"),
            dimension_names=[*axes, "number"],
            compressors=None,
        )
        self._failure = _array(
            group,
            "failure",
            shape=grid.shape,
            chunks=cell,
            dtype=str,
            fill_value="",
            dimension_names=axes,
            compressors=None,
        )
        labels = {"origin": list(grid.origins), **grid.over, "number": list(names)}
        arrays = {name: (np.array(values), [name]) for name, values in labels.items()}
        arrays["keys"] = keys, axes
        for name, (data, dimensions) in arrays.items():
            is_text = data.dtype.kind in "USO"
            array = _array(
                group,
                name,
                shape=data.shape,
                chunks=data.shape,
                dtype=str if is_text else data.dtype,
                fill_value="" if is_text else 0,
                dimension_names=dimensions,
            )
            stored = array[:]
            if np.array_equal(stored, data.astype(str) if is_text else data):
                continue
            is_filled = (stored != "").any() if is_text else stored.any()
            if self._numbers.shape != shape or is_filled:
                self._refuse("its designs or numbers are others, though their settings read alike")
            array[:] = data

    def write(self, place: Place, numbers: Array, failure: str) -> None:
        """Writes a cell. Where that fails, `trouble` has the reason as a sentence, and nothing more
        is written.

        Args:
            numbers: the cell's row, `[number]`.
            failure: why it has no numbers; empty for none.
        """
        if self.trouble:
            return
        try:
            if failure != self.failures[place]:
                if self.failures[place]:
                    # it failed before: until text and numbers are written, it is missing
                    self._numbers[place] = np.nan
                self._failure[place] = self.failures[place] = failure
            self._numbers[place] = numbers
        except Exception as error:  # noqa: BLE001 - each kind of store has its own
            self.trouble = (
                f"the store {self.where} cannot be written ({reason(self.where, error)}): "
                "cells from here on are not kept"
            )


def _opened(where: Any) -> zarr.Group | None:
    """The Zarr group of a store; None where there is nothing yet."""
    try:
        return zarr.open_group(where, mode="r+")
    except FileNotFoundError:
        return None
    except ValueError:  # a store that is open for reading only, or no group
        return zarr.open_group(where, mode="r")


def _begun(where: Any, spec: dict[str, Any]) -> zarr.Group:
    """A new group that has the sweep's record; or another process's that has just made it.

    Raises:
        FileExistsError, ContainsGroupError: the folder holds something else.
    """
    # a process that was killed while it made the first file leaves a ".partial"
    is_broken_off = isinstance(where, str | Path) and [
        path.suffix for path in Path(where).glob("*")
    ] == [".partial"]
    mode: Literal["a", "w-"] = "a" if is_broken_off else "w-"  # "w-" raises if there is anything
    try:
        return zarr.open_group(where, mode=mode, attributes={"sweep": spec})
    except (FileExistsError, ContainsGroupError):
        with suppress(FileNotFoundError):
            return zarr.open_group(where, mode="r+")  # another process was quicker
        raise


def _array(group: zarr.Group, name: str, **properties: Any) -> Any:
    """An array of a group, made unless it is there. The type is Any, as zarr's items are."""
    with suppress(KeyError):
        return group[name]
    try:
        return group.create_array(name, **properties)
    except ValueError:  # another process was quicker
        return group[name]


def _differences(there: Any, here: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Values in which two records of JSON differ: their name, as `over.alpha[2]`, and both
    values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*there, *here]):
            inner = f"{name}.{key}" if name else key
            yield from _differences(there.get(key), here.get(key), inner)
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, pair in enumerate(zip(there, here, strict=True)):
            yield from _differences(*pair, f"{name}[{index}]")
    elif there != here:
        yield name, there, here
