"""Attention logits under a causal mask, by position: see `logits` for the same without one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory import logits as unmasked
from explorer.theory.causal_state import State, correlation, scatter
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions


class Logits(NamedTuple):
    """Logits of a layer, in law; what the layer above inherits are the same numbers. As in `logits.Logits`."""

    query: Array
    """`[pair]`; only `[position]` where the layer above inherits nothing."""
    key: Array
    """`[position]`: of the keys that a row sees."""
    key_p: Array
    covariance: Array
    """The same, of two rows' logits; of a row with itself their variance."""
    common: Array
    """`[position]`, as all that follow if nothing else is said."""
    alike: Array
    """As softmax sees it, after the cap."""
    crowd: Array
    apart: Array
    """Part of the keys that a row sees which they do not share, before any matrix."""
    scatter: Array
    """Variance of their centered overlaps over `apart`²."""
    s: Array
    """Standard deviation after the cap, as softmax sees it."""
    std: Array
    """Standard deviation after the cap."""
    slope: Array
    """Mean squared slope of the cap, where the gradient passes."""
    rho: Array
    """`[pair]`: correlation of two rows' logits after the cap."""
    rows: Array
    """`[pair]`: mean product of the slopes in two rows, over the mean square."""
    keys: Array
    """The same of two keys."""


def factors(gains: Gains, place: Positions, q: Array) -> tuple[Array, Array]:
    """`[..., position]`: what a token's second moment is multiplied by to be a query's, and on a row's average a key's.
    """
    if not gains.qk_norm:
        return np.full_like(q, gains.q), np.full_like(q, gains.k)
    by_row = 1 / (q @ place.prefix.T + EPSILON)
    return by_row, by_row


def logits(gains: Gains, x: State, seen: Array, below: Logits | None, kept: float) -> Logits:
    """The logits of a layer's tokens; `seen` is their average over keys, `kept` as in `logits.logits`."""
    place, count = x.place, len(x.q)
    mean, common = seen[:count], seen[count:2 * count]
    own = np.maximum(mean - common, 0.0)
    rho, inherits = x.rho, gains.residual_attention
    by_key = 1 / (mean + EPSILON) if gains.qk_norm else gains.k
    query = rho if inherits else rho[:count]
    if not gains.qk_norm:
        query = gains.q * (x.square * rho if inherits else x.q)
    key, key_p = by_key * own, by_key * np.maximum(common, 0.0)
    scattered = scatter(x, own, common)
    crowd = key * scattered
    if below and inherits == "qk":
        query, key, key_p = query + below.query, key + below.key, key_p + below.key_p
        crowd = crowd + kept * below.crowd
    scaled = gains.scale * query[:count]
    mean, alike, covariance = scaled * key_p, scaled * crowd, scaled * key
    if inherits:
        covariance = gains.scale * place.lift(key) * query
        if below and inherits == "scores":
            covariance, mean, alike = covariance + below.covariance, mean + below.common, alike + kept * below.alike
        rho = correlation(place, covariance, np.maximum(place.lift(covariance[:count]), 1e-300))
    variance = covariance[:count]
    bent = _cap(gains, place, np.sqrt(variance), np.sqrt(mean), rho)
    return Logits(query, key, key_p, covariance, mean, alike, crowd, own, scattered, *bent)


def _cap(gains: Gains, place: Positions, s: Array, mean: Array, rho: Array) -> tuple[Array, ...]:
    """The last six fields of `Logits`."""
    if gains.cap == 0:
        return s, s, place.ones[:len(s)], rho, place.ones, place.ones[:len(s)]
    rows = zip(s.tolist(), mean.tolist(), place.t.tolist(), strict=True)
    bent = [unmasked.cap(one, two, gains.cap, max(int(t), 2)) for one, two, t in rows]
    std, inside, slope = np.array([one[:3] for one in bent]).T
    two, slopes = unmasked.pairs(place.lift(s), place.lift(mean), rho, gains.cap)
    _, keys = unmasked.pairs(s, mean, np.zeros_like(s), gains.cap)
    return inside, std, slope, two, slopes, keys
