"""The one question of these tests: does a mean over seeds agree with a prediction, and would it refuse a wrong one?"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from explorer import Config, Profile, measure
from explorer.theory import predict

Array = NDArray[np.float64]
SIGMAS = 4.0
"""Standard errors of the mean that chance may put between a true prediction and what is measured."""


def agrees(found: Array, expected: Array, allowance: float, absolute: bool = False) -> bool:
    """Whether the mean over the first axis is the expected, to `SIGMAS` standard errors plus `allowance` times it.

    The allowance stands for what the theory leaves out, terms of second order in 1/width; it is stated at each use.
    """
    mean, error = found.mean(0), found.std(0, ddof=1) / math.sqrt(len(found))
    scale = 1.0 if absolute else np.abs(expected)
    return bool((np.abs(mean - expected) <= SIGMAS * error + allowance * scale).all())


def both(config: Config) -> tuple[Profile, Profile]:
    """Measured and predicted."""
    return measure(config), predict(config)


def by_layer(measured: Profile, predicted: Profile, statistic: str, site: str) -> tuple[Array, Array]:
    """`[seed, layer]` measured, mean over heads, and `[layer]` predicted; squared where theory predicts the square."""
    found, expected = measured[statistic, site], predicted[statistic, site]
    found = found.mean(-1) if found.ndim == 3 else found
    expected = expected.reshape(expected.shape[1])
    return (found**2, expected**2) if statistic == "parameter_gradient" else (found, expected)
