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
from explorer.sweeping.table import Table
from explorer.vocabulary import Array

if TYPE_CHECKING:
    import xarray as xr

LOOK = Look(0)
"""Hue of all values: a map of one axis has one series."""
DOT = 8
"""Pixels across a dot."""
HIGH, LOW = 0.95, 0.04
"""Shares of the height, from below, at which marks stand for values that have no place on the
axis."""


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
    marks = ENDS[statistic].row.marks if statistic in ENDS else {}
    traces = [kit.level(value, words, wide, height) for value, words in marks.items()]
    traces += _line(grid, statistic, height, noted)
    traces += _dots(grid, statistic, height)
    traces += _beyond(grid, height)
    traces += _failures(grid, height)
    description = kit.described(f"{grid.scale.title} against {grid.x.spec.about.label}", traces)
    if now and x in now:
        side = "right" if wide.fraction(now[x]) < 0.5 else "left"
        traces.append(kit.upright(now[x], "now", height, side, 0.97))
    layout = kit.sheet(wide.layout, height.layout, description, **kit.LEGEND_ABOVE)
    return go.Figure({"data": traces, "layout": layout})


def _field_axis(grid: Cells, now: Mapping[str, float] | None) -> kit.Axis:
    """The field's axis, long enough for the value that `now` marks, if there is one."""
    spec, log = grid.x.spec, grid.x.log
    marked = [now[spec.name]] if now and spec.name in now else []
    counts = spec.kind == "integer" and not log
    title = kit.field_title(spec)
    return kit.axis(title, [grid.x.values, marked], log=log, air=kit.SIDE_AIR, counts=counts)


def _height(grid: Cells, statistic: str) -> kit.Axis:
    """The statistic's axis. Values beyond the ends of its scale, such as a loss that exploded, do
    not make it longer."""
    low, high = _ends(grid.scale)
    drawn = np.concatenate([grid.predicted, grid.observed, grid.low, grid.high])
    drawn = drawn[(drawn >= low) & (drawn <= high)]
    if statistic in ENDS:
        end = ENDS[statistic]
        return statistic_axis(end.row, [drawn], end.symbol)
    least = kit.LEAST if grid.scale.log else 0.0
    return kit.axis(grid.scale.unit, [drawn], log=grid.scale.log, least=least, top=kit.TOP)


def _ends(scale: Scale) -> tuple[float, float]:
    """The lowest and the highest value that have a place on the axis."""
    low, high = scale.clip
    return scale.value(low), scale.value(high)


def _inside(values: Array, scale: Scale) -> Array:
    """The values, with nan in place of those beyond the ends of the scale."""
    low, high = _ends(scale)
    return np.where((values >= low) & (values <= high), values, np.nan)


def _sentence(grid: Cells, statistic: str) -> str:
    """Hover text of a cell: the field's value, and the statistic's in words."""
    compared = ENDS[statistic].row.compared if statistic in ENDS else ""
    field = grid.x.words("%{x:~g}")
    return f"{field}<br>{grid.scale.title}: %{{y:.3g}} {compared}".rstrip()


def _line(grid: Cells, statistic: str, height: kit.Axis, noted: bool) -> list[kit.Trace]:
    """The theory's line, dotted where a note says that it is unreliable; empty where theory has no
    finite value.

    It passes over cells that are still to come; a cell without a finite value is a gap."""
    computed = grid.theory_done
    if not np.isfinite(grid.predicted[computed]).any():
        return []
    words = kit.hover("predicted", _sentence(grid, statistic))
    x, y = np.array(grid.x.values)[computed], grid.predicted[computed]
    dash = "dot" if noted else ""
    line = kit.line(x, y, LOOK, "predicted", words, log=height.log, dash=dash)
    return [line | {"showlegend": True}]


def _dots(grid: Cells, statistic: str, height: kit.Axis) -> list[kit.Trace]:
    """Dots of the values that were measured or trained, with bars from the lowest seed to the
    highest where seeds differ; empty where there are none yet."""
    computed = grid.done & ~grid.failed
    if not computed.any():
        return []
    sentence = _sentence(grid, statistic)
    x = np.array(grid.x.values)[computed]
    y, low, high = grid.observed[computed], grid.low[computed], grid.high[computed]
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
    inside = _inside(y, grid.scale)
    dots = kit.dots(x, inside, LOOK, origin, words, log=height.log, size=DOT)
    return [dots | {"customdata": np.stack([low, high], axis=-1)} | bars]


def _beyond(grid: Cells, height: kit.Axis) -> list[kit.Trace]:
    """Hollow arrows in place of values without a place on the axis, one group for each origin and
    reason.

    They point up near the upper end for values that are not finite or too large, and down near the
    lower end for those that are 0 on a log axis or too small. Each value has one arrow at most."""
    observed = grid.done & ~grid.failed
    # a prediction that is nan is none: the theory does not cover the design
    predicted = grid.theory_done & ~np.isnan(grid.predicted)
    low, high = _ends(grid.scale)
    marks = []
    for origin, values, computed in (
        (grid.scale.origin, grid.observed, observed),
        ("predicted", grid.predicted, predicted),
    ):
        finite = np.isfinite(values)
        zero = height.log & (values == 0)
        for reason, points_up, beyond in (
            ("not finite", True, ~finite),
            ("above the axis", True, finite & (values > high)),
            ("0, below a log axis", False, zero),
            ("below the axis", False, finite & (values < low) & ~zero),
        ):
            where = computed & beyond
            marks += _marks(
                grid,
                where,
                name=f"{origin}, {reason}",
                words=[f"{origin}: {number(value)}" for value in values[where]],
                y=height.at(HIGH if points_up else LOW),
                symbol="triangle-up-open" if points_up else "triangle-down-open",
                color=LOOK.hue,
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
    """Marks of the chosen cells, all at one height; empty where no cell is chosen.

    Args:
        where: the chosen cells, `[x]`.
        name: their entry in the legend.
        words: below the field's value on hovering, one sentence a chosen cell.
        y: their height, a value of the statistic's axis.
    """
    x = np.array(grid.x.values)[where]
    if not len(x):
        return []
    hover = [
        f"{grid.x.words(f'{value:g}')}<br>{sentence}"
        for value, sentence in zip(x, words, strict=True)
    ]
    mark = kit.mark(
        "markers",
        name,
        x,
        np.full(len(x), y),
        marker={"color": color, "symbol": symbol, "size": 9},
        hovertext=hover,
        hoverinfo="text",
        cliponaxis=False,
    )
    return [mark | {"showlegend": True}]
