"""Tokens under a causal mask: second moments by position, overlaps by pair of positions, in one vector."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from explorer.theory.forward import Tokens
from explorer.theory.grids import Array
from explorer.theory.positions import Positions


class State:
    """Tokens at one site: `y`, `[pair]` (see `Positions`), and the scatter v and w as in `forward.Tokens`."""

    def __init__(self, place: Positions, y: Array, v: float, w: float) -> None:
        self.place, self.y, self.v, self.w = place, y, v, w
        self.q: Array = y[:len(place.t)]
        """`[position]`: the second moments."""

    @cached_property
    def square(self) -> Array:
        """`[pair]`: geometric mean of the two tokens' second moments."""
        return self.place.lift(self.q)

    @cached_property
    def rho(self) -> Array:
        """`[pair]`: correlation of two tokens, in [0, 1]."""
        return correlation(self.place, self.y, self.square)

    @cached_property
    def mean(self) -> Tokens:
        """The tokens' law, averaged over positions."""
        q, p = (self.place.averages @ self.y).tolist()
        return Tokens(q, p, self.v, self.w)


def correlation(place: Positions, y: Array, square: Array) -> Array:
    """`[pair]`: overlaps over the geometric mean of the squares, in [0, 1]; of a token with itself exactly 1."""
    rho: Array = np.minimum(np.maximum(y / square, 0.0), 1.0)
    rho[:len(place.t)] = 1.0
    return rho


def scatter(x: State, own: Array, common: Array) -> Array:
    """Variance of centered overlaps over own², for the keys of each row: by chance, and because positions differ.

    Over the keys of a row, of p_ij less the means over i and over j: E p² − 2 E_i (E_j p)² + (E p)².
    """
    place, count = x.place, len(x.q)
    rows = place.prefix @ x.y.take(place.square)
    varied = place.attend[count:2 * count] @ (x.y * x.y) - 2 * (place.prefix * rows * rows).sum(1) + common * common
    total: Array = np.minimum(x.v + np.maximum(varied, 0.0) / np.maximum(own * own, 1e-300), 1.0)
    return total
