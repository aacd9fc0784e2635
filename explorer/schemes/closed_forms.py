"""Second moment and overlap of an activation of Gaussian inputs, where a closed form is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TURN, _ONE, _PI = 2 * math.pi, np.array(1.0), np.array(math.pi)
"""The last two are arrays, for numpy takes them sooner than floats."""


class Kernel(NamedTuple):
    """One activation, multiplied by a constant."""

    overlaps: Callable[[Array, Array], tuple[Array, Array]]
    """(q, ρ) to (E φ², E φ(x)φ(y))."""
    slopes: Callable[[Array, Array], tuple[Array, Array]]
    """(q, ρ) to (E φ′², E φ′(x)φ′(y)); of a product, Σ over its `parts` times their gain over the
    first's."""
    factors: tuple[Callable[[Array, Array], tuple[Array, Array]], ...] = ()
    """The like of `slopes` by the input of each factor of a product."""

    @property
    def parts(self) -> tuple[Callable[[Array, Array], tuple[Array, Array]], ...]:
        """(q, ρ) to the gradient's squares and overlaps at the input of each factor, over those at
        the unit."""
        return self.factors or (self.slopes,)


def relu(factor: float) -> Kernel:
    """Relu, times √factor: Cho & Saul 2009."""

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        return np.full_like(q, factor / 2), factor * (0.5 - np.arccos(rho) / (2 * math.pi))

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        half = factor / 2 * q
        return half, half * (np.sqrt(_ONE - rho * rho) + rho * (_PI - np.arccos(rho))) / _PI

    return Kernel(overlaps, slopes)


def relu_squared(factor: float) -> Kernel:
    """Relu's square, times √factor: the arc-cosine kernel of order 2, Cho & Saul 2009."""

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        angle = np.arccos(rho)
        both = 3 * np.sin(angle) * rho + (np.pi - angle) * (1 + 2 * rho * rho)
        return 1.5 * factor * q * q, factor * q * q / _TURN * both

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
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
        same, overlap = gate.overlaps(q, rho)
        return same * (ratio * q + constant), overlap * (ratio * q * rho + constant)

    def by_gate(q: Array, rho: Array) -> tuple[Array, Array]:
        same, overlap = gate.slopes(q, rho)
        return same * (ratio * q + constant), overlap * (ratio * q * rho + constant)

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        (same, overlap), (value, values) = by_gate(q, rho), gate.overlaps(q, rho)
        return same + ratio * value, overlap + ratio * values

    return Kernel(overlaps, slopes, (by_gate, gate.overlaps))


def gelu(factor: float) -> Kernel:
    """Gelu, times √factor: Tsuchida et al. 2021, rederived here for E φφ."""

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        return factor * _gelu_slopes(q, np.ones_like(q)), factor * _gelu_slopes(q, rho)

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        return factor * _gelu_values(q, np.ones_like(q)), factor * _gelu_values(q, rho)

    return Kernel(overlaps, slopes)


def erf(factor: float) -> Kernel:
    """The error function, times √factor: Williams 1997."""

    def slopes(q: Array, rho: Array) -> tuple[Array, Array]:
        a, p = 1 + 2 * q, 2 * q * rho
        return factor * 4 / math.pi / np.sqrt(1 + 4 * q), factor * 4 / math.pi / np.sqrt(
            (a - p) * (a + p)
        )

    def overlaps(q: Array, rho: Array) -> tuple[Array, Array]:
        share = 2 * q / (1 + 2 * q)
        return factor * 2 / math.pi * np.arcsin(share), factor * 2 / math.pi * np.arcsin(
            share * rho
        )

    return Kernel(overlaps, slopes)


def identity(factor: float) -> Kernel:
    """The identity, times √factor."""
    return Kernel(
        lambda q, rho: (factor * q, factor * q * rho),
        lambda q, rho: (np.full_like(q, factor), np.full_like(rho, factor)),
    )


def _gelu_values(q: Array, rho: Array) -> Array:
    """E f(x)f(y) of gelu, elementwise: Stein's lemma on x Φ(x), from E Φ(x)Φ(y) = ¼ +
    arcsin(p/(1+q))/2π.

    The second term is the two densities' product; differences q − p are written so that large q
    lose no digits."""
    p, a, gap = q * rho, 1 + q, q * (1 - rho)
    density = 1 / (2 * math.pi * np.sqrt((1 + gap) * (a + p)))
    both = 0.25 + np.arcsin(p / a) / (2 * math.pi)
    value: Array = p * both + density * (q * q + p * p + q * gap * (q + p)) / a
    return value


def _gelu_slopes(q: Array, rho: Array) -> Array:
    """E f′(x)f′(y) of gelu, elementwise; as `_gelu_values`."""
    p, a = q * rho, 1 + q
    root = (1 + q * (1 - rho)) * (a + p)
    both = 0.25 + np.arcsin(p / a) / (2 * math.pi)
    slope: Array = both + (2 * p / a + p / root) / (2 * math.pi * np.sqrt(root))
    return slope
