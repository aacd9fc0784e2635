"""Distributions of the weights: maps of N(0, 1) noise to another shape of the same mean 0 and
variance 1.

And what the layers' weights have to do with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from explorer.fields import Option

if TYPE_CHECKING:
    from explorer.settings import Settings

CUT = 2.0
"""Standard deviations at which the truncated normal ends."""
_WITHIN = math.erf(CUT / math.sqrt(2))
"""Probability of N(0, 1) between ±`CUT`."""
CUT_VARIANCE = 1 - 2 * CUT * math.exp(-(CUT**2) / 2) / math.sqrt(2 * math.pi) / _WITHIN
"""Variance that is left of N(0, 1) between ±`CUT`: truncated noise is divided by it, to have unit
variance again."""


@dataclass(frozen=True, kw_only=True)
class Distribution(Option):
    """One shape of a distribution with mean 0 and variance 1."""

    transform: Callable[[Any], Any]
    """The monotone map, in place on a torch tensor of N(0, 1) noise."""


# erf(z / √2) maps N(0, 1) to U[−1, 1]; its inverse maps a part of that to a part of the normal.
DISTRIBUTIONS: dict[str, Distribution] = {
    "normal": Distribution("N(0, σ²)", transform=lambda z: z),
    "uniform": Distribution(
        "U[−√3σ, √3σ]", transform=lambda z: z.mul_(math.sqrt(0.5)).erf_().mul_(math.sqrt(3))
    ),
    "truncated_normal": Distribution(
        "cut at ±2σ, widened to keep σ²",
        transform=lambda z: (
            z.mul_(math.sqrt(0.5)).erf_().mul_(_WITHIN).erfinv_().mul_(math.sqrt(2 / CUT_VARIANCE))
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class LayerWeights(Option):
    """Relation between the weights of different layers."""

    unique: Callable[[Settings], int]
    """Number of the first layers that are drawn; the layers after them start as copies, in the same
    order. 0 where the last pass would be incomplete, which is refused."""
    shared: bool = False
    """The copies stay the same: a layer and its copies are one set of parameters."""


LAYER_WEIGHTS: dict[str, LayerWeights] = {
    "independent": LayerWeights("each layer drawn anew", unique=lambda config: config.n_layers),
    "copied": LayerWeights(
        "copies of one layer, trained apart", "torch.nn.TransformerEncoder", unique=lambda config: 1
    ),
    "shared": LayerWeights(
        "one layer, N times",
        "Universal Transformer: Dehghani et al. 2018; ALBERT: Lan et al. 2019",
        unique=lambda config: 1,
        shared=True,
    ),
    "looped": LayerWeights(
        "N / R layers, R times",
        "Wang et al. 2026",
        ("n_loops",),
        unique=lambda config: (
            0 if config.n_layers % config.n_loops else config.n_layers // config.n_loops
        ),
        shared=True,
    ),
}
