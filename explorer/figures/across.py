"""A statistic at the end of the stack against the whole range of one field."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from explorer.ends import End, Ending
from explorer.fields import Spec
from explorer.figures import kit
from explorer.figures.layers import NO_ATTENTION, statistic_axis
from explorer.figures.palette import NEUTRAL, LegendEntry
from explorer.figures.series import with_spread
from explorer.profile import Array


class Point(NamedTuple):
    """One value of the field, and the statistic there."""

    value: float
    ending: Ending | None = None
    """None where there is none: not yet, refused, or left out."""
    reason: str = ""
    """Why there never will be one."""


class Swept(NamedTuple):
    """A design over the values of a field, in rising order."""

    design: LegendEntry
    line: Sequence[Point]
    """Points that theory predicts."""
    dots: Sequence[Point] = ()
    """Points that were measured."""


def across(spec: Spec, end: End, swept: Sequence[Swept], now: float | None = None) -> go.Figure:
    """Lines are predicted, dots measured, their bars from the lowest seed to the highest; log axes
    where the field and the statistic have them. A value that is not finite stands at the upper end,
    a zero on a log axis at the lower, and a value that the rules refuse is crossed out there, with
    the reason on hovering.

    Args:
        spec: the field.
        end: the statistic.
        now: the value that an upright marks.
    """
    points = [point for row in swept for point in (*row.line, *row.dots)]
    held = [point.ending for point in points if point.ending]
    if end.row.by_head and not any(
        row.design.config and row.design.config.design.attends for row in swept
    ):
        return kit.blank(NO_ATTENTION)
    if not held and any(point.reason for point in points):
        return kit.blank("No value could be predicted or measured.")
    wide = _horizontal(spec, [*(point.value for point in points), *([] if now is None else [now])])
    shown = [part for ending in held for part in (ending.middle, ending.low, ending.high)]
    height = statistic_axis(end.row, [shown], end.symbol)
    traces = [kit.level(value, words, wide, height) for value, words in end.row.marks.items()]
    traces += [_line(row, spec, end, height) for row in swept if row.line]
    traces += [
        _dots(row, spec, end, height) for row in swept if any(point.ending for point in row.dots)
    ]
    traces += [mark for row in swept for mark in _beyond(row, height)] + _refused(
        swept, spec, height
    )
    description = kit.described(f"{end.title} against {spec.about.label}", traces)
    if now is not None:
        middle = np.log10(max(now, 1e-300)) if wide.log else now
        traces.append(
            kit.upright(
                now, "now", height, "right" if middle < sum(wide.extent) / 2 else "left", 0.97
            )
        )
    return kit.picture(traces, wide, height, description)


def _horizontal(spec: Spec, values: Sequence[float]) -> kit.Axis:
    """The axis of a field: logarithmic where its slider is."""
    log = spec.about.log and spec.low > 0
    return kit.axis(
        kit.field_title(spec),
        [list(values)],
        log=log,
        air=0.03,
        counts=spec.kind == "integer" and not log,
    )


def _arrays(points: Sequence[Point]) -> tuple[Array, ...]:
    """Values and middles; nan where there is none."""
    pairs = [(point.value, point.ending.middle if point.ending else np.nan) for point in points]
    return tuple(np.array(pairs, dtype=float).reshape(-1, 2).T)


def _sentence(spec: Spec, end: End) -> str:
    return f"{spec.about.label} %{{x:~g}}<br>{end.title}: %{{y:.3g}} {end.row.compared}".rstrip()


def _line(row: Swept, spec: Spec, end: End, height: kit.Axis) -> kit.Trace:
    """Dotted where the theory is unreliable somewhere."""
    x, y = _arrays(row.line)
    known = np.array(
        [point.ending is not None or bool(point.reason) for point in row.line], dtype=bool
    )
    noted = any(
        point.ending.note for point in row.line if point.ending and np.isfinite(point.ending.middle)
    )
    name = row.design.named("predicted")
    # what is still to come is passed over; what is refused or not finite is a gap
    return kit.line(
        x[known],
        y[known],
        row.design,
        name,
        kit.hover(name, _sentence(spec, end)),
        log=height.log,
        dash="dot" if noted else "",
    )


def _dots(row: Swept, spec: Spec, end: End, height: kit.Axis) -> kit.Trace:
    """Dots with bars from the smallest to the largest of the seeds, and their standard error on
    hovering."""
    measured = [point for point in row.dots if point.ending]
    x, y = _arrays(measured)
    spread = np.array(
        [
            [point.ending.low, point.ending.high, point.ending.error]
            for point in measured
            if point.ending
        ]
    )
    with np.errstate(invalid="ignore"):
        down, up = y - spread[:, 0], spread[:, 1] - y
    down = np.where(kit.drawable(spread[:, 0], height.log), down, 0.0)
    seeds = max(point.ending.seeds for point in measured if point.ending)
    name = row.design.named("measured")
    bars: dict[str, Any] = {"error_y": kit.error_bars(row.design, up, down)} if seeds > 1 else {}
    words = kit.hover(name, with_spread(_sentence(spec, end), seeds))
    return (
        kit.dots(x, y, row.design, name, words, log=height.log, size=8)
        | bars
        | {"customdata": spread}
    )


def _beyond(row: Swept, height: kit.Axis) -> list[kit.Trace]:
    """Hollow arrows: up for values that are not finite, down for zeros below a log axis."""
    marks = []
    for kind, points in (("measured", row.dots), ("predicted", row.line)):
        known = [point for point in points if point.ending and not point.ending.missing]
        x, y = _arrays(known)
        zero = np.isfinite(y) & (y <= 0) if height.log else np.zeros(len(y), dtype=bool)
        for words, at, symbol, where in (
            ("not finite", 0.95, "triangle-up-open", ~np.isfinite(y)),
            ("0, below a log axis", 0.04, "triangle-down-open", zero),
        ):
            if where.any():
                marks.append(
                    _mark(
                        f"{row.design.named(kind)}, {words}",
                        x[where],
                        height.at(at),
                        symbol,
                        row.design.hue,
                        [f"{row.design.named(kind)}: {words} at {value:g}" for value in x[where]],
                    )
                )
    return marks


def _refused(swept: Sequence[Swept], spec: Spec, height: kit.Axis) -> list[kit.Trace]:
    """Crosses at the lower end, for the first design alone: the other designs' crosses would cover
    them."""
    reasons = {
        point.value: point.reason
        for row in swept[:1]
        for point in (*row.line, *row.dots)
        if point.reason
    }
    words = [
        f"{spec.about.label} {value:g}: {html.escape(reason)}" for value, reason in reasons.items()
    ]
    return [
        _mark("left out", np.array(list(reasons)), height.at(0.04), "x-thin-open", NEUTRAL, words)
    ] * bool(words)


def _mark(
    name: str, x: Array, y: float, symbol: str, color: str, words: Sequence[str]
) -> kit.Trace:
    look = {"color": color, "symbol": symbol, "size": 9}
    return kit.mark(
        "markers",
        name,
        x,
        np.full(len(x), y),
        marker=look,
        hovertext=list(words),
        hoverinfo="text",
        cliponaxis=False,
    )
