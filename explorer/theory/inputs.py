"""What enters the recursions: the tokens' statistics at the embedding, and the loss gradient's at the output."""

from __future__ import annotations

import math

import numpy as np

from explorer.config import Config
from explorer.schemes.scale import readout_variance
from explorer.theory.forward import Tokens
from explorer.theory.tables import softmax

VOCABULARY = 103
"""Characters of the prose that text inputs are drawn from."""
FREQUENT = 0.0656
"""Σ f² over its characters: how often two far apart are the same."""
_DISTANCE = (2, 4, 8, 16, 32, 64, 128, 256, 1024)
_ALIKE = (0.115, 0.112, 0.109, 0.108, 0.104, 0.0976, 0.0901, 0.0836, 0.0789)
"""How often two different characters of a window of so many are the same, measured over 4000 windows of the prose."""


def coincidence(n: int) -> float:
    """Probability that two characters of a window of n are the same."""
    return float(np.interp(math.log(n), np.log(_DISTANCE), _ALIKE))


def embedding(config: Config) -> Tokens:
    """The tokens before the first layer: unit second moment, Gaussian coordinates."""
    d = config.d_model
    if config.input == "text":  # (E[character] + P[position]) / √2: characters repeat, positions do not
        same = coincidence(config.n_ctx)
        p = same / 2
        scatter = (same * (1 - same) / 4 + 1 / d) / (1 - p) ** 2
        return Tokens(1.0, p, scatter, 2 / d)
    p = config.input_correlation if config.input == "correlated" else 0.0
    return Tokens(1.0, p, 1 / d, 2 / d)


def loss_gradient(config: Config, output: Tokens) -> tuple[float, float]:
    """Mean square of ∂L/∂output a coordinate, and the overlap of two tokens' gradients over it.

    Linear loss: independent Gaussian directions. Cross-entropy of the next character: Uᵀ(p − y)/(B n) with p the
    softmax of logits of the output's second moment times the readout's gain, 1 but under μP.
    """
    tokens = config.batch_size * config.n_ctx
    if config.loss == "linear":
        return 1 / (tokens * config.d_model), 0.0
    final = config.norm_placement in ("pre", "peri")
    gain = config.d_model * readout_variance(config)
    s = math.sqrt(gain * (1.0 if final else output.q))
    rows = softmax(VOCABULARY, config.d_model, False)
    rho = max(output.rho, 0.0)
    y = rows.forward(s, rho)
    even = 2 / VOCABULARY
    same, cross = y.square - even + 1, y.overlap - even + coincidence(config.n_ctx)
    return gain * same / (config.d_model * tokens**2), cross / same
