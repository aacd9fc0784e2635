"""Causal masks: statistics that depend on a token's position, kept at a few positions and interpolated between them.

Row t sees t keys. Positions are spaced like the tables' sizes (1, 2, 3, 4, 6, 8, 12, … n) and functions of position are
linear in ln t between them, so that sums over tokens become small matrices.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.theory.grids import SIZES, Array, X, rho_of, s_of
from explorer.theory.sink import Sinks, sinks
from explorer.theory.tables import FINE_V, FINE_X, S_MAX, softmax
from explorer.theory.turns import STILL, Turns

Indices = NDArray[np.intp]


class Positions(NamedTuple):
    """The positions of one sequence length, and what sums over tokens become on them.

    Statistics of two tokens are `[pair] = [1 + position, position]`: first a token with itself (the second moments),
    then two different tokens (on the diagonal the limit of close ones). So one operation serves them all.
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
    """`[position, position]`: Σ over the tokens t from one on of f(t)/t²."""
    collect: Array
    """`[position, pair · position]`: see `gather`, to a key with itself."""
    first: Indices
    """`[pair]`: index of the first of the two positions."""
    second: Indices
    smaller: Indices
    """`[position, position]`: index of the smaller of the two."""
    larger: Indices
    ones: Array
    """`[pair]`"""
    ratio: Array
    """`[pair]`: the smaller position over the larger."""
    averages: Array
    """`[2, pair · position]`: average over tokens of the second moments, over pairs of positions of the overlaps."""
    others: Array
    """`[pair]`: average over the ordered pairs of two different tokens."""
    total: Array
    """`[pair]`: Σ over the ordered pairs of tokens, each with itself among them."""
    share: Array
    """`[token, position]`: weights by which a function of position is read at a token."""
    sharp: Array
    """`[pair]`: factor on the covariance of two rows' logits."""
    turns: Turns = STILL
    """See `turns.Turns`."""

    def lift(self, x: Array) -> Array:
        """`[…, position]` to `[…, pair]`: the geometric mean of a quantity at two positions."""
        root = np.sqrt(x)
        product: Array = root.take(self.first, -1) * root.take(self.second, -1)
        return product

    def gather(self, given: Array) -> Array:
        """From rows to keys: `[2, pair]` to `[pair]`, the adjoint of averages over keys.

        Args:
            given: to one key, and to two different ones: of a row with itself t² times what it gives; of two rows t t′
                times what their common keys receive.
        """
        key, pair = given
        out: Array = np.empty_like(key)
        out[0] = self.collect.dot(key.ravel())
        alone = self.suffix_2.dot(pair[0] - pair[1:].diagonal())
        out[1:] = self.suffix.dot(pair[1:]).dot(self.suffix.T) + alone.take(self.larger)
        return out


@lru_cache(maxsize=64)
def positions(n: int, whole: bool = False) -> Positions:
    """The positions of a sequence of n tokens, few or all of them."""
    t = np.array(range(1, n + 1) if whole else [1, *(size for size in SIZES if size < n), n], dtype=float)
    every = np.arange(1, n + 1, dtype=float)
    at = np.interp(np.log(every), np.log(t), np.arange(len(t)))
    low = np.minimum(at.astype(int), len(t) - 2)
    share = np.zeros((n, len(t)))  # [token, position]
    share[np.arange(n), low] = 1 - (at - low)
    share[np.arange(n), low + 1] += at - low
    index, mean = t.astype(int) - 1, share.mean(0)
    suffix, suffix_2 = (
        np.cumsum((share / every[:, None] ** power)[::-1], 0)[::-1][index] for power in (1, 2)
    )
    i = np.arange(len(t))
    first, second = np.vstack([i, i[:, None] + 0 * i]), i + np.zeros((len(t) + 1, 1), dtype=int)
    averages = np.zeros((2, *first.shape))
    averages[0, 0], averages[1, 1:] = mean, np.outer(mean, mean)
    others = n / (n - 1) * averages[1]
    others[1 + i, i] -= mean / (n - 1)
    collect = np.concatenate([suffix_2[:, None], suffix[:, :, None] * suffix[:, None]], 1)
    collect[:, 1 + i, i] -= suffix_2
    return Positions(
        t, mean, np.cumsum(share, 0)[index] / t[:, None], suffix, suffix_2, collect.reshape(len(t), -1), first, second,
        np.minimum(first, second)[1:], np.maximum(first, second)[1:],
        np.ones(first.shape), np.minimum(t[first], t) / np.maximum(t[first], t), averages.reshape(2, -1), others,
        total=n * averages[0] + n * (n - 1) * others, share=share, sharp=np.ones(first.shape),
    )


class Reading(NamedTuple):
    """Averages of single rows, looked up in the tables, and the place of each pair of rows in the tables of pairs."""

    rows: Array
    """`[RowValues, position]`"""
    cell: Indices
    """`[position, position]`: of the table's cell, and the place in it, each in [0, 1]."""
    x: Array
    v: Array


class Stacked:
    """Softmax statistics for the row lengths of all positions, as piecewise linear tables read with arrays."""

    def __init__(self, n: int, d_head: int, fixed_length: bool) -> None:
        self._place = place = positions(n)
        line = s_of(np.linspace(0, float(X[-1]), FINE_X))
        s = line[:, None] + np.zeros(FINE_V)
        rho = np.clip(rho_of(np.linspace(0, 1, FINE_V) + np.zeros_like(s), s), 0.0, 1.0)
        tables = [None if size == 1 else softmax(int(size), d_head, fixed_length) for size in place.t]
        alone = (np.ones_like(s), np.zeros_like(s))
        pairs = np.array([alone if table is None else table.pairs(s, rho) for table in tables]).swapaxes(0, 1)
        along = np.stack([pairs, _steps(pairs, 2)], 1)
        # [(Y11, J11), (value, step in x, step in v, change of one by the other), position · x · v]
        self._pairs = np.stack([along, _steps(along, 4)], 1).reshape(2, 4, -1)
        # two rows share the shorter one's keys
        self._pair = place.smaller * (FINE_X * FINE_V)
        only = ONE_HOT + np.zeros(FINE_X)
        # the largest weight rises with s itself, not with s²: nodes even in √x are dense enough where s is small
        even = s_of(np.linspace(0, math.sqrt(float(X[-1])), FINE_X) ** 2)
        rows = np.stack([only if table is None else np.array(table.rows(even)) for table in tables], 1)
        # [(value, step), RowValues, position · √x]
        self._rows = np.stack([rows, _steps(rows, 2)]).reshape(2, len(ONE_HOT), -1)
        self._row = np.arange(len(place.t)) * FINE_X

    def sinks(self, logit: float) -> Sinks:
        """The statistics of the same rows with a sink."""
        return sinks(tuple(map(int, self._place.t)), logit)

    def read(self, s: Array, rho: Array) -> Reading:
        """The rows of all positions, `[position]` of s, and where pairs of them are, `[position, position]` of ρ."""
        place = self._place
        square = s.take(place.first) * s.take(place.second)
        square = np.fmin(np.fmax(square, LEAST), MOST)  # where the tables end; the least for what is not a number
        x = np.log1p(square) * CELLS_X
        root = np.sqrt(x[0] * (FINE_X - 1))
        low = np.floor(root)
        value, step = self._rows.take(self._row + low.astype(int), 2, mode="clip")
        rows = value + (root - low) * step
        if max(s.tolist()) > S_MAX:  # nearly one-hot: what is missing falls as 1/s
            rows = ONE_HOT + (rows - ONE_HOT) * (S_MAX / np.maximum(s, S_MAX))
        x, inside = x[1:], np.sqrt(square[1:])
        v = np.arcsinh(inside * np.sqrt(ONE - rho)) / np.arcsinh(inside) * CELLS_V
        i, k = np.floor(x), np.floor(v)
        return Reading(rows, self._pair + (i * NODES_V + k).astype(int), x - i, v - k)

    def overlap(self, pairs: Reading) -> Array:
        """Y11 of pairs of rows, `[position, position]`."""
        return _between(self._pairs[0], pairs)

    def jacobian(self, pairs: Reading) -> Array:
        """J11 of pairs of rows."""
        return _between(self._pairs[1], pairs)


ONE_HOT = np.array([[0], [1], [1], [0], [0], [0], [0], [0], [0.0]])
"""`RowValues` of a row with all its weight on one key."""
ONE, NODES_V, CELLS_V = np.array(1.0), np.array(float(FINE_V)), np.array(FINE_V - 1.0)
CELLS_X = np.array((FINE_X - 1) / float(X[-1]))
LEAST, MOST = np.array(1e-6), np.array(S_MAX**2)
"""Arrays, for numpy takes them sooner than floats."""


def _steps(values: Array, axis: int) -> Array:
    """From each node to the next along an axis; 0 from the last."""
    steps: Array = np.diff(values, axis=axis, append=values.take([-1], axis))
    return steps


def _between(table: Array, pairs: Reading) -> Array:
    """Linear in x and in v within a cell."""
    value, in_x, in_v, mixed = table.take(pairs.cell, 1, mode="clip")
    between: Array = value + pairs.x * in_x + pairs.v * (in_v + pairs.x * mixed)
    return between


@lru_cache(maxsize=16)
def stacked(n: int, d_head: int, fixed_length: bool) -> Stacked:
    """The tables of one sequence length and head width, kept."""
    return Stacked(n, d_head, fixed_length)
