"""Second moment and overlap of an activation from those of its inputs, fast enough for a thousand layers.

Closed forms (relu, its square, gelu, identity) are used as they are; the others are read from `tables.npz`, once for a
fixed second moment (after a norm, where it never changes) or by spline where it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline, RectBivariateSpline

from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.closed_forms import Kernel
from explorer.theory import gaussian
from explorer.theory.grids import LOG_Q, PATH, TABULATED, V_INPUT, Array, rho_of, v_of

FINE = 1025
"""Nodes of the piecewise linear tables in v that the forward recursion reads."""


@lru_cache(maxsize=64)
def kernel(activation: str, rescaled: bool, fixed_q: float | None) -> Kernel:
    """The kernel of an activation; with `fixed_q`, for inputs of that second moment only.

    Args:
        activation: as in `Config`.
        rescaled: divided by √E φ(z)², z ~ N(0, 1).
        fixed_q: the second moment of the input where it is the same in every layer.
    """
    factor = 1 / gaussian.moments(activation).square if rescaled else 1.0
    exact = ACTIVATIONS[activation].kernel
    if exact:
        return exact(factor)
    return _fixed(activation, factor, fixed_q) if fixed_q is not None else _tabulated(activation, factor)


@cache
def _stored() -> tuple[Array, Array]:
    with np.load(PATH) as file:
        return file["activations"].astype(float), file["overlaps"].astype(float)


class _Splines(NamedTuple):
    """Over ln q: ln E φ² and ln E φ′², and over (ln q, v) the overlaps' share of these."""

    single: tuple[CubicSpline, CubicSpline]
    double: tuple[RectBivariateSpline, RectBivariateSpline]


@cache
def _splines(activation: str) -> _Splines:
    if activation in TABULATED:
        single, double = (table[TABULATED.index(activation)] for table in _stored())
    else:  # a row without a closed form or a stored table: integrated now, a second or two, once
        single, double = integrals(activation)
    return _Splines(
        (CubicSpline(LOG_Q, single[:, 0]), CubicSpline(LOG_Q, single[:, 1])),
        (RectBivariateSpline(LOG_Q, V_INPUT, double[..., 0]), RectBivariateSpline(LOG_Q, V_INPUT, double[..., 1])),
    )


def integrals(activation: str) -> tuple[Array, Array]:
    """An activation's tables: `[ln q, 2]`: ln E f², ln E f′²; `[ln q, v, 2]`: the overlaps' share of these."""
    single, double = np.empty((len(LOG_Q), 2)), np.empty((len(LOG_Q), len(V_INPUT), 2))
    for j, q in enumerate(np.exp(LOG_Q)):
        averages = gaussian.moments(activation, float(q))
        single[j] = math.log(averages.square), math.log(averages.slope_square)
        for k, rho in enumerate(rho_of(V_INPUT, np.full(len(V_INPUT), math.sqrt(q)))):
            two = gaussian.overlaps(activation, float(q), float(np.clip(rho, 0.0, 1.0)))
            double[j, k] = two.value / averages.square, two.slope / averages.slope_square
    return single, double


def _single(spline: CubicSpline, log_q: Array) -> Array:
    """The spline, carried on beyond its ends by the power law that it ends with."""
    inside = np.clip(log_q, LOG_Q[0], LOG_Q[-1])
    return np.exp(spline(inside) + spline(inside, 1) * (log_q - inside))


def _tabulated(activation: str, factor: float) -> Kernel:
    splines = _splines(activation)

    def both(which: int, q: Array, rho: Array) -> tuple[Array, Array]:
        log_q = np.log(np.maximum(q, 1e-300))
        same = factor * _single(splines.single[which], log_q)
        inside = np.clip(log_q, LOG_Q[0], LOG_Q[-1])
        share = splines.double[which].ev(inside, v_of(rho, np.exp(inside / 2)))
        return same, same * share

    return Kernel(lambda q, rho: both(0, q, rho), lambda q, rho: both(1, q, rho))


def _fixed(activation: str, factor: float, fixed_q: float) -> Kernel:
    """Piecewise linear in v: between `FINE` nodes that `_tabulated` fills, of one second moment."""
    v = np.linspace(0, 1, FINE)
    width = math.sqrt(min(max(fixed_q, math.exp(LOG_Q[0])), math.exp(LOG_Q[-1])))
    nodes = np.full(FINE, fixed_q), rho_of(v, np.full(FINE, width))
    general = _tabulated(activation, factor)

    def lookup(same: Array, overlaps: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
        def both(q: Array, rho: Array) -> tuple[Array, Array]:
            return np.full_like(q, same[0]), np.interp(v_of(rho, np.array(width)), v, overlaps)

        return both

    return Kernel(lookup(*general.overlaps(*nodes)), lookup(*general.slopes(*nodes)))
