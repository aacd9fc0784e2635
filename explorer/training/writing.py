"""Lines of text from a contender, shown during a race: its continuation, or the characters that it fills in.

Nothing of the training is altered: no gradient is taken, no mode is changed, and the draws come from a generator of
their own, the same ones each time, so that two lines differ by the weights alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from explorer.model.batch import Batch
from explorer.training.history import Line
from explorer.training.instruments import device_of
from explorer.training.runner import Runner
from explorer.training.tasks import NOT_ASKED, Codes

PROMPT, LENGTH = 20, 60
"""Characters of the held-out text that a line continues, at most, and characters of a line."""
TEMPERATURE = 0.8
"""Divisor of the logits. At 1 a small model misspells most words; at 0 it repeats one."""


@torch.no_grad()
def line(runner: Runner, stop: Callable[[], bool] = lambda: False) -> Line:
    """Text that a contender writes with the weights as they are; shorter where `stop` turns true."""
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
        logits = _logits(runner, np.pad(context, (0, size - len(context))))[len(context) - 1] / TEMPERATURE
        if not bool(logits.isfinite().all()):
            break
        shares = logits.softmax(0).cumsum(0).cpu().numpy()
        codes = np.append(codes, min(int(np.searchsorted(shares, uniform * shares[-1])), len(shares) - 1))
    return Line(_text(runner, given), _text(runner, codes[len(given):]))


def _prompt(runner: Runner, length: int) -> Codes:
    """The beginning of the held-out text, from its first whole word on."""
    held, space = runner.data.held, runner.data.text.vocabulary.index(" ") if " " in runner.data.text.vocabulary else -1
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
    return Line("", "".join(f"[{word}]" if hidden else word for word, hidden in zip(words, asked, strict=False)))


def _logits(runner: Runner, codes: Codes) -> Tensor:
    """Logits of one sequence `[token]`: `[token, character]`."""
    inputs = torch.from_numpy(codes)[None].to(device_of(runner.model))
    model = runner.model
    return model.logits(model(model.embed(Batch(inputs, inputs))))[0].float()


def _text(runner: Runner, codes: Codes) -> str:
    """Characters that can be shown in one line."""
    text = "".join(runner.data.text.vocabulary[code] for code in codes).replace("\n", "↵")
    return "".join(character if character.isprintable() else "·" for character in text)
