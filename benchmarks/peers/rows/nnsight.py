"""nnsight: a trace in which values inside the model are read as if they were there already."""

from __future__ import annotations

from collections.abc import Callable

import torch
from nnsight import NNsight, save

from benchmarks.peers.model import Subject, Values, values


def prepare(subject: Subject) -> Callable[[], Values]:
    """Values in the order in which they come, forward and then backward."""
    model = NNsight(subject.model)

    def run() -> Values:
        with model.trace(subject.inputs):
            moments, entropies, gradients = save([]), save([]), save([])
            streams = []
            for block in model.blocks:
                entropies.append(
                    torch.special.entr(block.attention.softmax.output.detach()).sum(dim=-1).mean()
                )
                streams.append(block.output)
                moments.append(streams[-1].detach().square().mean())
            with subject.loss(model.output).backward():
                for x in streams[::-1]:
                    gradients.append(x.grad.square().mean())
        subject.model.zero_grad()
        return values(moments, entropies, gradients)

    return run
