"""mup's coordinate check: functions of chosen modules' outputs, at the first step of a training.

It reads forward only. Its optimizer steps with a learning rate of 0, so that the next pass is of
the same model."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from mup.coord_check import get_coord_data
from torch import Tensor, nn

from benchmarks.peers.model import Subject, Values


class Trained(nn.Module):
    """The model as the check wants it: a batch in, a loss out."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model, self.loss = subject.model, subject.loss

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """`[batch, token, d_model]` to a scalar."""
        return {"loss": self.loss(self.model(inputs))}


def entropy(x: Tensor) -> Tensor:
    """Of a pattern; nothing of a stream."""
    return torch.special.entr(x).sum(dim=-1).mean() if x.ndim == 4 else torch.tensor(math.nan)


def prepare(subject: Subject) -> Callable[[], Values]:
    """Its own l2, which is a root mean square, and one more function."""

    def chosen(name: str) -> bool:
        return name.endswith("softmax") or (
            name.count(".") == 2 and name.startswith("model.blocks.")
        )

    def run() -> Values:
        found = get_coord_data(
            {subject.config.d_model: lambda: Trained(subject)},
            [{"inputs": subject.inputs}],
            lr=0.0,
            mup=False,
            nsteps=1,
            dict_in_out=True,
            cuda=False,
            show_progress=False,
            filter_module_by_name=chosen,
            output_fdict={"l2": "l2", "entropy": entropy},
        )
        subject.model.zero_grad()
        rows = found["module"].str.endswith("softmax")
        return {
            "second_moment": (found["l2"][~rows] ** 2).tolist(),
            "attention_entropy": found["entropy"][rows].tolist(),
        }

    return run
