"""Distributions of the weights: maps of N(0, 1) noise to another shape of the same mean 0 and variance 1.

And what the layers' weights have to do with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from explorer.fields import Option

CUT = 2.0
"""Standard deviations at which the truncated normal ends."""
_WITHIN = math.erf(CUT / math.sqrt(2))
CUT_VARIANCE = 1 - 2 * CUT * math.exp(-(CUT**2) / 2) / math.sqrt(2 * math.pi) / _WITHIN
"""Variance that is left of N(0, 1) between ±`CUT`: truncated noise is divided by it, to have unit variance again."""


@dataclass(frozen=True, kw_only=True)
class Distribution(Option):
    """One shape."""

    transform: Callable[[Any], Any]
    """The monotone map, in place on a torch tensor of N(0, 1) noise."""


DISTRIBUTIONS: dict[str, Distribution] = {
    "normal": Distribution("N(0, σ²)", transform=lambda z: z),
    "uniform": Distribution(
        "U[−√3σ, √3σ]", transform=lambda z: z.mul_(math.sqrt(0.5)).erf_().mul_(math.sqrt(3))
    ),
    "truncated_normal": Distribution(
        "cut at ±2σ, widened to keep σ²",
        transform=lambda z: z.mul_(math.sqrt(0.5)).erf_().mul_(_WITHIN).erfinv_().mul_(math.sqrt(2 / CUT_VARIANCE)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class LayerWeights(Option):
    """Relation between the weights of different layers."""

    copied: bool = False
    """All layers start with the first one's weights."""
    shared: bool = False
    """They stay the same: one set of parameters for all."""


LAYER_WEIGHTS: dict[str, LayerWeights] = {
    "independent": LayerWeights("each layer drawn anew"),
    "copied": LayerWeights("copies of one layer, trained apart", "torch.nn.TransformerEncoder", copied=True),
    "shared": LayerWeights(
        "one layer, N times", "Universal Transformer: Dehghani et al. 2018; ALBERT: Lan et al. 2019", copied=True,
        shared=True,
    ),
}
