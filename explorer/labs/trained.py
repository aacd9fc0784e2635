"""Small Transformers trained side by side on real text: the races of the labs on training.

All learn the next character of Python's prose from the same batches, in turns of one step. They are small, so that a
few hundred steps take seconds; what small ones show in seconds, large ones show in hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import numpy as np
from pydantic import Field

from explorer.config import Config
from explorer.fields import About
from explorer.figures.race import snapshot
from explorer.labs import Look, unseen
from explorer.profile import BRANCHES, STATISTICS, Array, Profile
from explorer.stopping import Progress, Stop, check
from explorer.training.history import History, Outcome
from explorer.training.recipe import Recipe
from explorer.training.tasks import Levels, Task

if TYPE_CHECKING:
    from explorer.training.race import Race

SHAPE: Mapping[str, int] = {"d_model": 32, "n_heads": 2, "n_ctx": 32, "batch_size": 8}
READINGS = 30
"""About as many times the instruments are read."""
LEARNS = 0.1
"""Nats below the unigram's loss from which on a model counts as one that trains."""
AS_WELL = 0.1
"""Nats by which the losses of two contenders that did equally well may differ."""

Depth = Annotated[
    int, Field(ge=2, le=24, description="Layers, 32 wide; time grows with them."),
    About("Depth", "", "N", "layers", log=True),
]
Steps = Annotated[
    int, Field(ge=20, le=1000, description="Steps of each contender; time grows with them."),
    About("Training steps", "", unit="steps", log=True),
]
Seed = Annotated[
    int, Field(ge=0, le=2**31 - 1, description="Seed of the weights and of the batches."), About("Seed", ""),
]


Asked = TypeVar("Asked")


@dataclass(frozen=True, eq=False)
class Trained(Generic[Asked]):
    """All contenders after their training, by name."""

    settings: Asked
    histories: Mapping[str, History]
    ends: Mapping[str, Outcome]
    levels: Levels

    def final(self, name: str) -> float:
        """Held-out loss after the last step, nats a character; nan for a contender that fell out."""
        return self.ends[name].final_loss

    def trains(self, name: str) -> bool:
        """Whether its loss is below the unigram's."""
        return self.final(name) < self.levels.unigram - LEARNS

    def in_words(self, name: str) -> str:
        """Its loss, or the step at which it fell out."""
        end = self.ends[name]
        return f"out at step {end.steps}" if end.reason else f"{end.final_loss:.3g}"


def train(settings: Asked, contenders: Mapping[str, tuple[Config, Recipe]], steps: int, seed: int,
          stop: Stop = lambda: False, progress: Progress = lambda _: None, readings: int = READINGS,
          look: Look = unseen) -> Trained[Asked]:
    """Trains them all for so many steps on the batches of a seed.

    Args:
        settings: from which the contenders are made.
        contenders: name to a design and how it is trained; what the task needs is added to the design.
        readings: about how many times the instruments are read.
        look: told after each round how to make the result so far; it changes nothing of what comes.
    Raises:
        Stopped: `stop()` said true.
    """
    from explorer.training.race import Contender, Race

    task = Task(seed=seed)
    field = [Contender(name, task.fit(config), recipe) for name, (config, recipe) in contenders.items()]
    race = Race(field, task, steps, every=max(1, steps // readings))

    def after(now: Race) -> None:
        progress(now.step / steps)
        look(lambda: so_far(settings, now))

    race.run(stop, after)
    check(stop)
    return Trained(settings, race.histories, {end.name: end for end in race.verdict()}, race.levels)


def so_far(settings: Asked, race: Race) -> Trained[Asked]:
    """The contenders of a race as it stands, from numbers that no longer change. Nothing is measured for it."""
    histories = {runner.name: snapshot(runner.history) for runner in race.runners}
    ends = {runner.name: Outcome(runner.name, runner.step, math.nan, None, runner.step if runner.retired else None,
                                 runner.retired, math.nan, math.nan) for runner in race.runners}
    return Trained(settings, histories, ends, race.levels)


def alphas(history: History) -> tuple[Array, Array]:
    """Steps `[reading]`, and |α|, mean of a layer's two branches, `[reading, layer]`; none where it was never read."""
    if ("alpha", BRANCHES[0]) not in history.values:
        return np.zeros(0), np.zeros((0, 0))
    series = [history.series("alpha", site) for site in BRANCHES]
    return series[0][0], np.asarray(np.mean([np.abs(values) for _, values in series], axis=0))


def profile_at(history: History, step: int) -> Profile:
    """The reading at a step or the first after it, as a profile of one seed; the last one if there is none."""
    reading = min(int(np.searchsorted(history.steps, step)), len(history.steps) - 1)
    values = {
        (name, site): readings[reading][None] for (name, site), readings in history.values.items()
        if name in STATISTICS
    }
    return Profile("measured", values, seeds=(0,))
