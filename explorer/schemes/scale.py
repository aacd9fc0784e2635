"""Scale rules: the variance of a weight matrix from its shape. Plain numbers, for the model and the
theory alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from explorer.fields import Option
from explorer.schemes.residual import LAST

if TYPE_CHECKING:
    from explorer.settings import Settings

PACKED = ("W_Q", "W_K", "W_V")
"""torch keeps these three as one matrix, of 3d rows with as many key-value heads as heads, and
scales them as such."""
FIXED = 0.02
"""The standard deviation of BERT and GPT-2."""


@dataclass(frozen=True, kw_only=True)
class Biased(Option):
    """The matrices whose products have biases, where biases are drawn."""

    attention: bool = False
    """Whether attention's matrices have biases, beside the MLP's."""


BIASES: dict[str, Biased] = {
    "mlp": Biased(
        "the MLP's matrices",
        "torch.nn.TransformerEncoderLayer, whose attention's biases start at 0",
    ),
    "all": Biased("all matrices of the layers", "nn.Linear everywhere", attention=True),
}


@dataclass(frozen=True, kw_only=True)
class ScaleRule(Option):
    """`variance(config, matrix, fan_in, fan_out)` of the entries of one matrix."""

    variance: Callable[[Settings, str, int, int], float]
    last: Callable[[int], float] | None = None
    """One more factor on the variance of W_O and W_out, from the layer, 1 … N; None where all
    layers have the same."""
    shrinks_last: bool = False
    """W_O and W_out are drawn smaller by the depth, so that no residual rule needs to."""


SCALE_RULES: dict[str, ScaleRule] = {
    "lecun": ScaleRule(
        "1 / fan_in",
        "LeCun et al. 1998",
        variance=lambda config, matrix, fan_in, fan_out: 1 / fan_in,
    ),
    "xavier": ScaleRule(
        "2 / (fan_in + fan_out)",
        "Glorot & Bengio 2010",
        variance=lambda config, matrix, fan_in, fan_out: 2 / (fan_in + fan_out),
    ),
    "he": ScaleRule(
        "2 / fan_in",
        "He et al. 2015, eq. 10",
        variance=lambda config, matrix, fan_in, fan_out: 2 / fan_in,
    ),
    "fan_out": ScaleRule(
        "1 / fan_out",
        "He et al. 2015, backward form, eq. 14 without the ½",
        variance=lambda config, matrix, fan_in, fan_out: 1 / fan_out,
    ),
    "bert": ScaleRule(
        "0.02², whatever the shape",
        "BERT: Devlin et al. 2018",
        variance=lambda config, matrix, fan_in, fan_out: FIXED**2,
    ),
    "gpt2": ScaleRule(
        "0.02²; W_O, W_out: 0.02² / (2N)",
        "GPT-2: Radford et al. 2019, section 2.3",
        variance=lambda config, matrix, fan_in, fan_out: (
            FIXED**2 / (2 * config.n_layers if matrix in LAST else 1)
        ),
        shrinks_last=True,
    ),
    "mitchell": ScaleRule(
        "1 / fan_in; W_O, W_out: 1 / (2 l fan_in) in layer l",
        "OLMo's code, where it is cut off at ±3σ",
        variance=lambda config, matrix, fan_in, fan_out: 1 / fan_in,
        last=lambda layer: 0.5 / layer,
        shrinks_last=True,
    ),
    "torchtitan": ScaleRule(
        "0.02²; W_O, W_out: 0.02² / (2 l) in layer l",
        "torchtitan, which draws a gated MLP's W_in so, too",
        variance=lambda config, matrix, fan_in, fan_out: FIXED**2,
        last=lambda layer: 0.5 / layer,
        shrinks_last=True,
    ),
    "t5": ScaleRule(
        "1 / fan_in; W_Q: 1 / (d d_head), so no √d divisor",
        "T5: Raffel et al. 2020, as in their code",
        variance=lambda config, matrix, fan_in, fan_out: (
            1 / (fan_in * (config.d_head if matrix == "W_Q" else 1))
        ),
    ),
    "torch_transformer": ScaleRule(
        "2 / (fan_in + fan_out); Q, K, V: 1 / (2 d)",
        "torch.nn.Transformer, which draws all of its layers again",
        # xavier_uniform_ on every matrix, and on the packed projection
        variance=lambda config, matrix, fan_in, fan_out: (
            2 / (fan_in + (3 if matrix in PACKED else 1) * fan_out)
        ),
    ),
    "torch_default": ScaleRule(
        "1 / (3 fan_in); Q, K, V: 1 / (2 d)",
        "torch.nn.TransformerEncoderLayer; nn.TransformerEncoder differs: it copies one layer",
        # xavier_uniform_ on the packed projection, kaiming_uniform_(a=√5) elsewhere
        variance=lambda config, matrix, fan_in, fan_out: (
            2 / (fan_in + (config.n_heads + 2 * config.kv_heads) * config.d_head)
            if matrix in PACKED
            else 1 / (3 * fan_in)
        ),
    ),
}
