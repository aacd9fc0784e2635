"""Tokens under a causal mask, by position and by pair of positions, and what a norm makes of them; see `tokens`."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions
from explorer.theory.tokens import Tokens, bend

ZERO, ONE = np.array(0.0), np.array(1.0)
TINY = np.array(1e-300)
"""Arrays, for numpy takes them sooner than floats."""


class State:
    """Tokens at one site: `y`, `[pair]` (see `Positions`), and the scatter v and w as in `tokens.Tokens`."""

    def __init__(self, place: Positions, y: Array, v: float, w: float) -> None:
        self.place, self.y, self.v, self.w = place, y, v, w
        self.q: Array = y[0]
        """`[position]`: the second moments."""

    def plus(self, bias: float, width: int) -> State:
        """As `Tokens.plus`."""
        return State(self.place, self.y + bias, self.v, self.mean.plus(bias, width).w) if bias else self

    @cached_property
    def square(self) -> Array:
        """`[pair]`: geometric mean of the two tokens' second moments."""
        return self.place.lift(self.q)

    @cached_property
    def rho(self) -> Array:
        """`[pair]`: correlation of two tokens, in [0, 1]."""
        return correlation(self.y, self.square)

    @cached_property
    def mean(self) -> Tokens:
        """The tokens' law, averaged over positions."""
        q, p = self.place.averages.dot(self.y.ravel()).tolist()
        return Tokens(q, p, self.v, self.w)


def correlation(y: Array, square: Array) -> Array:
    """`[pair]`: overlaps over the geometric mean of the squares, in [0, 1]; of a token with itself exactly 1."""
    rho: Array = np.minimum(np.maximum(y / square, ZERO), ONE)
    rho[0] = 1.0
    return rho


class Norm(NamedTuple):
    """Input of a norm: what it divided by, ε included, by position, and as in `tokens.Norm`."""

    q: Array
    width: int
    same: float
    slopes: Array | None = None
    """`[pair]`, of a function in its place: what it makes of a gradient."""

    @property
    def square(self) -> Array:
        """`[position]`: what it divides overlaps by."""
        return self.q if self.slopes is None else 1 / self.slopes[1:].diagonal()


def normalize(x: State, gains: Gains, width: int, scale: float = 1.0) -> tuple[State, Norm]:
    """A norm of so many coordinates; scatter of the lengths lowers overlaps a little, see `tokens.normalize`."""
    if gains.point:
        kernel, square = gains.point
        bends, mean = (square * x.square, x.rho), bend(x.mean, gains.point, width)[0]
        out = State(x.place, times(scale, kernel.overlaps(*bends)[1]), mean.v, mean.w)
        return out, Norm(x.q, width, 0.0, square * kernel.slopes(*bends)[1])
    place, q = x.place, x.q + np.array([[0.0], [gains.epsilon]])
    without, divided = place.lift(q)
    rho = correlation(x.y, without)
    lower = rho * rho * (x.w / 4) + (1 - x.w / 4)
    scale = 0.0 if gains.centers and width == 1 else scale  # a single coordinate is its mean
    factor = times(scale, lower / divided)
    out = State(place, x.y * factor, x.v, 0.0)
    out.square, out.rho = times(scale, without / divided), rho * lower
    return out, Norm(q[1], width, x.w)


def times(factor: float, x: Array) -> Array:
    """The product; x itself where the factor is 1, as most are."""
    return x if factor == 1 else factor * x
