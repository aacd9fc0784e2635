"""Maps of one axis: a statistic of an `explorer.sweep` against one field, measured dots over the
theory's line."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from explorer.ends import ENDS
from explorer.figures import kit
from explorer.figures.layers import statistic_axis
from explorer.figures.map.cells import Cells, Mask, Scale, cells
from explorer.figures.palette import NEUTRAL, Look
from explorer.numbers import number
from explorer.profile import Array
from explorer.sweeping.table import Table

if TYPE_CHECKING:
    import xarray as xr

LOOK = Look(0)
DOT = 8
HIGH, LOW = 0.95, 0.04
"""Shares of the height at which values stand that have no place on the axis."""


def across(
    numbers: xr.Dataset | Table,
    statistic: str,
    *,
    x: str,
    now: Mapping[str, float] | None = None,
    noted: bool = False,
) -> go.Figure:
    """A statistic against one field: the theory's line, and dots that were measured or trained,
    with bars from the lowest seed to the highest.

    Axes are logarithmic where the field and the statistic have them. A value that is not finite
    stands at the upper end, a zero on a log axis at the lower; a failure is crossed out there, with
    its reason on hovering.

    Args:
        numbers: as `explorer.sweep` gives them, or a `Sweep`'s table, with one field; of several,
            choose values of the others by `dataset.sel`.
        statistic: a name of `scales()`.
        x: the field, one of numbers.
        now: values of fields; an upright marks that of `x`, where it is among them.
        noted: whether the theory is unreliable somewhere: its line is dotted.
    Raises:
        ValueError: the statistic or the field is unknown, or there are other fields as well.
    """
    grid = cells(numbers, statistic, x)
    if not grid.x.numeric:
        raise ValueError(f"x must be a field of numbers; got {x!r}")
    if not (grid.done | grid.theory_done).any():
        return kit.blank("Nothing has been computed yet.")
    wide, height = _field_axis(grid, now), _height(grid, statistic)
    line, dots = _line(grid, statistic, height, noted), _dots(grid, statistic, height)
    marks = ENDS[statistic].row.marks if statistic in ENDS else {}
    levels = [kit.level(value, words, wide, height) for value, words in marks.items()]
    traces = [*levels, *line, *dots, *_beyond(grid, height), *_failures(grid, height)]
    description = kit.described(f"{grid.scale.title} against {grid.x.spec.about.label}", traces)
    if now and x in now:
        side = "right" if wide.fraction(now[x]) < 0.5 else "left"
        traces.append(kit.upright(now[x], "now", height, side, 0.97))
    above = {"legend": kit.LEGEND, "showlegend": True, "margin": kit.MARGIN | {"t": 34}}
    return go.Figure(
        {"data": traces, "layout": kit.sheet(wide.layout, height.layout, description, **above)}
    )


def _field_axis(grid: Cells, now: Mapping[str, float] | None) -> kit.Axis:
    """The field's axis, long enough for the value that is marked, if there is one."""
    spec, log = grid.x.spec, grid.x.log
    marked = [now[spec.name]] if now and spec.name in now else []
    counts = spec.kind == "integer" and not log
    return kit.axis(
        kit.field_title(spec), [grid.x.values, marked], log=log, air=0.03, counts=counts
    )


def _height(grid: Cells, statistic: str) -> kit.Axis:
    """The statistic's axis, without the values beyond the ends that its scale has."""
    low, high = grid.scale.clip
    held = np.concatenate([grid.predicted, grid.observed, grid.low, grid.high])
    held = held[(held >= low) & (held <= high)]
    if statistic in ENDS:
        end = ENDS[statistic]
        return statistic_axis(end.row, [held], end.symbol)
    least = kit.LEAST if grid.scale.log else 0.0
    return kit.axis(grid.scale.unit, [held], log=grid.scale.log, least=least, top=kit.TOP)


def _inside(values: Array, scale: Scale) -> Array:
    """The values between the ends of a scale; nan in place of the others."""
    low, high = scale.clip
    return np.where((values >= low) & (values <= high), values, np.nan)


def _sentence(grid: Cells, statistic: str) -> str:
    compared = ENDS[statistic].row.compared if statistic in ENDS else ""
    place = grid.x.words("%{x:~g}")
    return f"{place}<br>{grid.scale.title}: %{{y:.3g}} {compared}".rstrip()


def _line(grid: Cells, statistic: str, height: kit.Axis, noted: bool) -> list[kit.Trace]:
    """The theory's line: cells that are still to come are passed over, one without a finite value
    is a gap."""
    known = grid.theory_done
    if not np.isfinite(grid.predicted[known]).any():
        return []
    words = kit.hover("predicted", _sentence(grid, statistic))
    x, y = np.array(grid.x.values)[known], grid.predicted[known]
    dash = "dot" if noted else ""
    line = kit.line(x, y, LOOK, "predicted", words, log=height.log, dash=dash)
    return [line | {"showlegend": True}]


def _dots(grid: Cells, statistic: str, height: kit.Axis) -> list[kit.Trace]:
    """Dots, with bars where seeds differ."""
    there = grid.done & ~grid.failed
    if not there.any():
        return []
    sentence = _sentence(grid, statistic)
    x, y, low, high = (
        values[there] for values in (np.array(grid.x.values), grid.observed, grid.low, grid.high)
    )
    bars = {}
    if (low < high).any():
        sentence += "<br>lowest and highest seed %{customdata[0]:.3g}, %{customdata[1]:.3g}"
        with np.errstate(invalid="ignore"):
            up, down = high - y, y - low
        # a bar that would begin below a log axis is left out
        down = np.where(kit.drawable(low, height.log), down, 0.0)
        bars = {"error_y": kit.error_bars(LOOK, up, down)}
    origin = grid.scale.origin
    words = kit.hover(origin, sentence)
    shown = _inside(y, grid.scale)
    dots = kit.dots(x, shown, LOOK, origin, words, log=height.log, size=DOT)
    return [dots | {"customdata": np.stack([low, high], axis=-1)} | bars]


def _beyond(grid: Cells, height: kit.Axis) -> list[kit.Trace]:
    """Hollow arrows in place of values without a place on the axis."""
    marks = []
    low, high = grid.scale.clip
    for origin, values, there in (
        (grid.scale.origin, grid.observed, grid.done & ~grid.failed),
        # a prediction that is nan is none: the theory does not cover the design
        ("predicted", grid.predicted, grid.theory_done & ~np.isnan(grid.predicted)),
    ):
        finite = np.isfinite(values)
        for words, at, symbol, where in (
            ("not finite", HIGH, "triangle-up-open", ~finite),
            ("above the axis", HIGH, "triangle-up-open", finite & (values > high)),
            ("0, below a log axis", LOW, "triangle-down-open", height.log & (values == 0)),
            ("below the axis", LOW, "triangle-down-open", finite & (values < low)),
        ):
            marks += _marks(
                grid,
                there & where,
                f"{origin}, {words}",
                [f"{origin}: {number(value)}" for value in values[there & where]],
                height.at(at),
                symbol,
                LOOK.hue,
            )
    return marks


def _failures(grid: Cells, height: kit.Axis) -> list[kit.Trace]:
    """Crosses in place of the cells that have a reason for having no value."""
    reasons = [html.escape(str(reason)) for reason in grid.failure[grid.failed]]
    return _marks(grid, grid.failed, "failed", reasons, height.at(LOW), "x-thin-open", NEUTRAL)


def _marks(
    grid: Cells,
    where: Mask,
    name: str,
    words: Sequence[str],
    y: float,
    symbol: str,
    color: str,
) -> list[kit.Trace]:
    """Marks of some cells at one height, each with its words on hovering; none of no cell."""
    x = np.array(grid.x.values)[where]
    if not len(x):
        return []
    places = [grid.x.words(f"{value:g}") for value in x]
    mark = kit.mark(
        "markers",
        name,
        x,
        np.full(len(x), y),
        marker={"color": color, "symbol": symbol, "size": 9},
        hovertext=[f"{place}<br>{said}" for place, said in zip(places, words, strict=True)],
        hoverinfo="text",
        cliponaxis=False,
    )
    return [mark | {"showlegend": True}]
