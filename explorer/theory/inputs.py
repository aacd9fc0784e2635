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
from explorer.schemes.data import INPUTS
from explorer.theory.gaussian import REACH, normal_weights
from explorer.theory.logits import NODES, WEIGHTS, cap, squashed
from explorer.theory.tables import highest, softmax
from explorer.theory.tokens import Tokens
from explorer.vocabulary import Array

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
_WINDOW = (2, 4, 8, 16, 32, 64, 128, 256, 1024)
_ALIKE = (0.115, 0.112, 0.109, 0.108, 0.104, 0.0976, 0.0901, 0.0836, 0.0789)
"""Probability that two positions of a window of `_WINDOW` characters hold the same one, measured
over 4000 windows of the prose; so are the next two."""
_VARIED = (0.0604, 0.0568, 0.0458, 0.0354, 0.0243, 0.0148, 0.006, 0.0035, 0.0022)
"""Covariance over such windows of how often two of their characters are the same, and two of those
that follow."""
_FOLLOWED = (0.0, 0.0, 0.0037, 0.0084, 0.0127, 0.0158, 0.0173, 0.0162, 0.013)
"""The rest of what two characters of a window and the two that follow are the same together beyond
chance."""


def spread(config: Config, q: Any) -> Any:
    """Standard deviation √(d · v · q) of the readout's logits, for a readout of entries N(0, v).

    Args:
        q: second moment of the outputs, a number or an array. A final norm makes it q / (q + ε),
            about 1; a function in the norms' place (`design.point`) does not divide.
    """
    if config.design.final_norm and not config.design.point:
        q = q / (q + config.norm_epsilon)
    variance: Any = config.d_model * config.design.readout_variance * q
    return variance**0.5


def recognized(config: Config, s: float, own: float) -> tuple[float, float]:
    """E P and E P² of the probability P that a tied readout gives to the token's own character.

    Its logit has the mean √(own d) s, those of the other characters have the mean 0. ln Σ e^z over
    the others is ln (V − 1) + s²/2, less what lies beyond the highest of V logits.

    Args:
        s: standard deviation of all logits.
        own: part of the output's second moment that is the token's own character's.
    """
    top = highest(VOCABULARY)
    beyond = float(log_ndtr(top - s) - log_ndtr(top))
    others = math.log(VOCABULARY - 1) + s * s / 2 + beyond
    p = expit(s * (math.sqrt(own * config.d_model) + NODES) - others)
    return float(WEIGHTS @ p), float(WEIGHTS @ p**2)


def softened(logits: Any, height: float) -> Any:
    """Logits after a soft cap of some height; without one (0) as they are."""
    return height * np.tanh(logits / height) if height else logits


def after_cap(s: Array, mean: Array, height: float) -> tuple[Array, Array]:
    """Values of logits N(mean, s²) after a soft cap and their weights, `[logit, node]` each, of `s`
    and `mean` as `[logit]` and a cap of some height above 0."""
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
    log_x = math.log(n) + min(s * s / 2, s * math.sqrt(2 * math.log(n)) + 6 * s)  # most of ln X
    u = np.linspace(-log_x - 16, 5 + 6 * s, 1200)
    z = np.linspace(-8.5, 8.5, 801)
    log_terms = np.minimum(u[:, None] + softened(s * z, height), 50.0)
    # 1 − E e^(−e^(u + z)) of one term; then E e^(−X e^u) of all n
    missing = -np.expm1(-np.exp(log_terms)) @ normal_weights(z)
    every = np.exp(n * np.log1p(-np.minimum(missing, 1 - 1e-16)))
    integrand = np.exp(-np.exp(np.minimum(u, 50.0))) - every
    return float(np.trapezoid(integrand, u))


def cross_entropy(config: Config, q: float, own: float = 0.0) -> float:
    """Expected cross-entropy of the next character, in nats.

    Logits z are N(0, s²) and do not depend on the target: E ln Σ e^z, for the target's z is 0 in
    the mean. A tied readout gives the token's own character the logit N(√(own d) s, s²), see
    `recognized`. That is the target's logit where a character follows itself, with the probability
    `REPEATED`. Of the V − 1 other characters ln Σ e^z enters by its mean, without its scatter.

    Args:
        q: second moment of the outputs.
        own: part of it that is the token's own character's, under a tied readout.
    """
    s, height = spread(config, q), config.output_cap
    if not own:
        return log_sum(VOCABULARY, s, height)
    others = log_sum(VOCABULARY - 1, s, height)
    mean = math.sqrt(own * config.d_model) * s
    # nodes and weights of the own character's logit, a normal variable
    if height:
        values, weights = after_cap(np.array([s]), np.array([mean]), height)
        logit, weight = values[0], weights[0]
    else:
        logit, weight = mean + s * NODES, WEIGHTS
    loss = np.logaddexp(logit, others) - REPEATED * logit
    return float(weight @ loss)


def coincidence(n: int) -> float:
    """Probability that two characters of a window of n are the same."""
    return _at(n, _ALIKE)


def repeated(sentence: str) -> float:
    """Share of the pairs of characters of a sentence that are the same one."""
    pairs = sum(count * (count - 1) for count in Counter(sentence).values())
    return pairs / (len(sentence) * (len(sentence) - 1))


def followings(n: int) -> tuple[float, float]:
    """Covariance of two events in a window of n characters: two of them are the same, and the two
    that follow them are.

    Returns:
        the part within windows, from pair to pair; and the part between windows.
    """
    return _at(n, _FOLLOWED), _at(n, _VARIED)


def _at(n: int, table: tuple[float, ...]) -> float:
    """A table over `_WINDOW` at a window of n characters, linear in ln n."""
    return float(np.interp(math.log(n), np.log(_WINDOW), table))


def embedding(config: Config) -> Tokens:
    """The tokens before the first layer: Gaussian coordinates of the config's second moment.

    Over d of them an overlap of two tokens scatters by 1/d, and a square by 2/d. Of text the pairs
    of one character, the share `same`, overlap by `part` · q and the others by 0, which adds the
    variance same (1 − same) part². With p in units of q, v = (same (1 − same) part² + 1/d) / (1 −
    p)². Where all are one character and no position tells them apart (p = 1), nothing is left that
    scatters beyond chance."""
    d, q, part = config.d_model, config.input_second_moment, config.design.token_part
    if not config.design.reads_text:
        return Tokens(q, q * part * INPUTS[config.input].overlap(config), 1 / d, 2 / d)
    # (E[character] + P[position]) / √2: characters repeat, positions do not
    sentence = config.design.sentence
    same = repeated(sentence) if sentence else coincidence(config.n_ctx)
    p = same * part
    v = 1 / d
    if p < 1:
        v = (same * (1 - same) * part**2 + 1 / d) / (1 - p) ** 2
    return Tokens(q, q * p, v, 2 / d)


def own_share(config: Config, steps: Sequence[Any]) -> float:
    """Part of an output's second moment that is its own character's, under a tied readout; else 0,
    for nothing depends on it.

    It is the character's part of the embedded token, the rest being its position's, times what each
    sublayer keeps of the stream.

    Args:
        steps: the sublayers, `forward.Step`; `kept` is the stream's part of a sum's second moment.
    """
    if not config.design.tied:
        return 0.0
    return float(config.design.token_part * math.prod(step.kept for step in steps))


class Start(NamedTuple):
    """The loss gradient by the output, a coordinate; the overlaps of two tokens' gradients are
    relative to `square`."""

    square: float
    """Mean square."""
    overlap: float = 0.0
    """Mean overlap of two tokens."""
    target: float = 0.0
    """Excess of the overlap where two tokens have the same target."""
    character: float = 0.0
    """Excess where two tokens are the same character, over `target`."""


def loss_gradient(config: Config, output: Tokens, alike: float, own: float = 0.0) -> Start:
    """The loss gradient by the output, of a mean over B n tokens.

    Linear loss: independent Gaussian directions. Cross-entropy of the next character: Uᵀ(p − y)/(B
    n), with U the readout, p the softmax of the logits and y the target. In units of the readout's
    gain / d, with V characters and p of one token and p′ of another:

        square   E Σ(p − y)² = Y2 − 2/V + 1
        overlap  E Σ(p − y)(p′ − y′) = Y11 − 2/V + P(y = y′)

    p leans to where z is large, so that E Uᵀp = gain · output · (1 − Σp²) / d points along the
    output: more than one direction's part, unless a norm there removes it. A soft cap multiplies
    the gradient by a logit by the cap's slope there, which is independent of the target; `coverage`
    withdraws what follows where the logits come near the cap.

    Args:
        output: the tokens before a final norm that divides, but after a function in its place.
        alike: probability that two tokens have one target, or are one character.
        own: part of the output that is the token's own character's, under a tied readout.
    """
    tokens = config.batch_size * config.n_ctx
    if not config.design.predicts_text:
        return Start(1 / (tokens * config.d_model))
    final = config.design.final_norm and not config.design.point
    gain, s = config.d_model * config.design.readout_variance, spread(config, output.q)
    if config.output_cap:
        capped, weight = after_cap(np.array([s]), np.zeros(1), config.output_cap)
        gain *= float((weight * (1 - (capped / config.output_cap) ** 2) ** 2).sum())
        s = cap(s, 0.0, config.output_cap, VOCABULARY).s
    rows, rho = softmax(VOCABULARY, config.d_model, False), max(output.rho, 0.0)
    y2 = float(rows.rows(np.array(s)).square)
    y11 = float(rows.overlap(np.array(s), np.array(rho)))
    along = 0.0 if final else (s * (1 - y2)) ** 2 / config.d_model
    p2 = 0.0
    if own:
        p, p2 = recognized(config, s, own)
        square, overlap = _tied(p, p2, y2, y11, alike)
        square -= p2 * own * final  # of the own character's direction the norm removes this part
    else:
        square, overlap = y2 - 2 / VOCABULARY + 1, y11 - 2 / VOCABULARY + alike
    square, overlap = square + along, overlap + along * rho
    return Start(gain * square / (config.d_model * tokens**2), overlap / square, 1 / square, p2)


def _tied(p: float, p2: float, y2: float, y11: float, alike: float) -> tuple[float, float]:
    """`square` and `overlap` of `loss_gradient` under a tied readout: the token's own character has
    the probability P, and the V − 1 others share 1 − P as without tying.

    Args:
        p: E P, and `p2` E P²; see `recognized`.
        y2: of the softmax over the others, and `y11` of two tokens'.
        alike: probability that two tokens are one character, or have one target.
    """
    rest = (1 - p) / (VOCABULARY - 1)
    square = p2 + (1 - 2 * p + p2) * y2 + 1
    square -= 2 * (p * REPEATED + rest * (1 - REPEATED))  # of the target: p · y
    overlap = p * p * alike + 2 * p * rest * (1 - alike) + (1 - p) ** 2 * y11 + alike
    overlap -= 2 * (p * alike + rest * (1 - alike))
    return square, overlap
