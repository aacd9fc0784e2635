"""Rules on the weights of all layers: copies of one layer, and a fan that was taken for the other."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from explorer.diagnosis.cures import APART, FAN_IN, fix
from explorer.diagnosis.finding import Finding
from explorer.diagnosis.reading import by_layer, layer_name
from explorer.diagnosis.siblings import LIKE
from explorer.diagnosis.signal import alike, gradient_steep, not_finite, one_hot, runs_away
from explorer.numbers import number
from explorer.profile import MATRICES, Profile

COPY = 0.99
"""Cosine from which on matrices are copies. Independent ones of 4096 entries have 0.016 RMS, never more than 0.1; a
copy rounded to bfloat16 keeps 0.99999."""
BY_FAN_IN = (1.0, 2.0, 1 / 3)
"""Variances times fan_in of the rules that divide by it: LeCun's, He's, torch's default."""
EXACT = 0.05
"""Relative difference up to which two weight variances have a given ratio: five times the sampling error, √(2/n) each,
of a 64 × 64 and a 64 × 256 matrix, as the median over 12 layers."""


def copies(profile: Profile) -> Finding | None:
    """Layers that start as copies of one another; layers that share their weights are one block, and a design."""
    likeness = [values for name in MATRICES if len(values := by_layer(profile, "weight_likeness", name))]
    if not likeness:
        return None
    known = np.where(np.isfinite(likeness), likeness, np.inf)  # a matrix of zeros is like nothing and unlike nothing
    least = known.min(axis=0)
    shared = Counter(profile.layers)
    alike = [layer for layer in range(1, len(least) + 1)
             if COPY <= least[layer - 1] < np.inf
             and not (len(profile.layers) == len(least) and shared[profile.layers[layer - 1]] > 1)]
    if len(alike) < 2:
        return None
    every = len(alike) == len(least)
    rho = by_layer(profile, "token_correlation", "resid_post")
    grown = f" The correlation of tokens is {number(rho[-1])} after the last layer." if len(rho) else ""
    which = f"All {len(least)} layers" if every else f"{len(alike)} of {len(least)} layers"
    where = "" if every else f": {', '.join(layer_name(profile, layer) for layer in alike)}"
    return Finding(
        "warning", f"{which} start as copies of one another.",
        f"Their matrices have a cosine of {number(float(least[alike[0] - 1]))} with another layer's{where}. Branches "
        f"of copies point the same way and add up faster; tokens become more alike than in layers drawn apart.{grown}",
        *fix(profile, APART),
    )


def wrong_fan_in(profile: Profile) -> Finding | None:
    """An MLP matrix drawn by the other one's fan_in.

    W_in is at fault where it alone is off by the ratio of the widths: no rule draws so. W_out of the same size as W_in
    is what a constant std gives, too: it is named only where the signal suffers, and the other matrices follow a rule.
    """
    shape = profile.shapes.get("W_in")
    size = {name: float(np.median(values)) for name in ("W_V", "W_O", "W_in", "W_out")
            if len(values := by_layer(profile, "weight_variance", name))}
    if shape is None or len(size) < 4 or min(size.values()) <= 0 or shape[1] / shape[0] < LIKE:
        return None
    wide = shape[1] / shape[0]
    first, last = size["W_in"] / size["W_V"], size["W_out"] / size["W_O"]
    if _is(last, 1.0) and _is(first, 1 / wide):
        name, other, ratio, sides = "W_in", "W_V", first, f"fan_out {shape[1]} for fan_in {shape[0]}"
    elif _is(first, 1.0) and _is(last, wide) and _suffers(profile) and any(
            _is(size["W_O"], gain) for gain in BY_FAN_IN):
        name, other, ratio, sides = "W_out", "W_O", last, f"fan_out {shape[0]} for fan_in {shape[1]}"
    else:
        return None
    branch = by_layer(profile, "second_moment", "mlp_out")
    does = f" The MLP output has second moment {number(float(np.median(branch)))}." if len(branch) else ""
    return Finding(
        "warning", f"{name} may be drawn with the wrong fan_in.",
        f"Its weight variance is {number(ratio)} × that of {other}, as if {sides} were taken.{does}",
        *fix(profile, FAN_IN),
    )


def _is(ratio: float, expected: float) -> bool:
    return abs(math.log(ratio / expected)) < EXACT


def _suffers(profile: Profile) -> bool:
    """Whether the signal does not pass through."""
    return any(rule(profile) is not None for rule in (runs_away, not_finite, gradient_steep, one_hot, alike))
