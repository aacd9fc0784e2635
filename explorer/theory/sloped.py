"""Rows whose logits fall with distance (ALiBi): their weights differ before anything is random.

With A = W + δ, W the mean weights of a row, two rows' outputs overlap by Σ_ss' W_s W′_s' p_ss', the tokens' own part of
it where s = s', and E Σ δδ′ of what the keys of a row have apart. W and E Σ A² are averages over rows of Gaussian
logits, drawn once: row t is the first t distances of the longest one. Of two rows whose logits correlate by ρ,
E Σ δδ′ is to lognormal weights as (e^(ρs²) − 1) / (e^(s²) − 1) is to one row's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from explorer.theory.grids import Array, s_of, x_of

LONGEST = 64
"""Keys of a row up to which overlaps are kept for every pair of tokens."""
MOST = 10.0
NODES = np.linspace(0.0, float(x_of(np.array(MOST))), 20)
"""Nodes of the spread of a row's logits, as in `grids`."""
DRAWS = 40_000
"""Logits of each head and node."""


class Sloped:
    """Averages of the rows of n tokens, `[node, head, …]`."""

    def __init__(self, n: int, slopes: tuple[float, ...], d_head: int, fixed_length: bool) -> None:
        rng, count = np.random.default_rng(n), DRAWS // n
        rows = []
        for slope in slopes:
            z = rng.standard_normal((count, n))
            z = (z - z.mean(0)) / z.std(0)
            if not fixed_length:  # queries of d_head coordinates differ in length
                z *= np.sqrt(rng.chisquare(d_head, (count, 1)) / d_head)
            rows.append([_rows(s * z - slope * np.arange(n)) for s in s_of(NODES)])
        self._values = np.array([[row for row, _ in head] for head in rows]).swapaxes(0, 1)
        self._weights = np.array([[mean for _, mean in head] for head in rows]).swapaxes(0, 1)
        t = np.arange(1.0, n + 1)
        self.bias: Array = np.multiply.outer(np.square(slopes), t * (t + 1) / 12)
        """`[head, position]`: what the slopes add to the variance of a row's logits, over its keys, but for 1 − 1/t."""

    def rows(self, s: Array) -> Array:
        """`[head, value, position]`: entropy, largest weight, Σp², its square, of logits of spread s, `[position]`."""
        return self._at(self._values, s)

    def weights(self, s: Array) -> Array:
        """`[head, position, key]`: mean weights."""
        return np.swapaxes(self._at(self._weights, s), -1, -2)

    @staticmethod
    def _at(table: Array, s: Array) -> Array:
        """Linear between nodes; the positions are last."""
        place = x_of(np.minimum(s, MOST)) / NODES[1]
        low = np.minimum(place.astype(int), len(NODES) - 2)
        share, position = place - low, np.arange(len(s))
        below, above = (np.moveaxis(table[low + step, ..., position], 0, -1) for step in (0, 1))
        value: Array = below + share * (above - below)
        return value

    def apart(self, y: Array, s: Array) -> Array:
        """`[position]`: what the keys of a row have apart, of tokens `y` (`positions` has `[pair]`), over the heads."""
        return np.asarray(_apart(y, self.weights(s)).mean(0))

    def mix(self, y: Array, s: Array, rho: Array) -> tuple[Array, Array]:
        """`[pair]` of what rows of logits of spread s make of tokens y, and `[value, position]` of their averages.

        Args:
            rho: `[position, position]`, of two rows' logits.
        """
        weights, rows = self.weights(s), self.rows(s)
        share = np.multiply.outer(s, s)
        share = np.where(share > 1e-9, np.expm1(share * rho) / np.expm1(np.maximum(share, 1e-9)), rho)
        own = weights * (y[0] - y[1:].diagonal())
        same, both = own @ weights.swapaxes(1, 2), weights @ y[1:] @ weights.swapaxes(1, 2)
        even = weights @ weights.swapaxes(1, 2)
        square = np.einsum("hii->hi", even)
        chance = np.maximum(rows[:, 2] - square, 0.0) * _apart(y, weights)
        root = np.sqrt(chance / square)
        together = share * root[:, :, None] * root[:, None] * even
        out = np.empty_like(y)
        out[1:] = (both + same + together).mean(0)
        out[0] = (np.einsum("hii->hi", both + same) + chance).mean(0)
        return out, rows.mean(0)


def _apart(y: Array, weights: Array) -> Array:
    """`[head, position]`"""
    alike = ((weights @ y[1:]) * weights).sum(-1)
    apart: Array = np.maximum(weights @ y[0] - alike, 0.0)
    return apart


def _rows(logits: Array) -> tuple[Array, Array]:
    """`[value, position]` and `[key, position]`, of `[draw, distance]`: see `Sloped.rows` and `Sloped.weights`."""
    e = np.exp(logits - logits.max(1, keepdims=True))
    total = np.maximum(np.cumsum(e, 1), 1e-300)
    p2 = np.cumsum(e * e, 1) / total**2
    entropy = np.log(total) - np.cumsum(e * np.log(np.maximum(e, 1e-300)), 1) / total
    largest = np.maximum.accumulate(e, 1) / total
    by_distance = e.T @ (1 / total) / len(e)  # [distance, position]
    t, n = np.arange(e.shape[1]), e.shape[1]
    distance = t - t[:, None]  # of key and position
    weights = np.where(distance >= 0, by_distance[np.maximum(distance, 0), t], 0.0)
    return np.array([entropy.mean(0), largest.mean(0), p2.mean(0), (p2 * p2).mean(0)]), weights.reshape(n, n)


@lru_cache(maxsize=8)
def sloped(n: int, slopes: tuple[float, ...], d_head: int, fixed_length: bool) -> Sloped:
    """The averages of one design, kept."""
    return Sloped(n, slopes, d_head, fixed_length)
