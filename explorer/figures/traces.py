"""Traces of plain numbers: dots are measured, lines are predicted, gray levels and uprights give the scale.

Every picture is made of these. A thing keeps its `index` in a picture, which is its hue, symbol and dash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from explorer.figures.axes import Axis, drawable
from explorer.figures.data import untagged
from explorer.figures.palette import NEUTRAL, Look
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array

Trace = dict[str, Any]

MOST_DOTS = 64
"""Dots drawn of one series, evenly chosen; lines and bands pass through all of it."""
DOTTED = {"color": NEUTRAL, "width": 1.5, "dash": "dot"}
"""The line of everything that gives the scale."""


def masked(values: Array, log: bool) -> Array:
    """The values, with a gap (nan) wherever there is no place on the axis."""
    return np.where(drawable(values, log), values, np.nan)


def compact(values: Array) -> NDArray[Any]:
    """Half the bytes: float32, enough for a picture, unless a value would leave its range (predictions can)."""
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    limits = np.finfo(np.float32)
    fits = not len(size) or bool(size.max() < limits.max and size.min() > limits.tiny)
    return values.astype(np.float32) if fits else values


def kept(values: ArrayLike, log: bool) -> Trace:
    """For a trace some of whose values have no place on the axis: all of them, for the table of its numbers."""
    exact = np.asarray(values, dtype=float)
    return {} if drawable(exact, log).all() else {"customdata": compact(exact), "meta": {"exact": 0}}


def dots(x: ArrayLike, y: ArrayLike, name: str, index: int, sentence: str, *, log: bool = False, **more: Any) -> Trace:
    """Measured values. `sentence` is the hover text, with %{x} and %{y}; `log` is whether the vertical axis is so.

    `marker` in `more` changes some of the dots' marks; the rest of it replaces what plotly is given.
    """
    look = Look(index)
    marker = {"color": look.hue, "symbol": look.symbol, "size": 7, "maxdisplayed": MOST_DOTS}
    return _plain("markers", x, y, typeset(name), sentence, log) | more | {"marker": marker | more.get("marker", {})}


def line(x: ArrayLike, y: ArrayLike, name: str, index: int, sentence: str, *, log: bool = False, dash: str = "solid",
         **more: Any) -> Trace:
    """Predicted values; not in the legend, where its dots are, unless `showlegend` in `more` says so."""
    name = typeset(name) if more.get("showlegend") else f"{typeset(name)}, predicted"
    look = {"color": Look(index).hue, "width": 2, "dash": dash}
    return _plain("lines", x, y, name, sentence, log) | {"showlegend": False, "line": look} | more


def _plain(mode: str, x: ArrayLike, y: ArrayLike, name: str, sentence: str, log: bool) -> Trace:
    """Values with their hover text, a gap where one has no place on the axis."""
    return {
        "type": "scatter", "mode": mode, "name": name,
        "x": compact(np.asarray(x, dtype=float)), "y": compact(masked(np.asarray(y, dtype=float), log)),
        "hovertemplate": f"<b>{name}</b><br>{typeset(sentence)}<extra></extra>", **kept(y, log),
    }


def joined(index: int, dash: str = "dot", width: float = 1) -> Trace:
    """For `dots` that are joined by a thin line, as nothing predicts them."""
    return {"mode": "lines+markers", "line": {"color": Look(index).hue, "width": width, "dash": dash}}


def ring(size: float = 12, index: int = 0) -> Trace:
    """For `dots` around others that they may equal: their `marker`, the hollow symbol of an index."""
    return {"symbol": f"{Look(index).symbol}-open", "size": size, "line": {"width": 2}}


def error_bars(index: int, up: ArrayLike, down: ArrayLike | None = None) -> Trace:
    """For `dots`: their `error_y`, from `down` below to `up` above, or ± `up`."""
    bars = {"type": "data", "array": compact(np.asarray(up, dtype=float)), "color": Look(index).hue, "thickness": 1.5,
            "width": 3}
    return bars if down is None else bars | {"symmetric": False, "arrayminus": compact(np.asarray(down, dtype=float))}


def histogram(edges: Array, heights: Array, name: str, index: int, sentence: str) -> Trace:
    """Measured heights as a filled outline; `edges` has one number more."""
    look = Look(index)
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": compact((edges[:-1] + edges[1:]) / 2),
        "y": compact(heights), "line": {"color": look.faint(0.55), "width": 1, "shape": "hvh"},
        "fill": "tozeroy", "fillcolor": look.faint(0.22), "meta": {"kind": "measured"},
        "hovertemplate": f"<b>{name}</b><br>{sentence}<extra></extra>",
    }


def level(value: float, words: str, across: Axis, height: Axis, side: str = "right", lift: float = 0.015) -> Trace:
    """A horizontal gray line. Its name stands a share of the height above its end, clear of dots that lie on it."""
    low, high = across.ends.tolist()
    return {
        "type": "scatter", "mode": "lines+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [low, high, None, high if side == "right" else low],
        "y": [value, value, None, height.above(value, lift)],
        "text": ["", "", "", words], "textposition": "top left" if side == "right" else "top right",
        "textfont": {"size": 11}, "line": DOTTED,
    }


def upright(value: float, words: str, height: Axis, side: str = "right", share: float = 0.93, **more: Any) -> Trace:
    """A vertical gray line. Its name stands beside it, clear of it as of a marker, at a share of the height."""
    return {
        "type": "scatter", "mode": "lines+markers+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [value] * 3, "y": [height.at(at) for at in (0.0, share, 1.0)], "text": ["", words, ""],
        "textposition": f"middle {side}", "textfont": {"size": 11}, "line": DOTTED, "marker": {"opacity": 0},
    } | more


def broken_off(value: float, words: str, across: Axis, height: Axis, hue: str, share: float, place: str = "middle",
               **more: Any) -> Trace:
    """An upright in a design's hue where its values end; its words stand on the side that has room."""
    side = "right" if value < sum(across.extent) / 2 else "left"
    return upright(value, words, height, side, share, textposition=f"{place} {side}", textfont={"size": 12},
                   cliponaxis=False, line={"color": hue, "width": 2, "dash": "longdash"}, hoverinfo=None, **more)


def colorbar(title: str, **ticks: Any) -> dict[str, Any]:
    """The scale of a heat map."""
    return {
        "title": {"text": title, "side": "right", "font": {"size": 12}}, "thickness": 10, "xpad": 6,
        "outlinewidth": 0, "tickfont": {"size": 11},
    } | ticks


def described(subject: str, series: Sequence[Trace]) -> str:
    """A picture in words: its subject, and the ends and extremes of all that is drawn, marks of the scale left out."""
    drawn = [trace for trace in series if "hovertemplate" in trace and trace.get("hoverinfo") != "skip"]
    names = [untagged(trace["name"]) for trace in drawn]
    rows = [ends(name, np.asarray(trace["x"]), np.asarray(trace["y"]))
            for name, trace in zip(names, drawn, strict=True)]
    return " ".join([f"{subject}.", *rows])


def ends(name: str, x: Array, y: Array, unit: str = "") -> str:
    """One series in words: where it starts and ends, its lowest and highest point; `unit` stands before each `x`."""
    finite = np.flatnonzero(np.isfinite(y))
    if not len(finite):
        return f"{name}: no finite value."
    places = finite[0], finite[-1], finite[np.argmin(y[finite])], finite[np.argmax(y[finite])]
    first, last, low, high = (f"{number(float(y[at]))} at {unit}{number(float(x[at]), 4)}" for at in places)
    text = f"{name}: {first}" if len(y) == 1 else f"{name}: {first}, {last}; lowest {low}, highest {high}"
    lost = len(y) - len(finite)
    return f"{text}; not finite at {lost} of {len(y)}." if lost else f"{text}."
