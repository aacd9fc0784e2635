"""What is wrong, in words: each rule looks at a profile and, if it bites, names the evidence and the mend.

A rule is a function of a profile. Its thresholds are where practice starts to hurt, not laws; they stand at the top.
The change is offered only for a model of ours, and the tests apply each one and measure again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.profile import STATISTICS, Array, Profile

Severity = Literal["good", "warning", "bad"]

GROWTH = 1e3
"""A second moment that grows or shrinks by more than this from input to output."""
ONE_HOT = 0.35
"""Entropy over ln n below which attention mostly picks one token."""
ALIKE = 0.95
"""Token correlation above which tokens can hardly be told apart."""
STEEP = 100.0
"""Ratio of mean squared gradients between two depths: a factor 10 in the gradient itself."""
DIP = 10.0
"""The same for a valley between input and output: a factor 3 in the gradient itself."""

Remedy = tuple[str, Mapping[str, object]]
SHRINK: Remedy = ("Shrink each branch by 1/√(2N)", {"residual": "inverse_sqrt_depth", "norm_placement": "pre"})


@dataclass(frozen=True)
class Finding:
    """One thing to know about a profile.

    Args:
        severity: good, warning (trains with care), bad (does not train as it stands).
        meaning: one sentence, what it is.
        evidence: the numbers that say so.
        remedy: the change in words, short enough for a button; empty where there is none to offer.
        config_change: the same change as fields of `Config`.
    """

    severity: Severity
    meaning: str
    evidence: str
    remedy: str = ""
    config_change: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


def diagnose(profile: Profile) -> list[Finding]:
    """Everything worth saying about a profile, most serious first; never empty. TypeError for what is no profile."""
    must_be(Profile, "profile", profile)
    with np.errstate(all="ignore"):  # ratios of what exploded or vanished are part of the evidence
        found = [finding for rule in RULES if (finding := rule(profile)) is not None]
    order = ("bad", "warning", "good")
    return sorted(found, key=lambda finding: order.index(finding.severity)) or [_healthy(profile)]


def not_finite(profile: Profile) -> Finding | None:
    """Somewhere the numbers left what the arithmetic can hold."""
    place = profile.first_nonfinite
    if place is None:
        return None
    return Finding(
        "bad",
        "The signal stops being a number.",
        f"First to leave the finite numbers: the {STATISTICS[place.statistic].label.lower()} at the {place.words}, "
        f"layer {place.layer}.",
        *_calm(profile.config),
    )


def runs_away(profile: Profile) -> Finding | None:
    """The second moment is multiplied at each layer, up or down, instead of added to."""
    q = _mean(profile, "second_moment")
    ratio = q[-1] / q[0]
    # Adding unit branches is growth by 2 a layer, and healthy behind a pre-norm however deep the stack.
    if not np.isfinite(ratio) or 1 / GROWTH <= ratio <= max(GROWTH, 4.0 * len(q)):
        return None
    word = "explodes" if ratio > 1 else "dies out"
    return Finding(
        "bad",
        f"The signal {word} over depth.",
        f"The second moment goes from {q[0]:.3g} at the input to {q[-1]:.3g} after the last layer.",
        *_calm(profile.config),
    )


def one_hot(profile: Profile) -> Finding | None:
    """Attention picks a single token: softmax was given logits far wider than it can grade."""
    if ("attention_max", "pattern") not in profile.values:
        return None
    entropy = _mean(profile, "attention_entropy_normalized", "pattern")
    worst = int(np.argmin(np.nan_to_num(entropy, nan=1.0)))
    if not entropy[worst] < ONE_HOT:
        return None
    largest = _mean(profile, "attention_max", "pattern")
    return Finding(
        "bad" if entropy[worst] < ONE_HOT / 2 else "warning",
        "Attention is close to one-hot before anything was learned.",
        f"In layer {worst + 1} its entropy is {_percent(entropy[worst])} of uniform; the largest weight averages "
        f"{largest[worst]:.2f}.",
        *_softer(profile.config, entropy[0] < ONE_HOT),
    )


def gradient_steep(profile: Profile) -> Finding | None:
    """Layers near the input get gradients of another order of magnitude than those near the output."""
    gradient = _mean(profile, "activation_gradient")
    ratio = gradient[0]
    if not np.isfinite(ratio) or 1 / STEEP <= ratio <= STEEP:
        return None
    word, cause = ("explodes", "first") if ratio > 1 else ("vanishes", "last")
    return Finding(
        "bad" if not STEEP**-2 <= ratio <= STEEP**2 else "warning",
        f"The gradient {word} on its way back to the input.",
        f"Mean squared, it is {ratio:.3g} of its value at the output: the {cause} layers will move first.",
        *_even(profile.config),
    )


def gradient_valley(profile: Profile) -> Finding | None:
    """Post-LN's V: the gradient sinks from the output inwards and recovers towards the input."""
    gradient = _mean(profile, "activation_gradient")
    bottom = int(np.argmin(gradient))
    if not (gradient[bottom] * DIP < gradient[-1] and gradient[bottom] * 1.5 < gradient[0]):
        return None
    depth = profile.stream("activation_gradient")[0][bottom]
    return Finding(
        "warning",
        "The gradient is V-shaped over depth.",
        f"Mean squared, it falls to {_percent(gradient[bottom])} of its value at the output by layer {depth:g} and "
        f"recovers to {_percent(gradient[0])} at the input: the last layers move first, and hence the need of warm-up.",
        *_even(profile.config),
    )


def alike(profile: Profile) -> Finding | None:
    """Rank collapse: attention has averaged the tokens into one."""
    correlation = _mean(profile, "token_correlation")
    if not correlation[-1] > ALIKE or correlation[0] > ALIKE:
        return None
    depth = profile.stream("token_correlation")[0][int(np.argmax(correlation > ALIKE))]
    return Finding(
        "warning",
        "The tokens become alike.",
        f"Their correlation passes {ALIKE:g} at layer {depth:g} and ends at {correlation[-1]:.4f}: "
        "deeper layers can hardly tell one from another.",
        *_even(profile.config),
    )


def silent(profile: Profile) -> Finding | None:
    """Branches that add nothing yet: what they end with is zero, and learns first."""
    sizes = {site: _mean(profile, "parameter_gradient", site)[0] for statistic, site in profile.values
             if statistic == "parameter_gradient"}
    quiet = [site for site, size in sizes.items() if size == 0]
    loud = [site for site, size in sizes.items() if size > 0]
    if not quiet or not loud:
        return None
    first = loud[-1]  # α, or the last matrix of the MLP
    return Finding(
        "good",
        "The model starts as the identity and learns how much of each branch to let in.",
        f"At initialization {', '.join(quiet)} get no gradient at all; {'α' if first == 'alpha' else first} does: "
        f"{sizes[first]:.3g} in layer 1.",
    )


# A signal that died out ends in 0 / 0; the reason stands before the symptom.
RULES: tuple[Callable[[Profile], Finding | None], ...] = (
    runs_away, not_finite, one_hot, gradient_steep, gradient_valley, alike, silent,
)


def _healthy(profile: Profile) -> Finding:
    q, gradient = _mean(profile, "second_moment"), _mean(profile, "activation_gradient")
    return Finding(
        "good",
        "The signal passes through in both directions.",
        f"The second moment goes from {q[0]:.3g} to {q[-1]:.3g}; the mean squared gradient at the input is "
        f"{gradient[0]:.3g} of that at the output.",
    )


def _mean(profile: Profile, statistic: str, site: str | None = None) -> Array:
    """A statistic by depth, the mean over seeds (and heads)."""
    values = profile.stream(statistic)[1] if site is None else profile[statistic, site]
    mean: Array = values.mean(axis=(0, *range(2, values.ndim)))
    return mean


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _calm(config: Config | None) -> Remedy:
    """What keeps a signal from running away: a norm before each branch, and the size it was made for."""
    if config is None:
        return "", {}
    size = {} if config.init_variance == 1 else {"init_variance": 1.0}
    if config.residual == "absent":
        return "Add a residual and a norm", {"residual": "constant", "alpha": 1.0, "norm_placement": "pre", **size}
    if config.norm_placement == "pre" and size:
        return "Set the init variance back to 1", size
    if config.norm_placement == "pre":
        return SHRINK
    return "Put a norm before each branch", {"norm_placement": "pre", **size}


def _softer(config: Config | None, at_once: bool) -> Remedy:
    """What keeps the logits within softmax's reach: the √d divisor, or norms where the weights are too large for it.

    Where the first layer is within it and a later one is not, logits that add up over the layers are to blame.
    """
    if config is None:
        return "", {}
    if config.residual_attention != "none" and not at_once:
        return "Let each layer's logits stand alone", {"residual_attention": "none"}
    if config.attention_scale == "none" and config.init_variance <= 2:
        return "Divide the logits by √d", {"attention_scale": "sqrt_d"}
    return "Normalize queries and keys", {"qk_norm": True, "attention_scale": "sqrt_d"}


def _even(config: Config | None) -> Remedy:
    """What evens the gradient out, by what this design has not tried yet."""
    if config is None:
        return "", {}
    if config.residual == "absent" or config.norm_placement == "none":
        return _calm(config)
    if config.attention_scale == "none":
        return "Divide the logits by √d", {"attention_scale": "sqrt_d"}
    if config.norm_placement == "post":
        return "Move the norm before the branch", {"norm_placement": "pre"}
    return SHRINK
