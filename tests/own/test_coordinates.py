"""`coord_check`: a right μP Transformer shows nothing, each planted mistake is named, and the numbers are mup's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer as ex
from explorer.own.coordinates import CoordCheck, Size, fitted

BASE, HEADS, VOCABULARY, RATE = 64, 4, 32, 0.01
WIDTHS = (64, 128, 256, 512)
"""Heads of 16 to 128 coordinates."""
DEPTHS = (2, 4, 8, 16)
MISTAKES = ("readout", "root", "biases", "embedding", "branch")


class Attention(nn.Module):
    def __init__(self, width: int, root: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        size = width // HEADS
        self.divisor = math.sqrt(size * BASE / HEADS) if not root else math.sqrt(size)
        self.divisor = size / math.sqrt(BASE / HEADS) if not root else math.sqrt(size)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.mT / self.divisor
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        pattern = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return self.o((pattern @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, branch: float, root: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention, self.branch = Attention(width, root), branch
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.branch * self.attention(self.norms[0](x))
        return x + self.branch * self.down(torch.relu(self.up(self.norms[1](x))))  # type: ignore[no-any-return]


class Model(nn.Module):
    """A Transformer under μP and, with branches of 2 / depth, CompleteP; one mistake may be planted."""

    def __init__(self, width: int, depth: int, mistake: str = "") -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        branch = 1.0 if mistake == "branch" else 2 / depth
        self.layers = nn.ModuleList(Block(width, branch, mistake == "root") for _ in range(depth))
        self.norm, self.readout = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.scale, self.mistake = width / BASE, mistake
        for name, weight in self.named_parameters():
            if weight.ndim > 1 and "embedding" not in name:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        if mistake != "readout":
            with torch.no_grad():
                self.readout.weight /= math.sqrt(self.scale)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.embedding(codes)
        for layer in self.layers:
            x = layer(x)
        return self.readout(self.norm(x))  # type: ignore[no-any-return]

    def optimizer(self) -> torch.optim.Optimizer:
        """Adam with the rates of Yang et al. 2022, table 3."""
        groups = []
        for name, weight in self.named_parameters():
            kind = ("embedding" if "embedding" in name else "biases" if weight.ndim < 2
                    else "readout" if "readout" in name else "hidden")
            divided = (kind in ("readout", "hidden")) != (self.mistake == kind)
            groups.append({"params": [weight], "lr": RATE / self.scale if divided else RATE})
        return torch.optim.Adam(groups)


def drawn(width: int, depth: int, mistake: str = "") -> tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]:
    codes = torch.randint(VOCABULARY, (8, 17), generator=torch.Generator().manual_seed(1))
    return (Model(width, depth, mistake), codes[:, :-1],
            lambda logits: F.cross_entropy(logits.flatten(0, 1), codes[:, 1:].flatten()))


@cache
def checked(mistake: str = "", over: str = "width", **more: Any) -> ex.CoordCheck:
    sizes = {"widths": WIDTHS, "depths": (2,)} if over == "width" else {"widths": (64, 128), "depths": DEPTHS}
    return ex.coord_check(partial(drawn, mistake=mistake), optimizer=Model.optimizer, **sizes, **more)
