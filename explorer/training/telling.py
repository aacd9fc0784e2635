"""A race in a worker: runs one or reads one, and tells how it stands, as `Record` takes it."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Mapping

import numpy as np

from explorer.choices import ConfigError
from explorer.measuring.sharing import torch_threads
from explorer.stopping import Stop, Throttle, check
from explorer.tasks.broker import MOST_DATA
from explorer.tasks.frames import Arrays, packed, unpacked
from explorer.tasks.pool import Call
from explorer.text import prose
from explorer.training.archive import from_bytes, to_bytes
from explorer.training.history import Line
from explorer.training.outside import Terms, since
from explorer.training.race import Race, race_of
from explorer.training.runner import Runner
from explorer.training.writing import line

LONGEST = 1.0
"""Seconds after which a line is cut."""


def compute(call: Call) -> bytes:
    """Runs a race from its beginning or from where it was saved, or reads a saved one; see `outside.request`."""
    asked = json.loads(call.body)
    try:
        begins = asked["verb"] == "begin"
        race = race_of(Terms.of(*unpacked(call.data))) if begins else from_bytes(call.data, asked["name"])
        with torch_threads(race.threads):
            teller = Teller(race, call)
            return teller.whole() if asked["verb"] == "read" else teller.run()
    except ConfigError as error:
        return packed({"refused": error.phrases}, {})


class Teller:
    """Tells how a race stands; while the race runs, that takes a few per cent of its time.

    Args:
        race: as far as it is known already.
    """

    def __init__(self, race: Race, call: Call) -> None:
        self.race, self.call = race, call
        self.lines: dict[str, Line] = {}
        self.known = [(len(runner.history.losses), len(runner.history.steps)) for runner in race.runners]
        self._turns = Counter[str]()
        self._writing, self._telling = Throttle(2.0, share=0.01, most=math.inf), Throttle(1.0, share=0.05)

    def whole(self) -> bytes:
        """All of a saved race, with its terms, and its text where the text is no usual one."""
        terms, text, usual = self.race.terms, self.race.data.text, prose()
        if text.vocabulary == usual.vocabulary and np.array_equal(text.codes, usual.codes):
            terms = terms._replace(text=None)
        self.known = [(0, 0)] * len(self.known)
        return self.news(*terms.parts())

    def run(self) -> bytes:
        """Runs it until its end, or until it is to stand still; then the saved race is told, too, if it can be sent."""
        race = self.race.run(lambda: self.call.stop() or self.call.early(), self.look)
        check(self.call.stop)
        for runner in race.runners:
            if not runner.retired:
                self._write(runner, self.call.stop)
        archive = to_bytes(race)
        return self.news({}, {"archive": np.frombuffer(archive, np.uint8)} if len(archive) <= MOST_DATA else {})

    def look(self, race: Race) -> None:
        """Called after each round: lets one contender write, or tells, each if it is time."""
        running = [runner for runner in race.runners if not runner.retired]
        if running and self._writing.due:
            with self._writing:  # whoever has waited the longest
                self._write(min(running, key=lambda runner: self._turns[runner.name]), self.call.early)
        self.call.progress(race.step / race.steps)
        if self._telling.due:
            with self._telling:
                self.call.show(self.news({}, {}))

    def _write(self, runner: Runner, stop: Stop) -> None:
        self._turns[runner.name] += 1
        end = time.monotonic() + LONGEST
        if runner.step and not stop():
            self.lines[runner.name] = line(runner, lambda: stop() or time.monotonic() > end)

    def news(self, about: Mapping[str, object], arrays: Arrays) -> bytes:
        """How the race stands, with the losses and readings that are not known yet, and more."""
        runners, numbers = [], dict(arrays)
        for place, (runner, known) in enumerate(zip(self.race.runners, self.known, strict=True)):
            news, new = since(runner.history, *known)
            runners.append({"step": runner.step, "retired": runner.retired, **news})
            numbers |= {f"{name} {place}": values for name, values in new.items()}
            self.known[place] = len(runner.history.losses), len(runner.history.steps)
        return packed({**about, "levels": self.race.levels, "outcomes": self.race.verdict(), "lines": self.lines,
                       "runners": runners}, numbers)
