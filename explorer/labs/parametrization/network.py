"""A small network in three parametrizations: inputs → m → m → 1 with unit-moment relu, and a teacher to learn from.

Noise is common: the three draw the same numbers, and differ in what multiplies them, where, and how fast they learn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from explorer.schemes.parametrization import MUP, Powers

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("input", "hidden", "output")
INPUTS, TEACHER = 16, 32
"""Coordinates of an input, hidden units of the teacher."""
BASE = 32
"""The narrowest width, where μP and standard are the same."""
FIRST_MOMENT, SECOND_MOMENT, ADAM_EPSILON = 0.9, 0.999, 1e-8


class Growth(NamedTuple):
    """Effect of one optimizer on the hidden matrix, as powers of the width, and its lowest learning rate."""

    weights: float
    """Of the first step's relative change of the weights."""
    output: float
    """Of its relative change of the matrix's output."""
    first: int
    """The sweep begins at two to the power of this."""


class Scheme(NamedTuple):
    """A parametrization; the rest is by optimizer."""

    label: str
    in_forward: bool
    """σ multiplies in the forward pass, the stored weights are N(0, 1)."""
    by_width: bool
    """Readout and learning rates follow μP's powers of the width."""
    growth: Mapping[str, Growth]


SCHEMES: Mapping[str, Scheme] = {
    "standard": Scheme("standard", False, False, {"adam": Growth(0.5, 1, -13), "sgd": Growth(0, 0.5, -10)}),
    "ntk": Scheme("NTK", True, False, {"adam": Growth(0, 0.5, -10), "sgd": Growth(-1, -0.5, -5)}),
    "mup": Scheme("μP", False, True, {"adam": Growth(-0.5, 0, -13), "sgd": Growth(-0.5, 0, -10)}),
}


class Layer(NamedTuple):
    """Storage of one matrix: `multiplier · (stored · noise)`, learning at `rate` times the learning rate."""

    stored: float
    multiplier: float
    rate: float


def layers(scheme: str, width: int, optimizer: str) -> list[Layer]:
    """The three matrices of a network; variance 1/fan_in, and what the scheme makes of it."""
    row, ratio = SCHEMES[scheme], width / BASE
    out = []
    for kind, fan_in in zip(KINDS, (INPUTS, width, width), strict=True):
        power = MUP[kind] if row.by_width else Powers()
        sigma = math.sqrt(ratio**power.variance.width / fan_in)
        rate = float(ratio ** getattr(power, optimizer).width)
        out.append(Layer(1.0, sigma, rate) if row.in_forward else Layer(sigma, 1.0, rate))
    return out


def weights(plan: Sequence[Layer], width: int, seed: int) -> list[Tensor]:
    """Stored values of each matrix, `[fan_out, fan_in]`, float64: the same noise whatever the plan."""
    from explorer.model import noise

    shapes = (width, INPUTS), (width, width), (1, width)
    return [
        layer.stored * noise.stack(seed, f"parametrization {kind}", 1, shape)[0].double()
        for layer, kind, shape in zip(plan, KINDS, shapes, strict=True)
    ]


def forward(plan: Sequence[Layer], stored: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """Inputs of each matrix, and the output: `[…, batch, fan_in]` and at last `[…, batch, 1]`."""
    outputs = [x]
    for layer, weight in zip(plan, stored, strict=True):
        z = layer.multiplier * (outputs[-1] @ weight.transpose(-1, -2))
        outputs.append(math.sqrt(2) * z.clamp(min=0))
    return [*outputs[:-1], z]


class Examples:
    """Fresh examples of a teacher, a relu network of `TEACHER` units."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 2])
        self.first = rng.standard_normal((TEACHER, INPUTS)) / math.sqrt(INPUTS)
        self.last = rng.standard_normal(TEACHER) * math.sqrt(2 / TEACHER)
        self.rng = np.random.default_rng([seed, 3])

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Inputs `[batch, INPUTS]` and targets `[batch, 1]`, float64."""
        import torch

        x = self.rng.standard_normal((count, INPUTS))
        return torch.from_numpy(x), torch.from_numpy(np.maximum(x @ self.first.T, 0) @ self.last[:, None])


def adam(gradient: Tensor, mean: Tensor, square: Tensor, count: int) -> Tensor:
    """Adam's direction at step `count`; the two moments are updated in place."""
    mean.lerp_(gradient, 1 - FIRST_MOMENT)
    square.mul_(SECOND_MOMENT).addcmul_(gradient, gradient, value=1 - SECOND_MOMENT)
    spread = square.sqrt().div_(math.sqrt(1 - SECOND_MOMENT**count)).add_(ADAM_EPSILON)
    return (mean / spread).div_(1 - FIRST_MOMENT**count)
