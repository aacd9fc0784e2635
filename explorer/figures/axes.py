"""Axes and the sheet they stand on. No theme: paper is transparent and text has no color until a page gives it one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from explorer.figures.series import Series, drawable
from explorer.figures.words import typeset
from explorer.profile import Array

BARE = go.layout.Template()
"""Given explicitly, or plotly adds its own theme."""

Range = tuple[float, float]
"""In plotly's form: exponents on a logarithmic axis."""

MARGIN = {"l": 62, "r": 14, "t": 10, "b": 42}
LEAST_DECADES = 1.0
"""A log axis never shows less: a flat line must look flat, not like a picture of rounding errors."""

FEW = 7
"""Ticks, at most, of an axis that counts."""


def finite_parts(series: Sequence[Series], log: bool) -> Array:
    """Every number of the series that has a place on the axis, in one row."""
    parts = [part[drawable(part, log)] for row in series for part in (row.middle, row.low, row.high)]
    return np.concatenate([np.empty(0), *parts])


def log_range(series: Sequence[Series], *marks: float) -> Range:
    """Exponents from the least to the largest value and mark, with air, at least `LEAST_DECADES` apart."""
    exponents = np.log10(np.concatenate([finite_parts(series, log=True), np.array(marks)]))
    if not len(exponents):
        return -LEAST_DECADES / 2, LEAST_DECADES / 2
    low, high = float(exponents.min()), float(exponents.max())
    slack = max(0.0, LEAST_DECADES - (high - low)) / 2
    air = 0.06 * max(high - low, LEAST_DECADES)
    return low - slack - air, high + slack + 2 * air  # more above: the words of a mark stand on its line


def linear_range(series: Sequence[Series], *marks: float) -> Range:
    """From the least to the largest value and mark, with air; of height 1 where all is one value, or nothing."""
    values = np.concatenate([finite_parts(series, log=False), np.array(marks)])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    slack = 0.5 if low == high else 0.0
    low, high = low - slack, high + slack
    air = 0.06 * (high - low)
    return low - air, high + 2 * air


def depth_range(series: Sequence[Series]) -> Range:
    """From the input to the deepest layer, with air for the outermost dots."""
    deepest = max((float(row.depth.max()) for row in series if len(row.depth)), default=1.0)
    return -0.03 * deepest, 1.03 * deepest


def depth_axis(extent: Range) -> dict[str, Any]:
    """The horizontal axis of everything that runs over layers."""
    axis = {
        "title": label("depth (layers)"), "range": extent, "zeroline": False, "tickformat": "~g", "tickangle": 0,
    }
    return axis | ({"tick0": 0, "dtick": 1} if extent[1] <= 10.5 else {"nticks": 11 if extent[1] < 100 else 6})


def whole(most: float) -> dict[str, Any]:
    """Ticks of an axis that counts up to `most`: plotly would put fractions between few."""
    return {"tick0": 0, "dtick": 1} if most <= FEW else {"nticks": FEW}


def value_axis(title: str, extent: Range, log: bool) -> dict[str, Any]:
    """The vertical axis; `extent` in exponents when it is logarithmic."""
    axis: dict[str, Any] = {"title": label(title), "range": extent, "zeroline": False}
    if not log:
        return axis | {"nticks": 7, "tickformat": "~g"}
    decades = extent[1] - extent[0]
    # plotly labels 1, 2, 5 from 0.3 decades a tick on, powers alone from 0.7 on; closer than that, labels collide.
    ticks = decades / 0.35 if decades < 2.6 else min(5.0, decades / 0.75)
    form = {"tickformat": "~g"} if max(map(abs, extent)) < 4 else {"exponentformat": "power"}
    # A small "2" between 1 and 10 is read as 2: whole numbers or none.
    return axis | {"type": "log", "nticks": max(3, int(ticks)), "minorloglabels": "complete"} | form


def label(text: str) -> dict[str, Any]:
    """An axis title, with its unit in brackets."""
    return {"text": typeset(text), "standoff": 6, "font": {"size": 12}}


def sheet(xaxis: dict[str, Any], yaxis: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    """The layout. `meta.description` says in words what the picture shows, for those who cannot see it."""
    return {
        "template": BARE,
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "margin": MARGIN,
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": xaxis,
        "yaxis": yaxis,
        "meta": {"description": description},
    } | more


def blank(sentence: str) -> go.Figure:
    """A sentence in place of a picture, where there is nothing to be drawn."""
    hidden = {"visible": False, "fixedrange": True}
    note = {"text": sentence, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False,
            "font": {"size": 14}}
    return go.Figure({"data": [], "layout": sheet(hidden, hidden, sentence, annotations=[note])})


def alone(figure: go.Figure, title: str, caption: str) -> go.Figure:
    """A figure outside the page, which would give it a card: on white, with a title and a legend."""
    own = figure.layout.title.text
    figure.layout.title = {"text": f"{title}, {own}" if own else title, "subtitle": {"text": caption}}
    return figure.update_layout(margin={"t": 80}, showlegend=True, paper_bgcolor="white")


def position(extent: Range, fraction: float, log: bool) -> float:
    """The value that stands at a fraction of the axis' height."""
    at = extent[0] + fraction * (extent[1] - extent[0])
    return float(10.0 ** max(-307.0, min(at, 307.0))) if log else at


def above(value: float, extent: Range, fraction: float, log: bool) -> float:
    """The value that stands a fraction of the axis' height above another."""
    at = float(np.log10(value)) if log else value
    return position(extent, (at - extent[0]) / (extent[1] - extent[0]) + fraction, log)
