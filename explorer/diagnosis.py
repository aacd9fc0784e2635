"""Findings in words: each rule reads a profile and, if it applies, names the evidence and the remedy.

A rule is a function of a profile. What it calls bad is what training showed (see `TRIAL`); `python -m
benchmarks.verdicts` scores the rules and chooses the bounds of `LEAST_KEPT`. The change is offered only for a model of
ours, and the tests apply each one and measure again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.numbers import compared, number, percent
from explorer.profile import STATISTICS, Array, Profile
from explorer.schemes.residual import multipliers

Severity = Literal["good", "warning", "bad"]

TRIAL = "Adam at 0.003, 200 steps"
"""The trainings that the severities speak of: `docs/training.csv`, models of width 32 with 6 to 48 layers on English
text. Bad: did not leave the unigram level by 0.3 nats, with 100 steps of warm-up or without. Warning: only with it."""


class Bounds(NamedTuple):
    """The least share of the difference between tokens at any depth with which models trained in `TRIAL`."""

    without: float
    """Without warm-up."""
    warmed: float
    """With 100 steps of it."""


LEAST_KEPT = Bounds(without=0.47, warmed=0.38)
"""The middle of the gap between designs that trained and designs that did not; `python -m benchmarks.verdicts`."""
LEAST_KEPT_BY_MLPS = Bounds(without=0.17, warmed=0.17)
"""The same without attention, which blurs the tokens but does not mix them: Post-LN of MLPs alone trained at 0.28 and
did not at 0.10."""
GROWTH = 1e3
"""A second moment that grows or shrinks by more than this from input to output is multiplied, not added to."""
ONE_HOT = 0.2
"""Entropy over ln n: Pre-LN without √d trained at 0.35, and with larger weights did not at 0.14."""
STEEP = 1e5
"""Ratio of mean squared gradients between the two ends. Adam evens out less: Pre-LN with α = 4 trained at 2,900, and
designs from 10⁶ on did not."""
GROWN = 10.0
"""A second moment that has grown by so much widens the logits that no norm protects."""
LARGE = 2.0
"""An init variance above which the weights themselves widen the logits too far."""
RESOLVED = 1e-5
"""1 − ρ at the input below which the tokens are already alike."""
UNTOUCHED = 1e-6
"""Relative change of the second moment up to which a stream is as it came in."""

INPUT, OUTPUT = "the input's", "the output's"

Remedy = tuple[str, Mapping[str, object]]
STEPS: Mapping[tuple[str, object], str] = MappingProxyType({
    ("residual", "constant"): "make the residual x + α F(x)",
    ("residual", "inverse_sqrt_depth"): "shrink each branch by 1/√(2N)",
    ("alpha", 1.0): "set the residual α to 1",
    ("norm_placement", "pre"): "put a norm before each branch",
    ("init_variance", 1.0): "set the init variance to 1",
    ("attention_scale", "sqrt_d"): "divide the logits by √d",
    ("qk_norm", True): "normalize queries and keys",
    ("residual_attention", "none"): "stop adding logits over the layers",
})
"""The changes a remedy can make, each with its words: a button's text is put together from them."""


@dataclass(frozen=True)
class Finding:
    """One thing to know about a profile.

    Args:
        severity: good, warning (trains with warm-up only), bad (does not train); see `TRIAL`.
        meaning: one sentence on the finding.
        evidence: the numbers that show it.
        remedy: the change in words, short enough for a button; empty where there is none to offer.
        config_change: the same change as fields of `Config`.
    """

    severity: Severity
    meaning: str
    evidence: str
    remedy: str = ""
    config_change: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


def diagnose(profile: Profile) -> list[Finding]:
    """Findings about a profile, most serious first; never empty. TypeError for anything but a profile."""
    must_be(Profile, "profile", profile)
    with np.errstate(all="ignore"):  # ratios of what exploded or vanished are part of the evidence
        found = [finding for rule in RULES if (finding := rule(profile)) is not None]
    order = ("bad", "warning", "good")
    return sorted(found, key=lambda finding: order.index(finding.severity)) or [_healthy(profile)]


def not_finite(profile: Profile) -> Finding | None:
    """A value that is not finite: it is too large for the arithmetic."""
    place = profile.first_nonfinite
    if place is None:
        return None
    return Finding(
        "bad",
        "The signal stops being finite.",
        f"The first value that is not finite: the {STATISTICS[place.statistic].label.lower()} at the {place.words}, "
        f"layer {place.layer}.",
        *_calm(profile.config),
    )


def nothing_learns(profile: Profile) -> Finding | None:
    """Layers in which every gradient is exactly zero: no optimizer can move their weights."""
    sizes = [np.abs(values).max(axis=0) for (statistic, _), values in profile.values.items()
             if statistic == "parameter_gradient"]
    dead = np.flatnonzero(np.max(sizes, axis=0) == 0) + 1 if sizes else np.empty(0)
    if not len(dead):
        return None
    every, config = len(dead) == len(sizes[0]), profile.config
    where = "in every layer" if every else f"in {len(dead)} of {len(sizes[0])} layers, the first of them {dead[0]}"
    return Finding(
        "bad",
        "Nothing learns." if every else "Some layers do not learn.",
        f"The gradient of every matrix is exactly 0 {where}: no optimizer moves them.",
        *_mend(config, {"alpha": 1.0} if config and config.alpha == 0 else {**_plain(config), "init_variance": 1.0}),
    )


def runs_away(profile: Profile) -> Finding | None:
    """The second moment is multiplied at each layer, up or down, instead of added to."""
    q = _mean(profile, "second_moment")
    ratio = q[-1] / q[0]
    # Adding unit branches is growth by 2 a layer, and healthy after a pre-norm however deep the stack.
    if not np.isfinite(ratio) or 1 / GROWTH <= ratio <= max(GROWTH, 4.0 * len(q)):
        return None
    word = "explodes" if ratio > 1 else "dies out"
    return Finding(
        "bad",
        f"The signal {word} over depth.",
        f"The second moment goes from {number(q[0])} at the input to {number(q[-1])} after the last layer.",
        *_calm(profile.config),
    )


def one_hot(profile: Profile) -> Finding | None:
    """Attention picks a single token: the logits are too wide for softmax."""
    if ("attention_max", "pattern") not in profile.values:
        return None
    entropy = _mean(profile, "attention_entropy_normalized", "pattern")
    worst = int(np.argmin(np.nan_to_num(entropy, nan=1.0)))
    if not entropy[worst] < ONE_HOT:
        return None
    largest = _mean(profile, "attention_max", "pattern")
    return Finding(
        "bad",
        "Attention is close to one-hot at initialization.",
        f"In layer {worst + 1} its entropy is {compared(entropy[worst], 'the uniform one')}; the largest weight "
        f"averages {largest[worst]:.2f}. {_fate('below', percent(ONE_HOT))}",
        *_softer(profile.config, entropy[0] < ONE_HOT, _mean(profile, "second_moment")),
    )


def gradient_steep(profile: Profile) -> Finding | None:
    """The gradient is multiplied at each layer on its way back."""
    gradient = _mean(profile, "activation_gradient")
    ratio = gradient[0]
    if not np.isfinite(ratio) or 1 / STEEP <= ratio <= STEEP:
        return None
    word, cause = ("explodes", "first") if ratio > 1 else ("vanishes", "last")
    return Finding(
        "bad",
        f"The gradient {word} on its way back to the input.",
        f"Mean squared, it is {compared(ratio, OUTPUT)} there: the {cause} layers move first."
        + (f" {_fate('above', number(STEEP))}" if ratio > 1 else ""),
        *_even(profile.config),
    )


def alike(profile: Profile) -> Finding | None:
    """Attention averages the tokens, and norms on the sum remove the differences between them."""
    share = kept(profile)
    least = LEAST_KEPT if ("attention_max", "pattern") in profile.values else LEAST_KEPT_BY_MLPS
    if not len(share) or not share.min() < least.without:
        return None
    at = int(np.argmin(share))
    bad = bool(share[at] < least.warmed)
    depth = profile.stream("second_moment")[0][at]
    limit = least.warmed if bad else least.without
    return Finding(
        "bad" if bad else "warning",
        "The tokens become alike." if bad else "The tokens become more alike: train it with warm-up.",
        f"Their difference falls to {compared(max(0.0, share[at]), INPUT)} by layer {depth:g} (correlation "
        f"at the end {_mean(profile, 'token_correlation')[-1]:.3f}). {_fate('below', percent(limit), warmed=bad)}",
        *_mend(profile.config, _plain(profile.config)),
    )


def silent(profile: Profile) -> Finding | None:
    """Branches that add nothing yet: their last factor is zero, and learns first."""
    q = _mean(profile, "second_moment")
    sizes = {site: _mean(profile, "parameter_gradient", site)[0] for statistic, site in profile.values
             if statistic == "parameter_gradient"}
    quiet = [site for site, size in sizes.items() if size == 0]
    loud = [site for site, size in sizes.items() if size > 0]
    if not quiet or not loud or not np.allclose(q, q[0], rtol=UNTOUCHED):
        return None
    first = loud[-1]  # α, or the last matrix of the MLP
    return Finding(
        "good",
        "The model starts as the identity and learns how much of each branch to add.",
        f"At initialization {', '.join(quiet)} get no gradient at all; {'α' if first == 'alpha' else first} does: "
        f"{number(sizes[first])} in layer 1.",
    )


# A signal that died out ends in 0 / 0: the cause comes before the symptom.
RULES: tuple[Callable[[Profile], Finding | None], ...] = (
    runs_away, not_finite, nothing_learns, one_hot, gradient_steep, alike, silent,
)


def kept(profile: Profile) -> Array:
    """Difference between tokens, q (1 − ρ), by depth `[site]` as a share of the input's.

    Empty where tokens are alike to begin with, and where a value is not finite.
    """
    correlation = _mean(profile, "token_correlation")
    apart = _mean(profile, "second_moment") * (1 - correlation)
    resolved = 1 - correlation[0] > RESOLVED and np.isfinite(apart).all()
    return apart / apart[0] if resolved else np.empty(0)


def _healthy(profile: Profile) -> Finding:
    q, gradient = _mean(profile, "second_moment"), _mean(profile, "activation_gradient")
    return Finding(
        "good",
        "The signal passes through in both directions.",
        f"The second moment goes from {number(q[0])} to {number(q[-1])}; the mean squared gradient at the input is "
        f"{compared(gradient[0], OUTPUT)}. Most designs like this trained: {TRIAL}, no warm-up.",
    )


def _fate(side: str, limit: str, *, warmed: bool = True) -> str:
    """A sentence on how small models beyond a bound trained."""
    warmup = "with 100 of warm-up or without" if warmed else "no warm-up; 100 steps of it helped"
    return f"Small models {side} {limit} did not train: {TRIAL}, {warmup}."


def _mean(profile: Profile, statistic: str, site: str | None = None) -> Array:
    """A statistic by depth, the mean over seeds (and heads)."""
    values = profile.stream(statistic)[1] if site is None else profile[statistic, site]
    mean: Array = values.mean(axis=(0, *range(2, values.ndim)))
    return mean


def _mend(config: Config | None, *wishes: Mapping[str, object]) -> Remedy:
    """The first of some changes that has an effect, in words and as fields."""
    for wish in wishes if config else ():
        change = {name: value for name, value in wish.items() if getattr(config, name) != value}
        if change:
            *rest, last = (STEPS[step] for step in change.items())
            words = f"{', '.join(rest)} and {last}" if rest else last
            return f"{words[0].upper()}{words[1:]}", change
    return "", {}


def _plain(config: Config | None) -> dict[str, object]:
    """Pre-LN with an unscaled stream; a multiplier on the stream would change what it carries."""
    resets = config is not None and multipliers(config).skip != 1
    return {**({"residual": "constant", "alpha": 1.0} if resets else {}), "norm_placement": "pre"}


def _calm(config: Config | None) -> Remedy:
    """Changes that keep a signal from running away: a norm before each branch, and the size it was made for."""
    return _mend(config, {**_plain(config), "init_variance": 1.0}, {"residual": "inverse_sqrt_depth"})


def _softer(config: Config | None, at_once: bool, q: Array) -> Remedy:
    """Changes that make the logits smaller: the √d divisor, or norms where the weights are too large for it.

    Where the first layer is within it and a later one is not, a stream that grows and reaches the logits without a norm
    is to blame, or logits that add up over the layers.
    """
    if config is None:
        return "", {}
    alone = {"residual_attention": "none"}
    if not at_once and config.norm_placement in ("none", "branch_output") and not q[-1] < GROWN * q[0]:
        return _mend(config, {**_plain(config), "init_variance": 1.0, **alone})
    if config.residual_attention != "none" and not at_once:
        return _mend(config, alone)
    divided = {"attention_scale": "sqrt_d"} if config.attention_scale == "none" else {}
    if divided and config.init_variance <= LARGE:
        return _mend(config, divided)
    return _mend(config, {"qk_norm": True, **divided, **alone})


def _even(config: Config | None) -> Remedy:
    """Changes that even the gradient out, without those that this design already has."""
    if config is None:
        return "", {}
    if config.norm_placement == "none" or multipliers(config).skip != 1:
        return _calm(config)
    divided = {"attention_scale": "sqrt_d"} if config.attention_scale == "none" else {}
    sized = {"init_variance": 1.0} if config.init_variance > LARGE else {}
    return _mend(config, {**divided, **sized}, _plain(config), {"residual": "inverse_sqrt_depth"})
