"""`Finder`: what theory predicts and what is measured at the points of a sweep, on a worker's thread.

The panel has priority: while it computes, nothing is begun here, and a measurement that runs is abandoned at the next
layer, to be done again later. What was found is kept by config, and only as the few numbers that a sweep draws.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from explorer.app.explore.sweep_plan import Spot
from explorer.app.widgets.worker import wait
from explorer.config import Config
from explorer.ends import Ending, endings
from explorer.figures.across import Point
from explorer.profile import Profile
from explorer.stopping import Progress, Stop, Stopped

OnSeed = Callable[[Profile], None] | None
Measure = Callable[[Config, Stop, Progress, tuple[int, int], OnSeed], Profile]
Predict = Callable[[Config], Profile]

LONGEST = 15.0
"""Seconds that a point may take."""
MOST_BYTES = 1.5e9
"""Memory that a point may take beside what the panel itself measures."""
KEPT = 2000
"""Points that are kept."""


class Found(NamedTuple):
    """Every statistic of a point, or why it has none."""

    endings: dict[str, Ending]
    reason: str = ""


class Finder:
    """Finds points, one after the other.

    Args:
        measure, predict: the panel's.
        busy: whether the panel computes.
        hurried: whether it has begun so lately that not even the theory may take a processor from it.
    """

    def __init__(self, measure: Measure, predict: Predict | None, busy: Callable[[], bool],
                 hurried: Callable[[], bool]) -> None:
        self._measure, self._predict, self._busy, self._hurried = measure, predict, busy, hurried
        self._known: OrderedDict[tuple[str, Config], Found] = OrderedDict()
        self._too_long = float("inf")  # work of the smallest point that took too long

    def known(self, origin: str, config: Config) -> Found | None:
        """What was found of a design, measured or predicted."""
        return self._known.get((origin, config))

    def points(self, statistic: str, origin: str, row: Sequence[Spot]) -> list[Point]:
        """A statistic at some spots, as far as it is known."""
        points = []
        for value, config, refusal in row:
            found = self.known(origin, config) if config else None
            points.append(Point(value, found.endings.get(statistic), found.reason) if found
                          else Point(value, None, refusal))
        return points

    def predict(self, config: Config, stop: Stop) -> None:
        """Finds what theory predicts; nothing where there is no theory. Raises: Stopped."""
        if self._predict is None or self.known("predicted", config):
            return
        wait(self._hurried, stop)
        try:
            self._keep("predicted", config, Found(endings(self._predict(config))))
        except Exception as error:  # noqa: BLE001 - one point less, and the note says why
            self._keep("predicted", config, Found({}, f"{type(error).__name__}: {error}"))

    def measure(self, config: Config, stop: Stop) -> None:
        """Finds what is measured, or why it is left out. Raises: Stopped."""
        found = self.known("measured", config) or self._left_out(config)
        while found is None:
            wait(self._busy, stop)
            found = self._try(config, stop)
        self._keep("measured", config, found)

    def _try(self, config: Config, stop: Stop) -> Found | None:
        """A measurement; None if the panel wanted the processors meanwhile."""
        start, why = time.monotonic(), ""

        def ends() -> bool:
            nonlocal why
            if not why:
                late = time.monotonic() - start > LONGEST
                why = "stopped" if stop() else "busy" if self._busy() else "late" if late else ""
            return bool(why)

        try:
            return Found(endings(self._measure(config, ends, lambda _: None, (1, 0), None)))
        except Exception as error:  # noqa: BLE001 - a point that fails is left out, and the note says why
            if why == "stopped":
                raise Stopped from None
            if why == "late":
                self._too_long = min(self._too_long, work(config))
                return Found({}, f"takes over {LONGEST:.0f} s")
            return None if why else Found({}, f"{type(error).__name__}: {error}")

    def _left_out(self, config: Config) -> Found | None:
        """The reason not to begin at all."""
        if (needed := config.sizes.memory_bytes) > MOST_BYTES:
            return Found({}, f"needs {needed / 1e9:.2g} GB of memory")
        return Found({}, f"takes over {LONGEST:.0f} s") if work(config) >= self._too_long else None

    def _keep(self, origin: str, config: Config, found: Found) -> None:
        self._known[origin, config] = found
        self._known.move_to_end((origin, config))
        while len(self._known) > KEPT:
            self._known.popitem(last=False)


def work(config: Config) -> float:
    """A number that grows with the time of a measurement."""
    tokens = config.batch_size * config.n_ctx
    return config.n_seeds * (config.sizes.n_parameters * tokens + config.sizes.activation_bytes)
