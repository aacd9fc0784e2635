"""Contour lines of numbers on a grid, by marching squares, in the grid's own steps."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from explorer.profile import Array

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
            one, other = _edge(row, column, first), _edge(row, column, second)
            joined[one].append(other)
            joined[other].append(one)
    return [np.array([_point(values, level, edge) for edge in line]) for line in _lines(joined)]


def _passes(case: int, middle_above: bool) -> list[tuple[int, int]]:
    """At a saddle the mean of the corners says which two are joined."""
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
