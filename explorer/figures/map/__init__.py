"""Maps: a statistic over two fields of an `explorer.sweep`, measured colors under the theory's
contour lines."""

from __future__ import annotations

import html
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from explorer.figures.kit import LEGEND, MARGIN, Trace, blank, compact, mark, sheet
from explorer.figures.map.cells import Cells, Colors, Mask, Side, cells, colors, contour_levels
from explorer.figures.palette import NEUTRAL
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array
from explorer.sweeping.table import Table

if TYPE_CHECKING:
    import xarray as xr

LIGHT = "#ffffff"
"""Signs are light with a dark edge: they are seen on every color, and in the legend on light and
dark paper."""
WIDE = 56
"""Characters of a line of a reason."""
DOT_SHARE, LEAST_DOT, MOST_DOT = 120.0, 2.0, 5.0
"""Size of a measured cell's dot: by the cells along the longer side."""
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
    over = (
        contours(grid)
        if not lines
        else contours(other := cells(numbers, lines, x, y), _theory(other))
    )
    # words last
    traces = [
        *_heats(grid, scaled(grid)),
        reasons(grid),
        *over[:-1],
        *signs(grid, now),
        *over[-1:],
    ]
    data = [trace for trace in traces if trace]
    entries = any(trace["type"] == "scatter" and trace.get("showlegend", True) for trace in data)
    above: dict[str, Any] = (
        {"legend": LEGEND, "showlegend": True, "margin": MARGIN | {"t": 34}} if entries else {}
    )
    axes = _axis(grid.x, MOST_ACROSS), _axis(grid.y, MOST_UP)
    return go.Figure({"data": data, "layout": sheet(*axes, _in_words(grid), **above)})


def _theory(grid: Cells) -> str:
    """Name of another statistic's contours, with its symbol."""
    return f"theory: {typeset(grid.scale.unit.partition(' (')[0])}"


def _axis(side: Side, most: int) -> dict[str, Any]:
    """No lines of a grid below colors; names in their order, and few numbers each at its cell."""
    own: dict[str, Any] = {}
    if not side.numeric:
        own = {"type": "category", "tickvals": side.places, "tickangle": None}
    elif len(side.values) <= most:
        whole = side.spec.kind == "integer"
        words = [number(value, 4 if whole else 2 if value < 1 else 3) for value in side.values]
        own = {"tickvals": side.values, "ticktext": words}
    return side.axis.layout | {"showgrid": False, "ticks": "outside", "ticklen": 4} | own


def _heats(grid: Cells, scale: Colors) -> list[Trace]:
    """Predicted colors where nothing was measured, and measured ones; `customdata` has the numbers
    themselves."""
    theory = np.where(grid.done, np.nan, grid.predicted)
    kept = np.stack([grid.predicted], axis=-1)
    traces = []
    if grid.asked[0]:
        traces.append(
            _heat(grid, scale, "predicted", theory, kept) | {"showscale": not grid.done.any()}
        )
    if grid.asked[1] and grid.done.any():
        observed = np.where(grid.done, grid.observed, np.nan)
        kept = np.stack([observed, grid.low, grid.high, grid.predicted], axis=-1)
        traces.append(_heat(grid, scale, grid.scale.origin, observed, kept))
    return traces


def _heat(grid: Cells, scale: Colors, name: str, values: Array, kept: Array) -> Trace:
    spread = (
        "<br>lowest and highest seed %{customdata[1]:.3g}, %{customdata[2]:.3g}"
        if kept.shape[-1] > 1
        else ""
    )
    theory = "<br>predicted %{customdata[3]:.3g}" if kept.shape[-1] > 1 and grid.asked[0] else ""
    place = "<br>".join((grid.x.words("%{x}"), grid.y.words("%{y}")))
    words = f"{place}<br>{grid.scale.title}, {name}: %{{customdata[0]:.3g}}{spread}{theory}"
    return {
        "type": "heatmap",
        "name": f"{grid.scale.title}, {name}",
        "x": grid.x.places,
        "y": grid.y.places,
        "z": compact(scale.z(values)),
        "customdata": compact(kept),
        "zmin": scale.low,
        "zmax": scale.high,
        "colorscale": scale.stops,
        "colorbar": scale.bar,
        "hoverongaps": False,
        "hovertemplate": f"{words}<extra></extra>",
    }


def _in_words(grid: Cells) -> str:
    """The map in words: its subject, its progress, its extremes, and the cells without a value."""
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
    finite = np.isfinite(values) & done
    text = f"{name}: {int(done.sum())} of {done.size} cells"
    if finite.any():
        for word, pick in (("lowest", np.argmin), ("highest", np.argmax)):
            row, column = np.argwhere(finite)[pick(values[finite])].tolist()
            text += (
                f", {word} {number(float(values[row, column]))} at {grid.x.words(grid.x.number(column))}, "
                f"{grid.y.words(grid.y.number(row))}"
            )
    lost = int((done & ~finite & ~grid.failed).sum())
    return f"{text}; not finite in {lost}." if lost else f"{text}."


def signs(cells: Cells, now: Mapping[str, float] | None) -> list[Trace]:
    """Dots on what was measured; arrows where a value is not finite, or zero below a logarithmic
    scale; hatches on failures; a star where the page is."""
    held = (cells.done | cells.theory_done) & ~cells.failed
    missing = np.isnan(cells.predicted) & ~cells.done  # the theory does not cover it
    broken = held & ~np.isfinite(cells.shown) & ~missing
    zero = held & (cells.shown <= 0) & cells.scale.log
    plain = cells.done & ~cells.failed & ~broken & ~zero
    small = float(np.clip(DOT_SHARE / max(cells.done.shape), LEAST_DOT, MOST_DOT))
    traces = [
        _marks(cells, plain, cells.scale.origin, "circle", small) | {"showlegend": False},
        _marks(cells, broken, "not finite", "triangle-up", 3 + 2 * small),
        _marks(cells, zero, "0, below a log scale", "triangle-down", 3 + 2 * small),
        _marks(cells, cells.failed, "failed", "x", 2 + 2 * small),
    ]
    if now and {cells.x.spec.name, cells.y.spec.name} <= now.keys():
        at = {
            name: [side.place(now[side.spec.name])]
            for name, side in (("x", cells.x), ("y", cells.y))
        }
        traces.append(_sign("now", "star", 15) | at)
    return [trace for trace in traces if len(trace["x"])]


def _marks(cells: Cells, where: Mask, name: str, symbol: str, size: float) -> Trace:
    """One sign on each of the cells; words are the cell's own."""
    rows, columns = np.nonzero(where)
    x, y = cells.x.places, cells.y.places
    return _sign(name, symbol, size) | {"x": [x[at] for at in columns], "y": [y[at] for at in rows]}


def _sign(name: str, symbol: str, size: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "hoverinfo": "skip",
        "cliponaxis": False,
        "marker": {
            "symbol": symbol,
            "size": size,
            "color": LIGHT,
            "line": {"width": 1, "color": INK},
        },
    }


def reasons(cells: Cells) -> Trace | None:
    """Gray below the cells without a number, whose hover text says why there is none."""
    why = cells.failure.copy()
    why[~cells.failed & cells.done & np.isnan(cells.observed)] = "not a number (nan)"
    why[~cells.failed & ~cells.done & cells.theory_done & np.isnan(cells.predicted)] = (
        "the theory has no number here"
    )
    if not (why != "").any():
        return None
    words = [
        ["<br>".join(html.escape(line) for line in textwrap.wrap(str(text), WIDE)) for text in row]
        for row in why
    ]
    gray = "rgba(128, 128, 128, 0.35)"
    place = "<br>".join(
        side.words(f"%{{{name}}}") for name, side in (("x", cells.x), ("y", cells.y))
    )
    return {
        "type": "heatmap",
        "name": "no value",
        "x": cells.x.places,
        "y": cells.y.places,
        "text": words,
        "z": np.where(why != "", 1.0, np.nan).astype(np.float32),
        "colorscale": [[0, gray], [1, gray]],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"<b>No value</b><br>{place}<br>%{{text}}<extra></extra>",
    }


# Contour lines of numbers on a grid, by marching squares, in the grid's own steps.


Edge = tuple[int, int, int]
"""A side between two neighbors of the grid: row and column of the first, and 0 for the next column,
1 for the next row."""
SIDES = ((0, 0, 0), (0, 1, 1), (1, 0, 0), (0, 0, 1))
"""Upper, right, lower and left side of a square, as edges from its first corner."""
PASSES = {1: [(0, 3)], 2: [(0, 1)], 3: [(1, 3)], 4: [(1, 2)], 6: [(0, 2)], 7: [(2, 3)]}
"""Sides that a line joins, by which corners lie above: bits 1, 2, 4, 8 go around the square. Above
and below are alike, so the other half is the complement; 5 and 10 are saddles."""


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
    corners = (np.s_[:-1, :-1], np.s_[:-1, 1:], np.s_[1:, 1:], np.s_[1:, :-1])
    kind = sum(above[at].astype(int) << bit for bit, at in enumerate(corners))
    whole = np.logical_and.reduce([finite[at] for at in corners])
    joined: dict[Edge, list[Edge]] = defaultdict(list)
    for row, column in np.argwhere(whole & (kind > 0) & (kind < 15)).tolist():
        case = int(np.asarray(kind)[row, column])
        mean = values[row : row + 2, column : column + 2].mean()
        for first, second in _passes(case, bool(mean >= level)):
            start, end = _edge(row, column, first), _edge(row, column, second)
            joined[start].append(end)
            joined[end].append(start)
    return [np.array([_point(values, level, edge) for edge in line]) for line in _lines(joined)]


def _passes(case: int, middle_above: bool) -> list[tuple[int, int]]:
    """Pairs of edges that a contour joins in a cell; at a saddle the mean of the corners decides
    which."""
    if case in (5, 10):
        return [(0, 1), (2, 3)] if (case == 5) == middle_above else [(0, 3), (1, 2)]
    return PASSES[case] if case in PASSES else PASSES[15 - case]


def _edge(row: int, column: int, side: int) -> Edge:
    down, right, way = SIDES[side]
    return row + down, column + right, way


def _point(values: Array, level: float, edge: Edge) -> tuple[float, float]:
    row, column, way = edge
    start, end = values[row, column], values[row + way, column + 1 - way]
    share = float((level - start) / (end - start))
    return row + share * way, column + share * (1 - way)


def _lines(joined: dict[Edge, list[Edge]]) -> list[list[Edge]]:
    """The edges in the order in which lines pass them: those with an end first, then those that
    close."""
    waiting = {edge: list(others) for edge, others in joined.items()}
    lines = []
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
OWN = "theory"
"""Name of the contours where they show the colors' own statistic."""


def scaled(cells: Cells) -> Colors:
    """The scale that holds all numbers of a map."""
    held = cells.done | cells.theory_done
    return colors(cells.scale, np.concatenate([cells.observed[cells.done], cells.predicted[held]]))


def contours(cells: Cells, name: str = OWN) -> list[Trace]:
    """The theory's contours, each labeled with its value; none over names, between which there is
    nothing."""
    if not (cells.x.numeric and cells.y.numeric) or min(cells.predicted.shape) < 2:
        return []
    even = np.log10 if cells.scale.log else np.asarray
    with np.errstate(all="ignore"):
        values = even(cells.predicted)
    every = {level: contour(values, float(even(level))) for level in contour_levels(scaled(cells))}
    crossed = {level: parts for level, parts in every.items() if parts}
    traces = []
    for level, parts in crossed.items():
        x, y = _chained(
            [cells.x.at(part[:, 1]) for part in parts], [cells.y.at(part[:, 0]) for part in parts]
        )
        width = 2.6 if level == cells.scale.healthy else 1.2
        traces += _edged(x, y, number(level), name, width)
    entry = [_legend_line(name)] * (name != OWN)  # dots are measured and lines theory on every page
    return [*entry, *traces, _labels(cells, crossed, name)] if crossed else []


def _chained(*parts: list[Array]) -> list[Array]:
    """Lines as one, with gaps between them."""
    return [np.concatenate([np.append(points, np.nan) for points in part])[:-1] for part in parts]


def _edged(x: Array, y: Array, level: str, group: str, width: float) -> list[Trace]:
    """A dark line on a lighter, wider one."""
    line = partial(mark, "lines", x=compact(x), y=compact(y), legendgroup=group)
    return [
        line(
            f"predicted {level}, edge",
            line={"color": HALO, "width": width + 2},
            hoverinfo="skip",
        ),
        line(
            f"predicted {level}",
            line={"color": INK, "width": width},
            hovertemplate=f"{group}: {level}<extra></extra>",
        ),
    ]


def _legend_line(words: str) -> Trace:
    """The legend's one entry of a group of lines: gray, as ink is not seen on dark paper."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": words,
        "x": [None],
        "y": [None],
        "legendgroup": words,
        "line": {"color": NEUTRAL, "width": 2, "dash": "solid"},
        "showlegend": True,
        "hoverinfo": "skip",
    }


def _labels(cells: Cells, crossed: Mapping[float, Sequence[Array]], name: str) -> Trace:
    """Labels, each at another share of its line, so that labels of lines close together do not
    meet."""
    points = []
    for place, parts in enumerate(crossed.values(), start=1):
        longest = max(parts, key=len)
        points.append(longest[min(len(longest) * place // (len(crossed) + 1), len(longest) - 1)])
    down, across = np.array(points).T
    return mark(
        "text",
        "theory's values",
        cells.x.at(across),
        cells.y.at(down),
        hoverinfo="skip",
        legendgroup=name,
        text=[number(level) for level in crossed],
        textfont={"size": 11, "color": INK, "shadow": GLOW},
    )
