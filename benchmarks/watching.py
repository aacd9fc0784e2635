"""What watching costs: a training loop of a GPT-2 with a reading each ten steps over the same loop,
in one run."""

from __future__ import annotations

import statistics
import time

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
    """One model and its training."""

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

    def seconds(self) -> float:
        """Processor time of a step: all is one thread's."""
        start = time.process_time()
        self.optimizer.zero_grad()
        out: Tensor = self.model(input_ids=self.words, labels=self.words).loss
        out.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return time.process_time() - start


def main() -> dict[str, dict[str, float]]:
    """A plain step's seconds, and the watched loop's time over the plain loop's: medians of
    neighboring steps, of the read ones and of the others."""
    plain, watched = Loop(), Loop()
    with torch_threads(1), ex.watch(watched.model, every=2):
        rounds = [(plain.seconds(), watched.seconds()) for _ in range(2 * ROUNDS + 2)][2:]
    step = statistics.median(alone for alone, _ in rounds)
    read, other = (
        statistics.median(beside / alone for alone, beside in rounds[start::2]) for start in (0, 1)
    )
    figures = {"step_seconds": step, "ratio": (read + (EVERY - 1) * other) / EVERY}
    if step >= LEAST_STEP:
        figures["limit"] = LIMIT
    return {f"watch, each {EVERY} steps": figures}
