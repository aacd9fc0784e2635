"""The one question of these tests: does a mean over seeds agree with a prediction, and would it
refuse a wrong one?

And what the tables of designs have in common, which are one test file for each subject.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer import Config, Profile, measure
from explorer.theory import predict
from explorer.vocabulary import STATISTICS

Array = NDArray[np.float64]
SIGMAS = 4.0
"""Standard errors of the mean that chance may put between a true prediction and what is
measured."""

SIZES: dict[str, Any] = {"n_layers": 6, "d_model": 256, "n_heads": 4, "n_ctx": 48, "batch_size": 2}

GATED = {"mlp": "gated"}
SMALL = {"input_second_moment": 8e-4}
NO_NORM = {"norm_placement": "none", "residual": "inverse_sqrt_depth"}
ROTARY = {"position": "rotary"}
ALIBI = {"position": "alibi", "causal": True}
ALIKE: dict[str, Any] = {"input": "correlated", "n_layers": 2, "init_variance": 0.5}

FEW: dict[str, Any] = {**SIZES, "n_layers": 3, "n_ctx": 32, "n_seeds": 6}
"""Of the many designs, each of which is measured for all its statistics: chance adds about as much
as `ALLOWANCE`."""

ALLOWANCE = {
    "second_moment": 0.02,
    "token_correlation": 0.01,
    "logit_std": 0.02,
    "attention_entropy_normalized": 0.005,
    "attention_max": 0.005,
    "max_abs": 0.1,
    "kurtosis": 0.03,
    "activation_gradient": 0.03,
    "parameter_gradient": 0.06,
}
"""What is left out at d = 256, over three to six layers: second order in 1/width, and of the heads'
width 64."""


def agrees(found: Array, expected: Array, allowance: float, absolute: bool = False) -> bool:
    """Whether the mean over the first axis is the expected, to `SIGMAS` standard errors plus
    `allowance` times it.

    The allowance stands for what the theory leaves out, terms of second order in 1/width; it is
    stated at each use."""
    mean, error = found.mean(0), found.std(0, ddof=1) / math.sqrt(len(found))
    scale = 1.0 if absolute else np.abs(expected)
    return bool((np.abs(mean - expected) <= SIGMAS * error + allowance * scale).all())


def both(config: Config) -> tuple[Profile, Profile]:
    """Measured and predicted."""
    return measure(config), predict(config)


def by_layer(
    measured: Profile, predicted: Profile, statistic: str, site: str
) -> tuple[Array, Array]:
    """`[seed, layer]` measured, mean over heads, and `[layer]` of the mean over draws that is
    predicted: of a logarithm of standard deviation s it is e^(s²/2) times a typical draw. Norms of
    gradients are squared, as theory has them."""
    key, power = (statistic, site), 1 + (statistic == "parameter_gradient")
    found = measured[key]
    found = found.mean(-1) if found.ndim == 3 else found
    scatter = power * predicted.scatter.get(key, 0 * predicted[key])
    expected = predicted[key] ** power * np.exp(scatter**2 / 2)
    return found**power, expected.reshape(expected.shape[1])


def holds_everywhere(choices: Mapping[str, Any], loose: Mapping[str, float] | None = None) -> None:
    """Asserts that a design's every statistic that theory vouches for is measured, to `ALLOWANCE`
    or what is looser."""
    measured, predicted = both(Config(**{**FEW, **choices}))
    assert set(predicted.values) == set(measured.values)
    allowance = ALLOWANCE | dict(loose or {})
    for statistic, site in predicted.values:
        if statistic not in ALLOWANCE or (statistic in predicted.notes):
            continue
        found, expected = by_layer(measured, predicted, statistic, site)
        absolute = STATISTICS[statistic].bounded
        assert agrees(found, expected, allowance[statistic], absolute), (
            statistic,
            site,
            found.mean(0),
            expected,
        )
