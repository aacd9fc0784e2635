"""Scale rules: the variance of a weight matrix from its shape. Plain numbers, for the model and the theory alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from explorer.config import Config
from explorer.residuals import multipliers

PACKED = ("W_Q", "W_K", "W_V")
"""torch keeps these three as one matrix of 3d rows, and scales them as such."""


class ScaleRule(NamedTuple):
    """`variance(matrix, fan_in, fan_out)` of the entries of one matrix."""

    variance: Callable[[str, int, int], float]
    source: str


SCALE_RULES: Mapping[str, ScaleRule] = MappingProxyType({
    "lecun": ScaleRule(lambda _, fan_in, fan_out: 1 / fan_in, "LeCun et al. 1998"),
    "xavier": ScaleRule(lambda _, fan_in, fan_out: 2 / (fan_in + fan_out), "Glorot & Bengio 2010"),
    "he": ScaleRule(lambda _, fan_in, fan_out: 2 / fan_in, "He et al. 2015, eq. 10"),
    "fan_out": ScaleRule(lambda _, fan_in, fan_out: 1 / fan_out, "He et al. 2015, eq. 14 without the ½"),
    "torch_default": ScaleRule(
        lambda matrix, fan_in, fan_out: 2 / (fan_in + 3 * fan_out) if matrix in PACKED else 1 / (3 * fan_in),
        "torch.nn: xavier_uniform_ on the packed projection, kaiming_uniform_(a=√5) elsewhere",
    ),
})


def shapes(config: Config) -> dict[str, tuple[int, int]]:
    """`(fan_in, fan_out)` of each weight matrix of a layer."""
    d, d_mlp = config.d_model, config.d_mlp
    return {"W_Q": (d, d), "W_K": (d, d), "W_V": (d, d), "W_O": (d, d), "W_in": (d, d_mlp), "W_out": (d_mlp, d)}


def variances(config: Config) -> dict[str, float]:
    """Variance of the entries of each weight matrix: scale rule × init variance × the residual rule's gain².

    `fan_in · variance` is the gain g of THEORY's recursions: the factor on the second moment.
    """
    rule = SCALE_RULES[config.scale_rule].variance
    beta = multipliers(config).beta
    return {
        matrix: config.init_variance * rule(matrix, fan_in, fan_out) * (1.0 if matrix in ("W_Q", "W_K") else beta**2)
        for matrix, (fan_in, fan_out) in shapes(config).items()
    }
