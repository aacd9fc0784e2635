"""Causal masks: statistics that depend on a token's position, kept at a few positions and interpolated between them.

Row t sees t keys. Positions are spaced like the tables' sizes (1, 2, 3, 4, 6, 8, 12, … n) and functions of position are
linear in ln t between them, so that sums over tokens become small matrices. A pair (t, t′) is a pair of positions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from explorer.theory.grids import SIZES, Array, X, rho_of, s_of
from explorer.theory.tables import FINE_V, FINE_X, S_MAX, softmax


class Positions(NamedTuple):
    """The positions of one sequence length, and what sums over tokens become on them."""

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
    larger: Array
    """`[position, position]`: index of the larger of two."""
    smaller: Array
    ratio: Array
    """`[position, position]`: the smaller position over the larger."""


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
    ahead = np.cumsum(share, 0)[index] / t[:, None]
    behind, behind_2 = (
        np.cumsum((share / every[:, None] ** power)[::-1], 0)[::-1][index] for power in (1, 2)
    )
    i = np.arange(len(t))
    larger, smaller = np.maximum(i[:, None], i), np.minimum(i[:, None], i)
    return Positions(t, share.mean(0), ahead, behind, behind_2, larger, smaller, t[smaller] / t[larger])


class Stacked:
    """Softmax statistics for the row lengths of all positions, as piecewise linear tables read with arrays."""

    def __init__(self, n: int, d_head: int, fixed_length: bool, sphere: int = 0) -> None:
        self.t = positions(n).t
        line = s_of(np.linspace(0, float(X[-1]), FINE_X))
        s = line[:, None] + np.zeros(FINE_V)
        rho = np.clip(rho_of(np.linspace(0, 1, FINE_V) + np.zeros_like(s), s), 0.0, 1.0)
        tables = [None if size == 1 else softmax(int(size), d_head, fixed_length, sphere) for size in self.t]
        alone = (np.ones_like(s), np.zeros_like(s))
        pairs = [alone if table is None else table.pairs(s, rho) for table in tables]
        self._pairs = np.moveaxis(np.array(pairs), 1, -1)  # [position, x, v, (Y11, J11)]
        only = np.array([0, 1, 1, 0, 0, 0, 0, 0, 0.0]) + np.zeros((FINE_X, 1))
        # the largest weight rises with s itself, not with s²: nodes even in √x are dense enough where s is small
        even = s_of(np.linspace(0, math.sqrt(float(X[-1])), FINE_X) ** 2)
        rows = [only if table is None else np.stack(table.rows(even), -1) for table in tables]
        self._rows = np.array(rows)  # [position, √x, RowValues]

    def rows(self, s: Array) -> Array:
        """`[..., position]` of s to `[..., position, RowValues]`."""
        i, x = _cell(s, 0.5)
        where = np.arange(len(self.t))
        low = self._rows[where, i]
        out = low + x[..., None] * (self._rows[where, i + 1] - low)
        tail = np.where(s > S_MAX, S_MAX / np.maximum(s, S_MAX), 1.0)[..., None]
        one_hot = np.array([0, 1, 1, 0, 0, 0, 0, 0, 0.0])
        result: Array = one_hot + (out - one_hot) * tail
        return result

    def pairs(self, s: Array, rho: Array, which: Array) -> Array:
        """Arrays of s, ρ and position index to `[..., (Y11, J11)]`."""
        i, x = _cell(s)
        inside = np.clip(s, 1e-3, S_MAX)
        v = np.arcsinh(inside * np.sqrt(1 - rho)) / np.arcsinh(inside) * (FINE_V - 1)
        k = np.minimum(v.astype(int), FINE_V - 2)
        v, x = (v - k)[..., None], x[..., None]
        table = self._pairs
        low = (1 - v) * table[which, i, k] + v * table[which, i, k + 1]
        high = (1 - v) * table[which, i + 1, k] + v * table[which, i + 1, k + 1]
        result: Array = low + x * (high - low)
        return result


def _cell(s: Array, power: float = 1.0) -> tuple[Array, Array]:
    """Index of the table's cell in a power of x = ln(1 + s²), and the place in it."""
    inside = np.clip(np.nan_to_num(s, nan=0.0), 1e-3, S_MAX)
    x = np.log1p(inside * inside) ** power * ((FINE_X - 1) / float(X[-1]) ** power)
    i = np.minimum(x.astype(int), FINE_X - 2)
    return i, x - i


@lru_cache(maxsize=32)
def stacked(n: int, d_head: int, fixed_length: bool, sphere: int = 0) -> Stacked:
    """The tables of one sequence length and head width, kept."""
    return Stacked(n, d_head, fixed_length, sphere)


def entropy_ceiling(t: Array) -> Array:
    """ln t, and nan for the row that sees one key."""
    return np.where(t > 1, np.log(np.maximum(t, 1.0)), math.nan)
