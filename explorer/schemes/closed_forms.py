"""Second moment and overlap of an activation of Gaussian inputs, where a closed form is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TURN, _ONE, _PI = 2 * math.pi, np.array(1.0), np.array(math.pi)
"""The last two are arrays, which numpy takes faster than floats."""


class Kernel(NamedTuple):
    """The Gaussian integrals of one activation φ, multiplied by a constant.

    x and y are two normal numbers of second moment q and correlation ρ; all arrays have the shape
    of q."""

    overlaps: Callable[[Array, Array], tuple[Array, Array]]
    """(q, ρ) to (E φ², E φ(x)φ(y))."""
    slopes: Callable[[Array, Array], tuple[Array, Array]]
    """(q, ρ) to (E φ′², E φ′(x)φ′(y)); of a product, Σ over its `parts` times their gain over the
    first's."""
    factors: tuple[Callable[[Array, Array], tuple[Array, Array]], ...] = ()
    """As `slopes`, by the input of each factor of a product; empty where φ is no product."""

    @property
    def parts(self) -> tuple[Callable[[Array, Array], tuple[Array, Array]], ...]:
        """(q, ρ) to the gradient's squares and overlaps at the input of each factor, over those at
        the unit."""
        return self.factors or (self.slopes,)


def relu(factor: float) -> Kernel:
    """Relu, times √factor: Cho & Saul 2009."""

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ′² and E φ′(x)φ′(y): the probability that both are above 0."""
        return np.full_like(q, factor / 2), factor * (0.5 - np.arccos(rho) / (2 * math.pi))

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ² and E φ(x)φ(y): the arc-cosine kernel of order 1."""
        half = factor / 2 * q
        return half, half * (np.sqrt(_ONE - rho * rho) + rho * (_PI - np.arccos(rho))) / _PI

    return Kernel(overlaps, slopes)


def relu_squared(factor: float) -> Kernel:
    """Relu's square, times √factor: the arc-cosine kernel of order 2, Cho & Saul 2009."""

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ² and E φ(x)φ(y)."""
        angle = np.arccos(rho)
        kernel = 3 * np.sin(angle) * rho + (np.pi - angle) * (1 + 2 * rho * rho)
        return 1.5 * factor * q * q, factor * q * q / _TURN * kernel

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ′² and E φ′(x)φ′(y): the slope is 2 relu, whose square has the factor 4."""
        return relu(4 * factor).overlaps(q, rho)

    return Kernel(overlaps, slopes)


def gated(gate: Kernel, ratio: float, constant: float = 0.0) -> Kernel:
    """φ(u) (v + c) of independent u and v, whose input is the same: Shazeer 2020.

    Args:
        gate: the kernel of φ; q is u's second moment.
        ratio: v's second moment over u's.
        constant: c².
    """

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        """Mean square and overlap of the product: those of φ(u) times those of v + c."""
        square, overlap = gate.overlaps(q, rho)
        return square * (ratio * q + constant), overlap * (ratio * q * rho + constant)

    def by_gate(q: Array, rho: Array) -> tuple[Array, Array]:
        """Mean square and overlap of the slope by u: those of φ′(u) times those of v + c."""
        square, overlap = gate.slopes(q, rho)
        return square * (ratio * q + constant), overlap * (ratio * q * rho + constant)

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        """Sums over the slopes by u and by v, the latter times v's gain over u's."""
        gate_square, gate_overlap = by_gate(q, rho)
        value_square, value_overlap = gate.overlaps(q, rho)  # the slope by v is φ(u)
        return gate_square + ratio * value_square, gate_overlap + ratio * value_overlap

    return Kernel(overlaps, slopes, (by_gate, gate.overlaps))


def gelu(factor: float) -> Kernel:
    """Gelu, times √factor: Tsuchida et al. 2021, rederived here for E φφ."""

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ′², the overlap at ρ = 1, and E φ′(x)φ′(y)."""
        return factor * _gelu_slopes(q, np.ones_like(q)), factor * _gelu_slopes(q, rho)

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ², the overlap at ρ = 1, and E φ(x)φ(y)."""
        return factor * _gelu_values(q, np.ones_like(q)), factor * _gelu_values(q, rho)

    return Kernel(overlaps, slopes)


def erf(factor: float) -> Kernel:
    """The error function, times √factor: Williams 1997."""

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ′² and E φ′(x)φ′(y); 2q and p are the second moment and the overlap of √2 x."""
        a, p = 1 + 2 * q, 2 * q * rho
        scale = factor * 4 / math.pi
        return scale / np.sqrt(1 + 4 * q), scale / np.sqrt((a - p) * (a + p))

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        """E φ² and E φ(x)φ(y)."""
        scale, share = factor * 2 / math.pi, 2 * q / (1 + 2 * q)
        return scale * np.arcsin(share), scale * np.arcsin(share * rho)

    return Kernel(overlaps, slopes)


def identity(factor: float) -> Kernel:
    """The identity, times √factor."""
    return Kernel(
        lambda q, rho: (factor * q, factor * q * rho),
        lambda q, rho: (np.full_like(q, factor), np.full_like(rho, factor)),
    )


def _gelu_values(q: Array, rho: Array) -> Array:
    """E f(x)f(y) of gelu, elementwise, of second moment q and overlap p = q ρ: Stein's lemma on
    x Φ(x), from E Φ(x)Φ(y) = ¼ + arcsin(p/(1+q))/2π.

    The second term is the two densities' product. q − p is written as q (1 − ρ), so that large q
    lose no digits."""
    p, a, gap = q * rho, 1 + q, q * (1 - rho)
    density = 1 / (2 * math.pi * np.sqrt((1 + gap) * (a + p)))
    probability = 0.25 + np.arcsin(p / a) / (2 * math.pi)  # E Φ(x)Φ(y)
    value: Array = p * probability + density * (q * q + p * p + q * gap * (q + p)) / a
    return value


def _gelu_slopes(q: Array, rho: Array) -> Array:
    """E f′(x)f′(y) of gelu, elementwise, by the same steps as `_gelu_values`."""
    p, a = q * rho, 1 + q
    root = (1 + q * (1 - rho)) * (a + p)  # (1 + q)² − p²
    probability = 0.25 + np.arcsin(p / a) / (2 * math.pi)  # E Φ(x)Φ(y)
    slope: Array = probability + (2 * p / a + p / root) / (2 * math.pi * np.sqrt(root))
    return slope
