"""Why a picture looks as it does: a line with the recursion or law, the lab that explains it, and the paper."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Why(NamedTuple):
    """What stands below a caption."""

    words: str = ""
    """One line."""
    lab: str = ""
    """Name of the lab that explains it, a key of `labs.table.LABS`; empty in that lab itself."""
    source: str = ""
    """Author and year, as `glossary.papers` has them."""


WHYS: Mapping[str, Why] = MappingProxyType({
    "second_moment": Why(
        "Each branch adds its own: q_l = q_(l−1) + α² E F². A norm on the sum resets it to 1.", "07_residual",
        "Xiong et al. 2020"),
    "activation_gradient": Why(
        "On its way back each Pre-LN branch adds its own: γ_(l−1) = γ_l (1 + α² χ / q_(l−1)).", "09_norm_placement",
        "Xiong et al. 2020"),
    "attention_entropy_normalized": Why(
        "Wider logits sharpen the softmax: H ≈ ln n − s²/2 at small spread s, one-hot beyond s ≈ √(2 ln n).",
        "06_attention_scale", "Zhai et al. 2023"),
    "token_correlation": Why(
        "Attention averages away what differs, q (1 − ρ), and keeps what tokens share, q ρ.", "13_gated_mlp_and_rotary",
        "Dong et al. 2021"),
    "parameter_gradient": Why(
        "‖∂L/∂W‖² grows with the q that W reads and with the γ of what it makes.", "09_norm_placement",
        "Xiong et al. 2020"),
    "attention_pattern": Why(
        "At logit spread 0 each key has 1/n. The wider the logits, the fewer keys take all.", "06_attention_scale",
        "Vaswani et al. 2017"),
    "max_abs": Why(
        "The largest of M normal coordinates is near √(2 q ln M). More is an outlier.", "02_second_moment",
        "He et al. 2024"),
    "kurtosis": Why("Normal features are alike; outliers come with training.", "", "He et al. 2024"),
    "logit_std": Why(
        "Spread² = g_Q g_K q (q − p), g = fan_in · Var W; without √d it is d_head times as large.",
        "06_attention_scale", "Vaswani et al. 2017"),
    "attention_max": Why(
        "1/n at logit spread 0; near 1 once the spread is beyond √(2 ln n).", "06_attention_scale", "Zhai et al. 2023"),
    "weight_variance": Why(
        "A matrix multiplies the second moment by fan_in · Var W.", "02_second_moment", "He et al. 2015, eq. 10"),
    "training_loss": Why(
        "ΔL ≈ −η‖∇L‖² only while steps are short: warm-up begins with short ones.", "11_warmup", "Xiong et al. 2020"),
    "gradient_ratio": Why(
        "The product over layers of what each passes back: even where 1 + α² χ / q_l stays near 1.",
        "09_norm_placement", "Xiong et al. 2020"),
    "learning_rate": Why(
        "η t / T up to step T: short steps while the gradients are largest.", "11_warmup", "Xiong et al. 2020"),
    "update_ratio": Why(
        "Adam moves each weight by about η, whatever its gradient.", "05_parametrization", "Kingma & Ba 2014"),
    "alpha": Why("Learned from 0: each branch joins gradually.", "12_alpha_schedule", "Bachlechner et al. 2020"),
})
"""By statistic, or by the name of a figure that shows none: one declaration for all pages."""
ALIASES: Mapping[str, str] = MappingProxyType({
    "weight_gradient": "parameter_gradient", "stream_gradient": "activation_gradient",
    "attention_entropy": "attention_entropy_normalized", "alpha_attention": "alpha", "alpha_mlp": "alpha",
})
"""Names that a race's maps have for the same."""


def why(name: str) -> Why:
    """The line of a statistic or figure; an empty one where there is none."""
    return WHYS.get(ALIASES.get(name, name), Why())
