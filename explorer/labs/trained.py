"""Small Transformers trained side by side on real text: the models of the labs on training, and their readings.

All learn the next character of Python's prose from the same batches, in turns of one step. They are small, so that a
few hundred steps take seconds; what small ones show in seconds, large ones show in hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.labs import Progress, Stop, check
from explorer.profile import BRANCHES, Array
from explorer.training.history import History
from explorer.training.recipe import Recipe
from explorer.training.tasks import Levels, Task

SHAPE: Mapping[str, int] = {"d_model": 32, "n_heads": 2, "n_ctx": 32, "batch_size": 8}
READINGS = 30
"""About as many times the instruments are read."""
LEARNS = 0.1
"""Nats below the unigram's loss from which on a model counts as one that trains."""
AS_WELL = 0.1
"""Nats by which the losses of two contenders that did equally well may differ."""


class Curve(NamedTuple):
    """Readings of one contender; the number of a step counts the steps before it."""

    steps: Array
    """`[reading]`"""
    loss: Array
    """`[reading + 1]` held-out loss, nats a character; the last is after the last step."""
    weights: Array
    """`[reading, layer]` ‖∂L/∂W‖ of all matrices of a layer."""
    stream: Array
    """`[reading, layer + 1]` ‖∂L/∂x‖, at the input and after each layer."""
    correlation: Array
    """`[reading, layer]` token correlation after each layer."""
    alpha: Array
    """`[reading, layer]` |α|, mean of the layer's two branches; no layers where a design has none."""
    made: int
    """Steps that it made."""
    retired: str
    """The reason why it made no more; empty if nothing went wrong."""

    @property
    def final(self) -> float:
        """Held-out loss after the last step; nan if it could not be made."""
        return float(self.loss[-1])

    @property
    def first_to_last(self) -> Array:
        """`[reading]` the first layer's ‖∂L/∂W‖ over the last layer's; nan where both are zero."""
        with np.errstate(all="ignore"):
            return np.asarray(self.weights[:, 0] / self.weights[:, -1])

    def reading(self, step: int) -> int:
        """The first reading at a step or after it; the last one if there is none."""
        return min(int(np.searchsorted(self.steps, step)), len(self.steps) - 1)


@dataclass(frozen=True, eq=False)
class Trained:
    """All contenders, and the losses of a unigram and a bigram."""

    curves: Mapping[str, Curve]
    levels: Levels

    def trains(self, name: str) -> bool:
        """Whether a contender's loss is below the unigram's."""
        return self.curves[name].final < self.levels.unigram - LEARNS


def train(contenders: Mapping[str, tuple[Config, Recipe]], steps: int, seed: int, stop: Stop = lambda: False,
          progress: Progress = lambda _: None) -> Trained:
    """Trains them all for so many steps on the batches of a seed.

    Args:
        contenders: name to a design and how it is trained; what the task needs is added to the design.
    Raises:
        Stopped: `stop()` said true.
    """
    from explorer.training.race import Contender, Race

    task = Task(seed=seed)
    field = [Contender(name, task.fit(config), recipe) for name, (config, recipe) in contenders.items()]
    race = Race(field, task, steps, every=max(1, steps // READINGS))
    race.run(stop, lambda now: progress(now.step / steps))
    check(stop)
    ends = race.verdict()
    return Trained(
        {one.name: curve(race.histories[one.name], one.final_loss, one.steps, one.reason) for one in ends}, race.levels
    )


def tally(orders: Callable[[int], Mapping[str, bool]], seeds: Iterable[int]) -> dict[str, int]:
    """Number of seeds for which each statement of `orders(seed)` holds; some fifteen seconds a seed."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts.update({name: int(held) for name, held in orders(seed).items()})
    return dict(counts)


def curve(history: History, final: float, made: int, retired: str) -> Curve:
    """From a contender's history to the numbers that the labs draw."""
    steps, loss = history.series("held_out_loss")
    _, weights = history.layer_gradient()
    alphas = [np.abs(history.series("alpha", name)[1]) for name in BRANCHES if ("alpha", name) in history.values]
    ends = [_series(history, "stream_gradient", site) for site in ("embed", "resid_post")]
    return Curve(
        steps=steps,
        loss=np.append(loss, final),
        weights=weights if weights.size else np.full((len(steps), 1), np.nan),
        stream=np.concatenate(ends, axis=1),
        correlation=history.series("token_correlation", "resid_post")[1],
        alpha=np.mean(alphas, axis=0) if alphas else np.zeros((len(steps), 0)),
        made=made,
        retired=retired,
    )


def _series(history: History, statistic: str, site: str) -> Array:
    """`[reading, layer]`; nan, in one column, where a contender fell out before it was ever read."""
    found = history.values.get((statistic, site))
    return np.full((len(history.steps), 1), np.nan) if found is None else np.stack(found)
