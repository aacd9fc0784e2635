"""Signs on the cells of a map: what no color tells."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping

import numpy as np

from explorer.figures.map.cells import Cells, Mask
from explorer.figures.map.lines import INK
from explorer.figures.numbers import HIDDEN
from explorer.figures.traces import Trace

LIGHT = "#ffffff"
"""Signs are light with a dark edge: they are seen on every color, and in the legend on light and dark paper."""
WIDE = 56
"""Characters of a line of a reason."""
DOT_SHARE, LEAST_DOT, MOST_DOT = 120.0, 2.0, 5.0
"""Size of a measured cell's dot: by the cells along the longer side."""


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
    if now and {cells.x.spec.name, cells.y.spec.name} <= now.keys():
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
