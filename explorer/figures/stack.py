"""The whole stack as a picture: the signal's way through the layers, and below it the gradient's
way back, as bands whose thickness and color are second moments on a log scale.

It is drawn from `Design`: a branch leaves the stream and returns to it, as thick as what it adds,
and dots are norms. The picture is as wide as its place; heights are pixels. A deep stack is folded:
its first and last layers have their places, and those between share the fold."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.figures.palette import diverging
from explorer.numbers import number
from explorer.profile import Profile
from explorer.schemes.placement import SITES
from explorer.sites import BRANCHES
from explorer.vocabulary import STATISTICS, Array

WIDTH, HEIGHT = 1000, 92
"""Units across, of whatever width the picture has, and pixels from the top."""
SIZES = {"wide": 24, "narrow": 12}
"""Layers with a place of their own in a folded picture: a wide one, and a phone's."""
MARGIN, FOLD, FOLDED_POINTS = 104.0, 4, 12
"""Units before the first layer and after the last; the fold in layers' widths; and values that are
drawn within it."""
INSET, SEAM, HATCHING = 0.12, 1.5, 8
"""From where a branch's half layer begins to where it leaves the stream, in half layers; units by
which pieces of a band overlap, and between the strokes of a hatching."""
TOP = -8.0
"""Height of the control points of a branch's arch: it rises three quarters of the way."""
ARCH = {"input": 0.2, "values": 0.4, "last": 0.6, "output": 0.8}
"""How far along its branch a norm stands, by the signal that it normalizes, from 0 to 1."""
THINNEST, NOTHING = 0.5, 99.0
"""Half the pixels of what is next to nothing, and powers of ten below the reference of zero."""
KINDS = ("attention", "mlp")
"""Of the sublayers of a layer, in their order."""
KEY = (
    '<span class="ex-stack-key"><i class="ex-stack-attention"></i>attention '
    '<i class="ex-stack-mlp"></i>MLP <i class="ex-stack-norm"></i>norm '
    '<i class="ex-stack-level"></i>unchanged</span>'
)

Spans = tuple[tuple[int, float, float], ...]


class Band(NamedTuple):
    """How a second moment becomes a thickness and a color."""

    middle: float
    """Pixels from the top."""
    half: float
    """Half its thickness where the value is the reference."""
    decade: float
    """Pixels by which half the thickness grows with each power of ten."""
    most: float
    """Half of the largest thickness, in pixels."""
    limit: float
    """Powers of ten from the reference at which the color is the last of its scale: one more than
    the verdict's limit."""

    def halves(self, decades: Array) -> Array:
        """Half the thickness, in pixels, of values in powers of ten of their reference."""
        return np.clip(self.half + self.decade * decades, THINNEST, self.most)


SIGNAL, GRADIENT = Band(43, 6, 5, 21, 4), Band(79, 4.5, 2.2, 12, 6)
BRANCH = Band(43, 1.7, 1, 3.5, 4)


def along(config: Config, profile: Profile | None, statistic: str) -> Array | None:
    """A statistic of the stream after each half layer, `[2N + 1]`, from the input; None where the
    profile does not have it."""
    if profile is None or (statistic, "resid_post") not in profile:
        return None
    row = STATISTICS[statistic]
    values = np.empty(2 * config.n_layers + 1)
    values[0] = row.mean(profile[statistic, "embed"])[0]
    values[1::2] = row.mean(profile[statistic, "resid_mid"])
    values[2::2] = row.mean(profile[statistic, "resid_post"])
    return values


def added(config: Config, profile: Profile | None) -> Array | None:
    """Second moment of what each sublayer adds to the stream, its factor included, `[2N]`; 0 where
    it has no such branch. None without a profile."""
    if profile is None:
        return None
    row = STATISTICS["second_moment"]
    sizes = np.zeros((config.n_layers, 2))
    for kind, site in enumerate(BRANCHES):
        if (row.name, site) in profile:
            sizes[:, kind] = row.mean(profile[row.name, site])
    return sizes.ravel() * np.square(config.design.branches)


def missing_words(profile: Profile) -> str:
    """A number that a profile does not have, in words: theory does not cover it; measured, it is
    not finite."""
    return "not covered" if profile.origin == "predicted" else "not finite"


def _decades(values: Array | None, reference: float, count: int) -> Array:
    """Values in powers of ten of a reference, nan where they are not finite; zeros, as many as
    `count`, where they are not known."""
    if values is None:
        return np.zeros(count)
    with np.errstate(all="ignore"):
        decades = np.log10(values / reference)
    return np.where(np.isfinite(values), np.maximum(decades, -NOTHING), np.nan)


class Places(NamedTuple):
    """Where layers stand in a picture."""

    n_layers: int
    first: int
    """Layers before the fold, which have a place each; all, where nothing is folded."""
    last: int
    """Layers after the fold."""

    @property
    def n_folded(self) -> int:
        """Layers within the fold."""
        return self.n_layers - self.first - self.last

    @property
    def knots(self) -> list[tuple[int, float]]:
        """Depths, in layers, and units across; between two of them layers have equal room."""
        widths = [(self.first, self.first), (self.n_folded, FOLD), (self.last, self.last)]
        widths = [(n_layers, width) for n_layers, width in widths if n_layers]
        unit = (WIDTH - 2 * MARGIN) / sum(width for _, width in widths)
        knots = [(0, MARGIN)]
        for n_layers, width in widths:
            depth, across = knots[-1]
            knots.append((depth + n_layers, across + unit * width))
        return knots

    def across(self, half_layers: Array) -> list[float]:
        """Units across of depths in half layers."""
        layers, units = zip(*self.knots, strict=True)
        across: list[float] = np.interp(half_layers / 2, layers, units).tolist()
        return across

    @property
    def points(self) -> Array:
        """Half layers, 0 … 2N, at which a band's thickness is drawn."""
        before, after = 2 * self.first, 2 * (self.n_layers - self.last)
        folded = np.linspace(before, after, FOLDED_POINTS).astype(int)
        return np.unique([*range(before + 1), *folded, *range(after, 2 * self.n_layers + 1)])


def places(n_layers: int, most: int) -> Places:
    """The places of so many layers: so many of them are drawn where more are left than have room in
    the fold."""
    if n_layers - most <= FOLD:
        return Places(n_layers, n_layers, 0)
    return Places(n_layers, most // 2, most // 2)


def stack(config: Config, profile: Profile | None = None) -> str:
    """The picture as HTML, with its ends in words: wide, and narrow where that has fewer layers.

    Args:
        profile: gives thickness and color; without one each band is as thick as its reference.
    """
    signal = along(config, profile, "second_moment")
    gradient = along(config, profile, "activation_gradient")
    count = 2 * config.n_layers
    reference = 1.0 if signal is None else signal[0]
    forward = _decades(signal, reference, count + 1)
    branches = _decades(added(config, profile), reference, count)
    back = _decades(gradient, 1.0 if gradient is None else gradient[-1], count + 1)
    origin = profile.origin if profile else "withheld"
    drawn = {name: places(config.n_layers, most) for name, most in SIZES.items()}
    if drawn["wide"] == drawn["narrow"]:
        drawn = {"whole": drawn["wide"]}
    views = ""
    for name, where in drawn.items():
        spans = _spans(where, config.design.attends, config.design.stream.parallel)
        knots = " ".join(f"{depth}:{units / WIDTH:.4f}" for depth, units in where.knots)
        shapes = (
            _band(SIGNAL, where, forward)
            + _band(GRADIENT, where, back)
            + _inner_lines(config, spans)
            + _arches(spans, branches, forward)
            + _norms(config, spans)
        )
        folded = f"<span>{where.n_folded} layers</span>" if where.n_folded else ""
        views += (
            f'<div class="ex-stack-view ex-stack-{name}" data-knots="{knots}" data-origin="{origin}">'
            f'<div class="ex-stack-chosen"></div>'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">{shapes}</svg>{folded}</div>'
        )
    missing = missing_words(profile) if profile else ""
    first, last = _ends(signal, missing)
    at_input, _ = _ends(gradient, missing, " ×")
    above = f"<span>signal {first}</span><span>{last} →</span>"
    below = f"<span>← gradient {at_input}</span>{KEY}<span></span>"
    return f"<p>{above}</p>{views}<p>{below}</p>"


def description(config: Config, profile: Profile | None) -> str:
    """The picture in words."""
    layers = "1 layer" if config.n_layers == 1 else f"{config.n_layers} layers"
    if profile is None:
        return f"{layers}; their numbers are withheld."
    missing = missing_words(profile)
    first, last = _ends(along(config, profile, "second_moment"), missing)
    at_input, _ = _ends(along(config, profile, "activation_gradient"), missing, " ×")
    course = f"goes from {first} at the input to {last} at the end"
    if missing in last:
        course = f"is {first} at the input"
        if first != last:
            course += f" and {last}"
    sentence = f"{layers}, {profile.origin}. The signal, mean x², {course}."
    if at_input:
        ratio = at_input if at_input == missing else f"{at_input} the last layer's"
        sentence += f" The gradient, mean squared, is {ratio} at the input."
    return sentence


def _ends(values: Array | None, missing: str, unit: str = "") -> tuple[str, str]:
    """First and last value as text, with a unit; the last one says where values stop being finite.

    Args:
        values: at the input and after each half layer, `[2N + 1]`: see `along`.
        missing: what stands for a value that is not finite.
    """
    if values is None:
        return "", ""
    first, last = (number(value, 2) + unit for value in values[[0, -1]])
    bad = np.flatnonzero(~np.isfinite(values)).tolist()
    if bad:
        # the half layers of layer k are 2k − 1 and 2k
        last = f"{missing} from layer {(bad[0] + 1) // 2}"
    if 0 in bad:
        first = last = missing
    return first, last


def _band(band: Band, where: Places, decades: Array) -> str:
    """A band through the stack, hatched where values are not finite, and as dashes the band of a
    value that stays what the reference is.

    Args:
        decades: values after each half layer, `[2N + 1]`, in powers of ten of the reference.
    """
    # beyond the stack the band goes on as it is at the stack's ends
    across = [0.0, *where.across(where.points), WIDTH]
    decades = np.pad(decades[where.points], 1, "edge")
    between = (decades[1:] + decades[:-1]) / 2
    is_missing = np.isnan(between).tolist()
    colors = diverging(np.nan_to_num(between) / band.limit)
    middle = band.middle
    halves = band.halves(decades).tolist()
    upper, lower = [], []  # points as text; nan where a value is missing
    for units, half in zip(across, halves, strict=True):
        upper.append(f"{units:.0f} {middle - half:.1f}")
        lower.append(f"{units:.0f} {middle + half:.1f}")
    shapes = edges = hatching = ""
    for index, color in enumerate(colors):
        after = index + 1
        if is_missing[index]:
            for stroke in np.arange(across[index], across[after], HATCHING):
                hatching += f"M{stroke:.0f} {middle + band.half}l{HATCHING} {-2 * band.half}"
            continue
        down = f"V{middle + halves[after]:.1f}"
        shapes += (
            f'<path fill="{color}" d="M{upper[index]}L{upper[after]}h{SEAM}{down}L{lower[index]}"/>'
        )
        edges += f"M{upper[index]}L{upper[after]}M{lower[index]}L{lower[after]}"
    half = band.half
    level = f"M0 {middle - half}H{WIDTH}M0 {middle + half}H{WIDTH}"
    return (
        f'<g class="ex-stack-band">{shapes}</g><path class="ex-stack-edge" d="{edges}"/>'
        f'<path class="ex-stack-hatching" d="{hatching}"/><path class="ex-stack-level" d="{level}"/>'
    )


@lru_cache(maxsize=64)  # a slider that moves no layer has the same ones again and again
def _spans(where: Places, attends: bool, is_parallel: bool) -> Spans:
    """Each drawn sublayer that the design has, from 0, two a layer, with the units across where its
    branch leaves the stream and where it returns."""
    fold = range(2 * where.first, 2 * (where.n_layers - where.last))
    sublayers = range(2 * where.n_layers)
    drawn = [index for index in sublayers if index not in fold and (index % 2 or attends)]
    whole_layer = is_parallel or not attends
    starts = [index - index % 2 if whole_layer else index for index in drawn]
    left = where.across(np.array(starts) + INSET)
    right = where.across(np.array(drawn) + 1 - INSET)
    return tuple(zip(drawn, left, right, strict=True))


def _arches(spans: Spans, branches: Array, forward: Array) -> str:
    """The branches, each as thick as what it adds, from the edge of the stream and back to it; not
    where that is not finite.

    Args:
        branches: what sublayers add, `[2N]`, in powers of ten of the signal's reference.
        forward: the signal after each half layer, `[2N + 1]`, likewise.
    """
    widths = (2 * BRANCH.halves(branches)).tolist()
    edges = (SIGNAL.middle - SIGNAL.halves(forward) + 1).tolist()
    is_missing = np.isnan(branches + forward[1:] + forward[:-1]).tolist()
    arches = ""
    for index, left, right in spans:
        if not is_missing[index]:
            arches += (
                f'<path class="ex-stack-{KINDS[index % 2]}" stroke-width="{widths[index]:.1f}" '
                f'd="M{left:.0f} {edges[index]:.1f}C{left:.0f} {TOP} {right:.0f} {TOP} '
                f'{right:.0f} {edges[index + 1]:.1f}"/>'
            )
    return arches


def _inner_lines(config: Config, spans: Spans) -> str:
    """Gaps of the stream where it does not go on beside a branch, and lines between several
    streams."""
    gaps = lines = ""
    for index, left, right in spans:
        if config.design.skips[index] == 0:
            gaps += f"M{left:.0f} {SIGNAL.middle}H{right:.0f}"
    rule = config.design.stream
    if rule.mixes == "streams":
        for line in range(1, config.n_streams):
            height = SIGNAL.middle + SIGNAL.half * (2 * line / config.n_streams - 1)
            lines += f"M0 {height:.1f}H{WIDTH}"
    return (
        f'<path class="ex-stack-gap" stroke-width="{2 * SIGNAL.most}" d="{gaps}"/>'
        f'<path class="ex-stack-gap" d="{lines}"/>'
    )


def _norms(config: Config, spans: Spans) -> str:
    """The norms, a dot each: on the branch, beside it, or after the sum."""
    design, dots = config.design, ""
    for index, left, right in spans:
        for name in design.sublayers[index].norms:
            signal = SITES[name].part
            if signal == "values" and index % 2:
                continue  # the MLP has none
            across, height = (left + right) / 2, SIGNAL.middle
            if signal == "sum":
                across = right
            if signal in ARCH:
                share = ARCH[signal]
                across = left + (right - left) * share**2 * (3 - 2 * share)
                height += (TOP - SIGNAL.middle) * 3 * share * (1 - share)
            dots += f"M{across:.0f} {height:.1f}h0"
    if design.final_norm:
        dots += f"M{WIDTH - 10} {SIGNAL.middle}h0"
    return "".join(f'<path class="ex-stack-{name}" d="{dots}"/>' for name in ("ring", "norm"))
