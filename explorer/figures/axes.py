"""Axes and the sheet they stand on. No theme: paper is transparent and text has no color until a page gives it one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
from numpy.typing import ArrayLike

from explorer.fields import Spec
from explorer.figures.data import Picture, Plain
from explorer.figures.why import Why
from explorer.figures.words import typeset
from explorer.profile import Array

BARE = {"data": {"scatter": [{"type": "scatter"}]}}
"""An empty template, as plotly writes it: given explicitly, or plotly adds its own theme."""

Range = tuple[float, float]
"""In plotly's form: exponents on a logarithmic axis."""

MARGIN = {"l": 62, "r": 14, "t": 10, "b": 42}
LEGEND: dict[str, Any] = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "itemwidth": 30,
    "font": {"size": 12},
}
"""Above the plot."""
FEW = 10.5
"""An axis that counts to no more has a tick at every number."""
AIR, TOP = 0.04, 0.1
"""Shares of an axis that are free at its ends at least; more above where the words of a level stand on its line."""
STEPS = 8
"""Ends lie on a grid of an eighth to a sixteenth of an axis: they stay most of the time while a slider is dragged."""
LEAST = 1.0
"""Decades that a log axis shows at least: a flat line must look flat, not like a picture of rounding errors."""


class Plot(NamedTuple):
    """One picture of a result, as a row of data."""

    draw: Callable[[Any], go.Figure]
    """From a race's result to a figure."""
    title: str
    caption: str
    why: Why = Why()

    @property
    def name(self) -> str:
        """Name of the function that draws it."""
        return self.draw.__name__


class Axis(NamedTuple):
    """One axis: its title with the unit in brackets, its extent, and its kind."""

    title: str
    extent: Range
    """Exponents on a logarithmic axis."""
    log: bool = False
    counts: bool = False
    """Whole numbers alone have ticks: layers, steps, tokens."""

    def at(self, fraction: float) -> float:
        """The value at a fraction of the length."""
        where = self.extent[0] + fraction * (self.extent[1] - self.extent[0])
        return float(10.0 ** np.clip(where, -307.0, 307.0)) if self.log else where

    @property
    def ends(self) -> Array:
        """The values at both ends."""
        return np.array([self.at(0.0), self.at(1.0)])

    def above(self, value: float, fraction: float) -> float:
        """The value a fraction of the length above another."""
        where = float(np.log10(value)) if self.log else value
        return self.at((where - self.extent[0]) / (self.extent[1] - self.extent[0]) + fraction)

    @property
    def layout(self) -> dict[str, Any]:
        """The axis as plotly has it."""
        layout = {"title": label(self.title), "range": self.extent, "zeroline": False, "tickangle": 0}
        if self.log:
            return layout | _log_ticks(*self.extent)
        most = max(self.extent) if self.counts else np.inf
        ticks = {"tick0": 0, "dtick": 1} if most <= FEW else {"nticks": 7}  # plotly would put fractions between few
        return layout | ticks | {"tickformat": "~s" if 9999 < most < np.inf else "~g"}


def _log_ticks(low: float, high: float) -> dict[str, Any]:
    """plotly labels 1, 2, 5 from 0.3 decades a tick on, powers alone from 0.7 on; closer than that, labels collide."""
    decades = high - low
    ticks = decades / 0.35 if decades < 2.6 else min(5.0, decades / 0.75)
    form = {"tickformat": "~g"} if max(abs(low), abs(high)) < 4 else {"exponentformat": "power"}
    # A small "2" between 1 and 10 is read as 2: whole numbers or none.
    return {"type": "log", "nticks": max(3, int(ticks)), "minorloglabels": "complete"} | form


def axis(title: str, values: Sequence[ArrayLike], *, log: bool = False, least: float = 0.0, air: float = AIR,
         top: float | None = None, counts: bool = False) -> Axis:
    """An axis that holds all finite values (positive ones where it is logarithmic), with air at both ends.

    Args:
        least: the shortest extent, in decades or units: a flat line must look flat, not like rounding errors.
        top: the air at the upper end, if it differs.
    """
    shown = np.concatenate([np.empty(0), *(np.ravel(np.asarray(part, dtype=float)) for part in values)])
    shown = shown[drawable(shown, log)]
    if log:
        shown = np.log10(shown)
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    length = max(high - low, least) or 1.0  # of all one value
    slack = (length - (high - low)) / 2
    low, high = low - slack - air * length, high + slack + (air if top is None else top) * length
    return Axis(title, (low, high) if counts else steady(low, high), log, counts)


def steady(low: float, high: float) -> Range:
    """The ends of the grid about an interval; the interval itself where floats end."""
    step = max(math.ldexp(1.0, math.frexp(high - low)[1] - 1) / STEPS, sys.float_info.min)  # 2ⁿ: ends are exact
    ends = float(np.floor(low / step) * step), float(np.ceil(high / step) * step)
    return ends if np.isfinite(ends).all() else (low, high)


def drawable(values: Array, log: bool) -> Any:
    """Mask of the values that have a place on the axis: finite, and above 0 on a logarithmic one."""
    return np.isfinite(values) & (values > 0) if log else np.isfinite(values)


def depth_axis(*depths: ArrayLike) -> Axis:
    """The horizontal axis of everything that runs over layers: from the input to the deepest."""
    return axis("depth (layers)", [0.0, *depths], air=0.03, counts=True)


def field_title(spec: Spec) -> str:
    """The title of a field's axis: label, symbol, and the unit in brackets."""
    about = spec.about
    symbol = "" if about.symbol in about.label.split() else about.symbol
    return " ".join(filter(None, (about.label, symbol, f"({about.unit})" if about.unit else "")))


def label(text: str) -> dict[str, Any]:
    """An axis title, with its unit in brackets."""
    return {"text": typeset(text), "standoff": 6, "font": {"size": 12}}


def headline(text: str) -> dict[str, Any]:
    """The layout of a picture with a line of text above it."""
    return {
        "title": {"text": text, "x": 0.5, "xref": "paper", "xanchor": "center", "y": 1, "yref": "paper",
                  "yanchor": "bottom", "pad": {"b": 5}, "font": {"size": 12}},
        "margin": MARGIN | {"t": 26},
    }


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


@Picture
def picture(traces: Sequence[dict[str, Any]], across: Axis, height: Axis, description: str, *, legend: bool = True,
            **more: Any) -> Plain:
    """The figure; with a legend above the plot where there are several series. `more` is added to the layout."""
    above = {"showlegend": True, "legend": LEGEND, "margin": MARGIN | {"t": 34}} if legend else {}
    return {"data": list(traces), "layout": sheet(across.layout, height.layout, description) | above | more}


@Picture
def blank(sentence: str) -> Plain:
    """A sentence in place of a picture, where there is nothing to be drawn."""
    hidden = {"visible": False, "fixedrange": True}
    note = {"text": sentence, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False,
            "font": {"size": 14}}
    return {"data": [], "layout": sheet(hidden, hidden, sentence, annotations=[note])}


def alone(figure: go.Figure, title: str, caption: str) -> go.Figure:
    """A figure outside the page, which would give it a card: with a title, a legend, and the paper of plotly's theme.

    That is white, unless a reader on dark has set `plotly.io.templates.default = "plotly_dark"`.
    """
    theme = pio.templates[pio.templates.default or "none"].layout
    own = figure.layout.title.text
    figure.layout.title = {"text": f"{title}, {own}" if own else title, "subtitle": {"text": caption}}
    figure.update_layout(margin={"t": 80}, showlegend=True, paper_bgcolor="white")
    if theme.paper_bgcolor not in (None, "white"):
        figure.update_layout(paper_bgcolor=theme.paper_bgcolor, font_color=theme.font.color)
        figure.update_xaxes(gridcolor=theme.xaxis.gridcolor).update_yaxes(gridcolor=theme.yaxis.gridcolor)
    return figure
