"""Tokens under a causal mask: second moments by position, overlaps by pair of positions, in one vector."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory.forward import Tokens
from explorer.theory.grids import Array
from explorer.theory.positions import Positions


class State(NamedTuple):
    """Tokens at one site."""

    y: Array
    """`[pair]`, see `Positions`: second moments, then overlaps of two different tokens."""
    q: Array
    """`[position]`: the second moments among them."""
    v: float = 0.0
    w: float = 0.0
    """As in `forward.Tokens`."""


def state(place: Positions, y: Array, v: float, w: float) -> State:
    """The tokens of these second moments and overlaps."""
    return State(y, y[:len(place.t)], v, w)


def average(place: Positions, x: State) -> Tokens:
    """The tokens' law, averaged over positions."""
    q, p = (place.averages @ x.y).tolist()
    return Tokens(q, p, x.v, x.w)


def correlation(place: Positions, y: Array, square: Array) -> Array:
    """`[..., pair]`: an overlap over the geometric mean of the squares, in [0, 1]; of a token with itself exactly 1."""
    rho: Array = np.minimum(np.maximum(y / square, 0.0), 1.0)
    rho[..., :len(place.t)] = 1.0
    return rho


def scatter(place: Positions, x: State, own: Array, common: Array) -> Array:
    """Variance of centered overlaps over own², for the keys of each row: by chance, and because positions differ.

    Over the keys of a row, of p_ij less the means over i and over j: E p² − 2 E_i (E_j p)² + (E p)².
    """
    count = len(place.t)
    rows = place.prefix @ x.y.take(place.square)
    varied = place.attend[count:2 * count] @ (x.y * x.y) - 2 * (place.prefix * rows * rows).sum(1) + common * common
    total: Array = np.minimum(x.v + np.maximum(varied, 0.0) / np.maximum(own * own, 1e-300), 1.0)
    return total
