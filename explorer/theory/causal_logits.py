"""Attention logits under a causal mask, by position: see `logits` for the same without one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory import logits as unmasked
from explorer.theory.causal_state import State, outer, scatter
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions


class Logits(NamedTuple):
    """Logits of a layer, in law; what the layer above inherits are the same numbers. As in `logits.Logits`."""

    query: Array
    """`[position]`"""
    query_p: Array
    """`[position, position]`"""
    key: Array
    """`[position]`: of the keys that a row sees."""
    key_p: Array
    variance: Array
    covariance: Array
    """`[position, position]`"""
    common: Array
    alike: Array
    crowd: Array
    apart: Array
    """`[position]`: what the keys that a row sees do not share, before any matrix."""
    scatter: Array
    """`[position]`: variance of their centered overlaps over `apart`²."""
    s: Array
    """`[position]`: standard deviation behind the cap, as softmax sees it."""
    std: Array
    """`[position]`: standard deviation behind the cap."""
    slope: Array
    """`[position]`: mean squared slope of the cap, where the gradient passes."""
    rho: Array
    """`[position, position]`: correlation of two rows' logits behind the cap."""
    rows: Array
    """`[position, position]`: mean product of the slopes in two rows, over the mean square."""
    keys: Array
    """`[position]`: the same of two keys."""


def factors(gains: Gains, place: Positions, q: Array) -> tuple[Array, Array]:
    """What a token's second moment is multiplied by to be a query's, and on a row's average a key's."""
    if not gains.qk_norm:
        return np.full_like(q, gains.q), np.full_like(q, gains.k)
    by_row = 1 / (place.prefix @ q + EPSILON)
    return by_row, by_row


def logits(gains: Gains, place: Positions, x: State, below: Logits | None, kept: float) -> Logits:
    """The logits of a layer's tokens; `kept` as in `logits.logits`."""
    by_query, by_key = factors(gains, place, x.q)
    seen = place.prefix @ x.q
    common = (place.prefix @ x.p @ place.prefix.T).diagonal()
    own = np.maximum(seen - common, 0.0)
    query = np.ones_like(x.q) if gains.qk_norm else by_query * x.q
    query_p, key, key_p = outer(query) * x.rho(), by_key * own, by_key * np.maximum(common, 0.0)
    scattered = scatter(place, x, own)
    crowd = key * scattered
    if below and gains.residual_attention == "qk":
        query, query_p, key = query + below.query, query_p + below.query_p, key + below.key
        crowd, key_p = crowd + kept * below.crowd, key_p + below.key_p
    variance, mean, alike = (gains.scale * query * part for part in (key, key_p, crowd))
    covariance = outer(gains.scale * key) * query_p
    if below and gains.residual_attention == "scores":
        variance, covariance = variance + below.variance, covariance + below.covariance
        mean, alike = mean + below.common, alike + kept * below.alike
    rho = np.clip(covariance / np.maximum(outer(variance), 1e-300), 0.0, 1.0)
    bent = _cap(gains, place, np.sqrt(variance), np.sqrt(mean), rho)
    return Logits(query, query_p, key, key_p, variance, covariance, mean, alike, crowd, own, scattered, *bent)


def _cap(gains: Gains, place: Positions, s: Array, mean: Array, rho: Array) -> tuple[Array, ...]:
    """The last six fields of `Logits`."""
    if gains.cap == 0:
        return s, s, np.ones_like(s), rho, np.ones_like(rho), np.ones_like(s)
    rows = zip(s, mean, place.t, strict=True)
    bent = [unmasked.cap(float(one), float(two), gains.cap, max(int(t), 2)) for one, two, t in rows]
    std, inside, slope = np.array([one[:3] for one in bent]).T
    two, slopes = unmasked.pairs(outer(s), outer(mean), rho, gains.cap)
    _, keys = unmasked.pairs(s, mean, np.zeros_like(s), gains.cap)
    return inside, std, slope, two, slopes, keys
