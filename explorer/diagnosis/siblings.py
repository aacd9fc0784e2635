"""Finds layers unlike their siblings: those of a series over layers that their neighbors do not predict.

A law over depth, such as 1/√l, a step, such as Mix-LN's, or a pattern that repeats, such as every fourth layer, is a
design. A layer is unlike its siblings if it is like neither neighbor, and on no straight line through two of them, in
depth or in its logarithm; if it leaves them by more than `LIKE` and by more than the others scatter; and if there are
few such layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from explorer.profile import Array

LIKE = 1.5
"""Ratio up to which a value is like its siblings'. Published laws over depth leave at most 1.25 at their ends, where
they are steepest (the tests compute it)."""
CHANCE = 1e-3
"""Chance that one of a healthy series' layers is called unlike, were scatter Gaussian. The most deviant are left out of
the estimate of scatter: where layers differ by a factor of 1.6, as in no fresh model, the chance is 1 % (the tests)."""
FEW = 4
"""At most one layer in so many, and no series shorter than this."""
PAIRS = ((-2, -1), (-1, 1), (1, 2))
"""Layers before and after one, through which straight lines go to it."""


def unlike(series: Mapping[str, Array], like: float = LIKE) -> dict[str, dict[int, float]]:
    """Layers (from 1) of each series that stand out, with the ratio to the nearest value that their neighbors predict.

    Args:
        series: name to positive values, `[layer]`; a value that is zero or not finite is left out, and stands out not.
        like: ratio up to which a value is like its siblings'.
    """
    logs = {name: np.where(values > 0, np.log(np.maximum(values, 1e-300)), np.nan)
            for name, values in series.items() if len(values) >= FEW}
    far = {name: departure(y) for name, y in logs.items()}
    suspects = {name: np.abs(far[name]) > np.log(like) for name in logs}
    steps = {name: _steps(y[~suspects[name]]) for name, y in logs.items()}
    outliers: dict[str, dict[int, float]] = {}
    for name, y in logs.items():
        # few layers say little of their scatter: all series together say more
        own = steps[name] if len(steps[name]) >= 2 * FEW else np.concatenate(list(steps.values()))
        at = np.flatnonzero(suspects[name] & (np.abs(far[name]) > _scatter(own, len(y))))
        if len(at) and len(at) <= max(1, len(y) // FEW) and not _repeats(np.flatnonzero(suspects[name]), len(y)):
            outliers[name] = {int(layer) + 1: float(np.exp(far[name][layer])) for layer in at}
    return outliers


def worst(outliers: Mapping[str, Mapping[int, float]]) -> tuple[int, dict[str, float]]:
    """The layer that stands out most, and in which series, with the ratios."""
    _, layer = max((abs(math.log(ratio)), layer) for layers in outliers.values() for layer, ratio in layers.items())
    return layer, {name: layers[layer] for name, layers in outliers.items() if layer in layers}


def departure(y: Array) -> Array:
    """Signed distance of each `[layer]` to the nearest value that its neighbors predict; 0 if it lies among them."""
    depth, departures = np.arange(1.0, len(y) + 1), np.zeros(len(y))
    for layer in range(len(y)):
        predicted = [y[near] for near in (layer - 1, layer + 1) if 0 <= near < len(y)]
        ends = ((2, 3),) * (layer == 0) + ((-3, -2),) * (layer == len(y) - 1)  # the one neighbor may be the odd one
        for left, right in ((layer + left, layer + right) for left, right in (*PAIRS, *ends)):
            if left >= 0 and right < len(y):
                predicted += [_straight(scale, y, left, right, layer) for scale in (depth, np.log(depth))]
        gaps = y[layer] - np.array(predicted)
        gaps = gaps[np.isfinite(gaps)]
        if len(gaps) and (np.all(gaps > 0) or np.all(gaps < 0)):
            departures[layer] = gaps[np.argmin(np.abs(gaps))]
    return departures


def _straight(x: Array, y: Array, left: int, right: int, at: int) -> float:
    """The value at `x[at]` of the line through two points."""
    return float(y[left] + (y[right] - y[left]) * (x[at] - x[left]) / (x[right] - x[left]))


def _steps(y: Array) -> Array:
    """Differences from layer to layer, about their median; √2 times as large as the layers scatter."""
    steps = np.diff(y[np.isfinite(y)])
    return steps - np.median(steps) if len(steps) else steps


def _scatter(steps: Array, n_layers: int) -> float:
    """The largest departure that scatter explains; infinite where nothing is known of it."""
    if len(steps) < 2:
        return np.inf
    return float(stdtrit(len(steps) - 1, 1 - CHANCE / (2 * n_layers)) * np.sqrt(np.mean(steps**2) / 2))


def _repeats(at: NDArray[np.intp], n_layers: int) -> bool:
    """Whether they come at one distance from end to end: first and last, or one in each group of layers.

    Two may do so by chance; then they must be the first or the last of their group.
    """
    gaps = np.unique(np.diff(at))
    if len(gaps) != 1 or at[0] >= gaps[0] or at[-1] + gaps[0] < n_layers:
        return False
    return len(at) > 2 or at[0] in (0, gaps[0] - 1)
