"""Numbers of a race to be drawn, and the shortening of long curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from explorer.figures.axes import Axis
from explorer.figures.palette import Design
from explorer.profile import Array
from explorer.training.history import History
from explorer.training.tasks import Levels

if TYPE_CHECKING:
    from explorer.training.race import Outcome, Race

MOST_POINTS = 400
"""Points of one curve that are sent to a browser."""
WINDOW = 15
"""Steps whose median is one point of a smoothed curve."""


@dataclass(frozen=True, eq=False)
class Track:
    """One contender of a race, as far as it has come."""

    design: Design
    """Its name and its marks."""
    history: History
    """Its numbers; they no longer change, see `snapshot`."""
    step: int
    """Steps that it has made."""
    retired: str = ""
    """The reason why it is out of the race; empty while it is not."""
    final_loss: float = np.nan
    """Held-out loss of the weights as they stand, where it was measured."""

    @property
    def name(self) -> str:
        """The name, escaped for plotly and HTML."""
        return self.design.heading

    @property
    def losses(self) -> Array:
        """The training loss of every step, up to the first that is not finite."""
        values = np.array(self.history.losses, dtype=np.float64)
        return values[: int(np.argmin(finite)) if not (finite := np.isfinite(values)).all() else len(values)]

    @property
    def held_out(self) -> tuple[Array, Array]:
        """Steps and held-out losses, `[reading]`; the last one is of the current weights."""
        steps, values = series(self.history, "held_out_loss")
        if not np.isfinite(self.final_loss) or (len(steps) and steps[-1] >= self.step):
            return steps, values
        return np.append(steps, self.step), np.append(values, self.final_loss)


@dataclass(frozen=True)
class Course:
    """Numbers of a race to be drawn."""

    tracks: tuple[Track, ...]
    steps: int
    """Number of steps of each contender."""
    levels: Levels

    @property
    def axis(self) -> Axis:
        """The horizontal axis: all steps of the race, so that a curve shows how many are still to come."""
        return Axis("step", (-0.015 * self.steps, 1.015 * self.steps), counts=True)

    @classmethod
    def of(cls, race: Race, designs: Sequence[Design], outcomes: Sequence[Outcome]) -> Course:
        """The race as it stands; the outcomes may be of some steps before."""
        return cls(tuple(
            Track(design, snapshot(runner.history), runner.step, runner.retired,
                  outcome.final_loss if outcome.steps == runner.step else np.nan)
            for design, runner, outcome in zip(designs, race.runners, outcomes, strict=True)
        ), race.steps, race.levels)


def snapshot(history: History) -> History:
    """The numbers so far, unaffected by later steps of the race; cheap, because no array is copied."""
    copy = History()
    copy.losses, copy.steps = list(history.losses), list(history.steps)
    copy.values = defaultdict(list, {key: list(values) for key, values in history.values.items()})
    return copy


def series(history: History, statistic: str, site: str = "") -> tuple[Array, Array]:
    """Steps and values of a statistic; empty where there is none."""
    if (statistic, site) not in history.values:
        return np.zeros(0), np.zeros(0)
    return history.series(statistic, site)


def stride(count: int, most: int) -> int:
    """Every how many points one is taken: a power of two, so that a growing curve rarely changes its points."""
    blocks = max(1, -(-count // most))
    return 1 << (blocks - 1).bit_length()


def thinned(count: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """The places of evenly spread points, the first and the last among them."""
    if not count:
        return np.zeros(0, dtype=np.intp)
    places = np.arange(0, count, stride(count, most - 1))
    return places if places[-1] == count - 1 else np.append(places, count - 1)


def extremes(values: Array, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """The places of the least and the greatest value of every stretch: a spike survives."""
    block = stride(len(values), most // 2)
    if block == 1:
        return np.arange(len(values))
    places = [
        place for start in range(0, len(values), block)
        for part in (values[start : start + block],)
        for place in sorted({start + int(part.argmin()), start + int(part.argmax())})
    ]
    return np.array(places, dtype=np.intp)


def medians(values: Array, places: NDArray[np.intp], window: int = WINDOW) -> Array:
    """The median of the `window` values around each place, of fewer at the ends."""
    half = window // 2
    return np.array([np.median(values[max(0, place - half) : place + half + 1]) for place in places])
