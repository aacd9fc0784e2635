"""A race in a worker: runs one or reads one, and tells how it stands, as `Record` takes it."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.choices import ConfigError
from explorer.measuring.sharing import torch_threads
from explorer.stopping import Stop, Throttle, check
from explorer.tasks.broker import MOST_DATA
from explorer.tasks.pool import Call
from explorer.text import prose
from explorer.training.archive import from_bytes, to_bytes
from explorer.training.history import Line, Outcome
from explorer.training.outside import Arrays, Terms, packed, since, unpacked
from explorer.training.race import Race
from explorer.training.runner import Contender, Runner
from explorer.training.writing import line

SHARE = 0.01
"""Share of a race's time that writing takes while it runs."""
LONGEST = 1.0
"""Seconds after which a line is cut."""


def compute(call: Call) -> bytes:
    """Runs a race from its beginning or from where it was saved, or reads a saved one; see `outside.request`."""
    asked = json.loads(call.body)
    try:
        begins = asked["verb"] == "begin"
        race = race_of(Terms.of(*unpacked(call.data))) if begins else from_bytes(call.data, asked["name"])
        with torch_threads(race.threads):
            return whole(race) if asked["verb"] == "read" else Teller(race, call).run()
    except ConfigError as error:
        return packed({"refused": error.phrases}, {})


def race_of(terms: Terms) -> Race:
    """The race, ready to run.

    Raises:
        ConfigError: see `Race`.
    """
    contenders, task, steps, every, text = terms
    return Race([Contender(*row) for row in contenders], task, steps, every, text)


def whole(race: Race) -> bytes:
    """All that there is to tell of a saved race: with its terms, and its text where the text is no usual one."""
    text, usual = race.data.text, prose()
    own = text.vocabulary != usual.vocabulary or not np.array_equal(text.codes, usual.codes)
    about, arrays = Terms(race.contenders, race.task, race.steps, race.every, text if own else None).parts()
    more, numbers = news(race, [(0, 0)] * len(race.runners), race.verdict(), {})
    return packed({**about, **more}, {**arrays, **numbers})


def news(race: Race, known: list[tuple[int, int]], outcomes: list[Outcome], lines: dict[str, Line]
         ) -> tuple[dict[str, object], Arrays]:
    """How a race stands; of each contender, the losses and readings beyond so many."""
    runners, arrays = [], dict[str, NDArray[Any]]()
    for number, (runner, counts) in enumerate(zip(race.runners, known, strict=True)):
        about, numbers = since(runner.history, *counts)
        runners.append({"step": runner.step, "retired": runner.retired, **about})
        arrays |= {f"{name} {number}": values for name, values in numbers.items()}
    return {"levels": race.levels, "outcomes": outcomes, "lines": lines, "runners": runners}, arrays


def counts(race: Race) -> list[tuple[int, int]]:
    """Losses and readings of each contender."""
    return [(len(runner.history.losses), len(runner.history.steps)) for runner in race.runners]


class Teller:
    """Runs a race, and tells from time to time what is new; all together takes a few per cent of its time.

    Args:
        race: as far as it is known already.
    """

    def __init__(self, race: Race, call: Call) -> None:
        self.race, self.call = race, call
        self.known, self.outcomes, self.lines = counts(race), list[Outcome](), dict[str, Line]()
        self._turns = Counter[str]()
        self._judging, self._showing = Throttle(2.0, share=0.03), Throttle(1.0, share=0.05, most=5.0)
        self._writing = Throttle(2.0, share=SHARE, most=math.inf)

    def run(self) -> bytes:
        """Runs it until its end, or until it is to stand still; then the saved race is told, too, if it can be sent."""
        race = self.race.run(lambda: self.call.stop() or self.call.early(), self.look)
        check(self.call.stop)
        for runner in race.runners:
            if not runner.retired:
                self._write(runner, self.call.stop)
        self.outcomes = race.verdict()
        archive = to_bytes(race)
        return self._news({"archive": np.frombuffer(archive, np.uint8)} if len(archive) <= MOST_DATA else {})

    def look(self, race: Race) -> None:
        """Called after each round: tells, judges, or lets one contender write, each if it is time."""
        if self._judging.due:
            with self._judging:
                self.outcomes = race.verdict()
        running = [runner for runner in race.runners if not runner.retired]
        if running and self._writing.due:
            with self._writing:  # whoever has waited the longest
                self._write(min(running, key=lambda runner: self._turns[runner.name]), self.call.early)
        self.call.progress(race.step / race.steps)
        if self._showing.due:
            with self._showing:
                self.call.show(self._news({}))

    def _write(self, runner: Runner, stop: Stop) -> None:
        self._turns[runner.name] += 1
        end = time.monotonic() + LONGEST
        if runner.step and not stop():
            self.lines[runner.name] = line(runner, lambda: stop() or time.monotonic() > end)

    def _news(self, more: Arrays) -> bytes:
        about, arrays = news(self.race, self.known, self.outcomes, self.lines)
        self.known = counts(self.race)
        return packed(about, {**arrays, **more})
