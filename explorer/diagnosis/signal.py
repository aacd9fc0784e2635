"""Rules on the signal as a whole: does it pass through, forward and back, and do the tokens stay apart.

What a rule calls bad is what training showed (see `TRIAL`); `python -m benchmarks.verdicts` scores them and chooses
`LEAST_DIFFERENCE`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from explorer.diagnosis.cures import (
    DIVIDED,
    NOT_ZERO,
    NOT_ZERO_TOKEN,
    PRE_NORM,
    QK_NORM,
    REACHED,
    SMALLER,
    UNIT_VARIANCE,
    Cure,
    fix,
)
from explorer.diagnosis.finding import TRIAL, Finding, Quantity
from explorer.diagnosis.reading import GROWN, NONE, Line, by_layer, layer_name, line, start, weight_gradients
from explorer.diagnosis.structure import unmoved
from explorer.numbers import compared, number, percent
from explorer.profile import ALMOST_ZERO, FIRST_STEP, VOCABULARY, WEIGHT_STATISTICS, Array, Profile
from explorer.remedies import LARGE, awake, calm, distinct, even, soft


class Bounds(NamedTuple):
    """The least share of the difference between tokens at any depth with which models trained in `TRIAL`."""

    without: float
    """Without warm-up."""
    warmed: float
    """With 100 steps of warm-up."""


LEAST_DIFFERENCE = Bounds(without=0.47, warmed=0.42)
"""The middle of the gap between designs that trained and designs that did not; `python -m benchmarks.verdicts`."""
LEAST_DIFFERENCE_OF_MLPS = Bounds(without=0.17, warmed=0.17)
"""Least difference without attention, where branches blur tokens but do not mix them: Post-LN of MLPs alone trained at
0.28 and did not at 0.10."""
GROWTH = 1e3
"""A second moment that grows or shrinks by more than this from input to output is multiplied, not added to."""
ONE_HOT = 0.2
"""Entropy over ln n: Pre-LN without √d trained at 0.35, and with larger weights did not at 0.14."""
STEEP = 1e5
"""Ratio of mean squared gradients between the two ends. Adam evens out less: Pre-LN with α = 4 trained at 2,900, and
designs from 10⁶ on did not."""
RESOLVED = 1e-5
"""1 − ρ at the input below which the tokens are already alike."""
UNTOUCHED = 1e-6
"""Relative change of the second moment up to which a stream is as it came in."""

LEVEL = 1.05
"""Change over depth up to which a signal is called level."""
OUTPUT = "the output's"


def not_finite(profile: Profile) -> Finding | None:
    """A value that is not finite: it is too large for the arithmetic."""
    signals = {key: value for key, value in profile.values.items() if key[0] not in WEIGHT_STATISTICS}
    first = replace(profile, values=signals, pattern=None).first_nonfinite
    if first is None:
        return None
    return Finding(
        "bad",
        "The signal stops being finite.",
        f"The first value that is not finite: the {VOCABULARY[first.statistic].label.lower()} at the "
        f"{first.site_label}, {layer_name(profile, first.layer)}.",
        *fix(profile, _calmer(profile), calm),
    )


def nothing_learns(profile: Profile) -> Finding | None:
    """Layers in which every gradient is exactly zero: no optimizer can move their weights."""
    largest = np.array([np.abs(values).max(axis=0) for values in weight_gradients(profile).values()])  # [site, layer]
    dead = np.flatnonzero(largest.max(axis=0) == 0) + 1 if largest.size else np.empty(0)
    every, n_layers = len(dead) == largest.shape[-1], largest.shape[-1]
    note = profile.notes.get("activation_gradient", "")
    if not len(dead) or (profile.config is None and unmoved(profile)):  # the latter says more
        return None
    if every and note.startswith(FIRST_STEP):
        return Finding("good", f"{note[0].upper()}{note[1:]}.", f"It is 0 now, and so is every gradient that passes "
                       f"through it, those of all {n_layers} layers: they learn from the second step on.")
    first = layer_name(profile, int(dead[0])).removeprefix("layer ")
    where = "in every layer" if every else f"in {len(dead)} of {n_layers} layers, the first of them {first}"
    return Finding(
        "bad",
        "Nothing learns." if every else "Some layers do not learn.",
        f"The gradient of every matrix is exactly 0 {where}: no optimizer moves them.",
        *fix(profile, NOT_ZERO if _untouched(profile) else REACHED, awake),
    )


def runs_away(profile: Profile) -> Finding | None:
    """The second moment is multiplied at each layer, up or down, instead of added to."""
    growth = _growth(profile)
    if not np.isfinite(growth.ratio) or 1 / GROWTH <= growth.ratio <= growth.limit:
        return None
    word, limit = ("explodes", growth.limit) if growth.ratio > 1 else ("dies out", 1 / GROWTH)
    return Finding(
        "bad",
        f"The signal {word} over depth: {number(growth.ratio)} ×, limit {number(limit)} ×.",
        f"The second moment goes from {number(growth.first)} {growth.where} to {number(growth.last)} after the last "
        f"layer{_most(profile)}.",
        *fix(profile, _calmer(profile), calm),
    )


class _Growth(NamedTuple):
    """The second moment where depth begins and after the last layer; nan where a profile has none."""

    first: float
    last: float
    where: str
    limit: float

    @property
    def ratio(self) -> float:
        return float(np.divide(self.last, self.first))


def _growth(profile: Profile) -> _Growth:
    q, begin = line(profile, "second_moment"), start(profile)
    if not len(q.depth):
        return _Growth(np.nan, np.nan, "", GROWTH)
    where = f"after layer {q.depth[np.searchsorted(q.depth, begin)]:g}" if begin or q.depth[0] else "at the input"
    # Adding unit branches is growth by 2 a layer, and healthy after a pre-norm however deep the stack.
    return _Growth(q.at(begin), float(q.values[-1]), where, max(GROWTH, 4.0 * (2 * q.depth[-1] + 1)))


def _most(profile: Profile) -> str:
    """The layer of a model that is not ours by which the second moment changes most, in words."""
    q = line(profile, "second_moment")
    growth = np.abs(np.log(q.values[1:] / q.values[:-1]))
    if profile.config or not np.isfinite(growth).any():
        return ""
    at = int(np.nanargmax(np.where(np.isfinite(growth), growth, np.nan)))
    where = layer_name(profile, int(np.ceil(q.depth[at + 1])))
    return f", most of all by {number(q.values[at + 1] / q.values[at])} × in {where}"


def one_hot(profile: Profile) -> Finding | None:
    """Attention picks a single token: the logits are too wide for softmax."""
    entropy = by_layer(profile, "attention_entropy_normalized", "pattern")
    worst = int(np.argmin(np.nan_to_num(entropy, nan=1.0))) if len(entropy) else 0
    if not len(entropy) or not entropy[worst] < ONE_HOT:
        return None
    largest, q = by_layer(profile, "attention_max", "pattern"), line(profile, "second_moment")
    grows = bool(len(q.values)) and not q.values[-1] < GROWN * q.values[0]
    at_once = bool(entropy[0] < ONE_HOT)
    weight = f"; the largest weight averages {largest[worst]:.2f}" if len(largest) else ""
    return Finding(
        "bad",
        f"Attention {'is' if profile.step else 'starts'} close to one-hot: entropy {percent(entropy[worst])} of "
        f"uniform, limit {percent(ONE_HOT)}.",
        f"Its entropy is least in {layer_name(profile, worst + 1)}{weight}.{_fate(profile)}",
        *fix(profile, _softer(profile, at_once, grows), lambda config: soft(config, at_once, grows)),
    )


def gradient_steep(profile: Profile) -> Finding | None:
    """The gradient is multiplied at each layer on its way back."""
    ratio = _steepness(profile)
    if not np.isfinite(ratio) or 1 / STEEP <= ratio <= STEEP:
        return None
    word, cause = ("explodes", "first") if ratio > 1 else ("vanishes", "last")
    return Finding(
        "bad",
        f"The gradient {word} on its way back: {number(ratio)} ×, "
        f"limit {number(STEEP if ratio > 1 else 1 / STEEP)} ×.",
        f"Mean squared, at the input: the {cause} layers move first.{_fate(profile) if ratio > 1 else ''}",
        *fix(profile, SMALLER, even),
    )


def _steepness(profile: Profile) -> float:
    """Mean squared gradient where depth begins, as a multiple of the output's."""
    return line(profile, "activation_gradient").at(1.0 if zero_token(profile) else start(profile))


def zero_token(profile: Profile) -> Finding | None:
    """Tokens that are zero where the stream begins: the first norm divides by √ε there, and not by their size."""
    gradient, note = line(profile, "activation_gradient"), profile.notes.get("activation_gradient", "")
    if not note.endswith(ALMOST_ZERO) or not gradient.at(0.0) > GROWTH * gradient.at(1.0):
        return None
    return Finding(
        "warning", f"{note}.",
        "The first norm multiplies the gradient by them by up to 1/√ε: mean squared over all tokens it is "
        f"{compared(gradient.at(0.0), OUTPUT)} at the input, and {number(gradient.at(1.0))} × after layer 1. Adam "
        "evens this out; clipping by the norm of all gradients would leave next to nothing for the other weights.",
        *fix(profile, NOT_ZERO_TOKEN))


def alike(profile: Profile) -> Finding | None:
    """Attention averages the tokens, and norms on the sum remove the differences between them."""
    share, least = _difference(profile), _least_difference(profile)
    if not len(share.values) or not share.values.min() < least.without:
        return None
    at = int(np.argmin(share.values))
    kept, depth = max(0.0, share.values[at]), share.depth[at]
    bad = bool(share.values[at] < least.warmed)
    limit = least.warmed if bad else least.without
    name = f" ({profile.layers[int(np.ceil(depth)) - 1]})" if 0 < depth <= len(profile.layers) else ""
    return Finding(
        "bad" if bad else "warning",
        f"The tokens become alike: {percent(kept)} of their difference left, limit {percent(limit)}."
        if bad or profile.step else
        f"The tokens become more alike: train with warm-up ({percent(kept)} left, limit {percent(limit)}).",
        f"Their difference is least after layer {depth:g}{name}; their correlation at the end is "
        f"{line(profile, 'token_correlation').values[-1]:.3f}.{_fate(profile, warmed=bad)}",
        *fix(profile, PRE_NORM, distinct),
    )


def _least_difference(profile: Profile) -> Bounds:
    return LEAST_DIFFERENCE if ("attention_max", "pattern") in profile.values else LEAST_DIFFERENCE_OF_MLPS


def silent(profile: Profile) -> Finding | None:
    """Branches that add nothing yet: their last factor is zero, and learns first."""
    sizes = {site: values[:, 0].mean() for site, values in weight_gradients(profile).items()}
    quiet = [site for site, size in sizes.items() if size == 0]
    loud = [site for site, size in sizes.items() if size > 0]
    if profile.step or not quiet or not loud or not _untouched(profile):
        return None
    first = loud[-1]  # α, or the last matrix of the MLP
    return Finding(
        "good",
        "The model starts as the identity and learns the weight of each branch.",
        f"At initialization {', '.join(quiet)} get no gradient at all; {'α' if first == 'alpha' else first} does: "
        f"{number(sizes[first])} in layer 1.",
    )


def _untouched(profile: Profile) -> bool:
    """Whether the stream stays as it came in."""
    q = line(profile, "second_moment").values
    return len(q) > 0 and bool(np.allclose(q, q[0], rtol=UNTOUCHED))


def token_difference(profile: Profile) -> Array:
    """Difference between tokens, q (1 − ρ), by depth `[site]` as a share of the input's.

    Empty where tokens are alike to begin with, and where a value is not finite.
    """
    return _difference(profile).values


def _difference(profile: Profile) -> Line:
    """`token_difference` with its depths: the sites at which both of its factors are known."""
    rho, q, begin = line(profile, "token_correlation"), line(profile, "second_moment"), start(profile)
    depth, at, also = np.intersect1d(rho.depth, q.depth, return_indices=True)
    apart = q.values[also] * (1 - rho.values[at])
    if not len(depth) or not 1 - rho.values[at][0] > RESOLVED or not np.isfinite(apart).all():
        return Line(NONE, NONE)
    share = apart / (Line(depth, q.values[also]).at(begin) * (1 - rho.values[at][0]))
    return Line(depth, np.where(depth < begin, 1.0, share))


def healthy(profile: Profile) -> Finding:
    """A profile in which no rule found anything: by how much signal and gradient change, and the limits."""
    growth, steep = _growth(profile), _steepness(profile)
    if not np.isfinite(growth.ratio):
        meaning = "No rule found anything wrong."
    elif not np.isfinite(steep):
        meaning = f"Signal {_change(growth.ratio)}: fine below {number(growth.limit)} ×."
    else:
        meaning = (f"Signal {_change(growth.ratio)}, gradient {_change(steep)}: fine below {number(growth.limit)} and "
                   f"{number(STEEP)} ×.")
    # of a model of ours the page counts the trials that are like it
    ours = profile.config or profile.step
    trained = "" if ours else f"Most small models within the limits trained: {TRIAL}, no warm-up."
    return Finding("good", meaning, trained)


def _change(ratio: float) -> str:
    """Words for a ratio over depth."""
    if 1 / LEVEL < ratio < LEVEL:
        return "is level"
    return f"grows {number(ratio, 2)} ×" if ratio > 1 else f"shrinks {number(1 / ratio, 2)} ×"


def quantities(profile: Profile) -> tuple[Quantity, ...]:
    """The numbers that the rules on the signal weigh, each beside its limit; those that are not known are left out."""
    growth, steep, least = _growth(profile), _steepness(profile), _least_difference(profile)
    begins = "after layer 1" if zero_token(profile) else growth.where
    difference = _difference(profile).values
    entropy = by_layer(profile, "attention_entropy_normalized", "pattern")
    rows = [
        (growth.ratio, Quantity(f"Second moment, {growth.where} → at the end",
                                f"{number(growth.first)} → {number(growth.last)}, {number(growth.ratio)} ×",
                                f"{number(1 / GROWTH)} to {number(growth.limit)} ×")),
        (steep, Quantity(f"Mean squared gradient, {begins} ÷ at the end", f"{number(steep)} ×",
                         f"{number(1 / STEEP)} to {number(STEEP)} ×")),
        (difference.min(initial=np.inf), Quantity(
            "Least token difference, share of the input's", percent(difference.min(initial=1)),
            f"at least {percent(least.without)}, with warm-up {percent(least.warmed)}")),
        (entropy.min(initial=np.inf), Quantity("Least attention entropy, share of uniform",
                                               percent(entropy.min(initial=1)), f"at least {percent(ONE_HOT)}")),
    ]
    return tuple(quantity for value, quantity in rows if np.isfinite(value))


def _calmer(profile: Profile) -> Cure:
    """The cure of a signal that runs away: smaller or larger weights where they are to blame, else norms."""
    sizes = [values.mean(axis=0) for (name, _), values in profile.values.items() if name == "weight_variance"]
    typical = np.median(sizes) if sizes else 1.0
    return PRE_NORM if 1 / LARGE**2 <= typical <= LARGE else UNIT_VARIANCE


def _softer(profile: Profile, at_once: bool, grows: bool) -> Cure:
    """The cure of logits that are too wide: as `remedies.soft` has it, from what the profile shows."""
    if not at_once:
        return PRE_NORM if grows else QK_NORM
    sizes = [values.mean() for site in ("W_Q", "W_K") if len(values := by_layer(profile, "weight_variance", site))]
    return UNIT_VARIANCE if sizes and np.mean(sizes) > LARGE else DIVIDED


def _fate(profile: Profile, *, warmed: bool = True) -> str:
    """A sentence on how small models beyond a bound trained, as they were drawn: docs/trainability.md has how many."""
    if profile.step:
        return ""
    warmup = "with or without 100 steps of warm-up" if warmed else "without warm-up; 100 steps of it helped"
    return f" Few small models beyond this limit trained ({TRIAL}, {warmup})."
