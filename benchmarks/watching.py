"""What watching costs: a training loop of a GPT-2 with a reading each ten steps over the same loop,
in one run.

Peers that are installed do what they are made for on the same loop, as often; they have no limit.
Those that are not are named as such: none is a dependency."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import explorer as ex
from explorer.measuring.sharing import torch_threads

EVERY, ROUNDS = 10, 40
"""The claim is of a reading each so many steps. Every second step is read here, so that as many are
timed of each kind, step by step beside the plain loop; what ten cost is nine of the one and one of
the other."""
LIMIT, LEAST_STEP = 1.03, 0.05
"""At most 3 % more time, in a loop whose steps take 50 ms or more."""
LAYERS, WIDTH, HEADS, WORDS, SHAPE = 12, 128, 4, 256, (8, 64)


class Loop:
    """One model and its training; `with loop.watched(step)` is what an instrument may do around a
    step."""

    def __init__(self) -> None:
        import transformers

        torch.manual_seed(0)
        self.model: nn.Module = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=LAYERS,
                n_embd=WIDTH,
                n_head=HEADS,
                n_positions=SHAPE[1],
                vocab_size=WORDS,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.words = torch.randint(WORDS, SHAPE)
        self.count = 0
        self.around: Callable[[int], Any] = lambda _: Nothing()
        self.forward: Callable[[int], None] = lambda _: None
        """What an instrument does with a pass of its own."""

    def step(self) -> None:
        """One step of a plain loop."""
        self.forward(self.count)
        self.optimizer.zero_grad()
        with self.around(self.count):
            out: Tensor = self.model(input_ids=self.words, labels=self.words).loss
            out.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.count += 1

    def seconds(self) -> float:
        """Processor time of a step: all is one thread's."""
        start = time.process_time()
        self.step()
        return time.process_time() - start


class Nothing:
    """A context that does nothing, and costs it."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *_: object) -> None:
        """Nothing."""


def bare(_: Loop) -> None:
    """The loop alone."""


def watched(loop: Loop) -> None:
    """Ours, in memory."""
    ex.watch(loop.model, every=2)


def wandb(loop: Loop) -> None:
    """Gradients' and weights' histograms, kept on disk."""
    library = import_module("wandb")
    run = library.init(
        mode="offline", dir=tempfile.mkdtemp(), settings=library.Settings(silent=True)
    )
    run.watch(loop.model, log="all", log_freq=2)
    loop.forward = lambda step: run.log({"step": step})


def tensor_tracker(loop: Loop) -> None:
    """The spread of every module's output and its gradient."""
    track = import_module("tensor_tracker").track
    loop.around = lambda step: Nothing() if step % 2 else track(loop.model)


def torchlens(loop: Loop) -> None:
    """Events of a forward pass of its own."""
    record = import_module("torchlens").record

    def forward(step: int) -> None:
        if step % 2 == 0:
            record(loop.model, loop.words, default_op=True)

    loop.forward = forward


def nnsight(loop: Loop) -> None:
    """The second moment after each block, of a forward pass of its own."""
    model = import_module("nnsight").NNsight(loop.model)

    def forward(step: int) -> None:
        if step % 2 == 0:
            with model.trace(loop.words):
                [block.output[0].square().mean().save() for block in model.transformer.h]

    loop.forward = forward


PEERS = (wandb, tensor_tracker, torchlens, nnsight)


@contextmanager
def elsewhere() -> Iterator[None]:
    """A working directory that does not matter, for what peers write."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def ratio(rounds: list[list[float]], index: int) -> float:
    """An instrument's time over the plain loop's: medians of neighboring steps, read ones and
    others apart."""
    read, other = (
        statistics.median(row[index] / row[0] for row in rounds[start::2]) for start in (0, 1)
    )
    return (read + (EVERY - 1) * other) / EVERY


def main() -> dict[str, dict[str, float]]:
    """Instrument to its cost; an empty row for a peer that is not installed, or does not work, with
    the reason."""
    here: list[Callable[[Loop], None]] = []
    missing: dict[str, dict[str, float]] = {}
    with elsewhere(), torch_threads(1):
        loops = []
        for instrument in (bare, watched, *PEERS):
            name = f"watch's peer {instrument.__name__}"
            if instrument in PEERS and find_spec(instrument.__name__) is None:
                missing[f"{name}: not installed"] = {}
                continue
            loop = Loop()
            try:
                instrument(loop)
                [loop.seconds() for _ in range(2)]
            except Exception as error:  # another release of it may ask for other words
                if instrument not in PEERS:
                    raise
                missing[f"{name}: {type(error).__name__}"] = {}
                continue
            loops.append(loop)
            here += [instrument] * (instrument in PEERS)
        rounds = [[loop.seconds() for loop in loops] for _ in range(2 * ROUNDS + 2)][2:]
    step = statistics.median(row[0] for row in rounds)
    ratios = [ratio(rounds, index) for index in range(1, len(loops))]
    found = {
        f"watch, each {EVERY} steps": {
            "step_seconds": step,
            "ratio": ratios[0],
            **({"limit": LIMIT} if step >= LEAST_STEP else {}),
        }
    }
    rows = {
        f"watch's peer {peer.__name__}": {"ratio": ratios[1 + index]}
        for index, peer in enumerate(here)
    }
    return found | rows | missing
