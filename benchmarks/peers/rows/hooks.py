"""Hooks written by hand for this model: as little as it takes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.peers.model import Subject, Values, values


def prepare(subject: Subject) -> Callable[[], Values]:
    """Hooks on blocks and softmax during a pass, and on the tensors between blocks."""

    def run() -> Values:
        moments, entropies, gradients = [], [], []

        def between(_: nn.Module, __: object, x: Tensor) -> None:
            moments.append(x.detach().square().mean())
            x.register_hook(lambda gradient: gradients.append(gradient.square().mean()))

        def attended(_: nn.Module, __: object, pattern: Tensor) -> None:
            entropies.append(torch.special.entr(pattern.detach()).sum(dim=-1).mean())

        handles = []
        for block in subject.model.blocks:
            handles.append(block.register_forward_hook(between))
            handles.append(block.attention.softmax.register_forward_hook(attended))
        try:
            subject.loss(subject.model(subject.inputs)).backward()
        finally:
            for handle in handles:
                handle.remove()
        subject.model.zero_grad()
        return values(moments, entropies, gradients)

    return run
