"""A race in a worker: runs one, and tells how it stands, as `Record` takes it.

Of each contender it shows a line of text, now and then: its continuation, or the characters that it
fills in."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from explorer.choices import ConfigError
from explorer.measuring.sharing import torch_threads
from explorer.model.batch import Batch
from explorer.stopping import Stop, Throttle, check
from explorer.tasks.broker import MOST_DATA
from explorer.tasks.frames import packed, unpacked
from explorer.tasks.pool import Call
from explorer_race.archive import from_bytes, to_bytes
from explorer_race.history import Line, Terms
from explorer_race.race import Race, race_of
from explorer_race.runner import Runner
from explorer_race.tasks import NOT_ASKED, Codes

LONGEST = 1.0
"""Seconds after which a line is cut."""


def compute(call: Call) -> bytes:
    """Runs a race from its beginning or from where it stood still; see `history.request`."""
    asked = json.loads(call.body)
    try:
        begins = asked["verb"] == "begin"
        race = race_of(Terms.of(unpacked(call.data))) if begins else from_bytes(call.data, "race")
        with torch_threads(race.threads):
            return Teller(race, call).run()
    except ConfigError as error:
        return packed({"refused": error.phrases})


class Teller:
    """Tells how a race stands; while the race runs, that takes a few per cent of its time.

    Args:
        race: as far as it is known already.
    """

    def __init__(self, race: Race, call: Call) -> None:
        self.race, self.call = race, call
        self.lines: dict[str, Line] = {}
        self.known = [
            (len(runner.history.losses), len(runner.history.steps)) for runner in race.runners
        ]
        self._turns = Counter[str]()
        self._writing, self._telling = (
            Throttle(2.0, share=0.01, most=math.inf),
            Throttle(1.0, share=0.05),
        )

    def run(self) -> bytes:
        """Runs it until its end, or until it is to stand still; then the saved race is told, too,
        if it can be sent."""
        race = self.race.run(lambda: self.call.stop() or self.call.early(), self.look)
        check(self.call.stop)
        for runner in race.runners:
            if not runner.retired:
                self._write(runner, self.call.stop)
        archive = to_bytes(race)
        return self.news(
            **{"archive": np.frombuffer(archive, np.uint8)} if len(archive) <= MOST_DATA else {}
        )

    def look(self, race: Race) -> None:
        """Called after each round: lets one contender write, or tells, each if it is time."""
        running = [runner for runner in race.runners if not runner.retired]
        if running and self._writing.due:
            with self._writing:  # whoever has waited the longest
                self._write(
                    min(running, key=lambda runner: self._turns[runner.name]), self.call.early
                )
        self.call.progress(race.step / race.steps)
        if self._telling.due:
            with self._telling:
                self.call.show(self.news())

    def _write(self, runner: Runner, stop: Stop) -> None:
        self._turns[runner.name] += 1
        end = time.monotonic() + LONGEST
        if runner.step and not stop():
            self.lines[runner.name] = line(runner, lambda: stop() or time.monotonic() > end)

    def news(self, **more: object) -> bytes:
        """How the race stands, with the losses and readings that are not known yet, and more."""
        runners = [
            {
                "step": runner.step,
                "retired": runner.retired,
                "line": self.lines.get(runner.name),
                **runner.history.since(*known),
            }
            for runner, known in zip(self.race.runners, self.known, strict=True)
        ]
        self.known = [
            (len(runner.history.losses), len(runner.history.steps)) for runner in self.race.runners
        ]
        return packed(
            {
                "levels": self.race.levels,
                "outcomes": self.race.verdict(),
                "runners": runners,
                **more,
            }
        )


# A contender's lines. Nothing of the training is altered: no gradient is taken, no mode is changed,
# and the draws come from a generator of their own, the same ones each time, so that two lines
# differ by the weights alone.

PROMPT, LENGTH = 20, 60
"""Characters of the held-out text that a line continues, at most, and characters of a line."""
TEMPERATURE = 0.8
"""Divisor of the logits. At 1 a small model misspells most words; at 0 it repeats one."""


@torch.no_grad()
def line(runner: Runner, stop: Callable[[], bool] = lambda: False) -> Line:
    """Text that a contender writes with the weights as they are; shorter where `stop` turns
    true."""
    return _filled(runner) if runner.data.task.masks else _continued(runner, stop)


def _continued(runner: Runner, stop: Callable[[], bool]) -> Line:
    """A continuation of the held-out text, character by character."""
    size = runner.config.n_ctx
    given = _prompt(runner, min(PROMPT, size))
    codes, rng = given, np.random.default_rng(0)
    for uniform in rng.random(LENGTH):
        if stop():
            break
        context = codes[-size:]
        logits = (
            _logits(runner, np.pad(context, (0, size - len(context))))[len(context) - 1]
            / TEMPERATURE
        )
        if not bool(logits.isfinite().all()):
            break
        shares = logits.softmax(0).cumsum(0).cpu().numpy()
        codes = np.append(
            codes, min(int(np.searchsorted(shares, uniform * shares[-1])), len(shares) - 1)
        )
    return Line(_text(runner, given), _text(runner, codes[len(given) :]))


def _prompt(runner: Runner, length: int) -> Codes:
    """The beginning of the held-out text, from its first whole word on."""
    held, space = (
        runner.data.held,
        runner.data.text.vocabulary.index(" ") if " " in runner.data.text.vocabulary else -1,
    )
    blanks = np.flatnonzero(held[: len(held) - length] == space)
    first = int(blanks[0]) + 1 if len(blanks) else 0
    return held[first : first + length]


def _filled(runner: Runner) -> Line:
    """The beginning of the first held-out sequence, hidden characters filled in."""
    inputs, targets, _ = runner.data.held_out
    guesses = _logits(runner, inputs[0]).argmax(-1).cpu().numpy()
    asked = targets[0] != NOT_ASKED
    codes = np.where(asked, guesses, inputs[0])[:LENGTH]
    words = [_text(runner, codes[at : at + 1]) for at in range(len(codes))]
    return Line(
        "",
        "".join(
            f"[{word}]" if hidden else word for word, hidden in zip(words, asked, strict=False)
        ),
    )


def _logits(runner: Runner, codes: Codes) -> Tensor:
    """Logits of one sequence `[token]`: `[token, character]`."""
    model, inputs = runner.model, torch.from_numpy(codes)[None].to(runner.device)
    return model.logits(model(model.embed(Batch(inputs, inputs))))[0].float()


def _text(runner: Runner, codes: Codes) -> str:
    """Characters that can be shown in one line."""
    text = "".join(runner.data.text.vocabulary[code] for code in codes).replace("\n", "↵")
    return "".join(character if character.isprintable() else "·" for character in text)
