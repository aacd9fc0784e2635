"""Lines over the colors of a map: the theory's contours, and laws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from explorer.figures.data import HIDDEN
from explorer.figures.map.cells import Cells
from explorer.figures.map.scales import Colors, colors, contour_levels
from explorer.figures.palette import NEUTRAL
from explorer.figures.traces import Trace, compact
from explorer.numbers import number
from explorer.profile import Array

# Contour lines of numbers on a grid, by marching squares, in the grid's own steps.


Edge = tuple[int, int, int]
"""A side between two neighbors of the grid: row and column of the first, and 0 for the next column, 1 for the next
row."""
SIDES = ((0, 0, 0), (0, 1, 1), (1, 0, 0), (0, 0, 1))
"""Upper, right, lower and left side of a square, as edges from its first corner."""
PASSES = {1: [(0, 3)], 2: [(0, 1)], 3: [(1, 3)], 4: [(1, 2)], 6: [(0, 2)], 7: [(2, 3)]}
"""Sides that a line joins, by which corners lie above: bits 1, 2, 4, 8 go around the square. Above and below are
alike, so the other half is the complement; 5 and 10 are saddles."""


def contour(values: Array, level: float) -> list[Array]:
    """Lines on which values `[row, column]` reach a level, linear between neighbors; none where one is not finite.

    Returns:
        Each line as `[point, (row, column)]`, fractions of a step included; a closed one ends where it begins.
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
    """Pairs of edges that a contour joins in a cell; at a saddle the mean of the corners decides which."""
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
    """The edges in the order in which lines pass them: those with an end first, then those that close."""
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
    """The theory's contours, each labeled with its value; none over names, between which there is nothing."""
    if not (cells.x.numeric and cells.y.numeric) or min(cells.predicted.shape) < 2:
        return []
    even = np.log10 if cells.scale.log else np.asarray
    with np.errstate(all="ignore"):
        values = even(cells.predicted)
    every = {level: contour(values, float(even(level))) for level in contour_levels(scaled(cells))}
    crossed = {level: parts for level, parts in every.items() if parts}
    traces = []
    for level, parts in crossed.items():
        x, y = _chained([cells.x.at(part[:, 1]) for part in parts], [cells.y.at(part[:, 0]) for part in parts])
        width = 2.6 if level == cells.scale.healthy else 1.2
        traces += _edged(x, y, f"predicted {number(level)}", name, width, hoverinfo=None,
                         hovertemplate=f"{name}: {number(level)}<extra></extra>")
    entry = [_legend_line(name)] * (name != OWN)  # dots are measured and lines theory on every page
    return [*entry, *traces, _labels(cells, crossed, name)] if crossed else []


def _chained(*parts: list[Array]) -> list[Array]:
    """Lines as one, with gaps between them."""
    return [np.concatenate([np.append(points, np.nan) for points in part])[:-1] for part in parts]


def _edged(x: ArrayLike, y: ArrayLike, name: str, group: str, width: float, *, dash: str | None = None,
           **more: object) -> list[Trace]:
    """A dark line on a lighter, wider one; the latter is named as the edge of the group's line."""
    base = {"type": "scatter", "mode": "lines", "x": compact(np.asarray(x, dtype=float)), "showlegend": False,
            "y": compact(np.asarray(y, dtype=float)), "legendgroup": group, "hoverinfo": "skip"}
    return [
        base | {"name": f"{name.removesuffix(', line')}, edge", "line": {"color": HALO, "width": width + 2},
                "meta": {"kind": HIDDEN}},
        base | {"name": name, "line": {"color": INK, "width": width, "dash": dash}, "meta": {"kind": "theory"}} | more,
    ]


def _legend_line(words: str, dash: str = "solid") -> Trace:
    """The legend's one entry of a group of lines: gray, as ink is not seen on dark paper."""
    return {"type": "scatter", "mode": "lines", "name": words, "x": [None], "y": [None], "legendgroup": words,
            "line": {"color": NEUTRAL, "width": 2, "dash": dash}, "showlegend": True, "hoverinfo": "skip",
            "meta": {"kind": HIDDEN}}


def border(x: ArrayLike, y: ArrayLike, words: str, dash: str = "dash") -> list[Trace]:
    """A law's line over a map, named in the legend."""
    return [_legend_line(words, dash), *_edged(x, y, f"{words}, line", words, 2.5, dash=dash)]


def _labels(cells: Cells, crossed: Mapping[float, Sequence[Array]], name: str) -> Trace:
    """Labels, each at another share of its line, so that labels of lines close together do not meet."""
    points = []
    for place, parts in enumerate(crossed.values(), start=1):
        longest = max(parts, key=len)
        points.append(longest[min(len(longest) * place // (len(crossed) + 1), len(longest) - 1)])
    down, across = np.array(points).T
    return {
        "type": "scatter", "mode": "text", "name": "theory's values", "x": cells.x.at(across), "y": cells.y.at(down),
        "text": [number(level) for level in crossed], "textfont": {"size": 11, "color": INK, "shadow": GLOW},
        "legendgroup": name, "showlegend": False, "hoverinfo": "skip",
    }
