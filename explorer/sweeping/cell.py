"""`Cell`: one point of a sweep, and how its numbers are found. Runs in another process, and returns
plain numbers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.ends import ENDS, endings
from explorer.profile import STATISTICS, Profile
from explorer.stopping import Stop, Stopped
from explorer.tasks.pool import Call
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task

Numbers = dict[str, float | list[float]]


class Training(NamedTuple):
    """How a cell is trained."""

    recipe: Recipe = Recipe()
    task: Task = Task()
    steps: int = 200

    def plain(self) -> tuple[str, str, int]:
        """As plain values, for `of`."""
        return self.recipe.to_json(), self.task.to_json(), self.steps

    @classmethod
    def of(cls, recipe: str, task: str, steps: int) -> Training:
        """The training that is so as plain values."""
        return cls(Recipe.from_json(recipe), Task.from_json(task), steps)


class Cell(NamedTuple):
    """The request of a sweep at one point; equal cells have equal numbers.

    Args:
        origin: a row of `ORIGINS`.
        config: the design there.
        statistics: rows of `ENDS`, and "statistic@site" for every layer of a site.
        training: of a trained cell; None of the others.
    """

    origin: str
    config: Config
    statistics: tuple[str, ...]
    training: Training | None = None

    @property
    def backward(self) -> bool:
        """Whether any of the statistics is of the backward pass: without it a cell takes half the
        time."""
        return any(STATISTICS[name.split("@")[0]].backward for name in self.statistics)

    @property
    def memory(self) -> float:
        """Bytes that it takes, about."""
        return ORIGINS[self.origin].memory(self)

    @property
    def seconds(self) -> float:
        """Seconds of one processor that it takes, right to a factor of three or so."""
        return ORIGINS[self.origin].seconds(self)


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


def _reduced(profile: Profile, statistics: tuple[str, ...]) -> Found:
    """The statistics of a profile: middle, lowest and highest seed at its end, or the mean of each
    layer of a site."""
    numbers: Numbers = {}
    ends = endings(profile)
    for name in statistics:
        if "@" in name:
            values = profile.values.get((name.split("@")[0], name.split("@")[1]))
            if values is not None:
                with np.errstate(all="ignore"):
                    axes = (0, *range(2, values.ndim))
                    numbers[name] = STATISTICS[name.split("@")[0]].mean(values, axes).tolist()
        elif name in ends:
            end = ends[name]
            numbers |= {name: end.middle, f"{name}_low": end.low, f"{name}_high": end.high}
    notes = {name: ends[name].note for name in statistics if name in ends and ends[name].note}
    return Found(numbers, notes=notes)


def names_of(statistics: tuple[str, ...]) -> list[str]:
    """Names of the numbers that `read` finds."""
    return [
        part
        for name in statistics
        for part in ((name, f"{name}_low", f"{name}_high") if name in ENDS else (name,))
    ]


def _predicted(cell: Cell, _: Stop) -> Found:
    from explorer.theory import predict

    return _reduced(predict(cell.config, cell.backward), cell.statistics)


def _measured(cell: Cell, stop: Stop) -> Found:
    from explorer.measuring import measure
    from explorer.model import noise

    with noise.keeping():  # the next cell's noise is often this one's, or that of one before
        return _reduced(measure(cell.config, stop, backward=cell.backward), cell.statistics)


def _trained(cell: Cell, stop: Stop) -> Found:
    from explorer.training.race import Contender, Race

    recipe, task, steps = cell.training or Training()
    race = Race([Contender("cell", task.fit(cell.config), recipe)], task, steps, every=steps)
    (runner,) = race.runners
    held_out = runner.tensors(runner.data.held_out)
    before = runner.features(held_out)
    if not race.run(stop).finished:
        raise Stopped
    loss, change = race.verdict()[0], runner.features(held_out) - before
    return Found(
        {
            "held_out_loss": loss.final_loss,
            "loss_drop": race.levels.unigram - loss.final_loss,
            "feature_change": float(change.square().mean().sqrt()),
            "steps": float(loss.steps),
        },
        f"training ended at step {loss.retired_at}: {loss.reason}" if loss.reason else "",
    )


def _training_seconds(cell: Cell) -> float:
    config, sizes = cell.config, cell.config.sizes
    work = config.n_seeds * (
        sizes.n_parameters * config.batch_size * config.n_ctx + sizes.activation_bytes
    )
    steps = cell.training.steps if cell.training else 1
    return steps * (0.01 + 0.005 * config.n_layers + 1e-10 * work)


def _taken_by_training(cell: Cell) -> float:
    from explorer.training.race import Contender, memory

    recipe, task, _ = cell.training or Training()
    return memory([Contender("cell", task.fit(cell.config), recipe)])


TRAINED = ("held_out_loss", "loss_drop", "feature_change", "steps")
ORIGINS: Mapping[str, Origin] = {
    "predicted": Origin(
        find=_predicted,
        names=names_of,
        batch=32,
        seconds=lambda cell: 0.003 + 0.0001 * cell.config.n_layers,
    ),
    "measured": Origin(
        find=_measured,
        names=names_of,
        memory=lambda cell: cell.config.sizes.memory_bytes,
        seconds=lambda cell: cell.config.n_seeds * cell.config.sizes.seconds,
    ),
    "trained": Origin(
        find=_trained,
        names=lambda _: list(TRAINED),
        seconds=_training_seconds,
        memory=_taken_by_training,
    ),
}


def find(cells: list[Cell], threads: int | None = None, stop: Stop = lambda: False) -> list[Found]:
    """Computes cells, one after the other; an error is a cell's result, never the sweep's end.

    Args:
        cells: where.
        threads: of torch, for each; None leaves torch as it is.
        stop: asked within each cell; a cell that was stopped raises.
    Raises:
        Stopped: `stop()` said true.
    """
    # theory does without torch
    if not threads or all(cell.origin == "predicted" for cell in cells):
        return [_find(cell, stop) for cell in cells]
    from explorer.measuring.sharing import torch_threads

    with torch_threads(threads):
        return [_find(cell, stop) for cell in cells]


def _find(cell: Cell, stop: Stop) -> Found:
    start = time.perf_counter()
    try:
        result = ORIGINS[cell.origin].find(cell, stop)
    except Exception as error:
        if stop():
            raise
        result = Found({}, f"{type(error).__name__}: {error}")
    return result._replace(seconds=time.perf_counter() - start)


# Cells as a task, `cells`, of processes that are handed plain data.


def body_of(cells: Sequence[Cell], threads: int | None) -> str:
    """The text of a task, with torch's threads for each cell; equal cells have equal texts."""
    return json.dumps(
        [
            threads,
            [
                [
                    cell.origin,
                    cell.config.to_json(),
                    cell.statistics,
                    cell.training and cell.training.plain(),
                ]
                for cell in cells
            ],
        ]
    )


def compute(call: Call) -> bytes:
    """Computes cells, one after the other, in a worker."""
    threads, asked = json.loads(call.body)
    cells = [
        Cell(
            origin, Config.from_json(config), tuple(statistics), training and Training.of(*training)
        )
        for origin, config, statistics, training in asked
    ]
    return json.dumps([result._asdict() for result in find(cells, threads, call.stop)]).encode()


def result_of(result: bytes) -> list[Found]:
    """The results of cells, from the bytes of `compute`."""
    return [Found(**cell) for cell in json.loads(result)]
