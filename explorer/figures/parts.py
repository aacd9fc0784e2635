"""Parts of the labs' pictures: dots are measured, lines are predicted, gray marks give the scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from explorer.figures.axes import MARGIN, Range, label, sheet
from explorer.figures.axes import value_axis as _vertical
from explorer.figures.palette import HUES, NEUTRAL, SYMBOLS
from explorer.figures.series import compact, masked
from explorer.figures.words import typeset

Array = NDArray[Any]
Trace = dict[str, Any]


class Axis(NamedTuple):
    """One axis: its title with the unit, its extent, and whether it is logarithmic."""

    title: str
    extent: Range
    """Exponents on a logarithmic axis."""
    log: bool = False


def axis(title: str, values: Sequence[Any], log: bool = False, least: float = 0.0, air: float = 0.06) -> Axis:
    """An axis that holds all finite values (positive ones where it is logarithmic), with air at both ends.

    `least`: the shortest extent, in decades or units, so that a flat line looks flat.
    """
    found = np.concatenate([np.empty(0), *(np.ravel(np.asarray(part, dtype=float)) for part in values)])
    found = found[np.isfinite(found) & ((found > 0) if log else np.ones(len(found), bool))]
    if log:
        found = np.log10(found)
    low, high = (float(found.min()), float(found.max())) if len(found) else (0.0, 1.0)
    slack = max(0.0, (least or 1e-9) - (high - low)) / 2
    room = air * max(high - low + 2 * slack, 1e-9)
    return Axis(title, (low - slack - room, high + slack + room), log)


def dots(x: Array, y: Array, name: str, index: int, sentence: str, *, log: bool = False, **more: Any) -> Trace:
    """Measured values in the hue and symbol of `index`; `sentence` is the hover text with %{x} and %{y}."""
    values, name = np.asarray(y, dtype=float), typeset(name)
    return {
        "type": "scatter", "mode": "markers", "name": name,
        "x": compact(np.asarray(x, dtype=float)), "y": compact(masked(values, log)),
        "marker": {"color": HUES[index], "symbol": SYMBOLS[index], "size": 7},
        "hovertemplate": f"<b>{name}</b><br>{typeset(sentence)}<extra></extra>",
    } | more


def line(x: Array, y: Array, name: str, index: int, sentence: str, *, log: bool = False, dash: str = "solid",
         **more: Any) -> Trace:
    """Predicted values in the hue of `index`; it has no place in the legend beside its dots."""
    values, name = np.asarray(y, dtype=float), typeset(name)
    return {
        "type": "scatter", "mode": "lines", "name": f"{name}, predicted", "showlegend": False,
        "x": compact(np.asarray(x, dtype=float)), "y": compact(masked(values, log)),
        "line": {"color": HUES[index], "width": 2, "dash": dash},
        "hovertemplate": f"<b>{name}, predicted</b><br>{typeset(sentence)}<extra></extra>",
    } | more


def level(value: float, words: str, across: Axis, side: str = "right") -> Trace:
    """A horizontal gray mark with its name above its end."""
    low, high = (10.0 ** np.array(across.extent) if across.log else np.array(across.extent)).tolist()
    return {
        "type": "scatter", "mode": "lines+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [low, high], "y": [value, value],
        "text": ["", words] if side == "right" else [words, ""],
        "textposition": "top left" if side == "right" else "top right", "textfont": {"size": 11},
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"},
    }


def upright(value: float, words: str, height: Axis, side: str = "right", share: float = 0.93) -> Trace:
    """A vertical gray mark with its name beside it, at a share of the height."""
    low, high = height.extent
    at = np.array([low, low + share * (high - low), high])
    return {
        "type": "scatter", "mode": "lines+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [value] * 3, "y": (10.0**at if height.log else at).tolist(), "text": ["", words, ""],
        "textposition": f"middle {side}", "textfont": {"size": 11},
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"},
    }


LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "itemwidth": 30,
          "font": {"size": 12}}


def picture(traces: Sequence[Trace], across: Axis, height: Axis, description: str, *, legend: bool = True,
            **more: Any) -> go.Figure:
    """The figure; with a legend above the plot where there are several series."""
    xaxis = {"title": label(across.title), "range": across.extent, "zeroline": False, "tickangle": 0, "nticks": 8}
    form = {"type": "log", "nticks": _log_ticks(across.extent), **_form(across)} if across.log else {"tickformat": "~g"}
    xaxis |= form
    layout = sheet(xaxis, _vertical(height.title, height.extent, height.log), description)
    if legend:
        layout |= {"showlegend": True, "legend": LEGEND, "margin": MARGIN | {"t": 34}}
    return go.Figure({"data": list(traces), "layout": layout | more})


def _log_ticks(extent: Range) -> int:
    """plotly labels 1, 2, 5 from 0.3 decades a tick on, powers alone from 0.7 on; labels stand side by side here."""
    decades = extent[1] - extent[0]
    return max(3, int(decades / 0.33)) if decades < 2.7 else max(3, int(min(6.0, decades / 0.75)))


def _form(across: Axis) -> dict[str, Any]:
    small = max(map(abs, across.extent)) < 4.5
    return {"minorloglabels": "complete"} | ({"tickformat": "~g"} if small else {"exponentformat": "power"})
