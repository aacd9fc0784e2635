"""Rotary positions in law: how far keys that tokens share are still the same after their turns.

A query at t and a key at s meet turned by s − t, so that two logits have c(Δ) of the covariance that they would have, c
the mean of cos θΔ over the turned pairs of coordinates (1 for the rest) and Δ the difference of their turns. Of a row
of n keys the part that all share still drops out of softmax as far as c does not differ: its mean over the pairs of
keys is Fejér's kernel, Σ_ss' cos θ(s − s') = |Σ_s e^(iθs)|².
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.schemes.position import angles, rotated
from explorer.theory.grids import Array

if TYPE_CHECKING:
    from explorer.theory.positions import Positions


class Turns(NamedTuple):
    """Means of c; floats, or under a mask arrays by position and by pair of positions."""

    keys: Any = 1.0
    """Over pairs of a row's keys, `[position]`."""
    rows: Any = 1.0
    """Over pairs of rows that meet one key, `[position, position]`, as the next."""
    both: Any = 1.0
    """Over pairs of rows and pairs of keys."""

    def distinguish(self, rho: Array) -> tuple[Array, Array]:
        """Part of the keys, of correlation ρ, that a row's logits tell apart; and of that the share by turns alone."""
        own = 1 - self.keys * rho
        return own, 1 - np.divide(1 - rho, own, out=np.ones_like(own), where=own > 0)


STILL = Turns()
"""Nothing turns."""


def turns(config: Config, place: Positions | None = None) -> Turns:
    """The mean cosines of a config; at the `positions.Positions` under a mask."""
    theta = angles(config)
    if not theta:
        return STILL
    share = rotated(config) / config.d_head
    return _even(config.n_ctx, theta, share) if place is None else _masked(place, theta, share)


def _even(n: int, theta: tuple[float, ...], share: float) -> Turns:
    """Every row sees all n keys."""
    mean = _fejer(n, theta)[-1]
    return Turns(_mean(mean, share), _mean(mean, share), _mean(mean**2, share))


def _masked(place: Positions, theta: tuple[float, ...], share: float) -> Turns:
    """Row t sees t keys; two rows share those of the shorter one."""
    weight, n = place.share, len(place.share)
    keys = _fejer(n, theta)[place.t.astype(int) - 1]
    phase = weight.T @ np.exp(1j * np.outer(np.arange(n), theta))
    same, count = weight.T @ weight, weight.sum(0)
    pairs = np.outer(count, count) - same
    total = (phase[:, None] * phase.conj()).real - same[..., None]
    rows = np.where(pairs[..., None] > 1e-9, total / np.maximum(pairs, 1e-9)[..., None], 1.0)
    return Turns(_mean(keys, share), _mean(rows, share), _mean(rows * keys[place.smaller], share))


def _fejer(n: int, theta: tuple[float, ...]) -> Array:
    """`[t − 1, angle]`: mean of cos θ(s − s') over the pairs of the first t positions, 1 of a single one."""
    t = np.arange(1.0, n + 1)[:, None]
    total = np.abs(np.cumsum(np.exp(1j * np.outer(np.arange(n), theta)), 0)) ** 2
    return np.where(t > 1, (total - t) / np.maximum(t * (t - 1), 1), 1.0)


def _mean(cosine: Array, share: float) -> Any:
    """Over the pairs of coordinates, of which a share turns."""
    return 1 - share + share * cosine.mean(-1)
