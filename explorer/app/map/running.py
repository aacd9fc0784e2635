"""`Running`: the sweeps of a panel, kept while the page lives: one that was stopped goes on where it was."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from explorer.app.explore.sweep_plan import work
from explorer.app.map.plan import Job
from explorer.app.widgets.wording import left_in_words
from explorer.choices import ConfigError
from explorer.memory import machine_memory
from explorer.stopping import Stop
from explorer.sweeping.pool import room
from explorer.sweeping.sweeps import Sweep
from explorer.sweeping.workers import Here

# What a map costs, before it is computed: about, from the sizes of its designs.


MOST_MINUTES = 120
"""Minutes of one processor that a map may take, about."""


class Cost(NamedTuple):
    """Seconds of one processor for a cell; of a trained one, for a step."""

    least: float
    layer: float
    unit: float
    """Seconds of a unit of `work`."""


COSTS: Mapping[str, Cost] = MappingProxyType({
    "predicted": Cost(0.003, 0.0001, 0.0), "measured": Cost(0.02, 0.008, 3.5e-10), "trained": Cost(0.01, 0.005, 1e-10),
})


def minutes(sweep: Sweep) -> float:
    """Minutes of one processor that the cells take that are not there yet, right to a factor of three or so."""
    total = 0.0
    for place, point in sweep.grid.points.items():
        if (cell := point.cell) and not sweep.state[place]:
            cost = COSTS[cell.origin]
            seconds = cost.least + cost.layer * cell.config.n_layers + cost.unit * work(cell.config)
            total += seconds * (cell.training.steps if cell.training else 1)
    return total / 60


def check(sweep: Sweep) -> None:
    """Raises ConfigError where a map would take hours."""
    if (needed := minutes(sweep)) > MOST_MINUTES:
        raise ConfigError(f"the map must take at most about {MOST_MINUTES} minutes of one processor; got about "
                          f"{needed:,.0f}: take fewer values, a smaller design, or theory alone")


KEPT = 6
"""Sweeps that are kept; the largest has some 8 MB of numbers."""
ROOMY = 4e9
"""Bytes of memory from which on a pool of processes is worth its own: each takes about 300 MB."""
ENOUGH = 5
"""Cells that say how long the others take."""
GLANCE = 0.05
"""Seconds between two looks at whether others still compute."""


class Running:
    """Makes sweeps and runs them, with calls for progress.

    Args:
        busy: whether another panel of the page computes: nothing is begun meanwhile.
    """

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._kept: OrderedDict[Job, Sweep] = OrderedDict()
        self.waits = False
        """Whether another panel comes first at the moment."""

    def sweep(self, job: Job) -> Sweep:
        """The sweep of a job, begun or not.

        Raises:
            ConfigError: it would take hours.
        """
        if job not in self._kept:
            executor = None if machine_memory() >= ROOMY else Here()
            sweep = Sweep(job.config, job.fields, job.statistics, executor, origins=job.origins, steps=job.steps)
            check(sweep)
            self._kept[job] = sweep
        self._kept.move_to_end(job)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[job]

    def run(self, sweep: Sweep, stop: Stop, look: Callable[[], None]) -> None:
        """Computes what is missing; `look` is called ten times a second, also while another panel comes first."""
        def ends() -> bool:
            while not stop() and self._busy():
                self.waits = True
                look()
                time.sleep(GLANCE)
            self.waits = False
            look()
            return stop()

        sweep.run(ends)


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
            left = 60 * minutes(self._sweep) / (1 if self._sweep.executor else room(0))
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
