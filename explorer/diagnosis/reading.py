"""Readings of a profile for the rules: statistics over depth, names of layers, and the layers that
stand out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, stdtrit

from explorer.diagnosis.finding import text
from explorer.profile import Profile
from explorer.sites import BRANCHES, STREAM
from explorer.translation import translated
from explorer.vocabulary import Array

GROWN = 10.0
"""A second moment that has grown by so much widens the logits that no norm protects."""
NONE = np.empty(0)
NOTHING = 1e-14
"""A second moment below it, and below this share of another, is practically 0: its root is lost
when float32, which has 24 bits, adds the two."""
SUMMED = 4.0
"""Second moment of a sum over those of its terms, or their inverse, beyond which more was done than
to add: terms that point the same way give 2 at most."""
LOST = 1e-7
"""Second moment of the input, over that after the first layer, below which the tokens are lost
beside it: Pre-LN and Peri-LN of 6 and 12 layers, in width 32, trained without warm-up from 10⁻⁶ on,
and not at 10⁻⁸."""


class Line(NamedTuple):
    """A statistic along the stream, the mean over seeds; empty where the profile has none."""

    depth: Array
    """`[site]`, in layers: 0 is the input, l − ½ after the attention of layer l, l after its
    MLP."""
    values: Array

    def at(self, depth: float) -> float:
        """The value at a depth, or at the first site after it; nan where there is none."""
        after = self.values[np.searchsorted(self.depth, depth) :]
        return float(after[0]) if len(after) else np.nan


def line(profile: Profile, statistic: str) -> Line:
    """A statistic along the stream."""
    if not any((statistic, site) in profile.values for site in STREAM):
        return Line(NONE, NONE)
    depth, values = profile.stream(statistic)
    return Line(depth, values.mean(axis=0))


def by_layer(profile: Profile, statistic: str, site: str) -> Array:
    """A statistic at one site, `[layer]`, the mean over seeds and heads; empty where the profile
    has none."""
    values = profile.values.get((statistic, site))
    return NONE if values is None else values.mean(axis=(0, *range(2, values.ndim)))


def typical_sizes(profile: Profile, names: Iterable[str]) -> dict[str, float]:
    """Median weight variance over layers of the matrices whose variance is known."""
    sizes = {name: by_layer(profile, "weight_variance", name) for name in names}
    return {name: float(np.median(values)) for name, values in sizes.items() if len(values)}


def drawn_variance(profile: Profile, name: str, variance: float) -> str:
    """The variance of a matrix's entries in a line of torch, from the weight variance, which is
    fan_in times as large."""
    if name not in profile.shapes:
        return f"{variance:.3g} / fan_in"
    return f"{variance / profile.shapes[name][0]:.3g}"


def weight_gradients(profile: Profile) -> dict[str, Array]:
    """Norms of the gradient by each matrix, and by α, `[seed, layer]`."""
    return {
        site: values
        for (statistic, site), values in profile.values.items()
        if statistic == "parameter_gradient"
    }


def start(profile: Profile) -> float:
    """Depth from which on sizes are compared: the input, unless its size is another than the first
    layer's.

    Embeddings may be of any size beside the branches that are added to them, or the norms that they
    go through."""
    q = line(profile, "second_moment")
    if not len(q.depth) or q.depth[0] > 0:
        return 0.0
    first = 0.0 if 1 / GROWN < q.at(1.0) / q.values[0] < GROWN else 1.0
    if profile.config is not None:  # the limits for designs of our own were set from there on
        return first
    return max(first, _settled(profile))


def _settled(profile: Profile) -> float:
    """The first layer whose branches have the size that a norm gives those of the later half; 0
    where all have it.

    Also where no norm does. A norm of a branch that is smaller than √ε leaves it small: the first
    layers of a small stream add less. Branches have such a norm where the stream grows over the
    later half, and they do not grow with it."""
    stream = by_layer(profile, "second_moment", "resid_post")
    held = [
        size
        for site in BRANCHES
        if len(size := by_layer(profile, "second_moment", site)) == len(stream)
    ]
    half = len(stream) // 2
    if not held or len(stream) - half < 2:
        return 0.0
    branches = np.sum(held, axis=0)
    if not (
        np.isfinite(branches).all()
        and (branches > 0).all()
        and np.isfinite(stream).all()
        and stream[half] > 0
    ):
        return 0.0
    grown = math.log(stream[-1] / stream[half])
    if not grown > math.log(LIKE) or np.ptp(np.log(branches[half:])) > grown / 2:
        return 0.0
    layer = int(np.argmax(branches > np.median(branches[half:]) / GROWN)) + 1
    return float(layer) if layer > 1 else 0.0


def only_added(profile: Profile) -> bool:
    """Whether the first layer only adds its branches to the embedding, and these do not drown it;
    False where it is not known.

    Second moments of unrelated terms add. A norm on the sum makes the stream of another size than
    its terms: larger or smaller by more than `SUMMED`. The embedding is drowned where its second
    moment is below `LOST` times the stream's after the layer."""
    # of layer 1 each: an array of one number, or of none where it was not measured
    embed, attention, mlp = (
        by_layer(profile, "second_moment", site)[:1] for site in ("embed", *BRANCHES)
    )
    after = by_layer(profile, "second_moment", "resid_mid")[:1]
    terms = [embed, attention]
    if not len(after):  # the stream was not measured between the branches: compare after both
        after = by_layer(profile, "second_moment", "resid_post")[:1]
        terms.append(mlp)
    if not len(embed) or not len(after) or not any(map(len, terms[1:])):
        return False
    ratio = after[0] / float(np.sum(np.concatenate(terms)))
    after_layer = line(profile, "second_moment").at(1.0)  # at depth 1: after the first MLP
    return bool(1 / SUMMED < ratio < SUMMED and embed[0] > LOST * after_layer)


def numbered(profile: Profile, depth: float) -> str:
    """A layer, counted from 1, or a depth within it, with the model's name for the layer: "17
    (transformer.h.16)"."""
    layer = math.ceil(depth)
    return (
        f"{depth:g} ({profile.layers[layer - 1]})"
        if 0 < layer <= len(profile.layers)
        else f"{depth:g}"
    )


def capitalized(note: str) -> str:
    """A note in the language that is spoken, at the beginning of a sentence."""
    note = translated(note)
    return note[:1].upper() + note[1:]


def place(profile: Profile, depth: float) -> str:
    """A layer in words, "layer 17 (transformer.h.16)", or the input, which is layer 0."""
    layer = math.ceil(depth)
    return text("phrase", "layer" if layer else "input", layer=numbered(profile, layer))


def layer_names(profile: Profile, layers: Iterable[int]) -> str:
    """Layers as a list: "layer 3 (h.2), layer 5 (h.4)"."""
    return text("phrase", "comma").join(place(profile, layer) for layer in layers)


def runs(layers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last layer of each run of layers that follow one another; the layers are in
    order."""
    ends: list[tuple[int, int]] = []
    for layer in layers:
        if ends and layer == ends[-1][1] + 1:
            ends[-1] = (ends[-1][0], layer)
        else:
            ends.append((layer, layer))
    return ends


def path(profile: Profile, layer: int) -> str:
    """A layer, counted from 1, in a line of torch."""
    return (
        f'model.get_submodule("{profile.layers[layer - 1]}")'
        if layer <= len(profile.layers)
        else f"layer {layer}"
    )


def stream_before(
    profile: Profile, site: str, n_layers: int, statistic: str = "second_moment"
) -> Array:
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
    """A number that is compared with another, or the words "practically 0"; then no ratio of the
    two says anything."""
    return text("phrase", "nothing") if 0 <= value < NOTHING * min(1.0, abs(other)) else value


def comparable(value: float, other: float) -> bool:
    """Whether neither of two numbers is practically 0 beside the other."""
    return not any(isinstance(stated(*pair), str) for pair in ((value, other), (other, value)))


def head_width(profile: Profile) -> int:
    """Width of a head, from the shape of W_Q and the number of heads; 0 where they are not
    known."""
    scores = profile.values.get(("logit_std", "attn_scores"))
    if scores is None or scores.ndim < 3 or "W_Q" not in profile.shapes:
        return 0
    return profile.shapes["W_Q"][1] // int(scores.shape[2])


# Layers unlike their siblings: those of a series over layers that their neighbors do not predict.
# A law over depth, such as 1/√l, a step, such as Mix-LN's, or a pattern that repeats, such as every
# fourth layer, is a design. A layer is unlike its siblings if it is like neither neighbor, and on
# no straight line through two of them, in depth or in its logarithm; if it leaves them by more than
# `LIKE` and by more than the others scatter; and if there are few such layers.

LIKE = 1.5
"""Ratio up to which a value is like its siblings'. Published laws over depth leave at most 1.25 at
their ends, where they are steepest (the tests compute it)."""
SPREAD = 2.5
"""Ratio beyond which a site is called unlike its siblings'. A branch of alike tokens has no more
than a head's width of independent numbers: with 16 of them, the narrowest in use, one layer in a
thousand has 2.45 × its expected second moment (χ²), and presets of width 64 and 128 stay below it.
Narrower heads have more: see `spread`."""
CHANCE = 1e-3
"""Chance that one of a healthy series' layers is called unlike, were scatter Gaussian. The most
deviant are left out of the estimate of scatter: where layers differ by a factor of 1.6, as in no
fresh model, the chance is 1 % (the tests)."""
FEW = 4
"""At most one layer in so many, and no series shorter than this."""
PAIRS = ((-2, -1), (-1, 1), (1, 2))
"""Layers before and after one, through which straight lines go to it."""


def unlike(
    series: Mapping[str, Array], like: float = LIKE, kinds: Sequence[str] = ()
) -> dict[str, dict[int, float]]:
    """Layers (from 1) of each series that stand out, with the ratio to the nearest value that their
    neighbors predict.

    Args:
        series: name to positive values, `[layer]`; a value that is zero or not finite is left out,
            and stands out not.
        like: ratio up to which a value is like its siblings'.
        kinds: name of each layer's kind, of which alone are its siblings; empty where all are of
            one.
    """
    parts = {
        (name, kind): (depth, _logarithms(values[depth - 1]))
        for name, values in series.items()
        for kind, depth in of_kinds(kinds, len(values)).items()
        if len(depth) >= FEW
    }
    far = {part: departure(y, depth) for part, (depth, y) in parts.items()}
    suspects = {part: np.abs(far[part]) > np.log(like) for part in parts}
    steps = {part: _steps(y[~suspects[part]]) for part, (_, y) in parts.items()}
    outliers: dict[str, dict[int, float]] = {}
    for part, (depth, y) in parts.items():
        # few layers say little of their scatter: all series together say more
        own = steps[part] if len(steps[part]) >= 2 * FEW else np.concatenate(list(steps.values()))
        at = np.flatnonzero(suspects[part] & (np.abs(far[part]) > _scatter(own, len(y))))
        if (
            len(at)
            and len(at) <= max(1, len(y) // FEW)
            and not _repeats(np.flatnonzero(suspects[part]), len(y))
        ):
            ratios = {int(depth[place]): float(np.exp(far[part][place])) for place in at}
            outliers.setdefault(part[0], {}).update(ratios)
    return outliers


def spread(profile: Profile) -> float:
    """Ratio beyond which a site is called unlike its siblings', by the width of a head: see
    `SPREAD`."""
    width = head_width(profile)
    return max(SPREAD, float(chdtri(width, CHANCE)) / width) if width else SPREAD


def of_kinds(kinds: Sequence[str], n_layers: int) -> dict[str, NDArray[np.intp]]:
    """Layers, from 1, of each kind; all are of one where kinds are not known."""
    if len(kinds) != n_layers:
        return {"": np.arange(1, n_layers + 1)}
    names = np.array(kinds)
    return {kind: np.flatnonzero(names == kind) + 1 for kind in dict.fromkeys(kinds)}


def beside(size: Array, layer: int, kinds: Sequence[str] = ()) -> float:
    """Geometric mean of a statistic, `[layer]`, of the layers of one layer's kind that come next to
    it."""
    depth = next(depth for depth in of_kinds(kinds, len(size)).values() if layer in depth)
    place = int(np.searchsorted(depth, layer))
    near = [depth[at] - 1 for at in (place - 1, place + 1) if 0 <= at < len(depth)]
    return float(np.exp(np.mean(np.log(size[near]))))


def _logarithms(values: Array) -> Array:
    return np.where(values > 0, np.log(np.maximum(values, 1e-300)), np.nan)


def worst(outliers: Mapping[str, Mapping[int, float]]) -> tuple[int, dict[str, float]]:
    """The layer that stands out most, and in which series, with the ratios."""
    _, layer = max(
        (abs(math.log(ratio)), layer)
        for layers in outliers.values()
        for layer, ratio in layers.items()
    )
    return layer, {name: layers[layer] for name, layers in outliers.items() if layer in layers}


def departure(y: Array, depth: NDArray[np.intp] | None = None) -> Array:
    """Signed distance of each `[layer]` to the nearest value that its neighbors predict; 0 if it
    lies among them.

    Args:
        y: logarithms, of which nan is left out.
        depth: where the layers lie; from 1 on where none is given.
    """
    places = np.arange(1, len(y) + 1) if depth is None else depth
    scales = (places.astype(np.float64), np.log(places))
    departures = np.zeros(len(y))
    for layer in range(len(y)):
        predicted = [y[near] for near in (layer - 1, layer + 1) if 0 <= near < len(y)]
        # the one neighbor may be the odd one
        ends = ((2, 3),) * (layer == 0) + ((-3, -2),) * (layer == len(y) - 1)
        for left, right in ((layer + left, layer + right) for left, right in (*PAIRS, *ends)):
            if left >= 0 and right < len(y):
                predicted += [_straight(scale, y, left, right, layer) for scale in scales]
        gaps = y[layer] - np.array(predicted)
        gaps = gaps[np.isfinite(gaps)]
        if len(gaps) and (np.all(gaps > 0) or np.all(gaps < 0)):
            departures[layer] = gaps[np.argmin(np.abs(gaps))]
    return departures


def _straight(x: Array, y: Array, left: int, right: int, at: int) -> float:
    """The value at `x[at]` of the line through two points."""
    return float(y[left] + (y[right] - y[left]) * (x[at] - x[left]) / (x[right] - x[left]))


def _steps(y: Array) -> Array:
    """Differences from layer to layer, about their median; √2 times as large as the layers
    scatter."""
    steps = np.diff(y[np.isfinite(y)])
    return steps - np.median(steps) if len(steps) else steps


def _scatter(steps: Array, n_layers: int) -> float:
    """The largest departure that scatter explains; infinite where nothing is known of it."""
    if len(steps) < 2:
        return np.inf
    return float(
        stdtrit(len(steps) - 1, 1 - CHANCE / (2 * n_layers)) * np.sqrt(np.mean(steps**2) / 2)
    )


def _repeats(at: NDArray[np.intp], n_layers: int) -> bool:
    """Whether they come at one distance from end to end: first and last, or one in each group of
    layers.

    Two may do so by chance; then they must be the first or the last of their group.
    """
    gaps = np.unique(np.diff(at))
    if len(gaps) != 1 or at[0] >= gaps[0] or at[-1] + gaps[0] < n_layers:
        return False
    return len(at) > 2 or at[0] in (0, gaps[0] - 1)
