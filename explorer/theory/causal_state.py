"""Tokens under a causal mask: second moments by position, overlaps by pair of positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory.forward import Tokens
from explorer.theory.grids import Array
from explorer.theory.positions import Positions


class State(NamedTuple):
    """Tokens, or gradients, at one site."""

    q: Array
    """`[position]`"""
    p: Array
    """`[position, position]`: of two different tokens; its diagonal is the limit of close positions."""
    v: float = 0.0
    w: float = 0.0
    """As in `forward.Tokens`."""

    def scaled(self, factor: float) -> State:
        return self._replace(q=self.q * factor, p=self.p * factor)

    def rho(self) -> Array:
        """Correlation of two tokens, in [0, 1]."""
        return np.clip(self.p / outer(self.q), 0.0, 1.0)


def average(place: Positions, x: State) -> Tokens:
    """The tokens' law, averaged over positions."""
    return Tokens(float(place.mean @ x.q), float(place.mean @ x.p @ place.mean), x.v, x.w)


def scatter(place: Positions, x: State, own: Array) -> Array:
    """Variance of centered overlaps over own², for the keys of each row: by chance, and because positions differ."""
    ahead, squares = place.prefix, x.p * x.p
    rows = ahead @ x.p
    mean = (rows * ahead).sum(1)
    varied = ((ahead @ squares) * ahead).sum(1) - 2 * (ahead * rows * rows).sum(1) + mean * mean
    total: Array = np.minimum(x.v + np.maximum(varied, 0.0) / np.maximum(own * own, 1e-300), 1.0)
    return total


def outer(x: Array) -> Array:
    """`[position, position]`: the geometric mean of a quantity at two positions."""
    root = np.sqrt(x)
    product: Array = root[:, None] * root
    return product
