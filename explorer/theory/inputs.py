"""Start of the recursions: the tokens' statistics at the embedding, and the loss gradient's at the
output."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_ndtr

from explorer.config import Config
from explorer.profile import Array
from explorer.schemes.data import INPUTS
from explorer.theory.gaussian import REACH, normal_weights
from explorer.theory.logits import NODES, WEIGHTS, cap, squashed
from explorer.theory.tables import highest, softmax
from explorer.theory.tokens import Tokens

VOCABULARY = 103
"""Characters of the prose that text inputs are drawn from."""
FREQUENT = 0.0656
"""Σ f² over its characters: how often two far apart are the same."""
BIGRAM = 0.00833
"""Σ f² over pairs of consecutive characters: how often two pairs far apart are the same."""
REPEATED = 0.115
"""How often the next character is the same."""
TINY = 1e-150
"""Smallest spread of logits that is divided by."""
_DISTANCE = (2, 4, 8, 16, 32, 64, 128, 256, 1024)
_ALIKE = (0.115, 0.112, 0.109, 0.108, 0.104, 0.0976, 0.0901, 0.0836, 0.0789)
"""Probability that two positions of a window of so many characters hold the same one, over 4000 of
the prose."""
_VARIED = (0.0604, 0.0568, 0.0458, 0.0354, 0.0243, 0.0148, 0.006, 0.0035, 0.0022)
"""Covariance over such windows of how often two of their characters are the same, and two of those
that follow."""
_FOLLOWED = (0.0, 0.0, 0.0037, 0.0084, 0.0127, 0.0158, 0.0173, 0.0162, 0.013)
"""The rest of what two characters of a window and the two that follow are the same together beyond
chance."""


def spread(config: Config, q: Any) -> Any:
    """Standard deviation of the readout's logits of outputs of a second moment, before a final norm
    that divides."""
    final = config.design.final_norm and not config.design.point
    return (
        config.d_model
        * config.design.readout_variance
        * (q / (q + config.norm_epsilon) if final else q)
    ) ** 0.5


def recognized(config: Config, s: float, own: float) -> tuple[float, float]:
    """E P and E P²: P the probability of the token's own character, a part `own` of the output, by
    a tied readout.

    Its logit has the mean √(own d) s, and the others 0, all the deviation s.
    """
    top = highest(VOCABULARY)
    others = math.log(VOCABULARY - 1) + s * s / 2 + float(log_ndtr(top - s) - log_ndtr(top))
    p = expit(s * (math.sqrt(own * config.d_model) + NODES) - others)
    return float(WEIGHTS @ p), float(WEIGHTS @ p**2)


def softened(logits: Any, height: float) -> Any:
    """Logits after a soft cap of some height; without one (0) as they are."""
    return height * np.tanh(logits / height) if height else logits


def after_cap(s: Array, mean: Array, height: float) -> tuple[Array, Array]:
    """Nodes and weights, `[logit, node]`, of averages over logits N(mean, s²) after a soft cap of
    some height."""
    bent, weight = squashed(np.maximum(s, TINY) / height, mean / height, REACH)
    return height * bent, weight


def log_sum(n: int, s: float, height: float = 0.0) -> float:
    """E ln Σ e^z over n independent logits z of N(0, s²), in nats: ln n + s²/2 − (e^s² − 1) / 2n
    where n is large.

    With a soft cap of some height, z are those logits after it.

    Exact for any s: E ln X = ∫ e^(−e^u) − E e^(−X e^u) du, and X is a sum of n independent terms.
    Where s is beyond √(2 ln n) the largest logit is most of it, and it grows as s √(2 ln n), slower
    than s²/2 (Derrida 1981).

    Raises:
        ValueError: there is no logit, or s is negative or not finite.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    if not 0 <= s < math.inf:
        raise ValueError(f"s must be a finite number from 0 on; got {s}")
    most = math.log(n) + min(s * s / 2, s * math.sqrt(2 * math.log(n)) + 6 * s)
    u, z = np.linspace(-most - 16, 5 + 6 * s, 1200)[:, None], np.linspace(-8.5, 8.5, 801)
    weight = normal_weights(z)
    missing = -np.expm1(-np.exp(np.minimum(u + softened(s * z, height), 50.0))) @ weight
    every = np.exp(n * np.log1p(-np.minimum(missing, 1 - 1e-16)))
    return float(np.trapezoid(np.exp(-np.exp(np.minimum(u[:, 0], 50.0))) - every, u[:, 0]))


def cross_entropy(config: Config, q: float, own: float = 0.0) -> float:
    """Expected cross-entropy of the next character, for outputs of second moment q, of which a part
    is their own.

    Logits are N(0, s²) and do not depend on the target: E ln Σ e^z. A tied readout gives the
    token's own character the logit N(√(own d) s, s²), see `recognized`; that is the target where a
    character is repeated."""
    s, height = spread(config, q), config.output_cap
    if not own:
        return log_sum(VOCABULARY, s, height)
    others = log_sum(VOCABULARY - 1, s, height)
    itself, weight = s * (math.sqrt(own * config.d_model) + NODES), WEIGHTS
    if height:
        logit = np.array([s])
        itself, weight = (
            part[0] for part in after_cap(logit, logit * math.sqrt(own * config.d_model), height)
        )
    return float(weight @ (np.logaddexp(itself, others) - REPEATED * itself))


def coincidence(n: int) -> float:
    """Probability that two characters of a window of n are the same."""
    return _at(n, _ALIKE)


def repeated(sentence: str) -> float:
    """Share of the pairs of characters of a sentence that are the same one."""
    pairs = sum(count * (count - 1) for count in Counter(sentence).values())
    return pairs / (len(sentence) * (len(sentence) - 1))


def followings(n: int) -> tuple[float, float]:
    """Covariance, in a window of n, of two characters' being the same and the two next ones': by
    pairs, by windows."""
    return _at(n, _FOLLOWED), _at(n, _VARIED)


def _at(n: int, table: tuple[float, ...]) -> float:
    return float(np.interp(math.log(n), np.log(_DISTANCE), table))


def embedding(config: Config) -> Tokens:
    """The tokens before the first layer: Gaussian coordinates of the config's second moment.

    Over d of them a product of two tokens scatters by 1/d, and a square by 2/d. Of text the pairs
    of one character, the share `same`, overlap by ½ more than the others: the variance of a coin of
    that weight, times ¼. Where all are one character and no position tells them apart, nothing is
    left that scatters beyond chance."""
    d, q, part = config.d_model, config.input_second_moment, config.design.token_part
    # (E[character] + P[position]) / √2: characters repeat, positions do not
    if config.design.reads_text:
        same = (
            repeated(config.design.sentence)
            if config.design.sentence
            else coincidence(config.n_ctx)
        )
        p = same * part
        scatter = 1 / d
        if p < 1:
            scatter = (same * (1 - same) * part**2 + 1 / d) / (1 - p) ** 2
        return Tokens(q, q * p, scatter, 2 / d)
    return Tokens(q, q * part * INPUTS[config.input].overlap(config), 1 / d, 2 / d)


def own_share(config: Config, steps: Sequence[Any]) -> float:
    """Part of an output's second moment that is its own character's, where that tells: under a tied
    readout."""
    return (
        config.design.token_part * math.prod(step.kept for step in steps)
        if config.design.tied
        else 0.0
    )


class Start(NamedTuple):
    """The gradient by the output."""

    square: float
    """Mean square a coordinate; the others are overlaps of two tokens' gradients, over it."""
    overlap: float = 0.0
    target: float = 0.0
    """Excess where they have one target."""
    character: float = 0.0
    """Excess where they are one character, over that."""


def loss_gradient(config: Config, output: Tokens, alike: float, own: float = 0.0) -> Start:
    """The gradient by the output; `alike` is how often two tokens have one target, or are one
    character.

    `output` is before a final norm that divides, but after a function in its place. Linear loss:
    independent Gaussian directions. Cross-entropy of the next character: Uᵀ(p − y)/(B n) with p the
    softmax of logits z of the output's second moment times the readout's gain, 1 but under μP. As p
    leans to where z is large, E Uᵀp = gain · output · (1 − Σp²) / d: what points along the output,
    unless a norm stands there, is more than one direction's part.

    A tied readout gives the token's own character, a part `own` of the output, the probability P,
    see `recognized`; the others share 1 − P as before. A soft cap multiplies the gradient by a
    logit by the cap's slope there, which is independent of the target; `coverage` withdraws what
    follows where the logits come near the cap."""
    tokens = config.batch_size * config.n_ctx
    if not config.design.predicts_text:
        return Start(1 / (tokens * config.d_model))
    final = config.design.final_norm and not config.design.point
    gain, s = config.d_model * config.design.readout_variance, spread(config, output.q)
    if config.output_cap:
        capped, weight = after_cap(np.array([s]), np.zeros(1), config.output_cap)
        gain *= float((weight * (1 - (capped / config.output_cap) ** 2) ** 2).sum())
        s = cap(s, 0.0, config.output_cap, VOCABULARY).s
    rows = softmax(VOCABULARY, config.d_model, False)
    rho = max(output.rho, 0.0)
    y2, y11 = (
        float(part)
        for part in (rows.rows(np.array(s)).square, rows.overlap(np.array(s), np.array(rho)))
    )
    even, along = 2 / VOCABULARY, 0.0 if final else (s * (1 - y2)) ** 2 / config.d_model
    same, cross = y2 - even + 1 + along, y11 - even + alike + along * rho
    p2 = 0.0
    if own:
        p, p2 = recognized(config, s, own)
        rest = (1 - p) / (VOCABULARY - 1)
        same = p2 * (1 - own * final) + (1 - 2 * p + p2) * y2 + 1 + along
        same -= 2 * (p * REPEATED + rest * (1 - REPEATED))
        cross = (
            p * p * alike + 2 * p * rest * (1 - alike) + (1 - p) ** 2 * y11 + alike + along * rho
        )
        cross -= 2 * (p * alike + rest * (1 - alike))
    return Start(gain * same / (config.d_model * tokens**2), cross / same, 1 / same, p2)
