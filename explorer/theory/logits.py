"""Attention logits and what they inherit: their variance over the keys, and how far two rows' logits agree.

Plain logits are q·k of the layer. In RealFormer (He et al. 2020) they are the sum of those of all layers so far, whose
weights are independent: variances add, s² = Σ s_k², and so do two rows' covariances. Where queries and keys are added
up instead, s² = (Σ query's second moment) · (Σ what the keys do not share), which grows as the square of the depth.

A soft cap c·tanh(logit / c) leaves logits that are not normal. `capped` finds normal ones that come close: good while
few logits come near the cap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.theory.gains import EPSILON, Gains

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
MEANS, MEAN_WEIGHTS = (-math.sqrt(3), 0.0, math.sqrt(3)), (1 / 6, 2 / 3, 1 / 6)
"""Three-point rule for averages over N(0, 1)."""


class Logits(NamedTuple):
    """Logits of a layer, in law; what the layer above inherits are the same numbers."""

    query: float = 0.0
    """Second moment of the queries, summed where they add up."""
    query_p: float = 0.0
    """Overlap of two rows' queries, the same."""
    key: float = 0.0
    """What the keys do not share, the same."""
    key_p: float = 0.0
    """What they do share, the same."""
    variance: float = 0.0
    """s² before the cap, the sum of the layers' own where scores add up."""
    covariance: float = 0.0
    """Of two rows' logits."""
    common: float = 0.0
    """Variance of a row's mean, which only a cap sees."""
    alike: float = 0.0
    """Covariance of two keys' logits that stems from the scatter of the keys' overlaps."""
    own: float = 1.0
    """Part of the layer's own scores in s²."""
    crowd: float = 0.0
    """Scatter of the keys' overlaps where they add up, as `alike` is of the scores'."""

    @property
    def rho(self) -> float:
        """Correlation of two rows' logits."""
        return min(max(self.covariance / self.variance, 0.0), 1.0) if self.variance > 0 else 0.0


def factors(gains: Gains, q: float) -> tuple[float, float]:
    """What a token's second moment is multiplied by to be a query's, a key's."""
    return (1 / (q + EPSILON), 1 / (q + EPSILON)) if gains.qk_norm else (gains.q, gains.k)


def logits(gains: Gains, q: float, p: float, v: float, below: Logits, kept: float) -> Logits:
    """The logits of tokens of second moment q, overlap p and scatter v (see `forward.Tokens`).

    Args:
        below: the logits of the layer below.
        kept: how far deviations of overlaps survived from what it read to what this layer reads.
    """
    by_query, by_key = factors(gains, q)
    query, query_p, key, key_p = by_query * q, by_query * p, by_key * max(q - p, 0.0), by_key * max(p, 0.0)
    crowd = key * v
    if gains.residual_attention == "qk":
        query, query_p, key = query + below.query, query_p + below.query_p, key + below.key
        key_p += below.key_p
        crowd += kept * below.crowd
    variance, covariance = gains.scale * query * key, gains.scale * query_p * key
    common, alike, own = gains.scale * query * key_p, gains.scale * query * crowd, 1.0
    if gains.residual_attention == "scores":
        total = below.variance + variance
        own = variance / total if total > 0 else 1.0
        variance, covariance, alike = total, below.covariance + covariance, kept * below.alike + alike
        common += below.common
    return Logits(query, query_p, key, key_p, variance, covariance, common, alike, own, crowd)


class Capped(NamedTuple):
    """What a soft cap makes of normal logits."""

    std: float
    """Their standard deviation."""
    s: float
    """Of the normal logits that softmax would treat alike."""
    slope: float
    """Mean squared slope of the cap, where the gradient passes."""


def cap(s: float, mean: float, height: float, n: int) -> Capped:
    """Logits behind a soft cap of some height, n to a row; without one (0) as they are.

    Args:
        s: standard deviation over a row's keys.
        mean: of a row's mean, over the rows.
    """
    if height == 0 or s == 0:
        return Capped(s, s, 1.0)
    parts = [_bent(s, node * mean, height, n) for node in MEANS]
    std, inside, slope = np.average(np.array(parts) ** (2, 2, 1), axis=0, weights=MEAN_WEIGHTS)
    return Capped(math.sqrt(std), math.sqrt(inside), float(slope))


def _bent(s: float, mean: float, height: float, n: int) -> Capped:
    """A row of logits of some mean behind the cap.

    Softmax looks at a row's largest logits, which the cap bends most: seen from there, the spread is s times the slope
    where the weight lies, at most √(2 ln n) standard deviations up. The truth lies between that and the standard
    deviation of them all; their geometric mean is taken.
    """
    bent = np.tanh((mean + s * NODES) / height)
    std = height * math.sqrt(float(WEIGHTS @ (bent - WEIGHTS @ bent) ** 2))
    highest = math.sqrt(2 * math.log(n))
    top = steep = min(s, highest)
    for _ in range(20):
        steep = float(WEIGHTS @ (1 - np.tanh((mean + s * (NODES + top)) / height) ** 2))
        top = (top + min(s * steep, highest)) / 2
    everywhere = float(WEIGHTS @ (1 - bent**2) ** 2)
    return Capped(std, math.sqrt(std * s * steep), steep * math.sqrt(everywhere))
