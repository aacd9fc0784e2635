"""`Scribe`: the lines that contenders write while they race, one contender at a time and seldom."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING

from explorer.app.widgets.worker import Throttle
from explorer.stopping import Stop
from explorer.training.outcome import Line

if TYPE_CHECKING:
    from explorer.training.race import Race
    from explorer.training.runner import Runner

SHARE = 0.01
"""Share of a race's time that writing takes while it runs."""
LONGEST = 1.0
"""Seconds after which a line is cut."""


class Scribe:
    """The latest line of each contender, by name. Its methods are called on the worker's thread."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._turns: Counter[str] = Counter()
        self._throttle = Throttle(2.0, share=SHARE, most=math.inf)

    def begin(self) -> None:
        """Forgets the last race."""
        self.lines, self._turns = {}, Counter()
        self._throttle.now()

    def look(self, race: Race, stop: Stop) -> None:
        """Lets the contender write that has waited the longest, if it is time."""
        running = [runner for runner in race.runners if not runner.retired]
        if running and self._throttle.due:
            with self._throttle:
                self._write(race, min(running, key=lambda runner: self._turns[runner.name]), stop)

    def finish(self, race: Race, stop: Stop) -> None:
        """Lets every contender write: the race stands still."""
        for runner in race.runners:
            if not runner.retired:
                self._write(race, runner, stop)

    def _write(self, race: Race, runner: Runner, stop: Stop) -> None:
        from explorer.measuring.sharing import torch_threads
        from explorer.training.writing import line

        self._turns[runner.name] += 1
        end = time.monotonic() + LONGEST
        if runner.step and not stop():
            with torch_threads(race.threads):
                self.lines = {**self.lines, runner.name: line(runner, lambda: stop() or time.monotonic() > end)}
