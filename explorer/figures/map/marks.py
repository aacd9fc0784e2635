"""What lies over the colors of a map: the theory's contour lines, and signs of cells that no color tells."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from explorer.figures.map.cells import Cells, Mask
from explorer.figures.map.contours import contour
from explorer.figures.map.scales import Colors, colors, contour_levels
from explorer.figures.numbers import HIDDEN
from explorer.figures.palette import NEUTRAL
from explorer.figures.traces import Trace, compact
from explorer.numbers import number
from explorer.profile import Array

INK, LIGHT, HALO = "#1b1f24", "#ffffff", "rgba(255, 255, 255, 0.75)"
"""Drawn on colors, which are the same on light and dark paper: lines dark with a light edge, signs the other way."""
GLOW = ", ".join(f"{across}px {down}px 1px #fff" for across in (-1, 1) for down in (-1, 1))
OWN = "theory"
"""Name of the contours of what the colors show."""
WIDE = 56
"""Characters of a line of a reason."""
DOT_SHARE, LEAST_DOT, MOST_DOT = 120.0, 2.0, 5.0
"""Size of a measured cell's dot: by the cells along the longer side."""


def lines(cells: Cells, name: str = OWN) -> list[Trace]:
    """The theory's contours, each labeled with its value; none over names, between which there is nothing."""
    if not (cells.x.numeric and cells.y.numeric) or min(cells.predicted.shape) < 2:
        return []
    even = np.log10 if cells.scale.log else np.asarray
    with np.errstate(all="ignore"):
        values = even(cells.predicted)
    every = {level: contour(values, float(even(level))) for level in contour_levels(scaled(cells))}
    found = {level: parts for level, parts in every.items() if parts}
    traces = []
    for level, parts in found.items():
        x, y = _chained([cells.x.at(part[:, 1]) for part in parts], [cells.y.at(part[:, 0]) for part in parts])
        traces += _line(x, y, level, name, level == cells.scale.healthy)
    entry = [_legend_line(name)] * (name != OWN)  # dots are measured and lines theory on every page
    return [*entry, *traces, _labels(cells, found, name)] if found else []


def _chained(*parts: list[Array]) -> list[Array]:
    """Lines as one, with gaps between them."""
    return [np.concatenate([np.append(one, np.nan) for one in part])[:-1] for part in parts]


def _line(x: Array, y: Array, level: float, group: str, healthy: bool) -> list[Trace]:
    """Dark on a lighter, wider one; the healthy value's is the widest."""
    width = 2.6 if healthy else 1.2
    name = f"predicted {number(level)}"
    base = {"type": "scatter", "mode": "lines", "x": compact(x), "y": compact(y), "legendgroup": group}
    return [
        base | {"name": f"{name}, edge", "line": {"color": HALO, "width": width + 2}, "hoverinfo": "skip",
                "showlegend": False, "meta": {"kind": HIDDEN}},
        base | {"name": name, "line": {"color": INK, "width": width}, "showlegend": False, "meta": {"kind": "theory"},
                "hovertemplate": f"{group}: {number(level)}<extra></extra>"},
    ]


def _legend_line(words: str, dash: str = "solid") -> Trace:
    """The legend's one entry of a group of lines: gray, as ink is not seen on dark paper."""
    return {"type": "scatter", "mode": "lines", "name": words, "x": [None], "y": [None], "legendgroup": words,
            "line": {"color": NEUTRAL, "width": 2, "dash": dash}, "showlegend": True, "hoverinfo": "skip",
            "meta": {"kind": HIDDEN}}


def border(x: ArrayLike, y: ArrayLike, words: str, dash: str = "dash") -> list[Trace]:
    """A law's line over a map, named in the legend."""
    base = {"type": "scatter", "mode": "lines", "x": compact(np.asarray(x, dtype=float)), "hoverinfo": "skip",
            "y": compact(np.asarray(y, dtype=float)), "legendgroup": words, "showlegend": False}
    return [
        _legend_line(words, dash),
        base | {"name": f"{words}, edge", "line": {"color": HALO, "width": 4.5}, "meta": {"kind": HIDDEN}},
        base | {"name": f"{words}, line", "line": {"color": INK, "width": 2.5, "dash": dash},
                "meta": {"kind": "theory"}},
    ]


def _labels(cells: Cells, found: Mapping[float, Sequence[Array]], name: str) -> Trace:
    """Each at another share of its line, so that those of lines close together do not meet."""
    points = []
    for place, parts in enumerate(found.values(), start=1):
        longest = max(parts, key=len)
        points.append(longest[min(len(longest) * place // (len(found) + 1), len(longest) - 1)])
    down, across = np.array(points).T
    return {
        "type": "scatter", "mode": "text", "name": "theory's values", "x": cells.x.at(across), "y": cells.y.at(down),
        "text": [number(level) for level in found], "textfont": {"size": 11, "color": INK, "shadow": GLOW},
        "legendgroup": name, "showlegend": False, "hoverinfo": "skip",
    }


def scaled(cells: Cells) -> Colors:
    """The scale that holds all numbers of a map."""
    held = cells.done | cells.theory_done
    return colors(cells.scale, np.concatenate([cells.found[cells.done], cells.predicted[held]]))


def signs(cells: Cells, now: Mapping[str, float] | None) -> list[Trace]:
    """Dots on what was measured; arrows where a value is not finite, or zero below a logarithmic scale; hatches on
    failures; a star where the page is."""
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
    if now is not None:
        at = {name: [side.place(now[side.spec.name])] for name, side in (("x", cells.x), ("y", cells.y))}
        traces.append(_sign("now", "star", 15) | at)
    return [trace for trace in traces if len(trace["x"])]


def _marks(cells: Cells, where: Mask, name: str, symbol: str, size: float) -> Trace:
    """One sign on each of the cells; words are the cell's own."""
    rows, columns = np.nonzero(where)
    x, y = cells.x.places, cells.y.places
    return _sign(name, symbol, size) | {"x": [x[at] for at in columns], "y": [y[at] for at in rows]}


def _sign(name: str, symbol: str, size: float) -> Trace:
    return {
        "type": "scatter", "mode": "markers", "name": name, "hoverinfo": "skip", "cliponaxis": False,
        "meta": {"kind": HIDDEN},
        "marker": {"symbol": symbol, "size": size, "color": LIGHT, "line": {"width": 1, "color": INK}},
    }


def reasons(cells: Cells) -> Trace | None:
    """Gray below the cells without a number, whose hover text says why there is none."""
    said = cells.failure.copy()
    said[~cells.failed & cells.done & np.isnan(cells.found)] = "not a number (nan)"
    said[~cells.failed & ~cells.done & cells.theory_done & np.isnan(cells.predicted)] = "the theory has no number here"
    if not (said != "").any():
        return None
    words = [["<br>".join(html.escape(line) for line in textwrap.wrap(str(text), WIDE)) for text in row]
             for row in said]
    gray = "rgba(128, 128, 128, 0.35)"
    place = "<br>".join(side.words(f"%{{{name}}}") for name, side in (("x", cells.x), ("y", cells.y)))
    return {
        "type": "heatmap", "name": "no value", "x": cells.x.places, "y": cells.y.places, "text": words,
        "z": np.where(said != "", 1.0, np.nan).astype(np.float32), "colorscale": [[0, gray], [1, gray]],
        "showscale": False, "hoverongaps": False, "meta": {"kind": HIDDEN},
        "hovertemplate": f"<b>No value</b><br>{place}<br>%{{text}}<extra></extra>",
    }
