"""Statistics of profiles over depth, and their traces: dots are measured, lines predicted, bands
hold all seeds.

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
from explorer.profile import STREAM, VOCABULARY, Array, Breakdown, Profile, Statistic

GRADIENTS = {"activation_gradient": "gradient at ", "parameter_gradient": "gradient of "}
"""Statistics that break on the way back, from a layer down."""


@dataclass(frozen=True, eq=False)
class Series:
    """One statistic of one profile over depth; every array is `[site]`, values as they are, finite
    or not."""

    design: LegendEntry
    profile: Profile
    depth: Array
    """Depth in layers: 0 is the input, half layers lie between attention and MLP."""
    middle: Array
    low: Array
    high: Array
    error: Array
    """Standard error of the mean over seeds; nan of a single one."""
    note: str = ""
    """The reason why a prediction is unreliable, in part or as a whole."""
    gaps: tuple[float, ...] = ()
    """Depths of the layers that have no such value, as those that do not attend have no entropy."""

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
        """Measured or predicted, and the design."""
        return f"{self.design.label}, {self.profile.origin}".removeprefix(", ")

    @property
    def heading(self) -> str:
        """The design's heading, and measured or predicted, escaped for plotly."""
        return self.design.named(self.profile.origin)


def by_depth(
    profiles: Sequence[Profile], statistic: str, site: str, looks: Sequence[LegendEntry] = ()
) -> list[Series]:
    """A statistic at one kind of site, or along the whole residual stream (no site), of every
    profile that has it.

    Mean and range over seeds; where there are heads, median and range over seeds and heads
    together."""
    row = VOCABULARY[statistic]
    return [
        replace(
            spread(
                row,
                design,
                profile,
                *(
                    profile.stream(statistic)
                    if not site
                    else (profile.depth(site), profile[statistic, site])
                ),
                profile.notes.get(statistic, ""),
            ),
            gaps=tuple(
                float(profile.depth(site)[layer - 1])
                for layer in profile.absent.get((statistic, site), ())
            ),
        )
        for design, profile in zip(designs(profiles, looks), profiles, strict=True)
        if any((statistic, place) in profile.values for place in ([site] if site else STREAM))
    ]


def spread(
    row: Statistic,
    design: LegendEntry,
    profile: Profile,
    depth: Array,
    values: Array,
    note: str = "",
) -> Series:
    """Reduces `[seed, site]` by the mean, `[seed, site, head]` by the median; values that are not
    finite stay so."""
    heads = values.ndim == 3
    draws = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        middle = np.median(draws, axis=0) if heads else row.mean(draws)
        error = row.standard_error(row.mean(values, 2) if heads else draws)
        return Series(
            design,
            profile,
            depth,
            middle,
            np.min(draws, axis=0),
            np.max(draws, axis=0),
            error,
            note,
        )


def runs(keep: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    """The places of each unbroken run of True."""
    places = np.flatnonzero(keep)
    if len(places):
        yield from np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)


def rows(series: Sequence[Series], log: bool, sentence: str) -> list[Trace]:
    """All bands first, then lines, then dots on top. `sentence` has `%{x}`, the depth, and `%{y}`,
    the value."""
    return [
        *(trace for row in series for trace in band(row, log)),
        *(predicted(row, log, sentence) for row in series if not row.measured),
        *(measured(row, log, sentence) for row in series if row.measured),
    ]


def band(row: Series, log: bool) -> list[Trace]:
    """From the smallest to the largest of the seeds (and heads): one closed outline for every
    unbroken run of depths.

    A prediction has none. The band of a single draw has no height: it is drawn as a hairline where
    there are more depths than dots. The first of several draws has an invisible band, so that
    further draws only move it."""
    pieces = list(runs(drawable(row.low, log) & drawable(row.high, log)))
    flat = np.array_equal(row.low, row.high, equal_nan=True)
    dotted = len(row.depth) <= MOST_DOTS
    if not row.measured or not pieces or (flat and dotted and not row.profile.partial):
        return []
    gap = np.array([np.nan])
    x = [part for at in pieces for part in (row.depth[at], row.depth[at][::-1], gap)]
    y = [part for at in pieces for part in (row.low[at], row.high[at][::-1], gap)]
    edge = {
        "width": 1 if flat and not dotted and not row.profile.partial else 0,
        "color": row.design.faint(0.6),
    }
    outline = (compact(np.concatenate(part)[:-1]) for part in (x, y))
    return [
        mark(
            "lines",
            f"{row.heading}, spread",
            *outline,
            fill="toself",
            fillcolor=row.design.faint(0.25),
            line=edge,
            hoverinfo="skip",
        )
    ]


def measured(row: Series, log: bool, sentence: str, symbol: str = "", **more: Any) -> Trace:
    """Dots, with their range and standard error on hovering; smaller where they are many."""
    hollow = "open" in symbol
    size = 10 if hollow else 7 if len(row.depth) <= MOST_DOTS else 5  # a ring shows around a dot
    several = len(row.profile.seeds) > 1
    kept = [row.low, row.high, *([row.error] if several else [])]
    words = hover(row.heading, with_spread(sentence, len(row.profile.seeds)))
    return (
        dots(
            row.depth,
            row.middle,
            row.design,
            row.heading,
            words,
            log=log,
            size=size,
            symbol=symbol or row.design.symbol,
            line={"width": 1.5 if hollow else 0},
        )
        | {"customdata": compact(np.stack(kept, axis=1))}
        | more
    )


def predicted(row: Series, log: bool, sentence: str, dash: str = "", **more: Any) -> Trace:
    """A line: dotted, and with the reason on hovering, where the theory is unreliable."""
    noted = f"{sentence}<br>theory: {typeset(row.note)}" if row.note else sentence
    return (
        line(
            row.depth,
            row.middle,
            row.design,
            row.heading,
            hover(row.heading, noted),
            log=log,
            dash="dot" if row.note else dash,
        )
        | {"showlegend": True}
        | more
    )


def with_spread(sentence: str, seeds: int) -> str:
    """A hover text's sentence with the range of the seeds, and with the standard error where there
    are several.

    `customdata` holds lowest, highest and standard error.
    """
    if seeds == 1:
        return f"{sentence}<br>(1 seed, from %{{customdata[0]:.3g}} to %{{customdata[1]:.3g}})"
    return (
        f"{sentence}<br>({seeds} seeds, from %{{customdata[0]:.3g}} to %{{customdata[1]:.3g}};<br>"
        "standard error of the mean %{customdata[2]:.2g})"
    )


def describe(subject: str, named: Sequence[tuple[str, Series]]) -> str:
    """One sentence a series (its name may be empty): where it starts and ends, its lowest and
    highest point."""
    parts = []
    for name, row in named:
        there = ~np.isin(row.depth, row.gaps)
        parts.append(
            ends(
                ", ".join(filter(None, (name, row.name))),
                row.depth[there],
                row.middle[there],
                "depth ",
            )
        )
    return f"{subject}, over depth. {' '.join(part[0].upper() + part[1:] for part in parts) or 'Nothing measured yet.'}"


def breakdowns(series: Sequence[Series]) -> dict[LegendEntry, tuple[Profile, Breakdown]]:
    """Where the values of each design stop being finite; designs whose values are finite are not in
    it."""
    breaks: dict[LegendEntry, tuple[Profile, Breakdown]] = {}
    for row in sorted(series, key=lambda row: not row.measured):
        if all(np.isfinite(part).all() for part in row.drawn_values):
            continue
        if breakdown := row.profile.first_nonfinite:
            breaks.setdefault(row.design, (row.profile, breakdown))
    return breaks


def broken(
    breaks: Mapping[LegendEntry, tuple[Profile, Breakdown]], across: Axis, height: Axis
) -> list[Trace]:
    """Vertical lines at the depth where values stop being finite, one a design; see
    `room_for_breaks`."""
    return [
        _break(design, *where, across, height, number, len(breaks) == 1)
        for number, (design, where) in enumerate(breaks.items(), start=1)
    ]


def room_for_breaks(breaks: Sized) -> float:
    """The share of a height that the words at the vertical lines take above all data."""
    return room_for_words(_lines(len(breaks), len(breaks) == 1))


def _lines(number: int, alone: bool) -> int:
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
    """One vertical line with its words on top, those of several designs below each other.

    Two lines of words for one design alone; of several, the second line is left to hovering.

    Args:
        number: which of the lines this is, from 1.
        alone: whether it is the only one.
    """
    depth, words = _depth(breakdown), _verdict(profile, breakdown)
    heading = f"<b>{design.heading}</b><br>" if design.heading else ""
    return capped(
        depth,
        words if alone else words.partition("<br>")[0],
        across,
        height,
        design.hue,
        _lines(number, alone),
        name=design.named("not finite"),
        hovertemplate=f"{heading}{words}<extra></extra>",
    )


def _depth(breakdown: Breakdown) -> float:
    """Depth of the vertical line: half a layer earlier when attention is the cause."""
    return breakdown.layer - (
        0.5 if breakdown.site in ("resid_mid", "attn_out", "attn_scores", "pattern") else 0.0
    )


def _verdict(profile: Profile, breakdown: Breakdown) -> str:
    """'not finite from layer 5 on (attention output)', with its origin when it was not measured."""
    start = f"layer {breakdown.layer}" if breakdown.layer else "the input"
    site = typeset(breakdown.site_label)
    gradient = GRADIENTS.get(breakdown.statistic, "")
    predicted = "predicted " if profile.origin == "predicted" else ""
    return (
        f"{predicted}not finite from {start} {'down' if gradient else 'on'}<br>({gradient}{site})"
    )


def floor(named: Sequence[tuple[str, Series]], height: Axis) -> list[Trace]:
    """Zeros on a log axis: hollow arrows along the bottom, a row a design, with a word on the
    zeros."""
    traces: list[Trace] = []
    for design in dict.fromkeys(row.design for _, row in named):
        zero = {
            name: row for name, row in named if row.design == design and (row.middle <= 0).any()
        }
        if not zero:
            continue
        depth = np.unique(np.concatenate([row.depth[row.middle <= 0] for row in zero.values()]))
        depth = depth[:: -(-len(depth) // MOST_DOTS)]
        words = f"{typeset(', '.join(zero))}<br>= 0".removeprefix("<br>= ")
        level = height.at(0.02 + 0.05 * len(traces))
        who = f"<b>{design.heading}</b><br>".removeprefix("<b></b><br>")
        traces.append(
            mark(
                "markers+text",
                design.named("zero"),
                compact(depth),
                compact(np.full(len(depth), level)),
                text=[] if traces else [f"{words}, below a log axis"],
                textposition="top right",
                textfont={"size": 11},
                marker={"color": design.hue, "symbol": "triangle-down-open", "size": 7},
                cliponaxis=False,
                hovertemplate=f"{who}{words} after %{{x}} layers<extra></extra>",
            )
        )
    return traces
