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
from explorer.theory.tables import FINE_V, FINE_X, S_MAX, softmax

Indices = NDArray[np.intp]


class Positions(NamedTuple):
    """The positions of one sequence length, and what sums over tokens become on them.

    Statistics of two tokens are `[pair] = [1 + position, position]`: first a token with itself (the second moments), then
    two different tokens (on the diagonal the limit of close ones). So one operation serves them all.
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
    collect: Array
    """`[position, pair · position]`: see `gather`, to a key with itself."""
    first: Indices
    """`[pair]`: index of the first of the two positions."""
    second: Indices
    smaller: Indices
    """`[position, position]`: index of the smaller of the two."""
    larger: Indices
    ratio: Array
    """`[pair]`: the smaller position over the larger."""
    averages: Array
    """`[2, pair · position]`: average over tokens of the second moments, over pairs of positions of the overlaps."""
    others: Array
    """`[pair]`: average over the ordered pairs of two different tokens."""
    total: Array
    """`[pair]`: Σ over the ordered pairs of tokens, each with itself among them."""

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
        one, two = given
        out = np.empty_like(one)
        out[0] = self.collect.dot(one.ravel())
        alone = self.suffix_2.dot(two[0] - two[1:].diagonal())
        out[1:] = self.suffix.dot(two[1:]).dot(self.suffix.T) + alone.take(self.larger)
        return out


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
        np.minimum(t[first], t) / np.maximum(t[first], t), averages.reshape(2, -1), others,
        total=n * averages[0] + n * (n - 1) * others,
    )


class Cell(NamedTuple):
    """Where pairs of rows are in the tables: index of the table's cell, and the place in it, each in [0, 1]."""

    index: Indices
    x: Array
    v: Array


class Stacked:
    """Softmax statistics for the row lengths of all positions, as piecewise linear tables read with arrays."""

    def __init__(self, n: int, d_head: int, fixed_length: bool, sphere: int = 0) -> None:
        place = positions(n)
        line = s_of(np.linspace(0, float(X[-1]), FINE_X))
        s = line[:, None] + np.zeros(FINE_V)
        rho = np.clip(rho_of(np.linspace(0, 1, FINE_V) + np.zeros_like(s), s), 0.0, 1.0)
        tables = [None if size == 1 else softmax(int(size), d_head, fixed_length, sphere) for size in place.t]
        alone = (np.ones_like(s), np.zeros_like(s))
        pairs = np.array([alone if table is None else table.pairs(s, rho) for table in tables]).swapaxes(0, 1)
        along = np.stack([pairs, _steps(pairs, 2)], -1)
        # [(Y11, J11), position · x · v, (value, step in x, step in v, change of one by the other)]
        self._pairs = np.stack([along, _steps(along, 3)], -2).reshape(2, -1, 4)
        # two rows share the shorter one's keys
        self._pair = place.smaller * (FINE_X * FINE_V)
        only = ONE_HOT + np.zeros((FINE_X, 1))
        # the largest weight rises with s itself, not with s²: nodes even in √x are dense enough where s is small
        even = s_of(np.linspace(0, math.sqrt(float(X[-1])), FINE_X) ** 2)
        rows = np.array([only if table is None else np.stack(table.rows(even), -1) for table in tables])
        # [position · √x, RowValues, (value, step)]
        self._rows = np.stack([rows, _steps(rows, 1)], 2).reshape(-1, 2, len(ONE_HOT))
        self._row = np.arange(len(place.t)) * FINE_X

    def rows(self, s: Array) -> Array:
        """`[..., position]` of s to `[..., position, RowValues]`."""
        i, x = _cell(_inside(s), 0.5)
        cell = self._rows.take(self._row + i, 0, mode="clip")
        out: Array = cell[..., 0, :] + x[..., None] * cell[..., 1, :]
        if max(s.ravel().tolist(), default=0.0) > S_MAX:  # nearly one-hot: what is missing falls as 1/s
            out = ONE_HOT + (out - ONE_HOT) * (S_MAX / np.maximum(s, S_MAX))[..., None]
        return out

    def cell(self, s: Array, rho: Array) -> Cell:
        """Of pairs of rows, `[position, position]`: the tables' cells at s and ρ."""
        inside = _inside(s)
        i, x = _cell(inside)
        v = np.arcsinh(inside * np.sqrt(1 - rho)) / np.arcsinh(inside) * (FINE_V - 1)
        k = v.astype(int)
        return Cell(self._pair + (i * FINE_V + k), x, v - k)

    def overlap(self, at: Cell) -> Array:
        """Y11 of pairs of rows."""
        return _read(self._pairs[0], at)

    def jacobian(self, at: Cell) -> Array:
        """J11 of pairs of rows."""
        return _read(self._pairs[1], at)


ONE_HOT = np.array([0, 1, 1, 0, 0, 0, 0, 0, 0.0])
"""`RowValues` of a row with all its weight on one key."""


def _steps(values: Array, axis: int) -> Array:
    """From each node to the next along an axis; 0 from the last."""
    return np.diff(values, axis=axis, append=values.take([-1], axis))


def _inside(s: Array) -> Array:
    """Where the tables end; the least for what is not a number."""
    inside: Array = np.fmin(np.fmax(s, 1e-3), S_MAX)
    return inside


def _cell(inside: Array, power: float = 1.0) -> tuple[Indices, Array]:
    """Index of the table's cell in a power of x = ln(1 + s²), and the place in it."""
    x = np.log1p(inside * inside)
    x = (x if power == 1 else np.sqrt(x)) * ((FINE_X - 1) / float(X[-1]) ** power)
    i = x.astype(int)
    return i, x - i


def _read(table: Array, at: Cell) -> Array:
    """Linear in x and in v within a cell."""
    cell = table.take(at.index, 0, mode="clip")
    between: Array = cell[..., 0] + at.x * cell[..., 1] + at.v * (cell[..., 2] + at.x * cell[..., 3])
    return between


@lru_cache(maxsize=16)
def stacked(n: int, d_head: int, fixed_length: bool, sphere: int = 0) -> Stacked:
    """The tables of one sequence length and head width, kept."""
    return Stacked(n, d_head, fixed_length, sphere)
