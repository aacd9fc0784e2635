"""Softmax over Gaussian logits, exactly: entropy, largest weight, and how two rows share their
keys.

A row holds n logits `s·z`, z independent N(0, 1); a second row's logits correlate with the first's
key by key, by ρ. With weights p = exp(s z)/Z, every power of 1/Z is `∫ tᵏ⁻¹ e^(−tZ) dt / (k−1)!`,
so that the keys factorize and an average over n keys becomes an integral over ln t of one-key
averages: exact for every n, no sampling. The integrands are analytic in a strip, where the
trapezoid rule converges geometrically (steps chosen for 1e-9).

These functions take milliseconds to seconds. `python -m explorer.theory.softmax` stores them, and
the activations' integrals, in `tables.npz`: six minutes on an idle core. What is stored is smooth
in the nodes' variables: the logits' standard deviation s enters as x = ln(1 + s²), linear in s²
where softmax is nearly uniform, in ln s where it is one-hot; a correlation as v of `gaussian`.
Cubic splines read it to some tenths of a per cent, see `tables`."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import log_ndtr

from explorer.profile import Array
from explorer.theory.gaussian import PATH, TABULATED, integrals, normal_weights, rho_of

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Visible keys."""
X = np.linspace(0.0, 7.5, 31)
"""ln(1 + s²): s up to 42.5."""
ROOT = np.linspace(0.0, float(np.sqrt(X[-1])), 41)
"""√x, for single rows: the largest weight rises linearly with s."""
V = np.linspace(0.0, 1.0, 25)
STEP = 0.4
"""Step in ln t: the integrands' strip of analyticity is π/2 wide, so the error is about
exp(−π²/STEP) = 2e-11."""
REACH = 8.0
"""Cut of a standard normal, in standard deviations."""


def x_of(s: Array) -> Array:
    """The smooth variable of a standard deviation."""
    return np.log1p(s * s)


def s_of(x: Array) -> Array:
    """The inverse of `x_of`."""
    return np.sqrt(np.expm1(x))


class Row(NamedTuple):
    """Averages of one softmax row; arrays where they are read from tables."""

    entropy: Any
    """Nats."""
    largest: Any
    """E max p."""
    square: Any
    """Y2 = E Σp²."""
    jacobian: Any
    """J = E[Σp² − 2Σp³ + (Σp²)²], the mean squared Frobenius norm of ∂p/∂logits."""
    spread: Any
    """E (1 − Σp²)²."""
    tilted: Any
    """E Σ p² (z − Σpz)²: J along the query, where the logits themselves point."""
    crowding: Any
    """D = E Σ_{i≠j} ∂²(p_i p_j)/∂ℓ_i ∂ℓ_j: how the weights of two keys respond when their logits
    begin to correlate."""
    unevenness: Any
    """Var Σp² / (E Σp²)²: how much rows differ."""
    jacobian_by_query: Any = math.nan
    """E χJ: with the query's squared length over its mean, where queries differ in length."""


class Pair(NamedTuple):
    """Averages of two rows over the same keys, A and B."""

    overlap: float
    """Y11 = E Σ AB."""
    jacobian: float
    """J11 = E Σ AB(1 − A − B + ΣAB), the mean inner product of the two rows' Jacobians."""


def row(s: float, n: int) -> Row:
    """One row of n logits of standard deviation s. Exact to about 1e-8 but for `tilted` (see
    `_tilted`)."""
    if n == 1 or s == 0:
        rest = 1 - 1 / n
        crowding = rest - 4 * (1 / n - 1 / n**2) + 6 * (1 / n**2 - 1 / n**3)
        return Row(math.log(n), 1 / n, 1 / n, rest / n, rest**2, rest / n, crowding, 0.0)
    t = _log_t(s)
    m = [_one_key(t, s, k) for k in range(5)]
    log_m = np.log(np.maximum(m[0], 1e-300))
    left = {k: np.exp((n - k) * log_m) for k in (0, 1, 2)}
    p2, p3, p4 = (n * STEP * float(m[k] @ left[1]) / math.factorial(k - 1) for k in (2, 3, 4))
    pairs = n * (n - 1) * STEP * float((m[2] ** 2) @ left[2]) / 6
    squared = p4 + pairs
    log_z = STEP * float((np.exp(-np.exp(t)) - left[0]).sum())
    entropy = log_z - s * s * (1 - p2)
    crowding = 1 - p2 - 4 * (p2 - p3) + 6 * pairs
    uneven = max(squared / p2**2 - 1, 0.0)
    jacobian, spread = p2 - 2 * p3 + squared, 1 - 2 * p2 + squared
    return Row(entropy, _largest(s, n), p2, jacobian, spread, _tilted(s, n), crowding, uneven)


def pairs_of_rows(s: float, rho: float, sizes: tuple[int, ...]) -> list[Pair]:
    """Two rows of n logits of standard deviation s whose logits correlate by `rho` in [0, 1] key by
    key, for several n at once, which share nearly all of the work."""
    if s == 0:
        return [Pair(1 / n, (1 - 1 / n) / n) for n in sizes]
    if rho >= 1:
        return [Pair(single.square, single.jacobian) for single in (row(s, n) for n in sizes)]
    t = _log_t(s)
    c, weight = (
        _normal_grid(min(0.4, 0.4 / (s * math.sqrt(rho)))) if rho > 0 else (np.zeros(1), np.ones(1))
    )
    inner = s * math.sqrt(1 - rho)
    shifted = t[:, None] + s * math.sqrt(rho) * c  # [ln t, common part]
    fine = np.arange(shifted.min() - 1, shifted.max() + 1, 0.1)
    h = [CubicSpline(fine, _one_key(fine, inner, k))(shifted) for k in range(3)]
    m00, m11 = (h[k] * weight @ h[k].T for k in (0, 1))
    m21, m22 = (h[2] * weight @ h[k].T for k in (1, 2))
    log_m = np.log(np.maximum(m00, 1e-300))
    out = []
    for n in sizes:
        rest = np.exp((n - 1) * log_m) * (STEP * STEP * n)
        y11, a2b, a2b2 = (float((m * rest).sum()) for m in (m11, m21, m22))
        other = (n - 1) * float((m11**2 * rest * np.exp(-log_m)).sum()) if n > 1 else 0.0
        out.append(Pair(y11, y11 - 2 * a2b + a2b2 + other))
    return out


def _log_t(s: float) -> Array:
    """Grid of ln t that holds every integrand: where t·exp(s z) passes 1 for a z in reach, and a
    little beyond."""
    reach = REACH * s
    return np.arange(-reach - 26.0, reach + 5.0, STEP)


def _normal_grid(step: float) -> tuple[Array, Array]:
    """Trapezoid rule for averages over N(0, 1): nodes and weights."""
    z = np.arange(-REACH, REACH + step / 2, step)
    return z, normal_weights(z)


def _one_key(t: Array, s: float, k: int) -> Array:
    """E xᵏ e⁻ˣ over one key, x = exp(ln t + s z), at each ln t."""
    z, weight = _normal_grid(min(0.25, 0.25 / max(s, 1e-9)))
    out = np.empty_like(t)
    for start in range(0, len(t), 256):  # blocks bound the memory of [ln t, z]
        log_x = np.minimum(t[start : start + 256, None] + s * z, 50.0)
        out[start : start + 256] = np.exp(k * log_x - np.exp(log_x)) @ weight
    return out


def _largest(s: float, n: int) -> float:
    """E max p = E ∫ e^(−t Z/x_max) dt, with n − 1 keys below the largest: averaged over where the
    largest stands."""
    top = np.linspace(-REACH, REACH, 641)
    u, weight_u = np.polynomial.legendre.leggauss(96)
    log_t = np.linspace(-14.0, 4.5, 75)
    log_below = log_ndtr(top)
    # E[e^(−t e^(s(z − top))) | z < top] = 1 − E[1 − …]: integrate over the depth below the top, y =
    # s(top − z) ≥ 0
    reach = np.minimum(top + REACH, 60.0 / s)
    y = (u + 1) / 2 * reach[:, None]
    density = np.exp(-((top[:, None] - y) ** 2) / 2 - log_below[:, None]) / math.sqrt(2 * math.pi)
    weight = weight_u / 2 * reach[:, None] * density  # [top, depth]
    scale = np.exp(-s * y)
    total = np.zeros_like(top)
    for ln_t in log_t:
        missing = (weight * -np.expm1(-math.exp(ln_t) * scale)).sum(1)
        total += np.exp(ln_t - math.exp(ln_t)) * np.maximum(1 - missing, 0.0) ** (n - 1)
    inner = total * (log_t[1] - log_t[0])
    # the tail below the first ln t, where the integrand is its limit 1
    inner += math.exp(log_t[0]) * math.exp(-(log_t[1] - log_t[0]) / 2)
    peak = n * np.exp(-top * top / 2 + (n - 1) * log_below) / math.sqrt(2 * math.pi)
    return float((peak * inner).sum() * (top[1] - top[0]))


@lru_cache(maxsize=32)
def _draws(n: int) -> Array:
    """Rows of n standard normal logits, the same on every machine."""
    rows = max(2000, min(20_000, 2_000_000 // n))
    return np.random.default_rng(20260 + n).standard_normal((rows, n))


def _tilted(s: float, n: int) -> float:
    """E Σ p² (z − Σpz)² by sampling (about 1 %): it only enters divided by d_head."""
    z = _draws(n)
    p = np.exp(s * (z - z.max(1, keepdims=True)))
    p /= p.sum(1, keepdims=True)
    centered = z - (p * z).sum(1, keepdims=True)
    return float((p * p * centered * centered).sum(1).mean())


def stored_rows() -> Array:
    """`[size, root, 8]`: entropy / ln n; largest and Σp² from 1/n (0) to 1; ln J, spread, tilted;
    the rest as it is."""
    out = np.empty((len(SIZES), len(ROOT), 8))
    for i, n in enumerate(SIZES):
        for j, s in enumerate(s_of(ROOT**2)):
            exact = row(float(s), n)
            shares = [(y - 1 / n) / (1 - 1 / n) for y in (exact.largest, exact.square)]
            out[i, j, :3] = exact.entropy / math.log(n), *shares
            out[i, j, 3:6] = np.log([exact.jacobian, exact.spread, exact.tilted])
            out[i, j, 6:] = exact.crowding, exact.unevenness
    return out


def stored_pairs() -> Array:
    """`[size, x, v, 2]`: how far ln Y11 is from ln 1/n (0) to ln Y2 (1), and J11 / J."""
    out = np.empty((len(SIZES), len(X), len(V), 2))
    for j, s in enumerate(s_of(X)):
        single = [row(float(s), n) for n in SIZES]
        for k, rho in enumerate(np.clip(rho_of(V, np.full(len(V), s)), 0.0, 1.0)):
            if s == 0 or k == 0:
                out[:, j, k] = rho if s == 0 else 1.0, 1.0
                continue
            both = pairs_of_rows(float(s), float(rho), SIZES)
            for i, (alone, two, n) in enumerate(zip(single, both, SIZES, strict=True)):
                share = math.log(n * two.overlap) / math.log(n * alone.square)
                out[i, j, k] = max(share, 0.0), two.jacobian / alone.jacobian
    return out


def main() -> None:
    """Writes `tables.npz` beside this module."""
    single, double = (np.stack(values) for values in zip(*map(integrals, TABULATED), strict=True))
    np.savez_compressed(
        PATH,
        rows=stored_rows().astype(np.float32),
        pairs=stored_pairs().astype(np.float32),
        activations=single.astype(np.float32),
        overlaps=double.astype(np.float32),
    )


if __name__ == "__main__":
    main()
