"""From the recursions' moments to the statistics of the stream and of attention: a row of `LAWS` or
`ROW_LAWS` each. And from the statistics to two numbers of a whole stack.

At initialization a coordinate is a sum of many independent terms: given the overlaps of the tokens
it is Gaussian over the tokens, and coordinates are independent. Two laws follow that need no more
than q, p and their scatter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr

from explorer.config import Config
from explorer.profile import MATRICES, Array, Key, Profile
from explorer.schemes.residual import profiled_factor
from explorer.theory.inputs import VOCABULARY, after_cap, softened, spread

SPREAD = np.linspace(0.0, 1.0, 13)
"""√(1 − ρ) of the tables of expected maxima: the maximum is nearly linear in it where it changes
fast."""
APART = np.sqrt(np.linspace(0.0, 1.0, 33))
"""√(1 − ρ) of the tables of the largest feature, which bend near independent tokens."""
COMMON = (np.arange(56) + 0.5) / 10
"""|u| of the part that tokens share: the middle of each cell."""
WEIGHT = np.exp(-(COMMON**2) / 2) / np.exp(-(COMMON**2) / 2).sum()


class Moments(NamedTuple):
    """Tokens of a site, in law; arrays over sublayers."""

    q: Array
    p: Array
    """Mean overlap of two different tokens."""
    alike: Array
    """Mean squared correlation over all pairs of a sequence's tokens, each with itself among
    them."""
    uneven: Array
    """Relative variance of a token's squared length."""
    first: Array
    """Second moment of the first token."""
    tokens: Array
    """`[site, token]`: second moment of the token at each position."""
    others: Array
    """`[site, token]`: its overlap with the other tokens, over the mean product of their
    lengths."""


class Rows(NamedTuple):
    """Over layers."""

    s: Array
    """Largest standard deviation of the logits of a row, as softmax sees them."""
    uncapped: Array
    """Largest standard deviation of the logits of a row, before a soft cap."""
    total: Array
    """Largest standard deviation of the logits of a row, with the variance that they share."""
    own: Array
    """1 − ρ of the tokens that the attention reads: the part that distinguishes them, with their
    turns."""
    turned: Array
    """Share of the logits' variance by which turns distinguish tokens that are the same."""
    spread: Array
    """Spread as measured: root mean square over the keys."""
    entropy: Array
    normalized: Array
    largest: Array
    favor: Array
    """Logarithm of the factor by which the longest key's mean weight is above the shortest's, for
    small logits."""
    tokens: Array
    """`[layer, token]`: entropy of the row of each query."""
    received: Array
    """`[layer, token]`: mean weight that the key at each position receives."""


def kurtosis(config: Config, x: Moments) -> Array:
    """Of the mean squares of coordinates over a sequence, a_j = Σ_t x_tj² / n.

    Gaussian x of correlations C have Var a = 2 Σ_tt' C² / n² = V (in units of q²). Over d
    independent coordinates E d Σa² / (Σa)² = (1 + V) / (1 + V/d): exact for tokens that are
    independent (gammas: V = 2/n) and for tokens that are all alike (V = 2, which gives 3d / (d +
    2)). He et al. 2024, arXiv 2405.19279, relate the two in the same way."""
    variance = 2 * x.alike
    return np.asarray((1 + variance) / (1 + variance / config.d_model))


def feature_ratio(config: Config, x: Moments) -> Array:
    """Largest over median of d coordinates' RMS over a sequence, √a_j with a_j = Σ_t x_tj² / n as
    in `kurtosis`.

    If all pairs of tokens correlate by ρ, n a_j = (1 + (n − 1) ρ) χ²_1 + (1 − ρ) χ²_(n−1), the
    squares along their mean and across it. The smaller of two middle ones is near the quantile
    (d/2) / (d + 1)."""
    apart = np.sqrt(1 - np.fmin(np.fmax(x.p / x.q, 0.0), 1.0))
    return np.asarray(np.interp(apart, APART, _largest_feature(config.n_ctx, config.d_model)))


@lru_cache(maxsize=64)
def _largest_feature(n: int, d: int) -> Array:
    """E of the largest of d roots √a over the root of the median a, by `APART`."""
    rho, z = 1 - APART[:, None, None] ** 2, np.arange(-5.5, 5.6, 0.2)
    # at the normal quantiles z
    along, across = (
        1 + (n - 1) * rho,
        (1 - rho) * 2 * gammaincinv((n - 1) / 2, ndtr(z)),
    )
    low, high = np.sqrt([across.min(2), across.max(2) + 31 * along[..., 0]])
    root = low + (high - low) * np.linspace(0, 1, 120)  # of n a
    inside = 2 * ndtr(np.sqrt(np.maximum(root[..., None] ** 2 - across, 0) / along)) - 1
    below = inside @ (np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum())
    largest = root[:, 0] + np.trapezoid(1 - np.minimum(below, 1.0) ** d, root, axis=1)
    middle = [np.interp((d + 1) // 2 / (d + 1), *row) for row in zip(below, root, strict=True)]
    return np.asarray(largest / middle)


def max_abs(config: Config, x: Moments) -> Array:
    """Expected largest |x| over B·n·d Gaussian coordinates, of which the n of a sequence correlate
    by p/q.

    A first token whose second moment is larger, as under a causal mask, may have the largest
    coordinate alone."""
    return _largest(
        config, x, config.d_model, x.uneven - 2 / config.d_model, np.sqrt([x.q, x.first])
    )


def _largest(config: Config, x: Moments, count: int, excess: Array, sizes: Array) -> Array:
    """`max_abs` of `count` numbers a token, of these sizes: of any token, and of the first."""
    rho = np.fmin(np.fmax(x.p / x.q, 0.0), 1.0)  # 0 for what is not a number
    groups = config.batch_size * count
    every = np.interp(np.sqrt(1 - rho), SPREAD, _expected(config.n_ctx, groups))
    alone = np.full_like(every, _expected(1, groups)[-1])
    return np.asarray((_bent(np.array([every, alone]), excess) * sizes).max(0))


def output_logits(config: Config, x: Moments, own: Array) -> dict[Key, Array]:
    """RMS and largest of the readout's logits of streams; nothing where a function stands in the
    last norm's place.

    A readout's entries are N(0, v) and know nothing of the output y, whose logits are N(0, v |y|²):
    E z² = s² = v d E y², and after a norm E y² is 1. One character's logits of two tokens correlate
    as the tokens do, so the largest is that of V numbers a token; over 64 seeds it was up to 3 %
    below. A tied readout gives the token's own character, one of V, the logit N(√(own d) s, s²),
    and the largest is then not covered. (Our derivation.)

    Args:
        own: part of the streams' second moment that is the token's own character's, where the
            readout is tied.
    """
    design, height = config.design, config.output_cap
    if design.final_norm and design.point:
        return {}
    s, first = spread(config, x.q), spread(config, x.first)
    square = mean_square(s, 0 * s, height)
    if design.tied:
        square = (
            square
            + (mean_square(s, s * np.sqrt(own * config.d_model), height) - square) / VOCABULARY
        )
    largest = _largest(
        config,
        x,
        VOCABULARY,
        np.zeros_like(s) if design.final_norm else x.uneven,
        np.array([s, first]),
    )
    values = {("output_logit_rms", "logits"): np.sqrt(square)}
    return values | (
        {} if design.tied else {("output_logit_largest", "logits"): softened(largest, height)}
    )


def mean_square(s: Array, mean: Array, height: float) -> Array:
    """Mean square of logits N(mean, s²), `[logit]`, after a soft cap of some height; 0 is none."""
    if not height:
        return s * s + mean * mean
    values, weight = after_cap(s, mean, height)
    return np.asarray((weight * values**2).sum(1))


def _bent(largest: Array, excess: Array) -> Array:
    """The maximum where tokens differ in length more or less than Gaussian ones, by so much
    relative variance of |x|².

    The tail of a coordinate on a sphere, (1 − x²/d)^(d/2), is as thin as a Gaussian's at m² = −d
    ln(1 − x²/d); so x² = m² (1 − e^(−t)) / t with t = m²/d, and in general t = −m² · excess / 2.
    Where it is heavier, |x|² of the token with the largest coordinate is 1 + δ times the mean, and
    x²/(1 + δ) + δ²/excess = m² where that is least: δ + 3δ²/2 = −t, and x² = m² δ (1 + δ)² / −t.
    """
    t = -(largest**2) * excess / 2
    t = np.where(abs(t) < 1e-9, 1e-9, t)
    delta = (np.sqrt(1 + 6 * np.maximum(-t, 0.0)) - 1) / 3
    return np.asarray(
        largest * np.sqrt(np.where(t < 0, -delta * (1 + delta) ** 2, -np.expm1(-np.abs(t))) / t)
    )


@lru_cache(maxsize=256)
def _expected(n: int, groups: int) -> Array:
    """Expected maximum of |z| by `SPREAD`: z = √ρ u + √(1 − ρ) v, u common to the n of each
    independent group.

    E max = ∫ 1 − (∫ (1 − P(|z| > x | u))^n φ(u) du)^groups dx.
    """
    x = np.linspace(0.0, math.sqrt(2 * math.log(2.0 * n * groups)) + 2, 60)[:, None]
    own = np.maximum(SPREAD, 1e-6)[:, None, None]
    shared = np.sqrt(1 - SPREAD**2)[:, None, None] * COMMON
    beyond = ndtr((shared - x) / own) + ndtr((-shared - x) / own)
    some = -np.expm1(n * np.log1p(-np.minimum(beyond, 1 - 1e-15))) @ WEIGHT
    none = np.exp(groups * np.log1p(-np.minimum(some, 1 - 1e-15)))
    return np.asarray(np.trapezoid(1 - none, x[:, 0], axis=1))


TRACY_WIDOM = -1.2065335745820
"""Mean of the Tracy–Widom distribution of real matrices."""


def largest_square(rows: int, columns: int, factors: int = 1) -> float:
    """Mean of the largest squared singular value of independent unit-variance entries, `[rows,
    columns]`; or of AᵀB.

    Marchenko & Pastur's eigenvalues of A Aᵀ / columns have the S-transform 1 / (1 + c z), c = rows
    / columns, and a product of free matrices the product of theirs: those of A Aᵀ B Bᵀ, which are
    the squared singular values of AᵀB, have 1 / (1 + c z)². The spectrum ends where x(z) = (1 + z)
    (1 + c z)^factors / z is least: for one factor at (√rows + √columns)², for two square ones at
    27/4 columns². How dense the eigenvalues below the end are follows from x″, and the largest has
    the Tracy–Widom law on the scale (x″/2)^(1/3) rows^(−2/3), x″ by the resolvent. Half a row and
    half a column less are Ma's (2012) correction for one factor, and measured to serve two. The end
    is the same for independent entries of any distribution with four moments.

    Args:
        factors: 1, or 2 for the product of two such matrices over their rows.
    """
    n, c = rows - 0.5, (rows - 0.5) / (columns - 0.5)
    z = (math.sqrt(((factors - 1) * c) ** 2 + 4 * factors * c) - (factors - 1) * c) / (
        2 * factors * c
    )
    end = (1 + z) * (1 + c * z) ** factors / z
    # x″, then by the resolvent (1 + z) / x
    bend = end * (z**-2 - (1 + z) ** -2 - factors * (c / (1 + c * z)) ** 2)
    scale = (bend * end**2 / 2) ** (1 / 3) * n ** (-2 / 3)
    return float((columns - 0.5) ** factors * (end + TRACY_WIDOM * scale))


def spectra(config: Config) -> dict[Key, Array]:
    """Spectral norm and stable rank of each matrix at initialization, `[1, layer]`; zeros have no
    rank. And the largest possible logit and the stable rank of a head, `[1, layer, 1]`, where no
    norm gives queries and keys their length."""
    values, layers = {}, np.ones((1, config.n_layers))
    for name, matrix in config.design.matrices.items():
        square, by_layer = (
            largest_square(matrix.fan_out, matrix.fan_in),
            config.design.factors_by_layer(name),
        )
        largest = math.sqrt(matrix.variance * square * matrix.fan_in / matrix.fan_out)
        values["spectral_norm", name] = np.sqrt([by_layer]) * largest
        if matrix.variance:
            values["stable_rank", name] = layers * matrix.fan_in * matrix.fan_out / square
    if config.design.attends and not config.design.normalizes_heads:
        queries, keys = (config.design.matrices[name].variance for name in ("W_Q", "W_K"))
        square = largest_square(config.d_head, config.d_model, factors=2)
        values["largest_possible_logit", "attn_scores"] = (
            layers[..., None]
            * math.sqrt(queries * keys * square)
            * config.d_model
            / config.design.divisor
        )
        if queries * keys:  # E‖AᵀB‖_F² is d² d_head
            values["logit_rank", "attn_scores"] = (
                layers[..., None] * config.d_head * config.d_model**2 / square
            )
    return values


LAWS: dict[str, Callable[[Config, Moments], Array]] = {
    "second_moment": lambda config, x: x.q,
    "token_correlation": lambda config, x: x.p / x.q,
    "max_abs": max_abs,
    "kurtosis": kurtosis,
    "feature_ratio": feature_ratio,
    "second_moment_by_position": lambda config, x: x.tokens,
    "token_correlation_by_position": lambda config, x: x.others,
}
"""Statistics of the stream and its branches, from the moments of a site's tokens."""
ROW_LAWS: dict[str, Callable[[Rows], Array]] = {
    "logit_std": lambda rows: rows.spread,
    "attention_entropy": lambda rows: rows.entropy,
    "attention_entropy_normalized": lambda rows: rows.normalized,
    "attention_max": lambda rows: rows.largest,
    "attention_entropy_by_position": lambda rows: rows.tokens,
    "attention_received": lambda rows: rows.received,
}
"""Statistics of attention, from those of softmax over its rows."""


def stream_shares(config: Config, values: Mapping[Key, Array]) -> tuple[Array, Array]:
    """The stream's share of each sum of stream and branch, and the sum before any norm; `[2N]`
    each.

    The stream has skip² q of a sum, the branch branch² q_F. Values are `[seed, layer]`. A sum of 0,
    or one that is not finite, has the share 0."""
    design = config.design
    q = {
        site: value.mean(axis=0)
        for (name, site), value in values.items()
        if name == "second_moment"
    }
    streams = np.concatenate(
        [q["embed"], np.stack([q["resid_mid"], q["resid_post"]], axis=1).ravel()]
    )
    added = np.stack([q.get("attn_out", 0 * q["mlp_out"]), q["mlp_out"]], axis=1).ravel()
    factors: Sequence[float] = design.skips
    if design.profiled:
        below = np.arange(len(added)) // (1 if "attn_out" in q else 2)
        factors = list(
            map(profiled_factor, below.tolist(), np.cumsum([streams[0], *added]).tolist())
        )
    skip, branch = np.square(factors) * streams[:-1], np.square(design.branches) * added
    total = skip + branch
    return np.divide(skip, total, out=np.zeros_like(total), where=total > 0), total


def input_share(config: Config, values: Mapping[Key, Array]) -> float:
    """Part of the last stream's second moment that is the input's, not its branches'; values are
    `[seed, layer]`."""
    return float(np.prod(stream_shares(config, values)[0]))


def update_size(profile: Profile) -> float:
    """Σ‖∂L/∂W‖² over all matrices and layers, mean over seeds: one SGD step changes the loss by −η
    times this."""
    keys = [("parameter_gradient", name) for name in MATRICES]
    sizes = [profile.values[key] for key in keys if key in profile.values]
    return float(sum((size**2).sum(axis=1).mean() for size in sizes))
