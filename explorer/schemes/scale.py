"""Scale rules: the variance of a weight matrix from its shape. Plain numbers, for the model and the theory alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from explorer.fields import Option
from explorer.schemes import Experiment
from explorer.schemes.attention import attends, gates
from explorer.schemes.data import READOUTS
from explorer.schemes.mlp import readers
from explorer.schemes.parametrization import factors, scales_forward
from explorer.schemes.position import own_part
from explorer.schemes.residual import LAST, multipliers

if TYPE_CHECKING:
    from explorer.config import Config

PACKED = ("W_Q", "W_K", "W_V")
"""torch keeps these three as one matrix, of 3d rows with as many key-value heads as heads, and scales them as such."""
FIXED = 0.02
"""The standard deviation of BERT and GPT-2."""


@dataclass(frozen=True, kw_only=True)
class Biased(Option):
    """The matrices whose products have biases, where biases are drawn."""

    attention: bool = False
    """Whether attention's matrices have biases, beside the MLP's."""


BIASES: dict[str, Biased] = {
    "mlp": Biased("the MLP's matrices", "torch.nn.TransformerEncoderLayer, whose attention's biases start at 0"),
    "all": Biased("all matrices of the layers", "nn.Linear everywhere", attention=True),
}


@dataclass(frozen=True, kw_only=True)
class ScaleRule(Option):
    """`variance(config, matrix, fan_in, fan_out)` of the entries of one matrix."""

    variance: Callable[[Experiment, str, int, int], float]
    shrinks_last: bool = False
    """W_O and W_out are drawn smaller by the depth, so that no residual rule needs to."""


SCALE_RULES: dict[str, ScaleRule] = {
    "lecun": ScaleRule(
        "1 / fan_in", "LeCun et al. 1998", variance=lambda config, matrix, fan_in, fan_out: 1 / fan_in
    ),
    "xavier": ScaleRule(
        "2 / (fan_in + fan_out)", "Glorot & Bengio 2010",
        variance=lambda config, matrix, fan_in, fan_out: 2 / (fan_in + fan_out),
    ),
    "he": ScaleRule(
        "2 / fan_in", "He et al. 2015, eq. 10", variance=lambda config, matrix, fan_in, fan_out: 2 / fan_in
    ),
    "fan_out": ScaleRule(
        "1 / fan_out", "He et al. 2015, backward form, eq. 14 without the ½",
        variance=lambda config, matrix, fan_in, fan_out: 1 / fan_out,
    ),
    "bert": ScaleRule(
        "0.02², whatever the shape", "BERT: Devlin et al. 2018",
        variance=lambda config, matrix, fan_in, fan_out: FIXED**2,
    ),
    "gpt2": ScaleRule(
        "0.02²; W_O, W_out: 0.02² / (2N)", "GPT-2: Radford et al. 2019, section 2.3",
        variance=lambda config, matrix, fan_in, fan_out: FIXED**2 / (2 * config.n_layers if matrix in LAST else 1),
        shrinks_last=True,
    ),
    "t5": ScaleRule(
        "1 / fan_in; W_Q: 1 / (d d_head), so no √d divisor", "T5: Raffel et al. 2020, as in their code",
        variance=lambda config, matrix, fan_in, fan_out: 1 / (fan_in * (config.d_head if matrix == "W_Q" else 1)),
    ),
    "torch_transformer": ScaleRule(
        "2 / (fan_in + fan_out); Q, K, V: 1 / (2 d)", "torch.nn.Transformer, which draws all of its layers again",
        # xavier_uniform_ on every matrix, and on the packed projection
        variance=lambda config, matrix, fan_in, fan_out: 2 / (fan_in + (3 if matrix in PACKED else 1) * fan_out),
    ),
    "torch_default": ScaleRule(
        "1 / (3 fan_in); Q, K, V: 1 / (2 d)",
        "torch.nn.TransformerEncoderLayer; nn.TransformerEncoder differs: it copies one layer",
        # xavier_uniform_ on the packed projection, kaiming_uniform_(a=√5) elsewhere
        variance=lambda config, matrix, fan_in, fan_out: (
            2 / (fan_in + (config.n_heads + 2 * config.kv_heads) * config.d_head) if matrix in PACKED
            else 1 / (3 * fan_in)
        ),
    ),
}


def shapes(config: Config) -> dict[str, tuple[int, int]]:
    """`(fan_in, fan_out)` of each weight matrix of a layer, in the order of the forward pass."""
    d, d_mlp, attention = config.d_model, config.d_mlp, {}
    if attends(config):
        queries, keys = config.n_heads * config.d_head, config.kv_heads * config.d_head
        attention = {"W_Q": (d, queries), "W_K": (d, keys), "W_V": (d, keys), "W_G": (d, gates(config)),
                     "W_O": (queries, d)}
        if not gates(config):
            del attention["W_G"]
    return {**attention, **dict.fromkeys(readers(config), (d, d_mlp)), "W_out": (d_mlp, d)}


def variances(config: Config) -> dict[str, float]:
    """Variance of the entries of each weight matrix: scale rule × init variances × the residual rule's factor².

    `fan_in · variance` is the gain g of the theory's recursions: the factor on the second moment.
    """
    rule = SCALE_RULES[config.scale_rule].variance
    drawn, mlp = multipliers(config).drawn, (*readers(config), "W_out")
    return {
        matrix: config.init_variance * (config.mlp_variance if matrix in mlp else config.attention_variance)
        * rule(config, matrix, *shape) * drawn.get(matrix, 1.0) ** 2
        for matrix, shape in shapes(config).items()
    }


def biases(config: Config) -> dict[str, float]:
    """Variance of the biases added to what a matrix makes, by the matrix; none where they are 0."""
    every = shapes(config)
    names = every if BIASES[config.biases].attention else (*readers(config), LAST[1])
    return {name: config.bias_variance / every[name][0] for name in names} if config.bias_variance else {}


class Spreads(NamedTuple):
    """The two places of σ, by matrix; in the other place stands 1."""

    stored: Mapping[str, float]
    """Standard deviation of the entries of the stored weights."""
    forward: Mapping[str, float]
    """Factor on the product in the forward pass."""


@lru_cache(maxsize=32)
def spreads(config: Config) -> Spreads:
    """Where the config's parametrization has the standard deviation of each matrix."""
    sigma = {name: math.sqrt(variance) for name, variance in variances(config).items()}
    ones = dict.fromkeys(sigma, 1.0)
    return Spreads(ones, sigma) if scales_forward(config) else Spreads(sigma, ones)


def readout_variance(config: Config) -> float:
    """Variance of the entries of W_U: that of its row, and once more by the width under μP."""
    character = config.input_second_moment * own_part(config)
    return factors(config, "variance")["output"] * READOUTS[config.readout].variance(config.d_model, character)
