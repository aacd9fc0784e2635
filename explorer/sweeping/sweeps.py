"""`sweep`: designs over one to three fields, as one labelled dataset; `Sweep` keeps it while it
grows."""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.ends import ENDS
from explorer.stopping import Stop
from explorer.sweeping.cell import Cell, Found, Settings
from explorer.sweeping.cell import origins as known_origins
from explorer.sweeping.grid import Grid, Place
from explorer.sweeping.table import Table, imported
from explorer.sweeping.workers import Here, Outside, Workers, is_cluster, run, workers_of
from explorer.translation import speaking
from explorer.vocabulary import STATISTICS, Array

if TYPE_CHECKING:
    import xarray as xr

SECONDS = ("Time", "s")
"""Label and unit of the time that a cell took."""


class Layout:
    """The numbers of a cell in one row, as they are kept and stored: where each variable begins,
    and the labelled dataset that all rows make.

    Args:
        grid: whose cells.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        names: list[str] = []
        for origin in grid.origins:
            names += known_origins()[origin].names(grid.statistics)
        self.variables = (*dict.fromkeys(names), "seconds")
        depths = [point.cell.config.n_layers for point in grid.points.values() if point.cell]
        self.layers = max(depths, default=grid.config.n_layers)
        self._lengths = [self._length(name) for name in self.variables]
        # a variable begins where those before it end
        self.starts = dict(zip(self.variables, accumulate(self._lengths, initial=0), strict=False))
        self.size = sum(self._lengths)

    def _length(self, name: str) -> int:
        """The numbers of a variable: one for each layer of "statistic@site", else one."""
        by_layer = "@" in name and not name.endswith("@embed")  # the embedding is before all layers
        return self.layers if by_layer else 1

    @property
    def names(self) -> list[str]:
        """The name of every number of a row; of a variable by layer with the layer, from 1."""
        return [
            name if length == 1 else f"{name} {layer}"
            for name, length in zip(self.variables, self._lengths, strict=True)
            for layer in range(1, length + 1)
        ]

    def pack(self, result: Found) -> Array:
        """The row `[number]` of a cell; nan where it has no number."""
        row = np.full(self.size, np.nan)
        for name, value in {**result.numbers, "seconds": result.seconds}.items():
            values = np.atleast_1d(np.asarray(value, dtype=float))
            row[self.starts[name] : self.starts[name] + len(values)] = values
        return row

    @speaking("en")  # files of data are the same in every language
    def dataset(self, numbers: Array, failures: np.ndarray[Any, Any], version: str) -> xr.Dataset:
        """The dataset of rows `[origin, *over, number]` and failures `[origin, *over]`.

        Raises:
            ConfigError: xarray is not installed.
        """
        xarray = imported("xarray", "a labelled dataset")
        axes = ("origin", *self.grid.over)
        coordinates: dict[str, Any] = {"origin": ("origin", list(self.grid.origins))}
        for name, values in self.grid.over.items():
            about = self.grid.specs[name].about
            labels = _attributes(about.label, about.unit, symbol=about.symbol)
            coordinates[name] = (name, values, labels)
        variables: dict[str, Any] = {}
        for name, length in zip(self.variables, self._lengths, strict=True):
            start = self.starts[name]
            if length == 1:
                variables[name] = (axes, numbers[..., start], described(name))
            else:
                by_layer = numbers[..., start : start + length]
                variables[name] = ((*axes, "layer"), by_layer, described(name))
        texts = failures.astype(str)
        variables["failure"] = (axes, texts, _attributes("Why a cell has no numbers", ""))
        if any(length > 1 for length in self._lengths):
            layers = np.arange(1, self.layers + 1)
            coordinates["layer"] = ("layer", layers, _attributes("Layer", ""))
        about_sweep = {
            "title": "Transformer Signal Explorer: a sweep",
            "version": version,
            "sweep": json.dumps(self.grid.spec()),
        }
        dataset: xr.Dataset = xarray.Dataset(variables, coordinates, about_sweep)
        return dataset

    def table(self, numbers: Array, failures: np.ndarray[Any, Any]) -> Table:
        """The table of rows `[origin, *over, number]`, without statistics of every layer."""
        values: dict[str, np.ndarray[Any, Any]] = {
            name: numbers[..., self.starts[name]]
            for name, length in zip(self.variables, self._lengths, strict=True)
            if length == 1
        }
        values["failure"] = failures.astype(str)
        return Table(self.grid.origins, self.grid.over, values)


def described(name: str) -> dict[str, str]:
    """Label and unit of a variable, by xarray's names of attributes."""
    if name == "seconds":
        return _attributes(*SECONDS)
    for origin in known_origins().values():
        if name in origin.numbers:
            return _attributes(*origin.numbers[name])
    statistic, seeds = name, ""
    for suffix, words in (("_low", ", lowest seed"), ("_high", ", highest seed")):
        if name.endswith(suffix):
            statistic, seeds = name.removesuffix(suffix), words
    row = STATISTICS[statistic.split("@")[0]]
    title = ENDS[statistic].title if statistic in ENDS else row.label
    return _attributes(title + seeds, row.unit, symbol=row.symbol)


def _attributes(label: str, unit: str, **others: str) -> dict[str, str]:
    """Attributes of a variable of xarray's, which shows label and unit; empty ones are left out."""
    attributes = {"long_name": label, "units": unit, **others}
    return {name: text for name, text in attributes.items() if text}


MISSING, FOUND, FAILED = 0, 1, 2
"""States of a cell, as a store has them."""


MISSING, FOUND, FAILED = 0, 1, 2


class CellResult(NamedTuple):
    """A cell of a sweep that is done."""

    origin: str
    at: dict[str, Any]
    """The values of the fields that are varied."""
    values: dict[str, float | list[float]]
    """Empty where it failed."""
    failure: str
    seconds: float
    notes: Mapping[str, str]
    """Statistic to the reason why its prediction is unreliable, or missing."""


OnCell = Callable[[CellResult], None]


class Sweep:
    """A sweep, running, stopped or finished. Arguments and errors: see `sweep`.

    Example:
        >>> sweep = ex.Sweep(ex.Config(), over={"alpha": [0.1, 1.0]}, origins=["predicted"])
        >>> sweep.total, sweep.done, sweep.run().done
        (2, 0, 2)
    """

    def __init__(
        self,
        config: Config,
        over: Mapping[str, Sequence[Any]],
        statistics: Sequence[str] | None = None,
        executor: Any = None,
        store: Any = None,
        *,
        origins: Sequence[str] = ("predicted", "measured"),
        settings: Settings | None = None,
        retry_failed: bool = False,
    ) -> None:
        if not (executor is None or isinstance(executor, Workers) or is_cluster(executor)):
            must_be(Executor, "executor", executor)
        self.grid = Grid(config, over, origins, statistics, settings)
        self.layout = Layout(self.grid)
        self.executor, self.retry_failed = executor, retry_failed
        self.numbers = np.full((*self.grid.shape, self.layout.size), np.nan)
        self.failures = np.full(self.grid.shape, "", dtype=object)
        self.state = np.full(self.grid.shape, MISSING)
        self.notes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Statistic to the reasons why predictions of it are unreliable or missing, each with its
        number of cells; a store does not keep them."""
        self.store = self._stored(store) if store is not None else None

    def _stored(self, where: Any) -> Any:
        """Opens the store, and takes over the cells that it has."""
        imported("zarr", "a store")
        from explorer.sweeping.store import Store

        store = Store(where, self.grid, [*self.layout.names, "state"], _version())
        state = np.nan_to_num(store.numbers[..., -1]).astype(int)  # nan is MISSING
        keep = state == FOUND
        if not self.retry_failed:
            keep |= state == FAILED
        self.numbers[keep], self.failures[keep] = store.numbers[keep, :-1], store.failures[keep]
        self.state[keep] = state[keep]
        return store

    @property
    def total(self) -> int:
        """The number of cells."""
        return len(self.grid)

    @property
    def done(self) -> int:
        """The number of cells that have numbers or have failed."""
        return int(np.count_nonzero(self.state))

    def run(self, stop: Stop = lambda: False, on_cell: OnCell = lambda cell: None) -> Sweep:
        """Computes what is missing; once `stop()` says true, what is there is kept, and another run
        goes on.

        Args:
            stop: asked between the cells, ten times a second; where cells are computed in this
                process, within them.
            on_cell: called with each cell as it is done, in the calling thread.
        Returns:
            The sweep itself.
        """
        places: dict[Cell, list[Place]] = {}  # equal cells are computed once
        for place, (_, cell, error) in self.grid.points.items():
            if self.state[place] != MISSING:
                continue
            if cell is None:
                on_cell(self._keep(place, Found({}, str(error))))
            else:
                places.setdefault(cell, []).append(place)

        def done(cell: Cell, result: Found) -> None:
            """Takes over the result of a cell at all of its places."""
            for place in places[cell]:
                on_cell(self._keep(place, result))

        run(self._parts(list(places)), stop, done)
        if self.store is not None and self.store.trouble:
            warnings.warn(self.store.trouble, stacklevel=2)
        if skipped := [failure for failure in self.failures[self.state == MISSING] if failure]:
            warnings.warn(f"{len(skipped):,} cells were not computed: {skipped[0]}", stacklevel=2)
        return self

    def _parts(self, cells: list[Cell]) -> list[tuple[list[Cell], Workers]]:
        """Cells, with their workers: the user's executor, if there is one; else predictions, which
        take a millisecond, are computed in this process, and all others outside."""
        if self.executor is not None:
            return [(cells, workers_of(self.executor))] if cells else []
        quick = [cell for cell in cells if known_origins()[cell.origin].batch > 1]
        slow = [cell for cell in cells if known_origins()[cell.origin].batch == 1]
        parts = [(quick, workers_of(Here()))]
        if slow:
            parts.append((slow, Outside(max(cell.memory for cell in slow))))
        return parts

    def _keep(self, place: Place, result: Found) -> CellResult:
        """Takes over the result of a cell, and stores it unless it was skipped."""
        self.numbers[place] = self.layout.pack(result)
        self.failures[place] = result.failure
        notes = result.notes or {}
        for name, note in notes.items():
            self.notes[name][note] += 1
        if result.skipped:
            self.state[place] = MISSING
        elif result.numbers:
            self.state[place] = FOUND
        else:
            self.state[place] = FAILED
        if self.store is not None and not result.skipped:
            row = np.append(self.numbers[place], self.state[place])  # its last number is the state
            self.store.write(place, row, result.failure)
        return CellResult(
            origin=self.grid.origins[place[0]],
            at=self.grid.at(place),
            values=result.numbers,
            failure=result.failure,
            seconds=result.seconds,
            notes=notes,
        )

    def __repr__(self) -> str:
        over = ", ".join(f"{name} ({len(values)})" for name, values in self.grid.over.items())
        return f"Sweep({self.grid.config} over {over}; {self.done} of {self.total} cells)"

    def table(self) -> Table:
        """The results so far, as plain arrays."""
        return self.layout.table(self.numbers, self.failures)

    def dataset(self) -> xr.Dataset:
        """The results so far. Variables: see `sweep`."""
        return self.layout.dataset(self.numbers, self.failures, _version())


def sweep(
    config: Config,
    over: Mapping[str, Sequence[Any]],
    statistics: Sequence[str] | None = None,
    executor: Any = None,
    store: Any = None,
    stop: Stop | None = None,
    on_cell: OnCell | None = None,
    *,
    origins: Sequence[str] = ("predicted", "measured"),
    settings: Settings | None = None,
    retry_failed: bool = False,
) -> xr.Dataset:
    """Predicts or measures a design over the values of one to three fields.

    Args:
        config: the design that is varied.
        over: field of `Config` to its values, one to three of them; or of what `settings` varies.
        statistics: end values (rows of `explorer.ends.ENDS`), and "statistic@site" for every layer
            of a site; None is every end value.
        executor: computes the cells: any executor of `concurrent.futures`, or a Dask cluster, by
            its `Client` or its scheduler's address; None is a pool of this machine's processes,
            which predicts nothing, as that takes a millisecond.
        store: a folder, or whatever zarr takes for a store: cells are kept there as they are found,
            and those that are there are not computed again.
        stop: asked ten times a second; once it says true, what there is is returned.
        on_cell: called with each `CellResult` as it is done, in the calling thread.
        origins: predicted, measured, or both; or what a plug-in adds, such as trained.
        settings: of the origin of a plug-in, such as `ex.Training`, where trained cells are asked
            for; None is as they are by default.
        retry_failed: computes again what failed.
    Returns:
        `[origin, *over]`, as coordinates have it. Each end value (mean over seeds, or median over
        seeds and heads), its `_low` and `_high` (the lowest and the highest seed); `[origin, *over,
        layer]` for "statistic@site"; the numbers of a plug-in's origin; `seconds`; nan where there
        is none. `failure` has the reason of a cell that failed.
    Raises:
        TypeError: an argument is of another kind.
        ConfigError: no such field or statistic, no values, too many, a store of another sweep, or
            no scheduler that answers; or xarray, or zarr for a store, is not installed (extra
            `sweeps`).
    Warns:
        UserWarning: the store could not be written, or cells could not be computed, as the executor
            is gone or a worker has too little memory for them; what was computed is returned.

    Example:
        >>> over = {"alpha": [0.1, 1.0], "n_layers": [6, 12]}
        >>> numbers = ex.sweep(ex.Config(), over, origins=["predicted"])
        >>> numbers["second_moment"].sel(origin="predicted").values.round(2)  # [alpha, n_layers]
        array([[ 1.06,  1.13],
               [ 8.97, 18.76]])
    """
    imported("xarray", "a labelled dataset")  # at once, not after an hour
    return (
        Sweep(
            config,
            over,
            statistics,
            executor,
            store,
            origins=origins,
            settings=settings,
            retry_failed=retry_failed,
        )
        .run(stop or (lambda: False), on_cell or (lambda cell: None))
        .dataset()
    )


def _version() -> str:
    """The installed version of this package."""
    from importlib.metadata import version

    return version("transformer-signal-explorer")
