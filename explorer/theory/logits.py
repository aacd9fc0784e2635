"""Attention logits and what they inherit: their variance over a row's keys, and how far two rows'
logits agree.

Plain logits are q·k of the layer. In RealFormer (He et al. 2020) they are the sum of those of all
layers so far, whose weights are independent: variances add, s² = Σ s_k², and so do two rows'
covariances. Where queries and keys are added up instead, s² = (Σ query's second moment) · (Σ what
the keys do not share), which grows as the square of the depth.

A soft cap c·tanh(logit / c) leaves logits that are not normal. `cap` finds normal logits that
softmax treats like them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from explorer.theory.gains import Gains
from explorer.theory.gaussian import REACH, around_kink, normal_weights
from explorer.theory.positions import STILL, Positions
from explorer.theory.several import equals
from explorer.theory.tables import as_normal, contrast, highest
from explorer.theory.tokens import ZERO, Keys, State, correlation
from explorer.vocabulary import Array

NODES = np.linspace(-4, 4, 17)
WEIGHTS = normal_weights(NODES)
"""Trapezoid rule for averages over N(0, 1): nodes and weights."""
STEEPEST = 1e9
"""Largest logit in units of the cap; larger ones are treated as this large."""
LARGEST_SPREAD = 1e3
"""Largest standard deviation that is searched for normal logits in the place of capped ones."""
LEAST = 1e-300
"""Least divisor, so that 0/0 is 0."""


class Logits(NamedTuple):
    """Statistics of a layer's logits, own and inherited; the layer above inherits them. Numbers of
    a row are `[position]`, of two rows `[pair] = [1 + position, position]`, with a row and itself
    in row 0 (see `Positions`)."""

    query: Array
    """Second moment of the queries, and where logits are inherited their overlaps, too: `[pair]`,
    summed over layers where queries add up; `[position]` where nothing is inherited."""
    key_own: Array
    """`[position]`: part of a row's keys that they do not share, before rotation; summed where keys
    add up."""
    key_shared: Array
    """`[position]`: part that they share; summed where keys add up."""
    key_scatter: Array
    """`[position]`: variance of the keys' centered overlaps over `key_own`; summed where keys add
    up."""
    covariance: Array
    """Covariance of two rows' logits before the cap, in row 0 their variance: `[pair]`, summed over
    layers where scores add up; `[1, position]` where nothing is inherited."""
    common: Array
    """`[position]`: variance of a row's mean logit, which only a cap or a sink sees."""
    key_covariance: Array
    """`[position]`: covariance of two keys' logits in a row, from the scatter of the keys'
    overlaps."""
    own_part: Array
    """`[position]`: part of the layer's own scores in the variance."""
    concentration: Array
    """`[position]`: Σ of the squared shares that the layers have in what adds up, 1 for a single
    layer; see `tables.as_normal`."""
    s: Array
    """`[position]`: standard deviation of the normal logits that softmax treats like these, after
    the cap."""
    std: Array
    """`[position]`: standard deviation over a row's keys, after the cap."""
    slope: Array
    """`[position]`: mean squared slope of the cap, where the gradient passes."""
    rho: Array
    """`[pair]`: correlation of two rows' logits after the cap."""
    slope_of_two: Array
    """`[pair]`: mean product of the cap's slopes in two rows, over the mean square in one."""
    cancels: Array
    """`[position]`: κ, part of what a row's keys share that drops out of its softmax: mean product
    of the slopes at two keys, over the mean square, times `Turns.keys`. 1 without cap and turns."""
    cancels_in_two: Array
    """`[position, position]`: likewise of the keys that two rows share."""

    @property
    def shrinkage(self) -> Array:
        """Factor of the cap on the logits' variance as softmax sees it, s² over the variance."""
        return np.asarray(self.s**2 / np.maximum(self.covariance[0], LEAST))


def logits(
    gains: Gains, x: State, keys: Keys, scatter: Array, below: Logits | None, kept: float
) -> Logits:
    """The logits of a layer that reads the tokens x.

        s² = factor · query · key_own,    common = factor · query · key_shared

    with the second moment of a row's query and the parts of its keys that they do not share, and
    that they share. Two rows' logits correlate as their queries do. Rotary turns, biases, and what
    is inherited from below change each of these, a soft cap the result.

    Args:
        keys: means over the keys of each row.
        scatter: `[position]`, variance of the keys' centered overlaps over `keys.own`².
        below: the logits of the layer below.
        kept: how far deviations of overlaps survive from the tokens of the layer below to x.
    """
    axis, inherits, turns = x.axis, gains.adds, x.axis.turns
    by_query, by_key, query_bias, key_bias = gains.factors(x.q, keys.mean)
    # queries: their second moments, and correlations
    query, rho = by_query * x.q, x.rho
    biased = not equals(gains.biases.q, 0)
    if inherits or biased:
        overlaps = query_overlaps(x, by_query, query_bias)
        query = overlaps if inherits else query + query_bias
        if biased:
            rho = correlation(overlaps, axis.lift(by_query * x.q + query_bias))
    # keys, and what queries and keys inherit
    key_own = by_key * keys.own
    key_shared = by_key * np.maximum(keys.shared[0], ZERO)
    if not equals(gains.biases.k, 0):
        key_shared = key_shared + key_bias
    crowd = key_own * scatter
    concentration = own_part = axis.ones[0]
    if below and inherits == "qk":
        concentration = concentrated(key_own, below.key_own, below.concentration)
        query, key_own = query + below.query, key_own + below.key_own
        key_shared = key_shared + below.key_shared
        crowd = crowd + kept * below.key_scatter

    # logits: the query's part times the keys' part, and what scores inherit
    factor, turned = axis.logit_factor, turns is not STILL
    by_keys = key_own[None]
    if inherits or turned:
        by_keys = key_factors(gains, axis, key_own, key_shared, turns.keys, turns.both)
    of_row = factor[0] * (query[0] if inherits else query)
    # where turns are fast, keys may even oppose each other a little
    of_two_keys = np.maximum(turns.keys, ZERO) * of_row if turned else of_row
    common, key_covariance = of_two_keys * key_shared, of_two_keys * crowd
    if inherits:
        covariance = factor * by_keys * query
        if below and inherits == "scores":
            own = covariance[0]
            concentration = concentrated(own, below.covariance[0], below.concentration)
            covariance, common = covariance + below.covariance, common + below.common
            key_covariance = key_covariance + kept * below.key_covariance
            own_part = own / np.maximum(covariance[0], LEAST)
        rho = correlation(covariance, np.maximum(axis.lift(covariance[0]), LEAST))
    else:
        covariance = (of_row * by_keys[0])[None]
        if turned:
            rho = correlation(rho * by_keys, np.maximum(axis.lift(by_keys[0]), LEAST))

    # as softmax sees them: after a soft cap, and with keys on a sphere
    s, *capped = _capped(gains, axis, np.sqrt(covariance[0]), common, rho)
    if gains.sphere:
        sizes = map(int, axis.visible.ravel().tolist())
        rows = zip(s, sizes, concentration, strict=True)
        s = np.array([as_normal(std, t, gains.sphere, part) for std, t, part in rows])
    return Logits(
        query,
        key_own,
        key_shared,
        crowd,
        covariance,
        common,
        key_covariance,
        own_part,
        concentration,
        s,
        *capped,
    )


def query_overlaps(x: State, factor: Any, bias: Any) -> Array:
    """Overlaps of the queries of tokens x, second moments in row 0: `[pair]`.

    Args:
        factor: factor of W_Q on second moments, a number or `[position]`; `bias` the biases'
            variance. Both come from `Gains.factors`.
    """
    factor, bias = (x.axis.lift(part + ZERO * x.q) for part in (factor, bias))
    return np.asarray(factor * x.square * x.rho + bias)


def key_factors(
    gains: Gains, axis: Positions, own: Array, shared: Array, cancels: Any, cancels_in_two: Any
) -> Array:
    """Factors by which the queries' overlaps become the covariance of logits: `[..., pair]`, in row
    0 for a row with itself.

        of a row:     own + (1 − κ) shared
        of two rows:  c (own + shared) − κ shared,   c the rows' mean cosine, `Turns.rows`

    Without turns, cap and sink c = κ = 1, and what all keys share drops out.

    Args:
        own: part of a row's keys that they do not share, `[..., position]`.
        shared: part that they share, `[..., position]`.
        cancels: κ of a single row, and `cancels_in_two` of two rows: see `Logits`.
    """
    out = axis.lift(own)
    if axis.turns is STILL and not gains.cap and gains.sink is None:
        return out
    layers: tuple[Any, ...] = (slice(None),) * (out.ndim - axis.ones.ndim)
    of_row, of_two = (*layers, 0), (*layers, slice(1, None))
    shared_by_two = axis.lift(shared)[of_two]
    out[of_row] += (1 - cancels) * shared
    total = out[of_two] + shared_by_two
    out[of_two] = axis.turns.rows * total - cancels_in_two * shared_by_two
    return out


def concentrated(own: Array, below: Array, concentration: Array) -> Array:
    """`Logits.concentration` of a sum: (own² + below² · its concentration) / (own + below)²."""
    squares = own * own + below * below * concentration
    return squares / np.maximum((own + below) ** 2, LEAST)


def _capped(
    gains: Gains, axis: Positions, s: Array, common: Array, rho: Array
) -> tuple[Array, ...]:
    """Statistics of a layer's logits after a soft cap: the fields `s`, `std`, `slope`, `rho`,
    `slope_of_two`, `cancels` and `cancels_in_two` of `Logits`. Without a cap slopes are 1, and what
    keys share cancels but for their turns.

    Args:
        s: `[position]`, standard deviation over a row's keys before the cap.
        common: `[position]`, variance of a row's mean.
        rho: `[1 + position, position]`, correlation of two rows' logits before the cap; in row 0 of
            a row with itself, 1.
    """
    turns, ones = axis.turns, axis.ones
    if not gains.cap:
        return s, s, ones[0], rho, ones, turns.keys, turns.both
    mean = np.sqrt(common)
    rows = zip(s.tolist(), mean.tolist(), axis.visible.tolist(), strict=True)
    capped = [cap(std, center, gains.cap, max(int(t), 2)) for std, center, t in rows]
    std, normal_s, slope = np.array(capped).T
    rho, slope_of_two = capped_pairs(axis.lift(s), axis.lift(mean), rho, gains.cap)
    # two keys of a row have independent logits around their common mean
    _, of_keys = capped_pairs(s, mean, np.zeros_like(s), gains.cap)
    cancels, in_two = turns.keys * of_keys, turns.both * axis.lift(of_keys)[1:]
    return normal_s, std, slope, rho, slope_of_two, cancels, in_two


class Capped(NamedTuple):
    """Statistics of normal logits after a soft cap."""

    std: float
    """Their standard deviation."""
    s: float
    """Standard deviation of the normal logits that softmax treats like them."""
    slope: float
    """Mean squared slope of the cap, where the gradient passes."""


def cap(s: float, mean: float, height: float, n: int) -> Capped:
    """Statistics of the n logits of a row after a soft cap, height · tanh(logit / height).

    With R = E e^2ℓ / (E e^ℓ)² over the capped logits ℓ, as high as n of them reach
    (`tables.highest`), a row has Y2 = R / (n − 1 + R). Softmax is given the normal logits whose R
    yields the same mean Y2. The gradient by a logit before the cap passes where p (1 − p) is large,
    p = e^ℓ / (e^ℓ + (n − 1) E e^ℓ).

    Args:
        s: standard deviation over a row's keys, before the cap.
        mean: standard deviation of a row's mean over the rows.
        height: of the cap; 0 is none.
    """
    if height == 0 or s == 0:
        return Capped(s, s, 1.0)
    means = NODES * (mean / height)  # of the rows, in units of the cap
    bent, weight = squashed(s / height, means, REACH)
    variances = (weight * bent**2).sum(1) - (weight * bent).sum(1) ** 2
    std = height * math.sqrt(max(float(WEIGHTS @ variances), 0.0))

    top = highest(n)
    bent, weight = squashed(s / height, means, top)
    power = np.exp(height * (bent - bent.max(1, keepdims=True)))  # e^ℓ but for a factor
    first = (weight * power).sum(1, keepdims=True)
    second = (weight * power**2).sum(1, keepdims=True)
    ratio = second / first**2
    y2 = float(WEIGHTS @ (ratio / (n - 1 + ratio))[:, 0])
    normal_s = _normal(y2 * (n - 1) / (1 - y2), s, top)

    p = power / (power + (n - 1) * first)
    passing = weight * (p * (1 - p)) ** 2
    squared_slope = (1 - bent**2) ** 2  # of tanh
    slope = (WEIGHTS @ (passing * squared_slope).sum(1)) / (WEIGHTS @ passing.sum(1))
    return Capped(std, normal_s, float(slope))


def squashed(s: float | Array, at: Array, top: float) -> tuple[Array, Array]:
    """Values of tanh(at + s z), z ~ N(0, 1) cut at `top`, and their weights: `[mean, node]` each.

    Nodes are dense around the kink, where tanh changes its sign: logits may be a thousand times
    their cap.

    Args:
        s: standard deviation, above 0: a number or `[mean]`.
        at: `[mean]`, the means.
        top: largest z, in standard deviations.
    """
    kink = np.clip(-at / s, -REACH, top)
    z, weights = around_kink(kink, top, min(float(np.max(s)), STEEPEST))
    values = np.tanh(at[:, None] + np.asarray(s)[..., None] * z)
    return values, weights / weights.sum(1, keepdims=True)


def _normal(target: float, s: float, top: float) -> float:
    """Standard deviation, at most s, of normal logits ℓ, cut at `top` deviations, for which R is
    `target`. R = E e^2ℓ / (E e^ℓ)² rises with the deviation; `contrast` is its logarithm."""

    def excess(tried: float) -> float:
        """ln of R at a tried deviation over the target."""
        return float(contrast(np.array(tried), top)) - math.log(target)

    most = min(s, LARGEST_SPREAD)
    if excess(most) <= 0:
        return most
    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, most))


def capped_pairs(s: Array, mean: Array, rho: Array, height: float) -> tuple[Array, Array]:
    """Two logits after the cap: their correlation, and the mean product of the cap's slopes at both
    over the mean square at one.

    Closed forms of an error function with tanh's slope at 0 (Williams 1997):

        correlation  arcsin(a ρ) / arcsin(a),                      a = b / (1 + b)
        slopes       √((1 + 2b) / ((1 + b)² − (b ρ)²)),            b = π/2 · (s² + mean²) / height²

    Args:
        s: standard deviation over a row's keys; `mean` that of a row's mean over the rows.
        rho: correlation before the cap.
        height: of the cap.
    """
    steep = math.pi / 2 * np.minimum((s * s + mean * mean) / height**2, STEEPEST)
    share = steep / (1 + steep)
    after = np.arcsin(share * rho) / np.arcsin(np.maximum(share, LEAST))
    slopes = np.sqrt((1 + 2 * steep) / ((1 + steep) ** 2 - (steep * rho) ** 2))
    return np.where(steep > 0, after, rho), slopes
