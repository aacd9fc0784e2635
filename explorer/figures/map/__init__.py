"""Maps: a statistic over two fields of an `explorer.sweep`, measured colors under the theory's
contour lines."""

from __future__ import annotations

import html
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from explorer.figures.kit import LEGEND_ABOVE, Trace, blank, compact, mark, sheet
from explorer.figures.map.cells import Cells, Colors, Mask, Side, cells, colors, contour_levels
from explorer.figures.palette import NEUTRAL
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.sweeping.table import Table
from explorer.vocabulary import Array

if TYPE_CHECKING:
    import xarray as xr

LIGHT = "#ffffff"
"""Signs are light with a dark edge: they are seen on every color, and in the legend on light and
dark paper."""
WIDE = 56
"""Characters of a line of a hover text that says why a cell has no value."""
DOT_SHARE, LEAST_DOT, MOST_DOT = 120.0, 2.0, 5.0
"""Pixels across a measured cell's dot: `DOT_SHARE` over the number of cells along the longer side,
between the other two."""
MOST_ACROSS, MOST_UP = 6, 8
"""Cells along a side that have a tick each, at most."""


def heat_map(
    numbers: xr.Dataset | Table,
    statistic: str,
    *,
    x: str,
    y: str,
    now: Mapping[str, float] | None = None,
    lines: str = "",
) -> go.Figure:
    """A statistic over two fields. Colors diverge from the healthy value's; contour lines are the
    theory's.

    A cell with a dot shows what was measured (or trained), one without what the theory predicts; it
    is blank where neither is yet. A failure is crossed out, with its reason on hovering; a value
    that is not finite has an arrow.

    Args:
        numbers: as `explorer.sweep` gives them, or a `Sweep`'s table, with two fields; of three,
            choose a value of one by `dataset.sel`.
        statistic: a name of `scales()`.
        x: the field across, logarithmic where its slider is.
        y: the field upwards.
        lines: a statistic whose predicted values are the contour lines, where it is another: of
            trained maps.
        now: values of fields; where both are among them, a star marks their place.
    Raises:
        ValueError: the statistic or a field is unknown, or there are more fields than two.
    """
    grid = cells(numbers, statistic, x, y)
    if not (grid.done | grid.theory_done).any():
        return blank("Nothing has been computed yet.")
    if lines:
        other = cells(numbers, lines, x, y)
        symbol = typeset(other.scale.unit.partition(" (")[0])
        contour_lines = contours(other, f"theory: {symbol}")
    else:
        contour_lines = contours(grid)
    data = _heats(grid, scaled(grid))
    data += reasons(grid)
    # the last trace holds the contours' labels: they stand above the signs
    data += contour_lines[:-1]
    data += signs(grid, now)
    data += contour_lines[-1:]
    has_legend = any(trace["type"] == "scatter" and trace.get("showlegend", True) for trace in data)
    axes = _axis(grid.x, MOST_ACROSS), _axis(grid.y, MOST_UP)
    layout = sheet(*axes, _in_words(grid), **(LEGEND_ABOVE if has_legend else {}))
    return go.Figure({"data": data, "layout": layout})


def _axis(side: Side, most: int) -> dict[str, Any]:
    """The axis of a field as plotly has it, without grid lines, which colors would cover.

    Up to `most` cells have a tick each; more numbers have plotly's ticks."""
    axis = side.axis.layout | {"showgrid": False, "ticks": "outside", "ticklen": 4}
    if not side.numeric:
        return axis | {"type": "category", "tickvals": side.places, "tickangle": None}
    if len(side.values) > most:
        return axis
    labels = []
    for value in side.values:
        if side.spec.kind == "integer":
            digits = 4
        else:
            digits = 2 if value < 1 else 3  # 0.12 is as long as 1.23
        labels.append(number(value, digits))
    return axis | {"tickvals": side.values, "ticktext": labels}


def _heats(grid: Cells, scale: Colors) -> list[Trace]:
    """The colors: predicted ones where nothing was measured, and measured ones.

    The color bar belongs to the measured ones, if there are any."""
    has_predictions, has_observations = grid.asked
    observed = np.where(grid.done, grid.observed, np.nan)
    traces = []
    if has_predictions:
        theory = np.where(grid.done, np.nan, grid.predicted)
        heat = _heat(grid, scale, "predicted", theory, [grid.predicted])
        traces.append(heat | {"showscale": not grid.done.any()})
    if has_observations and grid.done.any():
        numbers = [observed, grid.low, grid.high, grid.predicted]
        traces.append(_heat(grid, scale, grid.scale.origin, observed, numbers))
    return traces


def _heat(grid: Cells, scale: Colors, name: str, values: Array, numbers: list[Array]) -> Trace:
    """The colors of one origin.

    Args:
        name: the origin in words: "predicted", "measured".
        values: `[y, x]`; nan where a cell is left blank.
        numbers: `[y, x]` each, for hovering: the value; of measured cells also the lowest and the
            highest seed and the prediction.
    """
    x, y = grid.x.words("%{x}"), grid.y.words("%{y}")
    words = f"{x}<br>{y}<br>{grid.scale.title}, {name}: %{{customdata[0]:.3g}}"
    if len(numbers) > 1:
        words += "<br>lowest and highest seed %{customdata[1]:.3g}, %{customdata[2]:.3g}"
        if grid.asked[0]:
            words += "<br>predicted %{customdata[3]:.3g}"
    return {
        "type": "heatmap",
        "name": f"{grid.scale.title}, {name}",
        "x": grid.x.places,
        "y": grid.y.places,
        "z": compact(scale.z(values)),
        "customdata": compact(np.stack(numbers, axis=-1)),
        "zmin": scale.low,
        "zmax": scale.high,
        "colorscale": scale.stops,
        "colorbar": scale.bar,
        "hoverongaps": False,
        "hovertemplate": f"{words}<extra></extra>",
    }


def _in_words(grid: Cells) -> str:
    """The map in words, for those who cannot see it: its subject, its progress, its extremes, and
    the cells without a value."""
    subject = f"{grid.scale.title} over {grid.x.reach} and {grid.y.reach}."
    sentences = [subject]
    for name, values, done in (
        (grid.scale.origin, grid.observed, grid.done),
        ("predicted", grid.predicted, grid.theory_done),
    ):
        if done.any():
            sentences.append(_extremes(grid, name.capitalize(), values, done))
    if count := int(grid.failed.sum()):
        sentences.append(f"Failed: {count}, the first with: {grid.failure[grid.failed][0]}.")
    return " ".join(sentences)


def _extremes(grid: Cells, name: str, values: Array, done: Mask) -> str:
    """One sentence on the values of one origin: how many are computed, where the lowest and the
    highest lie, and how many are not finite.

    Args:
        name: begins the sentence: "Predicted", "Measured".
        values, done: `[y, x]`; the mask is of the computed cells.
    """
    finite = np.isfinite(values) & done
    text = f"{name}: {int(done.sum())} of {done.size} cells"
    if finite.any():
        for word, pick in (("lowest", np.argmin), ("highest", np.argmax)):
            row, column = np.argwhere(finite)[pick(values[finite])].tolist()
            value = number(float(values[row, column]))
            x, y = grid.x.words(grid.x.number(column)), grid.y.words(grid.y.number(row))
            text += f", {word} {value} at {x}, {y}"
    lost = int((done & ~finite & ~grid.failed).sum())
    if lost:
        text += f"; not finite in {lost}"
    return f"{text}."


def signs(cells: Cells, now: Mapping[str, float] | None) -> list[Trace]:
    """Signs on cells: dots where a value was measured; arrows where it is not finite, or zero below
    a logarithmic scale; crosses on failures; a star on the design that the page shows.

    Args:
        now: the values of that design's fields.
    """
    has_value = (cells.done | cells.theory_done) & ~cells.failed
    not_covered = np.isnan(cells.predicted) & ~cells.done  # theory's nan is not a broken value
    broken = has_value & ~np.isfinite(cells.shown) & ~not_covered
    zero = has_value & (cells.shown <= 0) & cells.scale.log
    measured = cells.done & ~cells.failed & ~broken & ~zero
    dot = float(np.clip(DOT_SHARE / max(cells.done.shape), LEAST_DOT, MOST_DOT))  # pixels
    traces = [
        _marks(cells, measured, cells.scale.origin, "circle", dot) | {"showlegend": False},
        _marks(cells, broken, "not finite", "triangle-up", 3 + 2 * dot),
        _marks(cells, zero, "0, below a log scale", "triangle-down", 3 + 2 * dot),
        _marks(cells, cells.failed, "failed", "x", 2 + 2 * dot),
    ]
    if now and {cells.x.spec.name, cells.y.spec.name} <= now.keys():
        x = cells.x.place(now[cells.x.spec.name])
        y = cells.y.place(now[cells.y.spec.name])
        traces.append(_sign("now", "star", 15, [x], [y]))
    return [trace for trace in traces if len(trace["x"])]


def _marks(cells: Cells, where: Mask, name: str, symbol: str, size: float) -> Trace:
    """One sign on each of the chosen cells, `[y, x]`; hovering shows the cell's own text."""
    rows, columns = np.nonzero(where)
    x, y = cells.x.places, cells.y.places
    return _sign(name, symbol, size, [x[column] for column in columns], [y[row] for row in rows])


def _sign(name: str, symbol: str, size: float, x: list[Any], y: list[Any]) -> Trace:
    """A light sign with a dark edge at each point; its size is in pixels."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "hoverinfo": "skip",
        "cliponaxis": False,
        "marker": {
            "symbol": symbol,
            "size": size,
            "color": LIGHT,
            "line": {"width": 1, "color": INK},
        },
    }


def reasons(cells: Cells) -> list[Trace]:
    """Gray below the cells without a number, whose hover text says why there is none; empty where
    every computed cell has one."""
    why = cells.failure.copy()  # "" where a cell has a number, or is still to come
    no_reason = ~cells.failed
    why[no_reason & cells.done & np.isnan(cells.observed)] = "not a number (nan)"
    only_theory = cells.theory_done & ~cells.done
    not_covered = only_theory & np.isnan(cells.predicted)
    why[no_reason & not_covered] = "the theory has no number here"
    if not (why != "").any():
        return []
    words = [[_wrapped(str(reason)) for reason in row] for row in why]
    gray = "rgba(128, 128, 128, 0.35)"
    x, y = cells.x.words("%{x}"), cells.y.words("%{y}")
    heat = {
        "type": "heatmap",
        "name": "no value",
        "x": cells.x.places,
        "y": cells.y.places,
        "text": words,
        "z": np.where(why != "", 1.0, np.nan).astype(np.float32),
        "colorscale": [[0, gray], [1, gray]],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"<b>No value</b><br>{x}<br>{y}<br>%{{text}}<extra></extra>",
    }
    return [heat]


def _wrapped(text: str) -> str:
    """A text as lines of a hover text, escaped."""
    return "<br>".join(html.escape(line) for line in textwrap.wrap(text, WIDE))


# Contour lines of numbers on a grid, by marching squares, in the grid's own steps.


class Edge(NamedTuple):
    """An edge of the grid, between two neighbors: from [row, column] to the next row or column."""

    row: int
    column: int
    to_next_row: int
    """1 if the other end is in the next row, 0 if it is in the next column."""


SIDES = (Edge(0, 0, 0), Edge(0, 1, 1), Edge(1, 0, 0), Edge(0, 0, 1))
"""Upper, right, lower and left side of the square whose first corner is [0, 0]."""
PASSES = {1: [(0, 3)], 2: [(0, 1)], 3: [(1, 3)], 4: [(1, 2)], 6: [(0, 2)], 7: [(2, 3)]}
"""Pairs of sides, as indices of `SIDES`, that a line joins within a square, by which of its corners
lie above the level: bits 1, 2, 4, 8 go around from the first corner. Cases 8 to 14 are the
complements, whose lines are the same; 5 and 10 are saddles."""


def contour(values: Array, level: float) -> list[Array]:
    """Lines on which values `[row, column]` reach a level, linear between neighbors; none where one
    is not finite.

    Returns:
        Each line as `[point, (row, column)]`, fractions of a step included; a closed one ends where
        it begins.
    """
    with np.errstate(invalid="ignore"):
        above = values >= level
    finite = np.isfinite(values)
    corners = (np.s_[:-1, :-1], np.s_[:-1, 1:], np.s_[1:, 1:], np.s_[1:, :-1])  # around a square
    cases = np.zeros(above[corners[0]].shape, dtype=int)  # `PASSES`, by a square's first corner
    for bit, corner in enumerate(corners):
        cases |= above[corner].astype(int) << bit
    has_numbers = np.logical_and.reduce([finite[corner] for corner in corners])
    joined: dict[Edge, list[Edge]] = defaultdict(list)
    # 0 is a square below the level, 15 one above: no line passes
    for row, column in np.argwhere(has_numbers & (cases > 0) & (cases < 15)).tolist():
        middle = values[row : row + 2, column : column + 2].mean()
        for sides in _passes(int(cases[row, column]), bool(middle >= level)):
            start, end = (_edge(row, column, side) for side in sides)
            joined[start].append(end)
            joined[end].append(start)
    return [np.array([_point(values, level, edge) for edge in line]) for line in _lines(joined)]


def _passes(case: int, middle_above: bool) -> list[tuple[int, int]]:
    """Pairs of sides that a contour joins in a square, see `PASSES`.

    At a saddle, whose opposite corners lie above, two ways are possible: the mean of the corners
    decides which."""
    if case in (5, 10):
        return [(0, 1), (2, 3)] if (case == 5) == middle_above else [(0, 3), (1, 2)]
    return PASSES[case] if case in PASSES else PASSES[15 - case]


def _edge(row: int, column: int, side: int) -> Edge:
    """A side, 0 … 3, of the square whose first corner is [row, column]."""
    edge = SIDES[side]
    return Edge(row + edge.row, column + edge.column, edge.to_next_row)


def _point(values: Array, level: float, edge: Edge) -> tuple[float, float]:
    """Row and column, with fractions, at which values reach a level on an edge, by linear
    interpolation between its ends."""
    row, column, to_next_row = edge
    to_next_column = 1 - to_next_row
    start, end = values[row, column], values[row + to_next_row, column + to_next_column]
    share = float((level - start) / (end - start))
    return row + share * to_next_row, column + share * to_next_column


def _lines(joined: dict[Edge, list[Edge]]) -> list[list[Edge]]:
    """The lines that pairs of edges make up, each as its edges in order.

    Args:
        joined: the edges that a line joins to each edge: two, or one at the line's end.
    """
    waiting = {edge: list(others) for edge, others in joined.items()}
    lines = []
    # lines with ends begin at one; what is left then are closed lines
    for start in sorted(waiting, key=lambda edge: len(joined[edge])):
        line = [start]
        while waiting[line[-1]]:
            following = waiting[line[-1]].pop()
            waiting[following].remove(line[-1])
            line.append(following)
        if len(line) > 1:
            lines.append(line)
    return lines


INK, HALO = "#1b1f24", "rgba(255, 255, 255, 0.75)"
"""Colors are the same on light and dark paper: lines on them are dark with a light edge."""
GLOW = ", ".join(f"{across}px {down}px 1px #fff" for across in (-1, 1) for down in (-1, 1))
"""The shadow, as CSS, that sets a label off from the colors below it."""
OWN = "theory"
"""Name of the contours where they show the colors' own statistic."""


def scaled(cells: Cells) -> Colors:
    """The color scale that holds all numbers of a map, measured and predicted, those that are not
    finite left out.

    Predictions of measured cells count as well: they have no color, but contour lines."""
    done = cells.done | cells.theory_done
    numbers = [cells.observed[cells.done], cells.predicted[done]]
    return colors(cells.scale, np.concatenate(numbers))


def contours(cells: Cells, name: str = OWN) -> list[Trace]:
    """The contour lines of the theory's values, and last their labels; empty where an axis has
    names, between which there is nothing, or where no line crosses the map.

    Args:
        name: the lines' group; of another statistic than the colors', it is in the legend.
    """
    if not (cells.x.numeric and cells.y.numeric) or min(cells.predicted.shape) < 2:
        return []
    # on a log scale lines are interpolated between exponents
    position = np.log10 if cells.scale.log else np.asarray
    with np.errstate(all="ignore"):
        values = position(cells.predicted)
    crossed = {}  # the lines of each level that the map reaches, `[point, (row, column)]`
    for level in contour_levels(scaled(cells)):
        if lines := contour(values, float(position(level))):
            crossed[level] = lines
    if not crossed:
        return []
    # the colors' own contours have no entry: lines are theory on every page
    traces = [] if name == OWN else [_legend_line(name)]
    for level, lines in crossed.items():
        x = _chained([cells.x.at(line[:, 1]) for line in lines])
        y = _chained([cells.y.at(line[:, 0]) for line in lines])
        width = 2.6 if level == cells.scale.healthy else 1.2
        traces += _edged(x, y, number(level), name, width)
    return [*traces, _labels(cells, crossed, name)]


def _chained(lines: list[Array]) -> Array:
    """The coordinates of several lines as one array, with a gap (nan) between each two."""
    return np.concatenate([np.append(points, np.nan) for points in lines])[:-1]


def _edged(x: Array, y: Array, level: str, group: str, width: float) -> list[Trace]:
    """A dark line, in pixels wide, on a lighter, wider one, so that it is seen on every color."""
    line = partial(mark, "lines", x=compact(x), y=compact(y), legendgroup=group)
    edge = {"color": HALO, "width": width + 2}
    ink = {"color": INK, "width": width}
    hover = f"{group}: {level}<extra></extra>"
    return [
        line(f"predicted {level}, edge", line=edge, hoverinfo="skip"),
        line(f"predicted {level}", line=ink, hovertemplate=hover),
    ]


def _legend_line(words: str) -> Trace:
    """The legend's one entry of a group of lines, without a point on the map: gray, as the lines'
    ink is not seen on dark paper."""
    line = {"color": NEUTRAL, "width": 2, "dash": "solid"}
    return mark(
        "lines",
        words,
        [None],
        [None],
        legendgroup=words,
        line=line,
        showlegend=True,
        hoverinfo="skip",
    )


def _labels(cells: Cells, crossed: Mapping[float, Sequence[Array]], name: str) -> Trace:
    """A label with the value on the longest line of each level.

    Of n levels the first has it at 1/(n + 1) of its line, the last at n/(n + 1), so that labels of
    lines close together do not meet.

    Args:
        crossed: the lines of each level, `[point, (row, column)]`.
        name: the lines' group.
    """
    points = []
    for number_of_level, lines in enumerate(crossed.values(), start=1):
        longest = max(lines, key=len)
        index = len(longest) * number_of_level // (len(crossed) + 1)
        points.append(longest[index])
    rows, columns = np.array(points).T
    return mark(
        "text",
        "theory's values",
        cells.x.at(columns),
        cells.y.at(rows),
        hoverinfo="skip",
        legendgroup=name,
        text=[number(level) for level in crossed],
        textfont={"size": 11, "color": INK, "shadow": GLOW},
    )
