"""Causal masks: statistics that depend on a token's position, kept at a few positions and interpolated between them.

Row t sees t keys. Positions are spaced like the tables' sizes (1, 2, 3, 4, 6, 8, 12, … n) and functions of position are
linear in ln t between them, so that sums over tokens become small matrices. A pair (t, t′) is a pair of positions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.theory.grids import SIZES, Array, X, rho_of, s_of
from explorer.theory.tables import FINE_V, FINE_X, S_MAX, softmax

Indices = NDArray[np.intp]


class Positions(NamedTuple):
    """The positions of one sequence length, and what sums over tokens become on them.

    Statistics of two tokens are vectors `[pair]`: first a token with itself, by position (the second moments), then two
    different tokens at one position (the limit of close ones), then at two. So one operation serves them all.
    """

    t: Array
    """`[position]`, from 1 to n."""
    mean: Array
    """`[position]`: average over all tokens."""
    prefix: Array
    """`[position, position]`: average over the tokens up to one."""
    suffix: Array
    """`[position, position]`: Σ over the tokens t from one on of f(t)/t."""
    suffix_2: Array
    """The same of f(t)/t²."""
    smaller: Indices
    """`[pair]`: index of the smaller position of two."""
    larger: Indices
    ratio: Array
    """`[pair]`: the smaller position over the larger."""
    ones: Array
    """`[pair]`"""
    square: Indices
    """`[position, position]`: index of the pair of different tokens there."""
    averages: Array
    """`[2, pair]`: average over tokens of the second moments, and over pairs of positions of the overlaps."""
    others: Array
    """`[pair]`: average over the ordered pairs of two different tokens."""
    total: Array
    """`[pair]`: Σ over the ordered pairs of tokens, each with itself among them."""
    attend: Array
    """`[pair, pair]`: average over the keys of one row (a token with itself), and over those of two rows."""
    collect: Array
    """`[position, pair]`: to each key with itself, from what a row gives one key, and two rows a common one."""
    collect_2: Array
    """`[different pair, pair]`: to each two keys, from what the rows give a pair of different keys."""
    between: Array
    """`[different pair, different pair]`: the same, from what two rows give."""

    def lift(self, x: Array) -> Array:
        """`[…, position]` to `[…, pair]`: the geometric mean of a quantity at two positions."""
        root = np.sqrt(x)
        product: Array = root.take(self.smaller, -1) * root.take(self.larger, -1)
        return product


@lru_cache(maxsize=64)
def positions(n: int) -> Positions:
    """The positions of a sequence of n tokens."""
    t = np.array([1, *(size for size in SIZES if size < n), n], dtype=float)
    every = np.arange(1, n + 1, dtype=float)
    at = np.interp(np.log(every), np.log(t), np.arange(len(t)))
    low = np.minimum(at.astype(int), len(t) - 2)
    share = np.zeros((n, len(t)))  # [token, position]
    share[np.arange(n), low] = 1 - (at - low)
    share[np.arange(n), low + 1] += at - low
    index = t.astype(int) - 1
    prefix = np.cumsum(share, 0)[index] / t[:, None]
    suffix, suffix_2 = (
        np.cumsum((share / every[:, None] ** power)[::-1], 0)[::-1][index] for power in (1, 2)
    )
    return _paired(t, share.mean(0), prefix, suffix, suffix_2)


def _paired(t: Array, mean: Array, prefix: Array, suffix: Array, suffix_2: Array) -> Positions:
    """Sums over pairs of positions from those over positions."""
    n, count = t[-1], len(t)
    i, (one, two) = np.arange(count), np.triu_indices(count, 1)
    smaller, larger = np.concatenate([i, i, one]), np.concatenate([i, i, two])
    square = np.empty((count, count), dtype=int)
    square[smaller[count:], larger[count:]] = square[larger[count:], smaller[count:]] = np.arange(count, len(smaller))

    def product(x: Array, y: Array) -> Array:
        """Σ x_i y_j p_ij as a sum over pairs of different tokens, for each row of x and y."""
        both = x[:, :, None] * y[:, None, :]
        return np.concatenate([both[:, i, i], both[:, one, two] + both[:, two, one]], 1)

    def excess(x: Array, y: Array, same: Array) -> Array:
        """`product`, and what a token with itself has above two different ones there."""
        pairs = product(x, y)
        pairs[:, :count] -= same
        return np.concatenate([same, pairs], 1)

    first, second = smaller[count:], larger[count:]
    attend = np.zeros((len(smaller),) * 2)
    attend[:count, :count] = prefix
    attend[count:, count:] = product(prefix[first], prefix[second])
    averages = np.zeros((2, len(smaller)))
    averages[0, :count], averages[1, count:] = mean, product(mean[None], mean[None])[0]
    others = excess(n / (n - 1) * mean[None], mean[None], mean[None] / (n - 1))[0]
    others[:count] = 0.0
    return Positions(
        t, mean, prefix, suffix, suffix_2, smaller, larger, t[smaller] / t[larger], np.ones(len(smaller)), square,
        averages, others,
        total=n * averages[0] + n * (n - 1) * others,
        attend=attend,
        collect=excess(suffix, suffix, suffix_2),
        collect_2=excess(suffix[first], suffix[second], suffix_2[second]),
        between=product(suffix[first], suffix[second]),
    )


class Stacked:
    """Softmax statistics for the row lengths of all positions, as piecewise linear tables read with arrays."""

    def __init__(self, n: int, d_head: int, fixed_length: bool, sphere: int = 0) -> None:
        place = positions(n)
        self.t = place.t
        line = s_of(np.linspace(0, float(X[-1]), FINE_X))
        s = line[:, None] + np.zeros(FINE_V)
        rho = np.clip(rho_of(np.linspace(0, 1, FINE_V) + np.zeros_like(s), s), 0.0, 1.0)
        tables = [None if size == 1 else softmax(int(size), d_head, fixed_length, sphere) for size in self.t]
        alone = (np.ones_like(s), np.zeros_like(s))
        pairs = [alone if table is None else table.pairs(s, rho) for table in tables]
        self._pairs = np.array(pairs).swapaxes(0, 1).reshape(2, -1)  # [(Y11, J11), position · x · v]
        only = ONE_HOT + np.zeros((FINE_X, 1))
        # the largest weight rises with s itself, not with s²: nodes even in √x are dense enough where s is small
        even = s_of(np.linspace(0, math.sqrt(float(X[-1])), FINE_X) ** 2)
        rows = [only if table is None else np.stack(table.rows(even), -1) for table in tables]
        steps = np.diff(rows, axis=1, append=0.0)
        # [position · √x, (value, step), RowValues]
        self._rows = np.stack([rows, steps], 2).reshape(-1, 2, len(ONE_HOT))
        self._forward = np.ascontiguousarray(self._rows[..., FORWARD])
        self._row = np.arange(len(self.t)) * FINE_X
        corners = np.array([[0, 1], [FINE_V, FINE_V + 1]])
        # two rows share the shorter one's keys; [x, v, pair of different tokens], the corners of its table's first cell
        self._corners = corners[..., None] + place.smaller[len(self.t):] * (FINE_X * FINE_V)

    def rows(self, s: Array) -> Array:
        """`[..., position]` of s to `[..., position, RowValues]`."""
        return self._read(self._rows, s, ONE_HOT)

    def forward(self, s: Array) -> Array:
        """`[position]` of s to `[position, 4]`, the statistics of rows that the forward recursion reads (`FORWARD`)."""
        return self._read(self._forward, s, ONE_HOT[FORWARD])

    def _read(self, table: Array, s: Array, one_hot: Array) -> Array:
        i, x = _cell(_inside(s), 0.5)
        cell = table.take(self._row + i, 0, mode="clip")
        out: Array = cell[..., 0, :] + x[..., None] * cell[..., 1, :]
        if max(s.ravel().tolist(), default=0.0) > S_MAX:  # nearly one-hot: what is missing falls as 1/s
            out = one_hot + (out - one_hot) * (S_MAX / np.maximum(s, S_MAX))[..., None]
        return out

    def overlap(self, s: Array, rho: Array) -> Array:
        """`[different pair]` of s and ρ to Y11."""
        at, x, v = self._square(s, rho)
        return _between(self._pairs[0].take(at, mode="clip"), x, v)

    def pairs(self, s: Array, rho: Array) -> Array:
        """`[..., different pair]` of s and ρ to `[(Y11, J11), ..., different pair]`."""
        at, x, v = self._square(s, rho)
        return np.array([_between(table.take(at, mode="clip"), x, v) for table in self._pairs])

    def _square(self, s: Array, rho: Array) -> tuple[Indices, Array, Array]:
        """Indices of a cell's corners in a table of pairs, `[x, v, ..., different pair]`, and the place in it."""
        inside = _inside(s)
        i, x = _cell(inside)
        v = np.arcsinh(inside * np.sqrt(1 - rho)) / np.arcsinh(inside) * (FINE_V - 1)
        k = v.astype(int)
        corners = self._corners if s.ndim == 1 else self._corners[:, :, None]
        return corners + (i * FINE_V + k), x, v - k


ONE_HOT = np.array([0, 1, 1, 0, 0, 0, 0, 0, 0.0])
"""`RowValues` of a row with all its weight on one key."""
FORWARD = [2, 4, 6, 7]
"""Y2, spread, crowding and unevenness among `RowValues`."""


def _inside(s: Array) -> Array:
    """Where the tables end; the least for what is not a number."""
    inside: Array = np.fmin(np.fmax(s, 1e-3), S_MAX)
    return inside


def _cell(inside: Array, power: float = 1.0) -> tuple[Indices, Array]:
    """Index of the table's cell in a power of x = ln(1 + s²), and the place in it.

    At a table's end it is the next one's first cell, of which nothing is taken; `mode="clip"` is for the last table's.
    """
    x = np.log1p(inside * inside)
    x = (x if power == 1 else np.sqrt(x)) * ((FINE_X - 1) / float(X[-1]) ** power)
    i = x.astype(int)
    return i, x - i


def _between(corners: Array, x: Array, v: Array) -> Array:
    """`[x, v, ...]` to what is linear between them."""
    edge = corners[:, 0] + v * (corners[:, 1] - corners[:, 0])
    between: Array = edge[0] + x * (edge[1] - edge[0])
    return between


@lru_cache(maxsize=32)
def stacked(n: int, d_head: int, fixed_length: bool, sphere: int = 0) -> Stacked:
    """The tables of one sequence length and head width, kept."""
    return Stacked(n, d_head, fixed_length, sphere)
