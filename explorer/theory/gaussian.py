"""Gaussian integrals of the activations: one input, or two that correlate.

Everything is an expectation over centered Gaussian inputs of second moment q: E f, E f², E f′² for one input,
E f(x)f(y) and E f′(x)f′(y) for two whose correlation is ρ. Closed forms where they exist (relu, identity, gelu by the
error function, tanh-like ones not); else Gauss-Legendre panels split where an activation has a kink, good to 1e-10.

Sources: relu: Cho & Saul 2009; erf: Williams 1997; gelu (x Φ(x)): Tsuchida et al. 2021, rederived here for E φφ.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.schemes.activation import ACTIVATIONS, Activation
from explorer.schemes.activation import normal_pdf as _normal_pdf
from explorer.schemes.closed_forms import Kernel

Array = NDArray[np.float64]

REACH = 9.0
"""Cut of a standard normal, in standard deviations: the rest has weight 1e-19."""


class Moments(NamedTuple):
    """Averages of one activation under N(0, q)."""

    mean: float
    """E f"""
    square: float
    """E f²"""
    slope_square: float
    """E f′²"""


class Overlaps(NamedTuple):
    """Averages of one activation under two inputs of second moment q and correlation ρ."""

    value: float
    """E f(x) f(y)"""
    slope: float
    """E f′(x) f′(y)"""


def moments(activation: str, q: float = 1.0) -> Moments:
    """E f, E f², E f′² of an activation under N(0, q), to 1e-10.

    Raises:
        ValueError: unknown activation, or q negative or not finite.
    """
    form = _form(activation, q)
    if form.kernel:
        same = _closed(form.kernel(1.0), q, 1.0)
        return Moments(form.mean(q), same.value, same.slope)
    z, weight = _line(math.sqrt(q))
    f, slope = form.value(math.sqrt(q) * z), form.slope(math.sqrt(q) * z)
    return Moments(float(weight @ f), float(weight @ (f * f)), float(weight @ (slope * slope)))


@lru_cache(maxsize=16)
def flatness(activation: str, q: float = 1.0) -> float:
    """Var f² / (E f²)² under N(0, q): how unevenly hidden units share the second moment."""
    form = _form(activation, q)
    z, weight = _line(math.sqrt(q))
    square = form.value(math.sqrt(q) * z) ** 2
    return float(weight @ square**2) / float(weight @ square) ** 2 - 1


def overlaps(activation: str, q: float, rho: float) -> Overlaps:
    """E f(x)f(y), E f′(x)f′(y) for Gaussian x, y of second moment q and correlation `rho` in [−1, 1], to 1e-9.

    Raises:
        ValueError: unknown activation, q negative or not finite, or `rho` out of range.
    """
    form = _form(activation, q)
    if not -1 <= rho <= 1:
        raise ValueError(f"rho must be between -1 and 1; got {rho}")
    if form.kernel:
        return _closed(form.kernel(1.0), q, rho)
    if rho == 1:
        averages = moments(activation, q)
        return Overlaps(averages.square, averages.slope_square)
    return _by_common_part(form, math.sqrt(q), rho)


def _by_common_part(form: Activation, scale: float, rho: float) -> Overlaps:
    """x = scale(√|ρ| c + √(1−|ρ|) e): given the common part c the two inputs are independent, and means smooth."""
    common, own = scale * math.sqrt(abs(rho)), scale * math.sqrt(1 - abs(rho))
    c, weight = _line(min(common / own, 1e6)) if own > 0 else _line(scale)
    value, slope = _smoothed(form, common * c, own)
    if rho < 0:  # the other input's common part has the other sign, and the grid is symmetric
        return Overlaps(float(weight @ (value * value[::-1])), float(weight @ (slope * slope[::-1])))
    return Overlaps(float(weight @ value**2), float(weight @ slope**2))


def _smoothed(form: Activation, at: Array, width: float) -> tuple[Array, Array]:
    """E f(a + width·e) and E f′(a + width·e) over e ~ N(0, 1), at each a; panels meet at the kink, a + width·e = 0."""
    kink = np.clip(-at / max(width, 1e-300), -REACH, REACH)[:, None]
    u, weight_u = panels(width)
    e = np.concatenate([kink - (kink + REACH) * u, kink + (REACH - kink) * u], axis=1)  # [at, node]
    weight = np.concatenate([(kink + REACH) * weight_u, (REACH - kink) * weight_u], axis=1) * _normal_pdf(e)
    x = at[:, None] + width * e
    return (weight * form.value(x)).sum(1), (weight * form.slope(x)).sum(1)


def panels(resolve: float) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1]: Gauss-Legendre on panels that halve towards 0 until they resolve 1/`resolve`."""
    return _halved(4 + max(0, math.ceil(math.log2(max(resolve, 1.0)))))


@lru_cache(maxsize=64)
def _halved(count: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1] of `count` panels that halve towards 0, and one that ends there; cached."""
    edges = np.concatenate([[0.0], 2.0 ** -np.arange(count, -1.0, -1.0)])
    u, weight = np.polynomial.legendre.leggauss(20)
    width = np.diff(edges)[:, None]
    return (edges[:-1, None] + width * (u + 1) / 2).ravel(), (width * weight / 2).ravel()


def _line(resolve: float) -> tuple[Array, Array]:
    """Nodes and weights for averages over z ~ N(0, 1) of functions that vary on the scale 1/`resolve` around 0."""
    u, weight = panels(resolve)
    z = REACH * np.concatenate([-u[::-1], u])
    return z, REACH * np.concatenate([weight[::-1], weight]) * _normal_pdf(z)


def _form(activation: str, q: float) -> Activation:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    if not (q >= 0 and math.isfinite(q)):
        raise ValueError(f"q must be finite and not negative; got {q}")
    return ACTIVATIONS[activation]


def _closed(exact: Kernel, q: float, rho: float) -> Overlaps:
    at = np.array(q), np.array(rho)
    return Overlaps(float(exact.overlaps(*at)[1]), float(exact.slopes(*at)[1]))
