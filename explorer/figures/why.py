"""Why a picture looks as it does: a line with the recursion or law, the lab that explains it, and the paper.

A law of one design is written from its rows and held against its predicted profile: where that has other numbers, as
with layers that are copies of one, the line stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.numbers import number
from explorer.profile import Array, Profile
from explorer.schemes.attention import attends, divisor, inherits, row_factors, sink
from explorer.schemes.parametrization import scales_forward
from explorer.schemes.placement import Placement, normalizes_heads, placements, point
from explorer.schemes.position import rotates
from explorer.schemes.residual import multipliers, profiles
from explorer.schemes.stream import stream

TOLERANCE = 0.01
"""Relative difference between a predicted number and the one by the law that a line states."""


class Why(NamedTuple):
    """Words, lab and source below a caption."""

    words: str = ""
    """One line."""
    lab: str = ""
    """Name of the lab that explains it, a key of `labs.table.LABS`; empty in that lab itself."""
    source: str = ""
    """Author and year, as `glossary.papers` has them."""


class Step(NamedTuple):
    """One sublayer of a design, as predicted."""

    place: Placement
    skip: float
    """Factor on the stream's second moment; and the next, on the branch's."""
    branch: float
    before: float
    """Second moment of the stream before the sublayer; and the next, after it."""
    after: float
    output: float
    """Second moment of the branch's output, before `branch`."""
    gradient: float
    """Mean squared gradient before the sublayer, over that after it."""

    @property
    def total(self) -> float:
        """Second moment of the sum, before any norm on it."""
        return self.skip * self.before + self.branch * self.output


def _steps(predicted: Profile) -> Iterator[Step]:
    """The sublayers as far as the prediction goes."""
    config = predicted.config or Config()
    q, gradients = (_along(predicted, name) for name in ("second_moment", "activation_gradient"))
    output = np.ravel([predicted.values["second_moment", site][0] for site in ("attn_out", "mlp_out")
                       if ("second_moment", site) in predicted.values], order="F")
    first = 0 if attends(config) else 1
    q, gradients = (line if attends(config) else line[::2] for line in (q, gradients))
    weights = multipliers(config)
    for place, index in enumerate(range(first, 2 * config.n_layers, 1 + first)):
        if np.isfinite(q[place + 1]):
            yield Step(placements(config)[index], weights.skip[index]**2, weights.branch[index]**2, q[place],
                       q[place + 1], output[place], gradients[place] / gradients[place + 1])


def _along(predicted: Profile, statistic: str) -> Array:
    """A statistic along the stream: at the input, and after each sublayer."""
    nothing = np.full((1, (predicted.config or Config()).n_layers), np.nan)
    mid, post = (predicted.values.get((statistic, site), nothing)[0] for site in ("resid_mid", "resid_post"))
    embed = predicted.values.get((statistic, "embed"), nothing[:, :1])[0]
    return np.concatenate([embed, np.ravel([mid, post], order="F")])


def _times(factor: float, symbol: str) -> str:
    return symbol if factor == 1 else f"{number(factor)} {symbol}"


def _second_moment(predicted: Profile) -> str:
    """The law of each sum, or the norms that reset it, where the predicted numbers follow it."""
    steps = list(_steps(predicted))
    reset, free = ([step for step in steps if step.place.on_sum is on_sum] for on_sum in (True, False))
    if not _alike([step.after for step in reset], [1.0] * len(reset)):
        return ""
    laws = {_growth(step) for step in free}
    if len(laws) > 1 or not _alike([step.after for step in free], [step.total for step in free]):
        return ""
    if not free:
        return "The norm on each sum resets q to 1." if steps else ""
    law = laws.pop()
    where = f"Norms reset q to 1 on {len(reset)} of {len(steps)} sums; on the others" if reset else "On each sum"
    return f"{where} {law}."


def _growth(step: Step) -> str:
    if not step.branch * step.output:
        return f"q_l = {_times(step.skip, 'q_(l−1)')}, because the branch starts at 0"
    parts = ([_times(step.skip, "q_(l−1)")] if step.skip else []) + [_times(step.branch, "E F²")]
    return f"q_l = {' + '.join(parts)}, F the branch" + ("" if step.skip else ": there is no residual")


def _alike(predicted: list[float], expected: list[float]) -> bool:
    return bool(np.allclose(predicted, expected, rtol=TOLERANCE, atol=0))


def _activation_gradient(predicted: Profile) -> str:
    """The law of the way back, of designs whose sublayers all have the same."""
    config = predicted.config or Config()
    steps = [step for step in _steps(predicted) if np.isfinite(step.gradient)]
    laws = {_passed(step) for step in steps}
    other = (point(config), inherits(config), config.value_residual, profiles(config), stream(config).parallel,
             stream(config).mixes, any(step.place.on_heads or step.place.on_read for step in steps))
    if len(laws) != 1 or any(other):
        return ""
    least = [step.skip / (step.total if step.place.on_sum else 1.0) for step in steps]  # what the stream alone passes
    starts = all(step.branch * step.output == 0 for step in steps)
    passed = [step.gradient for step in steps]
    follows = _alike(passed, least) if starts else np.all(np.array(passed) >= np.array(least) * (1 - TOLERANCE))
    return f"On the way back {laws.pop()}." if follows else ""


def _passed(step: Step) -> str:
    """Gradient before a sublayer, from that after it."""
    branch = _times(step.branch, "χ / q_(l−1)" if step.place.on_input else "χ") if step.branch * step.output else ""
    factor = " + ".join(filter(None, [number(step.skip) if step.skip else "", branch]))
    factor = {"1": "", "χ": " χ"}.get(factor, f" ({factor})")
    end = " / q, q of the sum before its norm" if step.place.on_sum else ""
    inner = ", χ of branch and norm" if step.place.on_output and branch else ""
    return f"γ_(l−1) = γ_l{factor}{end}{inner}"


def _entropy(predicted: Profile) -> str:
    """Entropy from the logits' spread; a sink's weight leaves the row, and its entropy follows another law."""
    config = predicted.config or Config()
    if not attends(config) or sink(config).logit is not None:
        return ""
    keys, where = ("t", " in row t, which sees t keys") if config.causal else ("n", "")
    return f"Wider logits sharpen the softmax: H ≈ ln {keys} − s²/2{where}, while the spread s is small."


def _largest(predicted: Profile) -> str:
    config = predicted.config or Config()
    if not attends(config) or sink(config).logit is not None:
        return ""
    keys = "1/t in row t" if config.causal else "1/n"
    return f"{keys} at logit spread 0. The wider the logits, the more the largest one takes."


def _pattern(predicted: Profile) -> str:
    return ("At logit spread 0 all keys that a token sees have the same weight. The wider the logits, the fewer keys "
            "take all.") if attends(predicted.config or Config()) else ""


def _correlation(predicted: Profile) -> str:
    """The averaging of attention, where each sum with its output is predicted to be as correlated or more."""
    apart = 1 - _along(predicted, "token_correlation")
    before, after = apart[:-1:2], apart[1::2]
    known = np.isfinite(before) & np.isfinite(after) & (before > TOLERANCE)
    ratio = after[known] / before[known]
    averages = ratio.size and ratio.max() < 1 + 0.1 * TOLERANCE and ratio.min() < 1 - TOLERANCE
    return "Attention averages away what differs, q (1 − ρ), and keeps what tokens share, q ρ." if averages else ""


def _spread(predicted: Profile) -> str:
    """Variance of the logits from what attention reads, where nothing else reaches them."""
    config = predicted.config or Config()
    other = (normalizes_heads(config), config.logit_cap, inherits(config), point(config), rotates(config),
             config.bias_variance, config.causal, set(row_factors(config, config.n_ctx)) != {1.0})
    if not attends(config) or any(other):
        return ""
    factor = config.d_head / divisor(config) ** 2
    end = " Without √d it is d_head times as large." if factor == 1 else ""
    return f"Spread² ≈ {_times(factor, 'g_Q g_K q (q − p)')} of what attention reads, g = fan_in · Var W.{end}"


def _weights(predicted: Profile) -> str:
    return ("" if scales_forward(predicted.config or Config())
            else "A matrix multiplies the second moment by fan_in · Var W.")


LAWS: Mapping[str, Callable[[Profile], str]] = MappingProxyType({
    "second_moment": _second_moment, "activation_gradient": _activation_gradient,
    "attention_entropy_normalized": _entropy, "attention_max": _largest, "attention_pattern": _pattern,
    "token_correlation": _correlation, "logit_std": _spread, "weight_variance": _weights,
})
"""The line of a design, from its predicted profile; empty where none holds."""
WHYS: Mapping[str, Why] = MappingProxyType({
    "second_moment": Why("", "07_residual", "Xiong et al. 2020"),
    "activation_gradient": Why("", "09_norm_placement", "Xiong et al. 2020"),
    "attention_entropy_normalized": Why("", "06_attention_scale", "Zhai et al. 2023"),
    "token_correlation": Why("", "13_gated_mlp_and_rotary", "Dong et al. 2021"),
    "parameter_gradient": Why(
        "‖∂L/∂W‖² grows with the q that W reads and with the γ of what it makes.", "09_norm_placement",
        "Xiong et al. 2020"),
    "attention_pattern": Why("", "06_attention_scale", "Vaswani et al. 2017"),
    "max_abs": Why(
        "The largest of M normal coordinates is near √(2 q ln M). More is an outlier.", "02_second_moment",
        "He et al. 2024"),
    "kurtosis": Why("Normal features are alike; outliers come with training.", "", "He et al. 2024"),
    "logit_std": Why("", "06_attention_scale", "Vaswani et al. 2017"),
    "attention_max": Why("", "06_attention_scale", "Zhai et al. 2023"),
    "weight_variance": Why("", "02_second_moment", "He et al. 2015, eq. 10"),
    "training_loss": Why(
        "ΔL ≈ −η‖∇L‖² only while steps are short: warm-up begins with short ones.", "11_warmup", "Xiong et al. 2020"),
    "gradient_ratio": Why("The product over layers of what each passes back.", "09_norm_placement",
                          "Xiong et al. 2020"),
    "learning_rate": Why("With a warm-up of T steps, step t has η t / T: the first steps are short.", "11_warmup",
                         "Xiong et al. 2020"),
    "update_ratio": Why("Adam moves each weight by about η, whatever its gradient; other optimizers do not.",
                        "05_parametrization", "Kingma & Ba 2014"),
    "alpha": Why("Where α is learned from 0, each branch joins gradually.", "12_alpha_schedule",
                 "Bachlechner et al. 2020"),
})
"""By statistic, or by the name of a figure that shows none: the words, if any, hold for all designs and in training."""
ALIASES: Mapping[str, str] = MappingProxyType({
    "weight_gradient": "parameter_gradient", "stream_gradient": "activation_gradient",
    "attention_entropy": "attention_entropy_normalized", "alpha_attention": "alpha", "alpha_mlp": "alpha",
})
"""Names that a race's maps have for the same."""


def why(name: str, *predicted: Profile) -> Why:
    """The line of a statistic or figure; empty where there is none.

    Args:
        predicted: theory's profiles of the drawn designs; the words are left out where they differ.
    """
    name = ALIASES.get(name, name)
    row, words = WHYS.get(name, Why()), {LAWS[name](profile) for profile in predicted} if name in LAWS else set()
    return row._replace(words=words.pop()) if len(words) == 1 else row
