"""Attention logits and what they inherit: their variance over the keys, and how far two rows'
logits agree.

Plain logits are q·k of the layer. In RealFormer (He et al. 2020) they are the sum of those of all
layers so far, whose weights are independent: variances add, s² = Σ s_k², and so do two rows'
covariances. Where queries and keys are added up instead, s² = (Σ query's second moment) · (Σ what
the keys do not share), which grows as the square of the depth.

A soft cap c·tanh(logit / c) leaves logits that are not normal. `cap` finds normal ones that softmax
treats alike."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from explorer.profile import Array
from explorer.theory.gains import Gains
from explorer.theory.gaussian import REACH, panels
from explorer.theory.positions import STILL, Positions
from explorer.theory.tables import as_normal, contrast, highest
from explorer.theory.tokens import ZERO, Keys, State, correlation, times

NODES = np.linspace(-4, 4, 17)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
"""Trapezoid rule for averages over N(0, 1)."""
STEEPEST = 1e9
"""Largest logit in units of the cap; larger ones are treated as this large."""
LARGEST_SPREAD = 1e3


class Logits(NamedTuple):
    """Statistics of a layer's logits, own and inherited; the layer above inherits them."""

    query: Array
    """Second moment of the queries, summed where they add up: `[pair]`, or `[position]` where
    nothing is inherited."""
    key: Array
    """`[position]`: part of the keys of a row that they do not share, before rotation; summed where
    keys add up."""
    key_p: Array
    """`[position]`: part that they share; summed where keys add up."""
    crowd: Array
    """`[position]`: scatter of the keys' overlaps where keys add up, as `alike` is of the
    scores'."""
    covariance: Array
    """Covariance of two rows' logits before the cap, of a row with itself their variance; shape as
    `query`. The sum of the layers' own where scores add up."""
    common: Array
    """`[position]`, as all that follow if nothing else is said: variance of a row's mean, which
    only a cap or a sink sees."""
    alike: Array
    """Covariance of two keys' logits that stems from the scatter of the keys' overlaps."""
    own: Array
    """Part of the layer's own scores in the variance."""
    single: Array
    """Σ of the squared shares that the layers have in what adds up; see `tables.as_normal`."""
    s: Array
    """Standard deviation of the normal logits that softmax would treat like these, after the
    cap."""
    std: Array
    """Standard deviation after the cap."""
    slope: Array
    """Mean squared slope of the cap, where the gradient passes."""
    rho: Array
    """`[pair]`: correlation of two rows' logits after the cap."""
    slopes: Array
    """`[pair]`: mean product of the slopes in two rows, over the mean square."""
    keys: Array
    """Mean product of the slopes at two keys of a row, over the mean square, times `Turns.keys`."""
    both: Array
    """`[position, position]`: as `keys`, in two rows."""

    @property
    def bent(self) -> Array:
        """Factor of the cap on variances, as softmax sees them."""
        shrunk: Array = self.s**2 / np.maximum(self.covariance[0], 1e-300)
        return shrunk


def logits(
    gains: Gains, x: State, keys: Keys, scatter: Array, below: Logits | None, kept: float
) -> Logits:
    """The logits of a layer's tokens.

    Args:
        keys: averages over the keys of each row, and next the scatter of their overlaps.
        below: the logits of the layer below.
        kept: how far deviations of overlaps survived from what it read to what this layer reads.
    """
    axis, inherits, turns, rho = x.axis, gains.adds, x.axis.turns, x.rho
    by_query, by_key, query_bias, key_bias = gains.factors(x.q, keys.mean)
    query, single, own = times(by_query, x.q), axis.ones[0], axis.ones[0]
    key, key_p = times(by_key, keys.own), times(by_key, np.maximum(keys.shared[0], ZERO))
    key_p = key_p + key_bias if gains.biases.k else key_p
    if inherits or gains.biases.q:
        query, overlaps = query + query_bias, queries(x, by_query, query_bias)
        rho = correlation(overlaps, axis.lift(query)) if gains.biases.q else rho
        query = overlaps if inherits else query
    crowd = key * scatter
    if below and inherits == "qk":
        single = joint(key, below.key, below.single)
        query, key, key_p = query + below.query, key + below.key, key_p + below.key_p
        crowd = crowd + kept * below.crowd
    scale, turned = axis.logit_factor, turns is not STILL
    scaled = scale[0] * (query[0] if inherits else query)
    apart = (
        key_factors(gains, axis, key, key_p, turns.keys, turns.both)
        if inherits or turned
        else key[None]
    )
    # where turns are fast, keys may even oppose each other a little
    same = np.maximum(turns.keys, ZERO) * scaled if turned else scaled
    shared, alike, covariance = same * key_p, same * crowd, (scaled * apart[0])[None]
    if inherits:
        covariance = scale * apart * query
        if below and inherits == "scores":
            single, lone = joint(covariance[0], below.covariance[0], below.single), covariance[0]
            covariance, shared, alike = (
                covariance + below.covariance,
                shared + below.common,
                alike + kept * below.alike,
            )
            own = lone / np.maximum(covariance[0], 1e-300)
        rho = correlation(covariance, np.maximum(axis.lift(covariance[0]), 1e-300))
    elif turned:
        rho = correlation(rho * apart, np.maximum(axis.lift(apart[0]), 1e-300))
    s, *bent = _capped(gains, axis, np.sqrt(covariance[0]), shared, rho)
    if gains.sphere:
        rows = zip(s.tolist(), axis.visible.tolist(), single.tolist(), strict=True)
        s = np.array(
            [as_normal(deviation, int(t), gains.sphere, part) for deviation, t, part in rows]
        )
    return Logits(query, key, key_p, crowd, covariance, shared, alike, own, single, s, *bent)


def queries(x: State, factor: Any, bias: Any) -> Array:
    """`[pair]`: overlaps of the tokens' queries; see `Gains.factors`."""
    factor, bias = (x.axis.lift(part + ZERO * x.q) for part in (factor, bias))
    return np.asarray(factor * x.square * x.rho + bias)


def key_factors(gains: Gains, axis: Positions, own: Array, p: Array, keys: Any, both: Any) -> Array:
    """Factors `[..., pair]` by which the queries' overlaps become the logits' covariance, of a row
    and of two rows.

    Args:
        own: part of a row's keys that they do not share, `[..., position]`; `p` the part that they
            share.
        keys: part of `p` that a softmax forgets in a single row, `both` that in two rows: see
            `Logits`.
    """
    out = axis.lift(own)
    # all that keys share drops out
    if axis.turns is STILL and not gains.cap and gains.sink is None:
        return out
    shared = axis.lift(p)[..., 1:, :]
    out[..., 0, :] += (1 - keys) * p
    out[..., 1:, :] = axis.turns.rows * (out[..., 1:, :] + shared) - both * shared
    return out


def joint(own: Array, below: Array, single: Array) -> Array:
    """`Logits.single` of a layer's own part and of what it inherits."""
    share: Array = (own * own + below * below * single) / np.maximum((own + below) ** 2, 1e-300)
    return share


def _capped(
    gains: Gains, axis: Positions, s: Array, common: Array, rho: Array
) -> tuple[Array, ...]:
    """The last seven fields of `Logits`."""
    turns, ones = axis.turns, axis.ones
    if gains.cap == 0:
        return s, s, ones[0], rho, ones, turns.keys, turns.both
    mean = np.sqrt(common)
    rows = zip(s.tolist(), mean.tolist(), axis.visible.tolist(), strict=True)
    bent = [cap(deviation, center, gains.cap, max(int(t), 2)) for deviation, center, t in rows]
    std, inside, slope = np.array(bent).T
    two, slopes = pairs(axis.lift(s), axis.lift(mean), rho, gains.cap)
    _, keys = pairs(s, mean, np.zeros_like(s), gains.cap)
    return inside, std, slope, two, slopes, turns.keys * keys, turns.both * axis.lift(keys)[1:]


class Capped(NamedTuple):
    """Statistics of normal logits after a soft cap."""

    std: float
    """Their standard deviation."""
    s: float
    """Standard deviation of the normal logits that softmax would treat alike."""
    slope: float
    """Mean squared slope of the cap, where the gradient passes."""


def cap(s: float, mean: float, height: float, n: int) -> Capped:
    """Logits after a soft cap of some height, n to a row; without one (0) as they are.

    A row whose weights are many has Y2 = R/n, R = E e^2ℓ / (E e^ℓ)² over its logits ℓ as high as n
    of them reach (`tables.highest`); one with few, R / (n − 1 + R). Softmax is given normal logits
    of the same mean Y2. The gradient by a logit before the cap passes where p (1 − p) is large, p =
    e^ℓ / (e^ℓ + (n − 1) E e^ℓ).

    Args:
        s: standard deviation over a row's keys.
        mean: of a row's mean, over the rows.
    """
    if height == 0 or s == 0:
        return Capped(s, s, 1.0)
    top, at = highest(n), NODES * (mean / height)
    bent, weight = squashed(s / height, at, REACH)
    variance = float(WEIGHTS @ ((weight * bent**2).sum(1) - (weight * bent).sum(1) ** 2))
    bent, weight = squashed(s / height, at, top)
    power = np.exp(height * (bent - bent.max(1, keepdims=True)))
    first, second = (
        (weight * power).sum(1, keepdims=True),
        (weight * power**2).sum(1, keepdims=True),
    )
    y2 = (ratio := second / first**2) / (n - 1 + ratio)
    share = power / (power + (n - 1) * first)
    passing = weight * (share * (1 - share)) ** 2
    slope = (WEIGHTS @ (passing * (1 - bent**2) ** 2).sum(1)) / (WEIGHTS @ passing.sum(1))
    square = float(WEIGHTS @ y2[:, 0])
    inside = _normal(square * (n - 1) / (1 - square), s, top)
    return Capped(height * math.sqrt(max(variance, 0.0)), inside, float(slope))


def squashed(s: float | Array, at: Array, top: float) -> tuple[Array, Array]:
    """tanh of normal variables of means `at` and deviation s > 0, cut at `top`, and their weights,
    `[mean, node]`.

    Nodes are dense around the kink, where tanh changes its sign: logits may be a thousand times
    their cap."""
    u, weight = panels(min(float(np.max(s)), STEEPEST))
    kink = np.clip(-at / s, -REACH, top)
    below, above = (kink + REACH)[:, None], (top - kink)[:, None]
    z = kink[:, None] + np.concatenate([-below * u, above * u], axis=1)
    weights = np.concatenate([below * weight, above * weight], axis=1) * np.exp(-z * z / 2)
    return np.tanh(at[:, None] + np.asarray(s)[..., None] * z), weights / weights.sum(
        1, keepdims=True
    )


def _normal(target: float, s: float, top: float) -> float:
    """Standard deviation, at most s, of normal logits cut at `top` deviations with E e^2ℓ / (E
    e^ℓ)² = `target`."""

    def excess(s: float) -> float:
        return float(contrast(np.array(s), top)) - math.log(target)

    most = min(s, LARGEST_SPREAD)
    return (
        most if excess(most) <= 0 else float(brentq(excess, 0.0, most)) if excess(0.0) < 0 else 0.0
    )


def pairs(s: Array, mean: Array, rho: Array, height: float) -> tuple[Array, Array]:
    """Two logits after the cap: their correlation, and the mean product of their slopes over the
    mean square of one.

    Both in closed form for an error function of tanh's slope at 0, ρ the correlation before the
    cap."""
    steep = math.pi / 2 * np.minimum((s * s + mean * mean) / height**2, STEEPEST)
    share = steep / (1 + steep)
    slopes = np.sqrt((1 + 2 * steep) / ((1 + steep) ** 2 - (steep * rho) ** 2))
    return np.where(
        steep > 0, np.arcsin(share * rho) / np.arcsin(np.maximum(share, 1e-300)), rho
    ), slopes
