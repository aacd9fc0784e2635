"""Why a picture looks as it does: a line with the recursion or law, the lesson that derives it, and
the paper.

The sentences stand in `why.toml`. Which law holds for a design is read from its rows and checked
against its predicted profile: where that has other numbers, as with layers that are copies of one
another, the line stays empty."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.numbers import number
from explorer.profile import Array, Profile
from explorer.schemes.placement import Placement

TOLERANCE = 0.01
"""Relative difference between a predicted number and the one by the law that a line states."""


class Why(NamedTuple):
    """Words, lesson and source below a caption."""

    words: str = ""
    """One line."""
    lesson: str = ""
    """Name of the lesson that derives it, a key of `glossary.LESSONS`; empty in that lesson
    itself."""
    source: str = ""
    """Author and year, as `papers.bib` has them."""


class Law(NamedTuple):
    """A sentence of `why.toml` that holds for a design: its key, and the values of its
    placeholders."""

    key: str
    values: Mapping[str, object] = MappingProxyType({})


class Steps(NamedTuple):
    """The sublayers of a design as far as its prediction goes; arrays over them."""

    places: Sequence[Placement]
    reset: Array
    """Whether a norm stands on the sum."""
    silent: Array
    """Whether the branch adds nothing."""
    after: Array
    """Second moment of the stream after the sublayer; and next, by the law of its sum or norm."""
    expected: Array
    gradient: Array
    """Mean squared gradient before the sublayer, over that after it; and next, what the stream
    alone passes."""
    least: Array

    def among(self, chosen: Array) -> Steps:
        """Some of them."""
        return Steps(list(compress(self.places, chosen)), *(values[chosen] for values in self[1:]))

    def law(self, words: Callable[[Placement, bool], tuple[str, str]]) -> tuple[str, str]:
        """The key and formula that all of them have, or none; each kind of sublayer is asked
        once."""
        laws = (
            words(*kind)
            for kind in dict.fromkeys(zip(self.places, self.silent.tolist(), strict=True))
        )
        first = next(laws, ("", ""))
        return first if all(law == first for law in laws) else ("", "")


def _steps(predicted: Profile, config: Config) -> Steps:
    design = config.design
    q, gradients = (
        _along(predicted, name, config) for name in ("second_moment", "activation_gradient")
    )
    output = np.ravel(
        [
            predicted.values["second_moment", site][0]
            for site in ("attn_out", "mlp_out")
            if ("second_moment", site) in predicted.values
        ],
        order="F",
    )
    q, gradients = (line if design.attends else line[::2] for line in (q, gradients))
    places = design.sublayers if design.attends else design.sublayers[1::2]
    skip, branch = (
        np.array([getattr(place, name) for place in places]) ** 2 for name in ("skip", "branch")
    )
    normed = {place.norms: place.has("sum") for place in design.kinds}
    reset, total = (
        np.array([normed[place.norms] for place in places]),
        skip * q[:-1] + branch * output,
    )
    every = Steps(
        places,
        reset,
        branch * output == 0,
        q[1:],
        np.where(reset, 1.0, total),
        gradients[:-1] / gradients[1:],
        skip / np.where(reset, total, 1.0),
    )
    return every.among(np.isfinite(q[1:]))


def _along(predicted: Profile, statistic: str, config: Config) -> Array:
    """A statistic along the stream: at the input, and after each sublayer."""
    nothing = np.full((1, config.n_layers), np.nan)
    mid, post = (
        predicted.values.get((statistic, site), nothing)[0] for site in ("resid_mid", "resid_post")
    )
    embed = predicted.values.get((statistic, "embed"), nothing[:, :1])[0]
    return np.concatenate([embed, np.ravel([mid, post], order="F")])


def _times(factor: float, symbol: str) -> str:
    return symbol if factor == 1 else f"{number(factor)} {symbol}"


def _alike(predicted: Array, expected: Array) -> bool:
    return bool(np.allclose(predicted, expected, rtol=TOLERANCE, atol=0))


def _second_moment(predicted: Profile, config: Config) -> Law | None:
    """The law of each sum, or the norms that reset it, where the predicted numbers follow it."""
    steps = _steps(predicted, config)
    if not steps.places or not _alike(steps.after, steps.expected):
        return None
    if steps.reset.all():
        return Law("norms")
    key, law = steps.among(np.logical_not(steps.reset)).law(_growth)
    reset = int(steps.reset.sum())
    values = {"law": law, "reset": reset, "sums": len(steps.places)}
    return Law(f"{key}_on_others" if reset else key, values) if key else None


def _growth(place: Placement, silent: bool) -> tuple[str, str]:
    """Key of the law of a sum without a norm, and its formula."""
    skip, branch = _times(place.skip**2, "q_(l−1)"), _times(place.branch**2, "E F²")
    if silent:
        return "zero_branch", f"q_l = {skip}"
    return (
        ("adds", f"q_l = {skip} + {branch}") if place.skip else ("no_residual", f"q_l = {branch}")
    )


def _activation_gradient(predicted: Profile, config: Config) -> Law | None:
    """The law of the way back, of designs whose sublayers all have the same."""
    design = config.design
    if (
        design.point
        or design.inherits
        or config.value_residual
        or design.profiled
        or design.stream.parallel
        or design.stream.mixes
        or any(place.has("values", "last", "skip") for place in design.kinds)
    ):
        return None
    steps = _steps(predicted, config)
    steps = steps.among(np.isfinite(steps.gradient))
    follows = (
        _alike(steps.gradient, steps.least)
        if steps.silent.all()
        else np.all(steps.gradient >= steps.least * (1 - TOLERANCE))
    )
    key, law = steps.law(_way_back)
    return Law(key, {"law": law}) if key and follows else None


def _way_back(place: Placement, silent: bool) -> tuple[str, str]:
    """Key and formula of the gradient before a sublayer, from that after it: γ_(l−1) = γ_l (skip² +
    branch² χ), over q where the sum is normalized."""
    terms = [number(place.skip**2)] if place.skip else []
    if not silent:
        gain = "χ / q_(l−1)" if place.has("input") else "χ"
        terms.append(_times(place.branch**2, gain))
    factor = " + ".join(terms)
    if factor == "1":
        factor = ""
    elif factor == "χ":
        factor = " χ"
    else:
        factor = f" ({factor})"
    norms_branch = place.has("output") and not silent
    if place.has("sum"):
        key = "norm_on_both" if norms_branch else "norm_on_sum"
        return key, f"γ_(l−1) = γ_l{factor} / q"
    return "norm_on_branch" if norms_branch else "passes", f"γ_(l−1) = γ_l{factor}"


def _softmax(_: Profile, config: Config) -> Law | None:
    """A law of the logits' spread; with a sink, which takes a part of each row's weight, another
    one holds."""
    known = config.design.attends and config.design.sink.logit is None
    return Law("causal" if config.causal else "all_keys") if known else None


def _correlation(predicted: Profile, config: Config) -> Law | None:
    """The averaging of attention, where each sum with its output is predicted to be as correlated
    or more."""
    apart = 1 - _along(predicted, "token_correlation", config)
    before, after = apart[:-1:2], apart[1::2]
    known = np.isfinite(before) & np.isfinite(after) & (before > TOLERANCE)
    ratio = after[known] / before[known]
    averages = ratio.size and ratio.max() < 1 + 0.1 * TOLERANCE and ratio.min() < 1 - TOLERANCE
    return Law("averages") if averages else None


def _spread(_: Profile, config: Config) -> Law | None:
    """Variance of the logits from what attention reads, where nothing else reaches them."""
    design = config.design
    other = (
        design.normalizes_heads,
        config.logit_cap,
        design.inherits,
        design.point,
        design.rotates,
        config.bias_variance,
        config.causal,
        set(design.row_factors) != {1.0},
    )
    if not design.attends or any(other):
        return None
    factor = config.d_head / design.divisor**2
    return Law(
        "undivided" if factor == 1 else "divided", {"law": _times(factor, "g_Q g_K q (q − p)")}
    )


LAWS: Mapping[str, Callable[[Profile, Config], Law | None]] = MappingProxyType(
    {
        "second_moment": _second_moment,
        "activation_gradient": _activation_gradient,
        "attention_entropy_normalized": _softmax,
        "token_correlation": _correlation,
        "attention_pattern": lambda _, config: Law("sharpens") if config.design.attends else None,
        "logit_std": _spread,
        "attention_max": _softmax,
        "weight_variance": lambda _, config: (
            None if config.design.scales_forward else Law("multiplies")
        ),
    }
)
"""By statistic: the law of a design, from its predicted profile; None where none holds."""
TABLE = tomllib.loads(Path(__file__).with_name("why.toml").read_text(encoding="utf-8"))
SENTENCES: Mapping[str, Mapping[str, str]] = {
    name: row.pop("laws", {}) for name, row in TABLE.items()
}
"""The sentences of each statistic's laws, with placeholders."""
ALIASES: Mapping[str, str] = {
    alias: name for name, row in TABLE.items() for alias in row.pop("aliases", ())
}
"""Names that a race's maps have for the same statistic."""
WHYS: Mapping[str, Why] = {name: Why(**row) for name, row in TABLE.items()}
"""By statistic, or by the name of a figure that shows none: the words, if any, hold for all designs
and in training."""


def why(name: str, *predicted: Profile) -> Why:
    """The line of a statistic or figure; empty where there is none.

    Args:
        predicted: theory's profiles of the drawn designs; the words are left out where they differ.
    """
    name = ALIASES.get(name, name)
    row = WHYS.get(name, Why())
    words = {
        _sentence(name, LAWS[name](profile, profile.config or Config()))
        for profile in predicted
        if name in LAWS
    }
    return row._replace(words=words.pop()) if len(words) == 1 else row


def _sentence(name: str, law: Law | None) -> str:
    return SENTENCES[name][law.key].format(**law.values) if law else ""
