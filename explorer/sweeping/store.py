"""`Store`: the cells of a sweep in a Zarr group, each written as it is found; who runs the sweep
again reads them.

The arrays `numbers` `[origin, *over, number]` and `failure` `[origin, *over]` have a chunk a cell,
which is written whole or not at all. With the coordinates beside them, `xarray.open_zarr(path,
consolidated=False)` shows what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.errors import ContainsGroupError

from explorer.choices import ConfigError
from explorer.display import reason, shown
from explorer.profile import Array
from explorer.sweeping.grid import Grid, Place

NAMED = 4
"""Differences that are named, at most."""

Words = np.ndarray[Any, np.dtype[Any]]


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

    def _check(self, held: Any, spec: dict[str, Any]) -> None:
        if not isinstance(held, dict):
            raise ConfigError(
                f"store must be empty or hold a sweep; got {shown(self.where)}, which holds neither"
            )
        if gaps := [
            f"{name} is {shown(there)} there and {shown(here)} here"
            for name, there, here in _differences(held, spec)
        ]:
            more = [f"and {len(gaps) - NAMED:,} more"] if len(gaps) > NAMED else []
            self._refuse("; ".join([*gaps[:NAMED], *more]))

    def _refuse(self, differences: str) -> None:
        raise ConfigError(
            f"store must hold this sweep; got {shown(self.where)}, which holds another: {differences}"
        )

    def _finish(self, group: zarr.Group, grid: Grid, names: Sequence[str], keys: Words) -> None:
        """Makes what is not there yet."""
        axes = ["origin", *grid.over]
        cell, shape = (1,) * len(axes), (*grid.shape, len(names))
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
        for name, (data, dimensions) in {**arrays, "keys": (keys, axes)}.items():
            text = data.dtype.kind in "USO"
            array = _array(
                group,
                name,
                shape=data.shape,
                chunks=data.shape,
                dtype=str if text else data.dtype,
                fill_value="" if text else 0,
                dimension_names=dimensions,
            )
            if np.array_equal(held := array[:], data.astype(str) if text else data):
                continue
            if self._numbers.shape != shape or (held.any() if not text else (held != "").any()):
                self._refuse("its designs or numbers are others, though their settings read alike")
            array[:] = data

    def write(self, place: Place, numbers: Array, failure: str) -> None:
        """Writes a cell; where that fails, `trouble` says so in a sentence, and nothing more is
        written."""
        if self.trouble:
            return
        try:
            # of a cell that failed before: until both are written there is none
            if failure != self.failures[place]:
                if self.failures[place]:
                    self._numbers[place] = np.nan
                self._failure[place] = self.failures[place] = failure
            self._numbers[place] = numbers
        except Exception as error:  # noqa: BLE001 - each kind of store has its own
            self.trouble = (
                f"the store {self.where} cannot be written ({reason(self.where, error)}): "
                "cells from here on are not kept"
            )


def _opened(where: Any) -> zarr.Group | None:
    """The group that is there; None where nothing is."""
    try:
        return zarr.open_group(where, mode="r+")
    except FileNotFoundError:
        return None
    except ValueError:  # a store that is open for reading only, or no group
        return zarr.open_group(where, mode="r")


def _begun(where: Any, spec: dict[str, Any]) -> zarr.Group:
    """An empty group that says whose it is; nothing is made where anything else is."""
    begun = isinstance(where, str | Path) and [path.suffix for path in Path(where).glob("*")] == [
        ".partial"
    ]
    try:  # beside what is left of somebody who was killed while making the first file of it
        return zarr.open_group(where, mode="a" if begun else "w-", attributes={"sweep": spec})
    except (FileExistsError, ContainsGroupError):
        with suppress(FileNotFoundError):
            return zarr.open_group(where, mode="r+")  # somebody was quicker
        raise


def _array(
    group: zarr.Group, name: str, **about: Any
) -> Any:  # zarr types items as anything that numpy knows
    """An array of a group, made unless it is there."""
    with suppress(KeyError):
        return group[name]
    try:
        return group.create_array(name, **about)
    except ValueError:  # somebody was quicker
        return group[name]


def _differences(there: Any, here: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Leaves in which two records differ: name, and both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*there, *here]):
            yield from _differences(
                there.get(key), here.get(key), f"{name}.{key}".removeprefix(".")
            )
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for place, pair in enumerate(zip(there, here, strict=True)):
            yield from _differences(*pair, f"{name}[{place}]")
    elif there != here:
        yield name, there, here
