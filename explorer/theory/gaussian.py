"""Gaussian integrals of the activations: one input, or two that correlate; and tables of them for
the recursions.

Everything is an expectation over centered Gaussian inputs of second moment q: E f, E f², E f′² for
one input, E f(x)f(y) and E f′(x)f′(y) for two whose correlation is ρ. Closed forms where they exist
(relu, identity, gelu by the error function, tanh-like ones not); else Gauss-Legendre panels split
where an activation has a kink, good to 1e-10.

`kernel` is fast enough for a thousand layers. Closed forms are used as they are; other activations
are read from `tables.npz`, once for a fixed second moment (after a norm, where it never changes) or
by spline where it does. There a correlation ρ enters as v = asinh(k √(1−ρ)) / asinh(k), with k the
scale (√q, or s of a softmax) at which two inputs of that correlation begin to differ: even nodes in
v resolve both the neighborhood of ρ = 1 and the rest.

Sources: relu: Cho & Saul 2009; erf: Williams 1997; gelu (x Φ(x)): Tsuchida et al. 2021, rederived
here for E φφ."""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline, RectBivariateSpline

from explorer.schemes.activation import ACTIVATIONS, Activation
from explorer.schemes.activation import normal_pdf as _normal_pdf
from explorer.schemes.closed_forms import Kernel
from explorer.vocabulary import Array

PATH = Path(__file__).with_name("tables.npz")
V_INPUT = np.linspace(0.0, 1.0, 41)
"""Nodes of v: more than in `softmax.V`, as they are cheap."""
LOG_Q = np.arange(-12.0, 21.0, 1.0)
"""ln q of an activation's input."""
TABULATED = ("silu", "elu", "selu", "tanh", "sigmoid", "gelu_tanh", "quick")
"""Activations without closed forms for two inputs."""
REACH = 9.0
"""Cut of a standard normal, in standard deviations: the rest has weight 1e-19."""
FINE = 1025
NODES = np.linspace(0, 1, FINE)
"""Nodes of the piecewise linear tables in v that the forward recursion reads."""


def v_of(rho: Array, scale: Array) -> Array:
    """The smooth variable v = asinh(k √(1−ρ)) / asinh(k) of a correlation ρ at a `scale` k; from 0
    at ρ = 1 to 1 at ρ = 0."""
    scale = np.maximum(scale, 1e-3)
    return np.arcsinh(scale * np.sqrt(np.maximum(1 - rho, 0.0))) / np.arcsinh(scale)


def rho_of(v: Array, scale: Array) -> Array:
    """The inverse of `v_of`."""
    scale = np.maximum(scale, 1e-3)
    return 1 - (np.sinh(v * np.arcsinh(scale)) / scale) ** 2


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
    """E f(x)f(y), E f′(x)f′(y) for Gaussian x, y of second moment q and correlation `rho` in [−1,
    1], to 1e-9.

    Raises:
        ValueError: unknown activation, q negative or not finite, or `rho` out of range.
    """
    form = _form(activation, q)
    if not -1 <= rho <= 1:
        raise ValueError(f"rho must be between -1 and 1; got {rho}")
    if form.kernel:
        return _closed(form.kernel(1.0), q, rho)
    return _by_common_part(form, math.sqrt(q), rho)


def _by_common_part(form: Activation, scale: float, rho: float) -> Overlaps:
    """`overlaps` of an activation at √q = `scale`, by x = scale (√|ρ| c + √(1−|ρ|) e) with c common
    to both inputs and e of each: given c the two are independent, and their means smooth."""
    common, own = scale * math.sqrt(abs(rho)), scale * math.sqrt(1 - abs(rho))
    c, weight = _line(min(common / own, 1e6) if own > 0 else scale)
    value, slope = _smoothed(form, common * c, own)
    other_value, other_slope = value, slope
    if rho < 0:  # the other input's common part has the other sign, and the grid is symmetric
        other_value, other_slope = value[::-1], slope[::-1]
    return Overlaps(float(weight @ (value * other_value)), float(weight @ (slope * other_slope)))


def _smoothed(form: Activation, at: Array, width: float) -> tuple[Array, Array]:
    """E f(a + width·e) and E f′(a + width·e) over e ~ N(0, 1), for each a in `at`: `[at]` each.

    Panels of nodes meet at the kink, a + width·e = 0."""
    kink = np.clip(-at / max(width, 1e-300), -REACH, REACH)
    e, weight = around_kink(kink, REACH, width)
    x = at[:, None] + width * e
    return (weight * form.value(x)).sum(1), (weight * form.slope(x)).sum(1)


def around_kink(kink: Array, top: float, resolve: float) -> tuple[Array, Array]:
    """Nodes z and weights of averages over N(0, 1) cut at −`REACH` and at `top`, of functions with
    a kink at some z: `[kink, node]` each.

    Args:
        resolve: as in `panels`, around the kink.
    """
    u, weight = panels(resolve)
    kink = kink[:, None]
    below, above = kink + REACH, top - kink
    z = np.concatenate([kink - below * u, kink + above * u], axis=1)
    return z, np.concatenate([below * weight, above * weight], axis=1) * _normal_pdf(z)


def normal_weights(z: Array) -> Array:
    """Weights of averages over N(0, 1) at evenly spaced nodes z, by the trapezoid rule."""
    density = np.exp(-z * z / 2)
    return np.asarray(density / density.sum())


def panels(resolve: float) -> tuple[Array, Array]:
    """Nodes and weights of integrals over [0, 1]: Gauss-Legendre on panels that halve towards 0
    until they resolve 1/`resolve`."""
    return _halved(4 + math.ceil(math.log2(max(resolve, 1.0))))


@lru_cache(maxsize=64)
def _halved(count: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1] of `count` panels that halve towards 0 and one that ends there,
    with 20 nodes each; cached."""
    edges = np.concatenate([[0.0], 2.0 ** -np.arange(count, -1.0, -1.0)])
    u, weight = np.polynomial.legendre.leggauss(20)
    width = np.diff(edges)[:, None]
    return (edges[:-1, None] + width * (u + 1) / 2).ravel(), (width * weight / 2).ravel()


def _line(resolve: float) -> tuple[Array, Array]:
    """Nodes and weights for averages over z ~ N(0, 1) of functions that vary on the scale
    1/`resolve` around 0."""
    u, weight = panels(resolve)
    z = REACH * np.concatenate([-u[::-1], u])
    return z, REACH * np.concatenate([weight[::-1], weight]) * _normal_pdf(z)


def _form(activation: str, q: float) -> Activation:
    """The row of an activation, if it exists and the second moment q makes sense."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    if not (q >= 0 and math.isfinite(q)):
        raise ValueError(f"q must be finite and not negative; got {q}")
    return ACTIVATIONS[activation]


def _closed(exact: Kernel, q: float, rho: float) -> Overlaps:
    """`overlaps` by a kernel in closed form."""
    units = np.array(q), np.array(rho)
    return Overlaps(float(exact.overlaps(*units)[1]), float(exact.slopes(*units)[1]))


def tabulated(activation: str) -> bool:
    """Whether the kernel of an activation is read from tables."""
    return ACTIVATIONS[activation].kernel is None


@lru_cache(maxsize=64)
def kernel(activation: str, rescaled: bool, fixed_q: float | tuple[float, ...] | None) -> Kernel:
    """The kernel of an activation; with `fixed_q`, for inputs of that second moment only.

    Args:
        activation: as in `Config`.
        rescaled: divided by √E φ(z)², z ~ N(0, 1).
        fixed_q: the second moment of the input where it is the same in every layer; one for each
            design where designs differ in it.
    """
    factor = 1 / moments(activation).square if rescaled else 1.0
    exact = ACTIVATIONS[activation].kernel
    if exact:
        return exact(factor)
    if fixed_q is None:
        return _tabulated(activation, factor)
    return _fixed(activation, factor, fixed_q)


@cache
def _stored() -> tuple[Array, Array]:
    """`integrals` of all `TABULATED` activations from the file, with a first axis of activations,
    cached."""
    with np.load(PATH) as file:
        return file["activations"].astype(float), file["overlaps"].astype(float)


@cache
def _splines(activation: str) -> list[tuple[CubicSpline, RectBivariateSpline]]:
    """Splines of φ, then of φ′, cached: ln E φ² over ln q, and the overlap's share of E φ² over (ln
    q, v)."""
    if activation in TABULATED:
        single, double = (table[TABULATED.index(activation)] for table in _stored())
    else:  # a row without a closed form or a stored table: integrated now, a second or two, once
        single, double = integrals(activation)
    return [
        (CubicSpline(LOG_Q, single[:, k]), RectBivariateSpline(LOG_Q, V_INPUT, double[..., k]))
        for k in (0, 1)
    ]


def integrals(activation: str) -> tuple[Array, Array]:
    """An activation's tables: ln E f² and ln E f′², `[ln q, 2]`; and the overlaps' shares of E f²
    and E f′², `[ln q, v, 2]`."""
    single, double = np.empty((len(LOG_Q), 2)), np.empty((len(LOG_Q), len(V_INPUT), 2))
    for j, q in enumerate(np.exp(LOG_Q)):
        averages = moments(activation, float(q))
        single[j] = math.log(averages.square), math.log(averages.slope_square)
        for k, rho in enumerate(rho_of(V_INPUT, np.full(len(V_INPUT), math.sqrt(q)))):
            two = overlaps(activation, float(q), float(np.clip(rho, 0.0, 1.0)))
            double[j, k] = two.value / averages.square, two.slope / averages.slope_square
    return single, double


def _by_splines(
    factor: float, single: CubicSpline, double: RectBivariateSpline, q: Array, rho: Array
) -> tuple[Array, Array]:
    """E φ² and E φφ′ of inputs of second moments q and correlations ρ, times a factor; beyond the
    tables' ends by the power of q that they end with.

    Args:
        single, double: one pair of `_splines`.
    """
    log_q = np.log(np.maximum(q, 1e-300))
    inside = np.minimum(np.maximum(log_q, LOG_Q[0]), LOG_Q[-1])
    beyond, log = log_q - inside, single(inside)
    if beyond.any():
        log = log + single(inside, 1) * beyond
    same = factor * np.exp(log)
    return same, same * double.ev(inside, v_of(rho, np.exp(inside / 2)))


def _tabulated(activation: str, factor: float) -> Kernel:
    """The kernel of an activation by its splines, for inputs of any second moment."""
    values, slopes = (partial(_by_splines, factor, *splines) for splines in _splines(activation))
    return Kernel(values, slopes)


def _by_nodes(scale: Any, same: Any, overlaps: Array, q: Array, rho: Array) -> tuple[Array, Array]:
    """E φ² and E φφ′ at correlations ρ, linear in v between `FINE` nodes, of inputs that all have
    one second moment, in each design.

    Args:
        scale: of v, see `v_of`: a number, or `[design]`.
        same: E φ², likewise.
        overlaps: `[node]` or `[design, node]`, E φφ′.
    """
    v, square = v_of(rho, np.array(scale)), np.full_like(q, same)
    if overlaps.ndim == 1:
        return square, np.interp(v, NODES, overlaps)
    node = np.nan_to_num(v) * (FINE - 1)
    low = np.clip(node.astype(int), 0, FINE - 2)
    design = np.arange(len(overlaps))
    below, above = overlaps[design, low], overlaps[design, low + 1]
    return square, below + (node - low) * (above - below)


@lru_cache(maxsize=256)
def _at_nodes(activation: str, factor: float, fixed_q: float) -> tuple[Any, ...]:
    """The first three arguments of `_by_nodes` for φ, and the last two of them for φ′, cached."""
    scale = math.sqrt(min(max(fixed_q, math.exp(LOG_Q[0])), math.exp(LOG_Q[-1])))
    nodes = np.full(FINE, fixed_q), rho_of(NODES, np.full(FINE, scale))
    general = _tabulated(activation, factor)
    (square, overlaps), (of_slopes, slopes) = general.overlaps(*nodes), general.slopes(*nodes)
    return scale, square[0], overlaps, of_slopes[0], slopes


def _fixed(activation: str, factor: float, fixed_q: float | tuple[float, ...]) -> Kernel:
    """The kernel of an activation for inputs of one second moment `fixed_q`, in each design, which
    is quicker to read than `_tabulated`."""
    if isinstance(fixed_q, float):
        table = _at_nodes(activation, factor, fixed_q)
    else:
        designs = [_at_nodes(activation, factor, q) for q in fixed_q]
        table = tuple(map(np.array, zip(*designs, strict=True)))
    scale, square, overlaps, *of_slopes = table
    values = partial(_by_nodes, scale, square, overlaps)
    return Kernel(values, partial(_by_nodes, scale, *of_slopes))
