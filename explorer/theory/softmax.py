"""Softmax over Gaussian logits, exactly: entropy, largest weight, and how two rows share their
keys.

A row holds n logits s·z, z independent N(0, 1); a second row's logits correlate with the first's
key by key, by ρ. The weights are p = x/Z with x = e^(s z) and Z = Σx. Every power of 1/Z is

    1/Zᵏ = ∫ tᵏ e^(−tZ) d ln t / (k−1)!,    e^(−tZ) = Π e^(−tx)

so that the keys factorize, and an average over n keys becomes an integral over ln t of one-key
averages m_k = E (tx)ᵏ e^(−tx): E Σp² = n ∫ m_2 m_0^(n−1) d ln t, and so on. This is exact for every
n, without sampling. The integrands are analytic in a strip, where the
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

from explorer.theory.gaussian import PATH, TABULATED, integrals, normal_weights, rho_of
from explorer.vocabulary import Array

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Visible keys."""
X = np.linspace(0.0, 7.5, 31)
"""ln(1 + s²): s up to 42.5."""
ROOT = np.linspace(0.0, float(np.sqrt(X[-1])), 41)
"""√x, for single rows: the largest weight rises linearly with s."""
V = np.linspace(0.0, 1.0, 25)
"""v of two rows' correlation, see `gaussian.v_of`."""
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
    """Averages of one softmax row with weights p; arrays where they are read from tables."""

    entropy: Any
    """Entropy −E Σ p ln p in nats."""
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
    """E χJ, with χ the query's squared length over its mean, where queries differ in length."""
    by_length: Any = math.nan
    """κ, the relative covariance of J with Σp² where the gradient has lost what points along the
    row's own output: see `tables.covariance_with_square`."""


class Pair(NamedTuple):
    """Averages of two rows over the same keys, A and B."""

    overlap: float
    """Y11 = E Σ AB."""
    jacobian: float
    """J11 = E Σ AB(1 − A − B + ΣAB), the mean inner product of the two rows' Jacobians."""


def row(s: float, n: int) -> Row:
    """Averages of one row p of n logits of standard deviation s. Exact to about 1e-8 but for
    `tilted` (see `_tilted`).

    By the module's integral, E Σpᵏ = n ∫ m_k m_0^(n−1) d ln t / (k−1)!: of n keys one has the power
    k, and the n − 1 others have only their factor of e^(−tZ)."""
    if n == 1 or s == 0:  # all weights are 1/n, with Σp² = 1/n and Σp³ = 1/n² in what follows
        rest = 1 - 1 / n
        crowding = rest - 4 * (1 / n - 1 / n**2) + 6 * (1 / n**2 - 1 / n**3)
        return Row(math.log(n), 1 / n, 1 / n, rest / n, rest**2, rest / n, crowding, 0.0)
    log_t = _log_t(s)
    m = [_one_key(log_t, s, k) for k in range(5)]
    log_m = np.log(np.maximum(m[0], 1e-300))  # not ln 0 where e^(−tx) underflows
    rest_1, rest_2 = (np.exp((n - k) * log_m) * STEP for k in (1, 2))  # keys beside one, and two
    # E Σp², E Σp³, E Σp⁴, and E Σ_{i≠j} p_i² p_j²
    p2, p3, p4 = (n * float(m[k] @ rest_1) / math.factorial(k - 1) for k in (2, 3, 4))
    pairs = n * (n - 1) * float((m[2] ** 2) @ rest_2) / math.factorial(3)
    squared = p4 + pairs  # E (Σp²)²
    # E ln Z = ∫ e^(−t) − E e^(−tZ) d ln t, and of a key's logit E p s z = s² (1 − E Σp²) / n
    log_z = STEP * float((np.exp(-np.exp(log_t)) - np.exp(n * log_m)).sum())
    return Row(
        entropy=log_z - s * s * (1 - p2),
        largest=_largest(s, n),
        square=p2,
        jacobian=p2 - 2 * p3 + squared,
        spread=1 - 2 * p2 + squared,
        tilted=_tilted(s, n),
        crowding=1 - p2 - 4 * (p2 - p3) + 6 * pairs,
        unevenness=max(squared / p2**2 - 1, 0.0),
    )


def pairs_of_rows(s: float, rho: float, sizes: tuple[int, ...]) -> list[Pair]:
    """Averages of two rows A and B of n logits of standard deviation s, for each n of `sizes`: they
    share nearly all of the work.

    Let t belong to row A and t′ to row B. One key's average is now m_jk(t, t′) = E (tx)ʲ e^(−tx)
    (t′x′)ᵏ e^(−t′x′), with x and x′ the key's e^logit in the two rows. Given the part of the logits
    that both rows have in common the two are independent: m_jk is the mean over that part of
    h_j(t) h_k(t′), see `_given_common`. For j and k of 1 or 2 every (k−1)! is 1, and E ΣAʲBᵏ = n ∫∫
    m_jk m_00^(n−1) d ln t d ln t′.

    Args:
        rho: correlation of the two rows' logits key by key, in [0, 1].
    """
    if s == 0:  # all weights are 1/n: ΣAB = 1/n, and J11 = ΣAB (1 − 1/n)
        return [Pair(1 / n, (1 - 1 / n) / n) for n in sizes]
    if rho >= 1:  # the two rows are the same
        return [Pair(single.square, single.jacobian) for single in (row(s, n) for n in sizes)]
    h, weight = _given_common(s, rho)
    m00, m11 = (h[k] * weight @ h[k].T for k in (0, 1))  # [ln t, ln t′]
    m21, m22 = (h[2] * weight @ h[k].T for k in (1, 2))
    log_m = np.log(np.maximum(m00, 1e-300))  # not ln 0 where e^(−tx) underflows
    out = []
    for n in sizes:
        # one key of n has the powers j and k; n − 1 others, and a step of both integrals
        rest = np.exp((n - 1) * log_m) * (STEP * STEP * n)
        sum_ab, sum_a2b, sum_a2b2 = (float((m * rest).sum()) for m in (m11, m21, m22))
        # E Σ_{i≠j} A_i B_i A_j B_j: two keys, so one factor of m_00 less
        two_keys = (n - 1) * float((m11**2 * rest * np.exp(-log_m)).sum())
        # (ΣAB)² has both sums, and by symmetry ΣAB² is ΣA²B in the mean
        jacobian = sum_ab - 2 * sum_a2b + sum_a2b2 + two_keys
        out.append(Pair(sum_ab, jacobian))
    return out


def _given_common(s: float, rho: float) -> tuple[list[Array], Array]:
    """One-key averages of a row, given the common part c of two rows' logits.

    Logits s z have z = √ρ c + √(1 − ρ) e, c in both rows and e in one. So given c they are normal
    of deviation s √(1 − ρ) around s √ρ c, which shifts ln t in `_one_key`.

    Returns:
        h_k = E yᵏ e⁻ʸ over e for k = 0, 1 and 2, `[ln t, c]` each; and the weights of the nodes c,
        `[c]`.
    """
    shift = s * math.sqrt(rho)
    c, weight = np.zeros(1), np.ones(1)  # independent rows have nothing in common
    if rho > 0:  # a step in c shifts ln t by no more than STEP, which resolves the integrands
        c, weight = _normal_grid(min(STEP, STEP / shift))
    shifted = _log_t(s)[:, None] + shift * c
    # each average is integrated once on a fine grid of ln t, and read at all the shifted ones
    fine = np.arange(shifted.min() - 1, shifted.max() + 1, 0.1)
    own = s * math.sqrt(1 - rho)
    return [CubicSpline(fine, _one_key(fine, own, k))(shifted) for k in range(3)], weight


def _log_t(s: float) -> Array:
    """Grid of ln t that holds every integrand: where t·exp(s z) passes 1 for a z in reach, and a
    little beyond."""
    reach = REACH * s
    return np.arange(-reach - 26.0, reach + 5.0, STEP)


def _normal_grid(step: float) -> tuple[Array, Array]:
    """Trapezoid rule for averages over N(0, 1): nodes and weights."""
    z = np.arange(-REACH, REACH + step / 2, step)
    return z, normal_weights(z)


def _one_key(log_t: Array, s: float, k: int) -> Array:
    """One-key average m_k = E yᵏ e⁻ʸ at each ln t, y = exp(ln t + s z) with z ~ N(0, 1)."""
    z, weight = _normal_grid(min(0.25, 0.25 / max(s, 1e-9)))
    out = np.empty_like(log_t)
    for start in range(0, len(log_t), 256):  # blocks bound the memory of [ln t, z]
        log_y = np.minimum(log_t[start : start + 256, None] + s * z, 50.0)
        out[start : start + 256] = np.exp(k * log_y - np.exp(log_y)) @ weight
    return out


def _largest(s: float, n: int) -> float:
    """Largest weight of a row, E max p.

    1/Z = ∫ e^(−tZ) dt in units of the largest key: with z its height, the largest key itself gives
    e^(−t), and each of the n − 1 below it E[e^(−t e^(s(z′ − z))) | z′ < z] = 1 − E[1 − …]."""
    top = np.linspace(-REACH, REACH, 641)  # z of the largest key
    u, weight_u = np.polynomial.legendre.leggauss(96)
    log_t = np.linspace(-14.0, 4.5, 75)
    step = log_t[1] - log_t[0]
    log_below = log_ndtr(top)
    # over the depth z − z′ below the top, as far as e^(−s depth) counts
    reach = np.minimum(top + REACH, 60.0 / s)
    depth = (u + 1) / 2 * reach[:, None]  # [top, depth]
    density = np.exp(-((top[:, None] - depth) ** 2) / 2 - log_below[:, None])
    weight = weight_u / 2 * reach[:, None] * density / math.sqrt(2 * math.pi)
    ratio = np.exp(-s * depth)
    total = np.zeros_like(top)
    for ln_t in log_t:
        missing = (weight * -np.expm1(-math.exp(ln_t) * ratio)).sum(1)
        total += np.exp(ln_t - math.exp(ln_t)) * np.maximum(1 - missing, 0.0) ** (n - 1)
    # and the tail below the first ln t, where the integrand is its limit 1
    inner = total * step + math.exp(log_t[0] - step / 2)
    peak = n * np.exp(-top * top / 2 + (n - 1) * log_below) / math.sqrt(2 * math.pi)
    return float((peak * inner).sum() * (top[1] - top[0]))


@lru_cache(maxsize=32)
def _draws(n: int) -> Array:
    """Rows of n standard normal logits, `[row, key]`, the same on every machine; cached."""
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
    """The table of single rows, `[size, root, statistic]`: for each n of `SIZES` and √x of `ROOT`
    the first eight statistics of `Row`, in transforms that are smooth and near 1.

    Entropy is over ln n; largest and square go from 1/n (0) to 1; jacobian, spread and tilted are
    logarithms; crowding and unevenness are as they are. `tables.Softmax` inverts this."""
    out = np.empty((len(SIZES), len(ROOT), 8))
    for i, n in enumerate(SIZES):
        even = 1 / n
        for j, s in enumerate(s_of(ROOT**2)):
            exact = row(float(s), n)
            out[i, j] = (
                exact.entropy / math.log(n),
                (exact.largest - even) / (1 - even),
                (exact.square - even) / (1 - even),
                math.log(exact.jacobian),
                math.log(exact.spread),
                math.log(exact.tilted),
                exact.crowding,
                exact.unevenness,
            )
    return out


def stored_pairs() -> Array:
    """The table of two rows, `[size, x, v, 2]`: for each n of `SIZES`, x = ln(1 + s²) of `X` and v
    of `V`, which stands for a correlation ρ.

    First how far ln Y11 is from ln 1/n, of rows without anything in common (0), to ln Y2, of equal
    rows (1). Then J11 / J, the inner product of two rows' Jacobians over one row's square."""
    out = np.empty((len(SIZES), len(X), len(V), 2))
    for at_x, s in enumerate(s_of(X)):
        if s == 0:  # limit of small s: n Y11 is e^(ρs²), n Y2 is e^(s²), and all weights are 1/n
            out[:, at_x, :, 0] = np.clip(rho_of(V, np.zeros(len(V))), 0.0, 1.0)
            out[:, at_x, :, 1] = 1.0
            continue
        single = [row(float(s), n) for n in SIZES]
        out[:, at_x, 0] = 1.0  # v = 0 is ρ = 1: two equal rows
        correlations = np.clip(rho_of(V, np.full(len(V), s)), 0.0, 1.0)
        for at_v, rho in enumerate(correlations[1:], 1):
            pairs = pairs_of_rows(float(s), float(rho), SIZES)
            for size, (alone, two, n) in enumerate(zip(single, pairs, SIZES, strict=True)):
                share = math.log(n * two.overlap) / math.log(n * alone.square)
                out[size, at_x, at_v] = max(share, 0.0), two.jacobian / alone.jacobian
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
