"""Readings of a profile for the rules: statistics over depth, names of layers, and the layers that stand out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from explorer.diagnosis.finding import text
from explorer.profile import STREAM, Array, Profile

GROWN = 10.0
"""A second moment that has grown by so much widens the logits that no norm protects."""
NONE = np.empty(0)
NOTHING = 1e-14
"""A second moment below it, and below this share of another, is practically 0: its root is lost when float32, which has
24 bits, adds the two."""


class Line(NamedTuple):
    """A statistic along the stream, the mean over seeds; empty where the profile has none."""

    depth: Array
    """`[site]`, in layers: 0 is the input, l − ½ after the attention of layer l, l after its MLP."""
    values: Array

    def at(self, depth: float) -> float:
        """The value at a depth, or at the first site after it; nan where there is none."""
        after = self.values[np.searchsorted(self.depth, depth):]
        return float(after[0]) if len(after) else np.nan


def line(profile: Profile, statistic: str) -> Line:
    """A statistic along the stream."""
    if not any((statistic, site) in profile.values for site in STREAM):
        return Line(NONE, NONE)
    depth, values = profile.stream(statistic)
    return Line(depth, values.mean(axis=0))


def by_layer(profile: Profile, statistic: str, site: str) -> Array:
    """A statistic at one site, `[layer]`, the mean over seeds and heads; empty where the profile has none."""
    values = profile.values.get((statistic, site))
    return NONE if values is None else values.mean(axis=(0, *range(2, values.ndim)))


def weight_gradients(profile: Profile) -> dict[str, Array]:
    """Norms of the gradient by each matrix, and by α, `[seed, layer]`."""
    return {site: values for (statistic, site), values in profile.values.items() if statistic == "parameter_gradient"}


def start(profile: Profile) -> float:
    """Depth from which on sizes are compared: the input, unless its size is another than the first layer's.

    Embeddings may be of any size beside the branches that are added to them, or the norms that they go through.
    """
    q = line(profile, "second_moment")
    if not len(q.depth) or q.depth[0] > 0 or 1 / GROWN < q.at(1.0) / q.values[0] < GROWN:
        return 0.0
    return 1.0


def numbered(profile: Profile, depth: float) -> str:
    """A layer, counted from 1, or a depth within it, with the model's name for the layer: "17 (transformer.h.16)"."""
    layer = math.ceil(depth)
    return f"{depth:g} ({profile.layers[layer - 1]})" if 0 < layer <= len(profile.layers) else f"{depth:g}"


def layer_names(profile: Profile, layers: Iterable[int]) -> str:
    """Layers as a list: "layer 3 (h.2), layer 5 (h.4)"."""
    return ", ".join(text("phrase", "layer", layer=numbered(profile, layer)) for layer in layers)


def path(profile: Profile, layer: int) -> str:
    """A layer, counted from 1, in a line of torch."""
    return f'model.get_submodule("{profile.layers[layer - 1]}")' if layer <= len(profile.layers) else f"layer {layer}"


def stream_before(profile: Profile, site: str, n_layers: int, statistic: str = "second_moment") -> Array:
    """A statistic of the stream that a branch is added to, `[layer]`; nan where it is not known."""
    middle = by_layer(profile, statistic, "resid_mid")
    if site == "mlp_out" and len(middle):
        return middle[:n_layers]
    first, after = (by_layer(profile, statistic, at) for at in ("embed", "resid_post"))
    before = np.full(n_layers, np.nan)
    before[:1] = first[:1] if len(first) else np.nan
    before[1:] = after[: n_layers - 1] if len(after) else np.nan
    return before


def stated(value: float, other: float) -> float | str:
    """A number that is compared with another, or the words "practically 0"; then no ratio of the two says anything."""
    return text("phrase", "nothing") if 0 <= value < NOTHING * min(1.0, abs(other)) else value


def comparable(value: float, other: float) -> bool:
    """Whether neither of two numbers is practically 0 beside the other."""
    return not any(isinstance(stated(*pair), str) for pair in ((value, other), (other, value)))


def head_width(profile: Profile) -> int:
    """Width of a head, from the shape of W_Q and the number of heads; 0 where they are not known."""
    scores = profile.values.get(("logit_std", "attn_scores"))
    if scores is None or scores.ndim < 3 or "W_Q" not in profile.shapes:
        return 0
    return profile.shapes["W_Q"][1] // int(scores.shape[2])


# Layers unlike their siblings: those of a series over layers that their neighbors do not predict.
#
# A law over depth, such as 1/√l, a step, such as Mix-LN's, or a pattern that repeats, such as every fourth layer, is a
# design. A layer is unlike its siblings if it is like neither neighbor, and on no straight line through two of them, in
# depth or in its logarithm; if it leaves them by more than `LIKE` and by more than the others scatter; and if there are
# few such layers.

LIKE = 1.5
"""Ratio up to which a value is like its siblings'. Published laws over depth leave at most 1.25 at their ends, where
they are steepest (the tests compute it)."""
SPREAD = 2.5
"""Ratio beyond which a site is called unlike its siblings'. A branch of alike tokens has no more than a head's
width of independent numbers: with 16 of them, the narrowest in use, one layer in a thousand has 2.45 × its expected
second moment (χ²), and presets of width 64 and 128 stay below it."""
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
