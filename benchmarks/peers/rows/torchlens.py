"""torchlens: chosen operations of a pass, reduced as they come, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchlens.fastlog import Recorder

from benchmarks.peers.model import Subject, Values, values


def chosen(operation: Any) -> bool:
    """The softmax, and every second sum, which ends a block."""
    return operation.func_name == "softmax" or (
        operation.layer_type == "add" and operation.type_index % 2 == 0
    )


def number(x: Tensor) -> Tensor:
    """Entropy of a pattern, second moment of a stream."""
    return x.square().mean() if x.ndim == 3 else torch.special.entr(x).sum(dim=-1).mean()


def prepare(subject: Subject) -> Callable[[], Values]:
    """`record` stops after the forward pass; its `Recorder` goes on, and takes gradients of what it
    chose."""

    def run() -> Values:
        with Recorder(
            subject.model,
            save=chosen,
            activation_transform=number,
            save_raw_activations=False,
            save_grads=True,
            grad_transform=lambda x: x.square().mean(),
            save_raw_gradients=False,
        ) as pass_:
            pass_.log_backward(subject.loss(pass_.log(subject.inputs)))
        subject.model.zero_grad()
        found = pass_.recording
        kept = [(record.ctx.func_name, record.transformed_ram_payload) for record in found]
        gradients = [
            record.transformed_ram_payload
            for record in found.grad_records
            if record.ctx.effective_label.startswith("add")
        ]
        moments, entropies = (
            [value for name, value in kept if (name == "softmax") is wanted]
            for wanted in (False, True)
        )
        return values(moments, entropies, gradients)

    return run
