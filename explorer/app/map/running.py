"""The sweep of a map: what it costs, how far it is, and how long it still takes."""

from __future__ import annotations

import time

from explorer.app.map.plan import Job
from explorer.app.widgets.wording import left_in_words
from explorer.choices import ConfigError
from explorer.limits import process_count
from explorer.sweeping.sweeps import Sweep
from explorer.sweeping.workers import Outside

MOST_MINUTES = 120
"""Minutes of one processor that a map may take, about."""
ENOUGH = 5
"""Cells that say how long the others take."""


def minutes(sweep: Sweep) -> float:
    """Minutes of one processor that the cells take that are not there yet, right to a factor of three or so."""
    return sum(point.cell.seconds for place, point in sweep.grid.points.items()
               if point.cell and not sweep.state[place]) / 60


def begun(job: Job) -> Sweep:
    """The sweep of a job.

    Raises:
        ConfigError: it would take hours.
    """
    sweep = Sweep(job.config, job.fields, job.statistics, origins=job.origins, steps=job.steps)
    if (needed := minutes(sweep)) > MOST_MINUTES:
        raise ConfigError(f"the map must take at most about {MOST_MINUTES} minutes of one processor; got about "
                          f"{needed:,.0f}: take fewer values, a smaller design, or theory alone")
    cells = [point.cell for point in sweep.grid.points.values() if point.cell]
    sweep.executor = Outside(max((cell.memory for cell in cells), default=0.0))
    return sweep


class Clock:
    """How far a sweep is and how long it still takes, in words.

    Args:
        sweep: as it is begun, or goes on.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._begun, self._first = time.monotonic(), sweep.done

    @property
    def fraction(self) -> float:
        """Part of the cells that is done."""
        return self._sweep.done / self._sweep.total

    def words(self) -> str:
        """'120 of 480 cells · about 40 s left': at first by what such cells cost, then by those that are done."""
        done = self._sweep.done
        if done <= max(self._first, self._predicted):  # processes start, and theory is another matter
            self._begun, self._first = time.monotonic(), done
        if done < self._first + ENOUGH:
            left = 60 * minutes(self._sweep) / process_count()
        else:
            left = (time.monotonic() - self._begun) / (done - self._first) * (self._sweep.total - done)
        return f"{cells(self._sweep)} · {left_in_words(left)}"

    @property
    def _predicted(self) -> int:
        """Cells that are found first, where others follow."""
        origins = self._sweep.grid.origins
        return self._sweep.total // len(origins) if "predicted" in origins and len(origins) > 1 else 0


def cells(sweep: Sweep) -> str:
    """'120 of 480 cells'"""
    return f"{sweep.done:,} of {sweep.total:,} cells"
