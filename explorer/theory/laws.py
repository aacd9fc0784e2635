"""From the recursions' moments to the statistics of the stream and of attention: a row of `LAWS` or
`ROW_LAWS` each. And from the statistics to two numbers of a whole stack, its input's share of the
last stream and the size of an SGD step.

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
from explorer.profile import Profile
from explorer.schemes.residual import profiled_factor
from explorer.sites import MATRICES
from explorer.theory.gaussian import normal_weights
from explorer.theory.inputs import VOCABULARY, after_cap, softened, spread
from explorer.theory.tokens import ratio
from explorer.vocabulary import Array, Key

SPREAD = np.linspace(0.0, 1.0, 13)
"""√(1 − ρ) of the tables of expected maxima: the maximum is nearly linear in it where it changes
fast."""
APART = np.sqrt(np.linspace(0.0, 1.0, 33))
"""√(1 − ρ) of the tables of the largest feature, which bend near independent tokens."""
COMMON = (np.arange(56) + 0.5) / 10
"""|u| of the part that tokens share: the middle of each cell, up to 5.6 standard deviations."""
WEIGHT = normal_weights(COMMON)
QUANTILES = np.arange(-5.5, 5.6, 0.2)
"""z of N(0, 1) at whose probabilities Φ(z) the quantiles of another distribution are averaged."""
FARTHEST = 31.0
"""End of χ²_1, which is larger with the probability 3e-8."""
ROOTS = 120
"""Nodes of the integral over the largest feature."""


class Moments(NamedTuple):
    """Tokens of some sites, in law; `[site]` if nothing else is said."""

    q: Array
    """Mean second moment over tokens."""
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

    @property
    def rho(self) -> Array:
        """Correlation p/q of two tokens in [0, 1]; 0 for what is not a number."""
        return np.fmin(np.fmax(self.p / self.q, 0.0), 1.0)


class Rows(NamedTuple):
    """Softmax statistics, averaged over the rows of a sequence; `[layer]` if nothing else is
    said."""

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
    """Standard deviation of the logits over the keys of a row as measured: root mean square over
    rows."""
    entropy: Array
    """Nats."""
    normalized: Array
    """Entropy over ln of the number of keys, over rows of two keys and more."""
    largest: Array
    """Largest weight of a row."""
    favor: Array
    """Logarithm of the factor by which the longest key's mean weight is above the shortest's, for
    small logits."""
    tokens: Array
    """`[layer, token]`: entropy of the row of each query, in nats."""
    received: Array
    """`[layer, token]`: mean weight that the key at each position receives."""


def kurtosis(config: Config, x: Moments) -> Array:
    """Kurtosis over the d coordinates of their mean squares over a sequence, a_j = Σ_t x_tj² / n:
    E d Σa² / (Σa)², `[site]`.

    Gaussian x of correlations C have Var a = 2 Σ_tt' C² / n² = V (in units of q²). Over d
    independent coordinates E d Σa² / (Σa)² = (1 + V) / (1 + V/d): exact for tokens that are
    independent (gammas: V = 2/n) and for tokens that are all alike (V = 2, which gives 3d / (d +
    2)). He et al. 2024, arXiv 2405.19279, relate the two in the same way."""
    variance = 2 * x.alike
    return (1 + variance) / (1 + variance / config.d_model)


def feature_ratio(config: Config, x: Moments) -> Array:
    """Largest over median of d coordinates' RMS over a sequence, √a_j with a_j = Σ_t x_tj² / n:
    `[site]`, see `_largest_feature`."""
    return np.interp(np.sqrt(1 - x.rho), APART, _largest_feature(config.n_ctx, config.d_model))


@lru_cache(maxsize=64)
def _largest_feature(n: int, d: int) -> Array:
    """E of the largest of d roots √a over the median, `[APART]`, where all pairs of the n tokens
    correlate by ρ.

    n a = (1 + (n − 1) ρ) χ²_1 + (1 − ρ) χ²_(n−1), the squares along the tokens' mean and across it.
    With F the distribution of √(n a), E max = lowest + ∫ 1 − F^d. Of an even number of coordinates
    torch's median is the smaller of the two middle ones, near the quantile (d/2) / (d + 1)."""
    rho = 1 - APART[:, None, None] ** 2  # [ρ, root, quantile]
    along = 1 + (n - 1) * rho
    chi_square = 2 * gammaincinv((n - 1) / 2, ndtr(QUANTILES))  # its quantiles, n − 1 degrees
    across = (1 - rho) * chi_square
    low = np.sqrt(across.min(2))
    high = np.sqrt(across.max(2) + FARTHEST * along[..., 0])
    root = low + (high - low) * np.linspace(0, 1, ROOTS)  # √(n a), [ρ, root]
    # P(along · χ²_1 ≤ root² − across), then its mean over `across`
    rest = np.maximum(root[..., None] ** 2 - across, 0)
    below = (2 * ndtr(np.sqrt(rest / along)) - 1) @ normal_weights(QUANTILES)
    largest = root[:, 0] + np.trapezoid(1 - np.minimum(below, 1.0) ** d, root, axis=1)
    quantile = (d + 1) // 2 / (d + 1)
    median = [np.interp(quantile, *table) for table in zip(below, root, strict=True)]
    return np.asarray(largest / median)


def max_abs(config: Config, x: Moments) -> Array:
    """Expected largest |x| over the batch · n · d coordinates, `[site]`.

    A first token whose second moment is larger, as under a causal mask, may have the largest
    coordinate alone."""
    excess = x.uneven - 2 / config.d_model  # of Gaussian coordinates it is 2/d
    return _largest(config, x, config.d_model, excess, np.sqrt([x.q, x.first]))


def _largest(config: Config, x: Moments, count: int, excess: Array, sizes: Array) -> Array:
    """Expected largest size over the batch of Gaussian numbers, of which the n of a sequence
    correlate as the tokens do: `[site]`.

    Args:
        count: numbers of a token.
        excess: `[site]`, as in `_with_uneven_lengths`.
        sizes: `[2, site]`, standard deviation of the numbers of any token, and of the first's.
    """
    groups = config.batch_size * count
    every = np.interp(np.sqrt(1 - x.rho), SPREAD, _expected_maximum(config.n_ctx, groups))
    alone = np.full_like(every, _expected_maximum(1, groups)[-1])
    largest = _with_uneven_lengths(np.array([every, alone]), excess)
    return np.asarray((largest * sizes).max(0))


def output_logits(config: Config, x: Moments, own: Array) -> dict[Key, Array]:
    """RMS and largest of the readout's logits of streams, `[site]` each; nothing where a function
    stands in the last norm's place.

    A readout's entries are N(0, v) and know nothing of the output y, whose logits are N(0, v |y|²):
    E z² = s² = v d E y², and after a norm E y² is 1. One character's logits of two tokens correlate
    as the tokens do, so the largest is that of V numbers a token; over 64 seeds it was up to 3 %
    below. A tied readout gives the token's own character, one of V, the logit N(√(own d) s, s²),
    and the largest is then not covered. (Our derivation.)

    Args:
        own: `[site]`, part of the streams' second moment that is the token's own character's, where
            the readout is tied.
    """
    design, height = config.design, config.output_cap
    if design.final_norm and design.point:
        return {}
    s, first = spread(config, x.q), spread(config, x.first)
    square = mean_square(s, 0 * s, height)
    if design.tied:
        of_own = mean_square(s, s * np.sqrt(own * config.d_model), height)
        square = square + (of_own - square) / VOCABULARY
        return {("output_logit_rms", "logits"): np.sqrt(square)}
    uneven = np.zeros_like(s) if design.final_norm else x.uneven
    largest = _largest(config, x, VOCABULARY, uneven, np.array([s, first]))
    return {
        ("output_logit_rms", "logits"): np.sqrt(square),
        ("output_logit_largest", "logits"): softened(largest, height),
    }


def mean_square(s: Array, mean: Array, height: float) -> Array:
    """Mean square of logits N(mean, s²), `[logit]`, after a soft cap of some height; 0 is none."""
    if not height:
        return s * s + mean * mean
    values, weight = after_cap(s, mean, height)
    return np.asarray((weight * values**2).sum(1))


def _with_uneven_lengths(largest: Array, excess: Array) -> Array:
    """Expected maximum where tokens differ in length more, or less, than Gaussian ones.

    The tail of a coordinate on a sphere, (1 − x²/d)^(d/2), is as thin as a Gaussian's at m² = −d
    ln(1 − x²/d); so x² = m² (1 − e^(−t)) / t with t = m²/d, and in general t = −m² · excess / 2.
    Where it is heavier, |x|² of the token with the largest coordinate is 1 + δ times the mean, and
    x²/(1 + δ) + δ²/excess = m² where that is least: δ + 3δ²/2 = −t, and x² = m² δ (1 + δ)² / −t.

    Args:
        largest: the maximum m of Gaussian coordinates.
        excess: relative variance of |x|², less that of Gaussian coordinates.
    """
    t = -(largest**2) * excess / 2
    t = np.where(abs(t) < 1e-9, 1e-9, t)  # the limit
    delta = (np.sqrt(1 + 6 * np.maximum(-t, 0.0)) - 1) / 3
    square = np.where(t < 0, -delta * (1 + delta) ** 2, -np.expm1(-np.abs(t))) / t
    return largest * np.sqrt(square)


@lru_cache(maxsize=256)
def _expected_maximum(n: int, groups: int) -> Array:
    """Expected maximum of |z| over `groups` independent groups of n numbers N(0, 1), `[SPREAD]`.

    The numbers of a group correlate by ρ: z = √ρ u + √(1 − ρ) v with u common to the n. So E max =
    ∫ 1 − (∫ (1 − P(|z| > x | u))^n φ(u) du)^groups dx."""
    most = math.sqrt(2 * math.log(2.0 * n * groups)) + 2  # about the maximum, and 2 beyond
    x = np.linspace(0.0, most, 60)[:, None]  # [ρ, x, u]
    width = np.maximum(SPREAD, 1e-6)[:, None, None]  # √(1 − ρ)
    shared = np.sqrt(1 - SPREAD**2)[:, None, None] * COMMON
    beyond = ndtr((shared - x) / width) + ndtr((-shared - x) / width)
    # P(some number of a group > x), then P(none of any group)
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
    n, d = rows - 0.5, columns - 0.5
    c = n / d
    linear = (factors - 1) * c  # x′(z) = 0 is a quadratic equation
    z = (math.sqrt(linear**2 + 4 * factors * c) - linear) / (2 * factors * c)
    end = (1 + z) * (1 + c * z) ** factors / z
    # x″, then by the resolvent (1 + z) / x
    bend = end * (z**-2 - (1 + z) ** -2 - factors * (c / (1 + c * z)) ** 2)
    scale = (bend * end**2 / 2) ** (1 / 3) * n ** (-2 / 3)
    return float(d**factors * (end + TRACY_WIDOM * scale))


def spectra(config: Config) -> dict[Key, Array]:
    """Spectral norm and stable rank of each matrix at initialization, `[1, layer]`; zeros have no
    rank. And the largest possible logit and the stable rank of a head, `[1, layer, 1]`, where no
    norm gives queries and keys their length."""
    design, d, values = config.design, config.d_model, {}
    layers = np.ones((1, config.n_layers))
    for name, matrix in design.matrices.items():
        square = largest_square(matrix.fan_out, matrix.fan_in)
        largest = math.sqrt(matrix.variance * square * matrix.fan_in / matrix.fan_out)
        values["spectral_norm", name] = np.sqrt([design.factors_by_layer(name)]) * largest
        if matrix.variance:
            values["stable_rank", name] = layers * matrix.fan_in * matrix.fan_out / square
    if design.attends and not design.normalizes_heads:
        variance = design.matrices["W_Q"].variance * design.matrices["W_K"].variance
        square, heads = largest_square(config.d_head, d, factors=2), layers[..., None]
        largest = math.sqrt(variance * square) * d / design.divisor
        values["largest_possible_logit", "attn_scores"] = heads * largest
        if variance:  # E‖AᵀB‖_F² is d² d_head
            values["logit_rank", "attn_scores"] = heads * config.d_head * d**2 / square
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
    """The stream's share of each sum of stream and branch, and the sum's second moment before any
    norm: `[2N]` each.

    The stream has skip² q of a sum, the branch branch² q_F. A sum of 0, or one that is not finite,
    has the share 0.

    Args:
        values: second moments of the stream and its branches, `[seed, layer]`.
    """
    design = config.design
    q = {
        site: value.mean(axis=0)
        for (name, site), value in values.items()
        if name == "second_moment"
    }
    after = np.stack([q["resid_mid"], q["resid_post"]], axis=1).ravel()
    streams = np.concatenate([q["embed"], after])
    added = np.stack([q.get("attn_out", 0 * q["mlp_out"]), q["mlp_out"]], axis=1).ravel()
    factors: Sequence[float] = design.skips
    if design.profiled:
        # of the number of branches below, and of the second moment of input and branches so far
        below = np.arange(len(added)) // (1 if "attn_out" in q else 2)
        sums = np.cumsum([streams[0], *added])
        factors = list(map(profiled_factor, below.tolist(), sums.tolist()))
    skip = np.square(factors) * streams[:-1]
    total = skip + np.square(design.branches) * added
    return ratio(skip, total), total


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
