"""Statistics of profiles over depth, and their traces: dots are measured, lines predicted, bands
hold all seeds, or two of three draws as predicted.

What such a trace cannot show has marks of its own: values that are not finite, and zeros on a
logarithmic axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.figures.kit import (
    MOST_DOTS,
    Axis,
    Trace,
    capped,
    compact,
    dots,
    drawable,
    ends,
    hover,
    line,
    mark,
    room_for_words,
)
from explorer.figures.palette import LegendEntry, designs
from explorer.figures.words import typeset
from explorer.profile import Breakdown, Profile
from explorer.sites import STREAM
from explorer.vocabulary import VOCABULARY, Array, Statistic

GRADIENTS = {"activation_gradient": "gradient at ", "parameter_gradient": "gradient of "}
"""Statistics that break on the way back, from a layer down."""


@dataclass(frozen=True, eq=False)
class Series:
    """One statistic of one profile over depth; every array is `[site]`, values as they are, finite
    or not."""

    design: LegendEntry
    profile: Profile
    depth: Array
    """In layers: 0 is the input, half layers lie between attention and MLP. Of a statistic by
    position it is the token's, from 1."""
    middle: Array
    """Mean over seeds; median over heads and seeds of a statistic that heads have."""
    low: Array
    high: Array
    """Lowest and highest of the seeds and heads; of a prediction, between which two of three draws
    are."""
    error: Array
    """Standard error of the mean over seeds; nan of a single one."""
    note: str = ""
    """The reason why a prediction is unreliable, in part or as a whole."""
    gaps: tuple[float, ...] = ()
    """Depths of the layers without such a value: a layer without attention has no entropy."""

    @property
    def measured(self) -> bool:
        """Measured is drawn as dots with a band, predicted as a line."""
        return self.profile.origin == "measured"

    @property
    def drawn_values(self) -> tuple[Array, Array, Array]:
        """All that an axis must hold."""
        return self.middle, self.low, self.high

    @property
    def name(self) -> str:
        """The design and "measured" or "predicted"; the latter alone where the design has no
        label."""
        return f"{self.design.label}, {self.profile.origin}".removeprefix(", ")

    @property
    def heading(self) -> str:
        """The design's heading, and measured or predicted, escaped for plotly."""
        return self.design.named(self.profile.origin)


def by_depth(
    profiles: Sequence[Profile], statistic: str, site: str, looks: Sequence[LegendEntry] = ()
) -> list[Series]:
    """A statistic of every profile that has it, at one kind of site by layer.

    Mean and range over seeds; where there are heads, median and range over seeds and heads
    together.

    Args:
        statistic: its name in the vocabulary.
        site: such as "attn_out"; empty for the sites of the residual stream one after the other.
        looks: the legend entry of each profile, where the caller fixes them.
    """
    row = VOCABULARY[statistic]
    series = []
    for design, profile in zip(designs(profiles, looks), profiles, strict=True):
        sites = [site] if site else STREAM
        if not any((statistic, name) in profile.values for name in sites):
            continue
        if site:
            depth, values = profile.depth(site), profile[statistic, site]
            scatter = profile.scatter.get((statistic, site))
        else:
            depth, values = profile.stream(statistic)
            scatter = profile.stream_scatter(statistic)
        curve = spread(row, design, profile, depth, values, profile.note(statistic, site))
        if not curve.measured:
            factor = 1.0 if scatter is None else np.exp(scatter[0])
            curve = replace(curve, low=curve.middle / factor, high=curve.middle * factor)
        absent = profile.absent.get((statistic, site), ())  # layers, from 1
        gaps = tuple(float(depth[layer - 1]) for layer in absent)
        series.append(replace(curve, gaps=gaps))
    return series


def spread(
    row: Statistic,
    design: LegendEntry,
    profile: Profile,
    depth: Array,
    values: Array,
    note: str = "",
) -> Series:
    """Reduces `[seed, site]` by the mean, `[seed, site, head]` by the median, to `[site]`; values
    that are not finite stay so.

    Args:
        row: the statistic.
        depth: of each site, in layers; or the position of a token.
        note: why the values, if predicted, are unreliable.
    """
    has_heads = values.ndim == 3
    sites = values.shape[1]
    draws = np.moveaxis(values, 1, -1).reshape(-1, sites)  # [seed and head, site]
    with np.errstate(invalid="ignore", over="ignore"):
        # heads of one seed share their input: the error is of the seeds' means
        by_seed = row.mean(values, 2) if has_heads else values
        return Series(
            design=design,
            profile=profile,
            depth=depth,
            middle=np.median(draws, axis=0) if has_heads else row.mean(draws),
            low=np.min(draws, axis=0),
            high=np.max(draws, axis=0),
            error=row.standard_error(by_seed),
            note=note,
        )


def runs(keep: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    """The indices of each unbroken run of True."""
    indices = np.flatnonzero(keep)
    if len(indices):
        yield from np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)


def rows(series: Sequence[Series], log: bool, sentence: str) -> list[Trace]:
    """The traces of several series: all bands first, then lines, then dots on top.

    Args:
        log: whether the vertical axis is logarithmic.
        sentence: the hover text, with `%{x}`, the depth, and `%{y}`, the value.
    """
    return [
        *(trace for row in series for trace in band(row, log)),
        *(predicted(row, log, sentence) for row in series if not row.measured),
        *(measured(row, log, sentence) for row in series if row.measured),
    ]


def band(row: Series, log: bool) -> list[Trace]:
    """From the smallest to the largest of the seeds (and heads), or between which two of three
    draws are predicted to be: one closed outline for every unbroken run of depths, all in one
    trace.

    The band of a single draw has no height, so it is left out where the dots show every depth, and
    is a hairline where there are more depths than dots. The first of several draws has an invisible
    band, so that further draws only move it. A predicted band is fainter, and has a hairline around
    it."""
    pieces = list(runs(drawable(row.low, log) & drawable(row.high, log)))
    flat = np.array_equal(row.low, row.high, equal_nan=True)
    all_dotted = len(row.depth) <= MOST_DOTS
    more_to_come = row.profile.partial
    if not pieces or (flat and not row.measured) or (flat and all_dotted and not more_to_come):
        return []
    gap = np.array([np.nan])
    x, y = [], []
    for piece in pieces:
        # along the lower edge, and back along the upper
        x += [row.depth[piece], row.depth[piece][::-1], gap]
        y += [row.low[piece], row.high[piece][::-1], gap]
    hairline = not row.measured or (flat and not all_dotted and not more_to_come)
    return [
        mark(
            "lines",
            f"{row.heading}, spread",
            compact(np.concatenate(x)[:-1]),
            compact(np.concatenate(y)[:-1]),
            fill="toself",
            fillcolor=row.design.faint(0.25 if row.measured else 0.08),
            line={
                "width": 1 if hairline else 0,
                "color": row.design.faint(0.6 if row.measured else 0.35),
            },
            hoverinfo="skip",
        )
    ]


def measured(row: Series, log: bool, sentence: str, symbol: str = "", **more: Any) -> Trace:
    """Dots, with their range and standard error on hovering.

    Args:
        log: whether the vertical axis is logarithmic.
        sentence: the hover text, with `%{x}` and `%{y}`.
        symbol: another than the design's.
        more: other properties of the trace.
    """
    seeds = len(row.profile.seeds)
    hollow = "open" in symbol
    size = 7 if len(row.depth) <= MOST_DOTS else 5
    if hollow:
        size = 10  # the ring is seen around a full dot at the same place
    columns = [row.low, row.high]
    if seeds > 1:
        columns.append(row.error)
    trace = dots(
        row.depth,
        row.middle,
        row.design,
        row.heading,
        hover(row.heading, with_spread(sentence, seeds)),
        log=log,
        size=size,
        symbol=symbol or row.design.symbol,
        line={"width": 1.5 if hollow else 0},
    )
    return trace | {"customdata": compact(np.stack(columns, axis=1))} | more


def predicted(row: Series, log: bool, sentence: str, dash: str = "", **more: Any) -> Trace:
    """A line; dotted where the theory is unreliable, with the reason on hovering.

    Args:
        log: whether the vertical axis is logarithmic.
        sentence: the hover text, with `%{x}` and `%{y}`.
        dash: another than the design's.
        more: other properties of the trace.
    """
    if row.note:
        sentence += f"<br>theory: {typeset(row.note)}"
        dash = "dot"
    if (row.high > row.middle).any():
        sentence += "<br>two of three draws within × or ÷ %{customdata:.3g}"
        more = {"customdata": compact(row.high / row.middle)} | more
    words = hover(row.heading, sentence)
    trace = line(row.depth, row.middle, row.design, row.heading, words, log=log, dash=dash)
    return trace | {"showlegend": True} | more


def with_spread(sentence: str, seeds: int) -> str:
    """A hover text's sentence with the range of the seeds, and with the standard error where there
    are several.

    A dot's `customdata` holds lowest, highest and standard error.
    """
    extremes = "from %{customdata[0]:.3g} to %{customdata[1]:.3g}"
    if seeds == 1:
        return f"{sentence}<br>(1 seed, {extremes})"
    error = "standard error of the mean %{customdata[2]:.2g}"
    return f"{sentence}<br>({seeds} seeds, {extremes};<br>{error})"


def describe(subject: str, named: Sequence[tuple[str, Series]]) -> str:
    """A chart over depth in words: one sentence a series says where it starts and ends, its lowest
    and highest point.

    Args:
        subject: the statistic.
        named: pairs of the matrix's name, empty where a series is of no matrix, and the series.
    """
    sentences = [f"{subject}, over depth."]
    for matrix, row in named:
        has_value = ~np.isin(row.depth, row.gaps)
        name = ", ".join(filter(None, (matrix, row.name)))
        sentence = ends(name, row.depth[has_value], row.middle[has_value], "depth ")
        sentences.append(sentence[0].upper() + sentence[1:])
    if not named:
        sentences.append("Nothing measured yet.")
    return " ".join(sentences)


def breakdowns(series: Sequence[Series]) -> dict[LegendEntry, tuple[Profile, Breakdown]]:
    """The first value that is not finite, and its profile, of each design that has such a value.

    Where theory and measurement both break, the measured one is marked."""
    breaks: dict[LegendEntry, tuple[Profile, Breakdown]] = {}
    for row in sorted(series, key=lambda row: not row.measured):
        if all(np.isfinite(values).all() for values in row.drawn_values):
            continue
        if breakdown := row.profile.first_nonfinite:
            breaks.setdefault(row.design, (row.profile, breakdown))
    return breaks


def broken(
    breaks: Mapping[LegendEntry, tuple[Profile, Breakdown]], across: Axis, height: Axis
) -> list[Trace]:
    """Vertical lines at the depth where values stop being finite, one a design; the height has
    `room_for_breaks`."""
    alone = len(breaks) == 1
    return [
        _break(design, profile, breakdown, across, height, number, alone)
        for number, (design, (profile, breakdown)) in enumerate(breaks.items(), start=1)
    ]


def room_for_breaks(breaks: Sized) -> float:
    """The share of a chart's height that the labels of `broken` take above all data."""
    return room_for_words(_lowest_line(number=len(breaks), alone=len(breaks) == 1))


def _lowest_line(number: int, alone: bool) -> int:
    """The line of text on which a breakdown's label ends, counted from 1 at the top of the chart.

    Labels of several designs stand below each other, one line each, so that the label of the
    `number`-th design is on that line. A design alone has a label of two lines: depth and site."""
    return 2 if alone else number


def _break(
    design: LegendEntry,
    profile: Profile,
    breakdown: Breakdown,
    across: Axis,
    height: Axis,
    number: int,
    alone: bool,
) -> Trace:
    """One vertical line with its label on top, those of several designs below each other.

    The label of one design alone has a second line, the site; of several, hovering says it.

    Args:
        number: which of the breakdowns this is, from 1.
        alone: whether it is the only one.
    """
    words = _verdict(profile, breakdown)
    return capped(
        breakdown.depth,
        words if alone else words.partition("<br>")[0],
        across,
        height,
        design.hue,
        _lowest_line(number, alone),
        name=design.named("not finite"),
        hovertemplate=f"{design.bold}{words}<extra></extra>",
    )


def _verdict(profile: Profile, breakdown: Breakdown) -> str:
    """Where values stop being finite, in two lines of HTML: "predicted not finite from layer 5 on",
    with "predicted" only of theory's values, and "(attention output)", the site.

    Gradients go from the last layer to the first: they are not finite from a layer "down", and
    their site has a prefix, see `GRADIENTS`."""
    start = f"layer {breakdown.layer}" if breakdown.layer else "the input"
    site = typeset(breakdown.site_label)
    gradient_of = GRADIENTS.get(breakdown.statistic, "")
    direction = "down" if gradient_of else "on"
    predicted = "predicted " if profile.origin == "predicted" else ""
    return f"{predicted}not finite from {start} {direction}<br>({gradient_of}{site})"


def floor(named: Sequence[tuple[str, Series]], height: Axis) -> list[Trace]:
    """Zeros, which a log axis cannot show: hollow arrows along its lower end, one row of them a
    design.

    Args:
        named: pairs of the matrix's name, empty where a series is of no matrix, and the series.
        height: the logarithmic axis.
    """
    traces: list[Trace] = []
    for design in dict.fromkeys(row.design for _, row in named):
        zeros = {}  # depths, by matrix
        for matrix, row in named:
            if row.design == design and (row.middle <= 0).any():
                zeros[matrix] = row.depth[row.middle <= 0]
        if not zeros:
            continue
        depth = np.unique(np.concatenate(list(zeros.values())))
        stride = -(-len(depth) // MOST_DOTS)  # rounded up
        depth = depth[::stride]
        matrices = typeset(", ".join(zeros))  # empty where the series is of no matrix
        words = f"{matrices}<br>= 0" if matrices else "0"
        # the designs' rows stand above each other, 2 % from the lower end and 5 % apart
        level = height.at(0.02 + 0.05 * len(traces))
        traces.append(
            mark(
                "markers+text",
                design.named("zero"),
                compact(depth),
                compact(np.full(len(depth), level)),
                text=[] if traces else [f"{words}, below a log axis"],  # said once, on the first
                textposition="top right",
                textfont={"size": 11},
                marker={"color": design.hue, "symbol": "triangle-down-open", "size": 7},
                cliponaxis=False,
                hovertemplate=f"{design.bold}{words} after %{{x}} layers<extra></extra>",
            )
        )
    return traces
