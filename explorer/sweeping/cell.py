"""`Cell`: one point of a sweep, and how its numbers are found. Runs in another process, and returns
plain numbers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from explorer import plugins
from explorer.choices import Choices
from explorer.config import Config
from explorer.ends import ENDS, endings
from explorer.fields import Spec
from explorer.profile import Profile
from explorer.stopping import Stop, check
from explorer.tasks.pool import Call
from explorer.vocabulary import STATISTICS

Numbers = dict[str, float | list[float]]
"""The numbers of a cell, by name; a list has one for each layer."""


class Settings(Protocol):
    """The way in which an origin of a plug-in computes its cells: a record of its own.

    Any of its values may be left out when it is made; `steps` is one where an origin has steps."""

    def __init__(self, **values: Any) -> None: ...

    varied: ClassVar[type[Choices]]
    """The record whose fields a sweep may vary, beside those of a design."""

    def vary(self, values: Mapping[str, Any]) -> Settings:
        """Settings with other values of some varied fields; a `ConfigError` where one is wrong."""

    def plain(self) -> tuple[Any, ...]:
        """All settings, of types that JSON has; `of` makes the settings of them again."""

    @classmethod
    def of(cls, *plain: Any) -> Settings:
        """The settings from what `plain` gave."""

    def record(self) -> dict[str, Any]:
        """Every setting that decides the numbers, by name, for the file of a sweep."""


class Cell(NamedTuple):
    """The request of a sweep at one point; equal cells have equal numbers.

    Args:
        origin: a name of `origins()`.
        config: the design there.
        statistics: rows of `ENDS`, and "statistic@site" for every layer of a site.
        settings: of an origin that has some; None of the others.
    """

    origin: str
    config: Config
    statistics: tuple[str, ...]
    settings: Settings | None = None

    @property
    def backward(self) -> bool:
        """Whether any of the statistics is of the backward pass: without it a cell takes half the
        time."""
        return any(STATISTICS[name.split("@")[0]].backward for name in self.statistics)

    @property
    def memory(self) -> float:
        """Bytes that computing it takes, about."""
        return origins()[self.origin].memory(self)

    @property
    def seconds(self) -> float:
        """Seconds of one processor that computing it takes, right to a factor of three or so."""
        return origins()[self.origin].seconds(self)


class Found(NamedTuple):
    """The result of a cell."""

    numbers: Numbers
    """Names of `numbers_of` to a number, or one for each layer."""
    failure: str = ""
    """The reason why there are no numbers, or why they end early; empty if nothing went wrong."""
    seconds: float = math.nan
    skipped: bool = False
    """Whether nobody computed it, for the reason in `failure`; another run may."""
    notes: Mapping[str, str] | None = None
    """Statistic to the reason why its prediction is unreliable, or missing."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a cell's numbers come from."""

    find: Callable[[Cell, Stop], Found]
    names: Callable[[tuple[str, ...]], list[str]]
    """Names of a cell's numbers, from its statistics."""
    seconds: Callable[[Cell], float]
    """Seconds of one processor that a cell takes, about."""
    memory: Callable[[Cell], float] = lambda cell: 0.0
    """Bytes that a cell takes, about."""
    batch: int = 1
    """Cells that are handed out together: what is found within milliseconds is not worth a message
    of its own."""
    numbers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Numbers that are no end of a statistic: name to label and unit."""
    settings: type[Settings] | None = None
    """The class of its settings, where it has some."""
    doing: str = "Measuring"
    """The word for a map whose cells are being computed."""
    words: str = ""
    """The choice of this origin on the Map, in words; empty for those that the Map has anyway."""
    first: str = "second_moment"
    """The statistic that a map of it shows first."""
    usual: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Ends of an axis of its varied fields, where they are not the whole range."""

    @property
    def varied(self) -> type[Choices] | None:
        """The record whose fields a sweep may vary, beside those of a design."""
        return self.settings.varied if self.settings else None


def _reduced(profile: Profile, statistics: tuple[str, ...]) -> Found:
    """The statistics of a profile as a cell's numbers: of an end value middle, lowest and highest
    seed; of "statistic@site" the mean of each layer."""
    numbers: Numbers = {}
    notes = {}
    ends = endings(profile)
    for name in statistics:
        statistic, _, site = name.partition("@")
        if site:
            values = profile.values.get((statistic, site))  # [seed, layer], or [.., head]
            if values is not None:
                with np.errstate(all="ignore"):
                    all_but_layer = (0, *range(2, values.ndim))
                    numbers[name] = STATISTICS[statistic].mean(values, all_but_layer).tolist()
        elif name in ends:
            end = ends[name]
            numbers |= {name: end.middle, f"{name}_low": end.low, f"{name}_high": end.high}
            if end.note:
                notes[name] = end.note
    return Found(numbers, notes=notes)


def names_of(statistics: tuple[str, ...]) -> list[str]:
    """Names of the numbers that `_reduced` finds."""
    names = []
    for name in statistics:
        names.append(name)
        if name in ENDS:
            names += [f"{name}_low", f"{name}_high"]
    return names


def _predicted(cells: Sequence[Cell], stop: Stop) -> list[Found]:
    """The numbers of cells by theory, which predicts them side by side where it can.

    Raises:
        Stopped: `stop()` said true, asked whenever there are results.
    """
    from explorer.theory.predict import predict_all

    results: dict[int, Found] = {}
    backward = any(cell.backward for cell in cells)
    for index, profile in predict_all([cell.config for cell in cells], backward):
        check(stop)
        reduced = _reduced(profile, cells[index].statistics)
        results[index] = reduced._replace(seconds=profile.seconds)
    return [results[index] for index in range(len(cells))]


def _measured(cell: Cell, stop: Stop) -> Found:
    """The numbers of a cell by measurement."""
    from explorer.measuring import measure
    from explorer.model import noise

    with noise.keeping():  # cells near each other often draw the same random numbers
        return _reduced(measure(cell.config, stop, backward=cell.backward), cell.statistics)


PREDICTED = Origin(
    find=lambda cell, stop: _predicted([cell], stop)[0],
    names=names_of,
    batch=512,
    seconds=lambda cell: 0.003 + 0.0001 * cell.config.n_layers,
    doing="Predicting",
)
MEASURED = Origin(
    find=_measured,
    names=names_of,
    memory=lambda cell: cell.config.sizes.memory_bytes,
    seconds=lambda cell: cell.config.n_seeds * cell.config.sizes.seconds,
)
OWN = {
    "predicted": "explorer.sweeping.cell:PREDICTED",
    "measured": "explorer.sweeping.cell:MEASURED",
}
"""The origins of this package: name to module and row."""


@cache
def origins() -> Mapping[str, Origin]:
    """Where cells' numbers may come from, by name; what plug-ins bring is last."""
    return plugins.rows("origins", OWN)


@cache
def varied_specs() -> Mapping[str, Spec]:
    """Every field that a sweep can vary; where a design and settings have one of a name it is the
    design's."""
    specs: dict[str, Spec] = {}
    for row in origins().values():
        if row.varied:
            specs |= row.varied.specs()
    return specs | Config.specs()


def find(cells: list[Cell], threads: int | None = None, stop: Stop = lambda: False) -> list[Found]:
    """Computes cells, one after the other; an error is a cell's result, never the sweep's end.

    Args:
        threads: of torch, for each cell; None leaves torch as it is.
        stop: asked within each cell; a cell that was stopped raises.
    Raises:
        Stopped: `stop()` said true.
    """
    predicted = all(cell.origin == "predicted" for cell in cells)
    if predicted and len(cells) > 1:
        try:
            return _predicted(cells, stop)
        except Exception:  # each alone, so that the error is its cell's
            if stop():
                raise
    if predicted or not threads:  # theory does without torch
        return [_find(cell, stop) for cell in cells]
    from explorer.measuring.sharing import torch_threads

    with torch_threads(threads):
        return [_find(cell, stop) for cell in cells]


def _find(cell: Cell, stop: Stop) -> Found:
    """The result of one cell, with the seconds that it took; an error is its failure.

    Raises:
        Exception: the error of a cell that was stopped.
    """
    start = time.perf_counter()
    try:
        result = origins()[cell.origin].find(cell, stop)
    except Exception as error:
        if stop():
            raise
        result = Found({}, f"{type(error).__name__}: {error}")
    return result._replace(seconds=time.perf_counter() - start)


# Cells as a task, `cells`, of processes that are handed plain data.


def body_of(cells: Sequence[Cell], threads: int | None) -> str:
    """The text of a task: torch's threads, and each cell as plain data for `_cell`; equal cells
    have equal texts."""
    rows = []
    for cell in cells:
        settings = cell.settings.plain() if cell.settings else None
        rows.append([cell.origin, cell.config.to_json(), cell.statistics, settings])
    return json.dumps([threads, rows])


def compute(call: Call) -> bytes:
    """Computes the cells of a task in a worker; `result_of` reads the bytes."""
    threads, rows = json.loads(call.body)
    cells = [_cell(*row) for row in rows]
    return json.dumps([result._asdict() for result in find(cells, threads, call.stop)]).encode()


def _cell(origin: str, config: str, statistics: list[str], settings: list[Any] | None) -> Cell:
    """A cell from the plain data of `body_of`.

    Raises:
        ValueError: there are settings, of an origin that has none.
    """
    cell = Cell(origin, Config.from_json(config), tuple(statistics))
    if settings is None:
        return cell
    kind = origins()[origin].settings
    if kind is None:
        raise ValueError(f"settings must be left out of {origin} cells; got {settings}")
    return cell._replace(settings=kind.of(*settings))


def result_of(result: bytes) -> list[Found]:
    """The results of cells, from the bytes of `compute`."""
    return [Found(**cell) for cell in json.loads(result)]
