"""Attention logits and what they inherit: their variance over the keys, and how far two rows' logits agree.

Plain logits are q·k of the layer. In RealFormer (He et al. 2020) they are the sum of those of all layers so far, whose
weights are independent: variances add, s² = Σ s_k², and so do two rows' covariances. Where queries and keys are added
up instead, s² = (Σ query's second moment) · (Σ what the keys do not share), which grows as the square of the depth.

A soft cap c·tanh(logit / c) leaves logits that are not normal. `cap` finds normal ones that softmax treats alike.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from explorer.theory.gains import Gains
from explorer.theory.gaussian import REACH, panels
from explorer.theory.grids import Array
from explorer.theory.tables import as_normal, contrast, highest

NODES = np.linspace(-4, 4, 17)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
"""Trapezoid rule for averages over N(0, 1)."""
STEEPEST = 1e9
"""Largest logit in units of the cap; larger ones are treated as this large."""
LARGEST_SPREAD = 1e3


class Logits(NamedTuple):
    """Statistics of a layer's logits, own and inherited; the layer above inherits them."""

    query: float = 0.0
    """Second moment of the queries, summed where they add up."""
    query_p: float = 0.0
    """Overlap of two rows' queries, summed where they add up."""
    key: float = 0.0
    """Part of the keys that they do not share, before rotation; summed where keys add up."""
    key_p: float = 0.0
    """Part of the keys that they share; summed where keys add up."""
    variance: float = 0.0
    """s² before the cap, the sum of the layers' own where scores add up."""
    covariance: float = 0.0
    """Covariance of two rows' logits."""
    common: float = 0.0
    """Variance of a row's mean, which only a cap or a sink sees."""
    alike: float = 0.0
    """Covariance of two keys' logits that stems from the scatter of the keys' overlaps."""
    own: float = 1.0
    """Part of the layer's own scores in s²."""
    crowd: float = 0.0
    """Scatter of the keys' overlaps where they add up, as `alike` is of the scores'."""
    single: float = 1.0
    """Σ of the squared shares that the layers have in what adds up; see `tables.as_normal`."""

    @property
    def rho(self) -> float:
        """Correlation of two rows' logits."""
        return min(max(self.covariance / self.variance, 0.0), 1.0) if self.variance > 0 else 0.0


class Factors(NamedTuple):
    """From tokens of one second moment to queries and keys: factors on second moments and overlaps, and the biases'
    variances, all divided by what a QK-norm divides by.
    """

    query: Any
    key: Any
    query_bias: Any
    key_bias: Any


def factors(gains: Gains, q: Any, of_keys: Any) -> Factors:
    """The factors for queries of tokens of second moment q, and keys of tokens of second moment `of_keys`."""
    query, key = (gains.q, gains.biases.q), (gains.k, gains.biases.k)
    if not gains.qk_norm:
        return Factors(query[0], key[0], query[1], key[1])
    over, under = (gain[0] * square + gain[1] + gains.epsilon for gain, square in ((query, q), (key, of_keys)))
    return Factors(query[0] / over, key[0] / under, query[1] / over, key[1] / under)


def logits(gains: Gains, q: float, p: float, v: float, below: Logits, kept: float) -> Logits:
    """The logits of tokens of second moment q, overlap p and scatter v (see `tokens.Tokens`).

    Args:
        below: the logits of the layer below.
        kept: how far deviations of overlaps survived from what it read to what this layer reads.
    """
    by = factors(gains, q, q)
    query, query_p = by.query * q + by.query_bias, by.query * p + by.query_bias
    key, key_p = by.key * max(q - p, 0.0), by.key * max(p, 0.0) + by.key_bias
    crowd, turns, single = key * v, gains.turns, 1.0
    if gains.adds == "qk":
        single = joint(key, below.key, below.single)
        query, query_p, key = query + below.query, query_p + below.query_p, key + below.key
        key_p += below.key_p
        crowd += kept * below.crowd
    variance = gains.scale * query * (key + (1 - turns.keys) * key_p)
    covariance = gains.scale * query_p * (turns.rows * key + (turns.rows - turns.both) * key_p)
    shared = max(turns.keys, 0.0)  # where turns are fast, keys may even oppose each other a little
    common, alike, own = gains.scale * query * key_p * shared, gains.scale * query * crowd * shared, 1.0
    if gains.adds == "scores":
        total = below.variance + variance
        own = variance / total if total > 0 else 1.0
        single = joint(variance, below.variance, below.single)
        variance, covariance, alike = total, below.covariance + covariance, kept * below.alike + alike
        common += below.common
    return Logits(query, query_p, key, key_p, variance, covariance, common, alike, own, crowd, single)


def joint(own: Any, below: Any, single: Any) -> Any:
    """`Logits.single` of a layer's own part and of what it inherits."""
    return (own * own + below * below * single) / np.maximum((own + below) ** 2, 1e-300)


class Capped(NamedTuple):
    """Statistics of normal logits after a soft cap."""

    std: float
    """Their standard deviation."""
    s: float
    """Standard deviation of the normal logits that softmax would treat alike."""
    slope: float
    """Mean squared slope of the cap, where the gradient passes."""
    rho: float = 0.0
    """Correlation of two rows' logits."""
    alike: float = 0.0
    """Covariance of two keys' logits; see `Logits.alike`."""
    rows: float = 1.0
    """Mean product of the slopes in two rows, over the mean square."""
    keys: float = 1.0
    """Mean product of the slopes at two keys of a row, over the mean square, times `Turns.keys`."""
    both: float = 1.0
    """As `keys`, in two rows."""
    common: float = 0.0
    """Variance of a row's mean, which only a sink sees."""


def capped(gains: Gains, law: Logits, n: int) -> Capped:
    """The logits as softmax sees them, n to a row."""
    s, mean = math.sqrt(law.variance), math.sqrt(law.common)
    turns = gains.turns
    if gains.cap == 0 or s == 0:
        inside = as_normal(s, n, gains.sphere, law.single)
        alike = law.alike * (inside / s) ** 2 if s else law.alike
        return Capped(s, inside, 1.0, law.rho, alike, keys=turns.keys, both=turns.both, common=law.common)
    bent = cap(s, mean, gains.cap, n)
    bent = bent._replace(s=as_normal(bent.s, n, gains.sphere, law.single))
    rho, slopes = pairs(np.array(s), np.array(mean), np.array((law.rho, 0.0)), gains.cap)
    shrunk = (bent.s / s) ** 2
    return bent._replace(rho=float(rho[0]), alike=law.alike * shrunk, rows=float(slopes[0]),
                        keys=turns.keys * float(slopes[1]), both=turns.both * float(slopes[1]),
                        common=law.common * shrunk)


def cap(s: float, mean: float, height: float, n: int) -> Capped:
    """Logits after a soft cap of some height, n to a row; without one (0) as they are.

    A row whose weights are many has Y2 = R/n, R = E e^2ℓ / (E e^ℓ)² over its logits ℓ as high as n of them reach
    (`tables.highest`); one with few, R / (n − 1 + R). Softmax is given normal logits of the same mean Y2.
    The gradient by a logit before the cap passes where p (1 − p) is large, p = e^ℓ / (e^ℓ + (n − 1) E e^ℓ).

    Args:
        s: standard deviation over a row's keys.
        mean: of a row's mean, over the rows.
    """
    if height == 0 or s == 0:
        return Capped(s, s, 1.0)
    top, at = highest(n), NODES * (mean / height)
    bent, weight = _bent(s / height, at, REACH)
    variance = float(WEIGHTS @ ((weight * bent**2).sum(1) - (weight * bent).sum(1) ** 2))
    bent, weight = _bent(s / height, at, top)
    power = np.exp(height * (bent - bent.max(1, keepdims=True)))
    first, second = (weight * power).sum(1, keepdims=True), (weight * power**2).sum(1, keepdims=True)
    y2 = (ratio := second / first**2) / (n - 1 + ratio)
    share = power / (power + (n - 1) * first)
    passing = weight * (share * (1 - share)) ** 2
    slope = (WEIGHTS @ (passing * (1 - bent**2) ** 2).sum(1)) / (WEIGHTS @ passing.sum(1))
    square = float(WEIGHTS @ y2[:, 0])
    inside = _normal(square * (n - 1) / (1 - square), s, top)
    return Capped(height * math.sqrt(max(variance, 0.0)), inside, float(slope))


def _bent(s: float, at: Array, top: float) -> tuple[Array, Array]:
    """tanh of normal variables of means `at` and deviation s, cut at `top`, and their weights, `[mean, node]`.

    Nodes are dense around the kink, where tanh changes its sign: logits may be a thousand times their cap.
    """
    u, weight = panels(min(s, STEEPEST))
    kink = np.clip(-at / s, -REACH, top)
    below, above = (kink + REACH)[:, None], (top - kink)[:, None]
    z = kink[:, None] + np.concatenate([-below * u, above * u], axis=1)
    weights = np.concatenate([below * weight, above * weight], axis=1) * np.exp(-z * z / 2)
    return np.tanh(at[:, None] + s * z), weights / weights.sum(1, keepdims=True)


def _normal(target: float, s: float, top: float) -> float:
    """Standard deviation, at most s, of normal logits cut at `top` deviations with E e^2ℓ / (E e^ℓ)² = `target`."""
    def excess(s: float) -> float:
        return float(contrast(np.array(s), top)) - math.log(target)

    most = min(s, LARGEST_SPREAD)
    return most if excess(most) <= 0 else float(brentq(excess, 0.0, most)) if excess(0.0) < 0 else 0.0


def pairs(s: Array, mean: Array, rho: Array, height: float) -> tuple[Array, Array]:
    """Two logits after the cap: their correlation, and the mean product of their slopes over the mean square of one.

    Both in closed form for an error function of tanh's slope at 0, ρ the correlation before the cap.
    """
    steep = math.pi / 2 * np.minimum((s * s + mean * mean) / height**2, STEEPEST)
    share = steep / (1 + steep)
    slopes = np.sqrt((1 + 2 * steep) / ((1 + steep) ** 2 - (steep * rho) ** 2))
    return np.where(steep > 0, np.arcsin(share * rho) / np.arcsin(np.maximum(share, 1e-300)), rho), slopes
