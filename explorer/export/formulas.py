"""Formulas of the schemes' rows as Python text, over the names of `spelling.sizes`.

A row that is not here, or whose formula does not give the row's number, stands as a number.
"""

from __future__ import annotations

from collections.abc import Mapping

from explorer.schemes.distribution import CUT, CUT_VARIANCE

DEVIATIONS: Mapping[str, str] = {
    "lecun": "fan_in ** -0.5",
    "xavier": "math.sqrt(2 / (fan_in + fan_out))",
    "he": "math.sqrt(2 / fan_in)",
    "fan_out": "fan_out ** -0.5",
    "bert": "0.02",
    "gpt2": "0.02",
    "t5": "fan_in ** -0.5",
    "torch_transformer": "math.sqrt(2 / (fan_in + fan_out))",
    "torch_default": "math.sqrt(1 / (3 * fan_in))",
}
"""By scale rule: the standard deviation of most matrices."""
EXCEPTIONS: Mapping[str, tuple[str, ...]] = {
    "gpt2": ("(2 * N_LAYERS) ** -0.5",),
    "t5": ("D_HEAD ** -0.5",),
    "torch_transformer": tuple(
        f"((D_MODEL + {rows}) / (D_MODEL + 3 * {rows})) ** 0.5"
        for rows in ("N_HEADS * D_HEAD", "N_KV_HEADS * D_HEAD")),
    "torch_default": tuple(
        f"(6 * D_MODEL / (D_MODEL + {rows})) ** 0.5"
        for rows in ("3 * N_HEADS * D_HEAD", "(N_HEADS + 2 * N_KV_HEADS) * D_HEAD")),
}
"""By scale rule: factors on that of other matrices."""
DRAWN: Mapping[str, tuple[str, ...]] = {
    "scaled_init": ("(2 * N_LAYERS) ** -0.5",),
    "fixup": ("(2 * N_LAYERS) ** -0.5", "(2 * N_LAYERS) ** -0.25"),
    "t_fixup": ("0.67 * N_LAYERS ** -0.25",),
    "magneto": ("math.sqrt(math.log(2 * N_LAYERS))",),
    "deepnorm": ("(8 * N_LAYERS) ** -0.25",),
    "deepnorm_encoder": ("0.87 * N_LAYERS ** (-5 / 16)",),
    "deepnorm_decoder": ("(12 * N_LAYERS) ** -0.25",),
}
"""By residual rule: further factors on some matrices."""
SKIPS: Mapping[str, str] = {
    "deepnorm": "(2 * N_LAYERS) ** 0.25",
    "deepnorm_encoder": "0.81 * N_LAYERS ** (5 / 16)",
    "deepnorm_decoder": "(3 * N_LAYERS) ** 0.25",
    "admin": "math.sqrt((2 * N_LAYERS + 1) / math.log(2 * N_LAYERS + 1) - 1)",
    "keel": "2 * N_LAYERS",
}
"""By residual rule or norm placement: the factor on the stream."""
BRANCHES: Mapping[str, str] = {
    "inverse_sqrt_depth": "(2 * N_LAYERS) ** -0.5",
    "inverse_depth": "1 / (2 * N_LAYERS)",
}
"""By residual rule: the factor on a branch."""
WIDENED = CUT_VARIANCE**-0.5
NOISE: Mapping[str, str] = {
    "normal": "torch.randn(fan_out, fan_in)",
    "uniform": "torch.empty(fan_out, fan_in).uniform_(-math.sqrt(3), math.sqrt(3))",
    "truncated_normal": "nn.init.trunc_normal_(torch.empty(fan_out, fan_in), 0.0, "
                        f"{WIDENED:.12g}, {-CUT * WIDENED:.12g}, {CUT * WIDENED:.12g})",
}
"""By distribution: a matrix of unit variance."""
