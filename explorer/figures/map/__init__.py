"""Maps: a statistic over two fields of an `explorer.sweep`, measured colors under the theory's contour lines."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from explorer.figures.axes import LEGEND, MARGIN, blank, sheet
from explorer.figures.data import HIDDEN
from explorer.figures.map.cells import Cells, Mask, Side, cells
from explorer.figures.map.contours import INK, border, contours, scaled
from explorer.figures.map.scales import Colors
from explorer.figures.traces import Trace, compact
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array

if TYPE_CHECKING:
    import xarray as xr

LIGHT = "#ffffff"
"""Signs are light with a dark edge: they are seen on every color, and in the legend on light and dark paper."""
WIDE = 56
"""Characters of a line of a reason."""
DOT_SHARE, LEAST_DOT, MOST_DOT = 120.0, 2.0, 5.0
"""Size of a measured cell's dot: by the cells along the longer side."""
MOST_ACROSS, MOST_UP = 6, 8
"""Cells along a side that have a tick each, at most."""


def heat_map(dataset: xr.Dataset, statistic: str, *, x: str, y: str, now: Mapping[str, float] | None = None,
             lines: str = "") -> go.Figure:
    """A statistic over two fields. Colors diverge from the healthy value's; contour lines are the theory's.

    A cell with a dot shows what was measured (or trained), one without what the theory predicts; it is blank where
    neither is yet. A failure is crossed out, with its reason on hovering; a value that is not finite has an arrow.

    Args:
        dataset: as `explorer.sweep` gives it, with two fields; of three, choose a value of one by `dataset.sel`.
        statistic: a row of `SCALES`.
        x: the field across, logarithmic where its slider is.
        y: the field upwards.
        lines: a statistic whose predicted values are the contour lines, where it is another: of trained maps.
        now: values of fields; where both are among them, a star marks their place.
    Raises:
        ValueError: the statistic or a field is unknown, or there are more fields than two.
    """
    grid = cells(dataset, statistic, x, y)
    if not (grid.done | grid.theory_done).any():
        return blank("Nothing has been computed yet.")
    over = contours(grid) if not lines else contours(other := cells(dataset, lines, x, y), _theory(other))
    traces = [*_heats(grid, scaled(grid)), reasons(grid), *over[:-1], *signs(grid, now), *over[-1:]]  # words last
    data = [trace for trace in traces if trace]
    entries = any(trace["type"] == "scatter" and trace.get("showlegend", True) for trace in data)
    above: dict[str, Any] = {"legend": LEGEND, "showlegend": True, "margin": MARGIN | {"t": 34}} if entries else {}
    axes = _axis(grid.x, MOST_ACROSS), _axis(grid.y, MOST_UP)
    return go.Figure({"data": data, "layout": sheet(*axes, _in_words(grid), **above)})


def over(figure: go.Figure, x: ArrayLike, y: ArrayLike, words: str, dash: str = "dash") -> go.Figure:
    """The map with a law's line over it, `[point]` in the fields' units, which the legend names."""
    return go.Figure([*figure.data, *border(x, y, words, dash)], figure.layout).update_layout(
        showlegend=True, legend=LEGEND, margin_t=34)


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
    """Predicted colors where nothing was measured, and measured ones; `customdata` has the numbers themselves."""
    theory = np.where(grid.done, np.nan, grid.predicted)
    kept = np.stack([grid.predicted], axis=-1)
    traces = []
    if grid.asked[0]:
        traces.append(_heat(grid, scale, "predicted", theory, kept) | {
            "meta": {"kind": "theory"}, "showscale": not grid.done.any()})
    if grid.asked[1] and grid.done.any():
        kept = np.stack([np.where(grid.done, grid.observed, np.nan), grid.low, grid.high, grid.predicted], axis=-1)
        traces.append(_heat(grid, scale, grid.scale.origin, np.where(grid.done, grid.observed, np.nan), kept) | {
            "meta": {"kind": "measured", "ends": True}})
    return traces


def _heat(grid: Cells, scale: Colors, name: str, values: Array, kept: Array) -> Trace:
    spread = "<br>lowest and highest seed %{customdata[1]:.3g}, %{customdata[2]:.3g}" if kept.shape[-1] > 1 else ""
    theory = "<br>predicted %{customdata[3]:.3g}" if kept.shape[-1] > 1 and grid.asked[0] else ""
    place = "<br>".join((grid.x.words("%{x}"), grid.y.words("%{y}")))
    words = f"{place}<br>{grid.scale.title}, {name}: %{{customdata[0]:.3g}}{spread}{theory}"
    return {
        "type": "heatmap", "name": f"{grid.scale.title}, {name}", "x": grid.x.places, "y": grid.y.places,
        "z": compact(scale.z(values)), "customdata": compact(kept), "zmin": scale.low, "zmax": scale.high,
        "colorscale": scale.stops, "colorbar": scale.bar, "hoverongaps": False,
        "hovertemplate": f"{words}<extra></extra>",
    }


def _in_words(grid: Cells) -> str:
    """The map in words: its subject, its progress, its extremes, and the cells without a value."""
    subject = f"{grid.scale.title} over {grid.x.reach} and {grid.y.reach}."
    sentences = [subject]
    for name, values, done in ((grid.scale.origin, grid.observed, grid.done),
                               ("predicted", grid.predicted, grid.theory_done)):
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
            text += (f", {word} {number(float(values[row, column]))} at {grid.x.words(grid.x.number(column))}, "
                     f"{grid.y.words(grid.y.number(row))}")
    lost = int((done & ~finite & ~grid.failed).sum())
    return f"{text}; not finite in {lost}." if lost else f"{text}."


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
    why = cells.failure.copy()
    why[~cells.failed & cells.done & np.isnan(cells.observed)] = "not a number (nan)"
    why[~cells.failed & ~cells.done & cells.theory_done & np.isnan(cells.predicted)] = "the theory has no number here"
    if not (why != "").any():
        return None
    words = [["<br>".join(html.escape(line) for line in textwrap.wrap(str(text), WIDE)) for text in row]
             for row in why]
    gray = "rgba(128, 128, 128, 0.35)"
    place = "<br>".join(side.words(f"%{{{name}}}") for name, side in (("x", cells.x), ("y", cells.y)))
    return {
        "type": "heatmap", "name": "no value", "x": cells.x.places, "y": cells.y.places, "text": words,
        "z": np.where(why != "", 1.0, np.nan).astype(np.float32), "colorscale": [[0, gray], [1, gray]],
        "showscale": False, "hoverongaps": False, "meta": {"kind": HIDDEN},
        "hovertemplate": f"<b>No value</b><br>{place}<br>%{{text}}<extra></extra>",
    }


