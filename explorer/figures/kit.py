"""The drawing kit: axes and the sheet they stand on, and traces of plain numbers, of which every
picture is made.

No theme: paper is transparent and text has no color until a page gives it one. Dots are measured,
lines are predicted, gray levels and uprights give the scale. A thing keeps its `index` in a
picture, which is its hue, symbol and dash."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
from numpy.typing import ArrayLike, NDArray

from explorer.fields import Spec
from explorer.figures.data import Picture, Plain, untagged
from explorer.figures.palette import NEUTRAL, Look
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array

BARE = {"data": {"scatter": [{"type": "scatter"}]}}
"""An empty template, as plotly writes it: given explicitly, or plotly adds its own theme."""

Range = tuple[float, float]
"""In plotly's form: exponents on a logarithmic axis."""

MARGIN = {"l": 62, "r": 14, "t": 10, "b": 42}
LEGEND: dict[str, Any] = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "y": 1,
    "yref": "container",
    "yanchor": "top",
    "itemwidth": 30,
    "font": {"size": 12},
}
"""Above the plot."""
FEW = 10.5
"""An axis that counts to no more has a tick at every number."""
AIR, TOP = 0.04, 0.1
"""Shares of an axis that are free at its ends at least; more above where the words of a level stand
on its line."""
MOST_LINES = 5
"""Lines of words that stand above all data, at most: of more designs the chart would be too low."""
STEPS = 8
"""Ends lie on a grid of an eighth to a sixteenth of an axis: they stay most of the time while a
slider is dragged."""
SLACK = 1e-9
"""Part of an axis or of a step that rounding may take away."""
LEAST = 1.0
"""Decades that a log axis shows at least: a flat line must look flat, not like a picture of
rounding errors."""


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
        return self.at(self.fraction(value) + fraction)

    def fraction(self, value: float) -> float:
        """The fraction of the length at which a value lies."""
        where = float(np.log10(value)) if self.log else value
        return (where - self.extent[0]) / (self.extent[1] - self.extent[0])

    def with_room(self, share: float) -> Axis:
        """The axis, longer by a share of the new length, which is free above all that it holds."""
        low, high = self.extent
        return self._replace(extent=(low, low + (high - low) / (1 - share)))

    @property
    def layout(self) -> dict[str, Any]:
        """The axis as plotly has it."""
        title = {"text": typeset(self.title), "standoff": 6, "font": {"size": 12}}
        layout = {"title": title, "range": self.extent, "zeroline": False, "tickangle": 0}
        if self.log:
            return layout | _log_ticks(*self.extent)
        most = max(self.extent) if self.counts else np.inf
        # plotly would put fractions between few
        ticks = {"tick0": 0, "dtick": 1} if most <= FEW else {"nticks": 7}
        return layout | ticks | {"tickformat": "~s" if 9999 < most < np.inf else "~g"}


def _log_ticks(low: float, high: float) -> dict[str, Any]:
    """Ticks of a logarithmic axis between two exponents of ten.

    plotly labels 1, 2, 5 where a tick has 0.3 decades, and powers alone where it has 0.7. Labels
    that are so close collide, and a little more is asked for."""
    decades = high - low
    if decades < 2.6:
        ticks = decades / 0.35  # 1, 2, 5
    else:
        ticks = min(5.0, decades / 0.75)  # powers alone
    short = max(abs(low), abs(high)) < 4  # 0.0001 to 10000 are written out
    form = {"tickformat": "~g"} if short else {"exponentformat": "power"}
    # "complete": plotly would write 20 as a small 2, which is taken for 2
    return {"type": "log", "nticks": max(3, int(ticks)), "minorloglabels": "complete"} | form


def axis(
    title: str,
    values: Sequence[ArrayLike],
    *,
    log: bool = False,
    least: float = 0.0,
    air: float = AIR,
    top: float | None = None,
    counts: bool = False,
) -> Axis:
    """An axis that holds all finite values (positive ones where it is logarithmic), with air at
    both ends.

    Args:
        least: the shortest extent, in decades or units: a flat line must look flat, not like
            rounding errors.
        top: the air at the upper end, if it differs.
    """
    shown = np.concatenate(
        [np.empty(0), *(np.ravel(np.asarray(part, dtype=float)) for part in values)]
    )
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
    # 2ⁿ: ends are exact
    step = max(math.ldexp(1.0, math.frexp(high - low)[1] - 1) / STEPS, sys.float_info.min)
    ends = float(np.floor(low / step) * step), float(np.ceil(high / step) * step)
    return ends if np.isfinite(ends).all() else (low, high)


def round_values(low: float, high: float, count: int) -> list[float]:
    """About so many round numbers between two ends: multiples of 1, 2 or 5 times a power of ten."""
    least = (high - low) / count * (1 - SLACK)
    power = 10.0 ** np.floor(np.log10(least))
    step = next(lead * power for lead in (1.0, 2.0, 5.0, 10.0) if lead * power >= least)
    first, last = math.ceil(low / step - SLACK), math.floor(high / step + SLACK)
    return [float(step * at) for at in range(first, last + 1)]


def drawable(values: Array, log: bool) -> Any:
    """Mask of the values that have a place on the axis: finite, and above 0 on a logarithmic
    one."""
    return np.isfinite(values) & (values > 0) if log else np.isfinite(values)


def depth_axis(*depths: ArrayLike) -> Axis:
    """The horizontal axis of everything that runs over layers: from the input to the deepest."""
    return axis("depth (layers)", [0.0, *depths], air=0.03, counts=True)


def field_title(spec: Spec) -> str:
    """The title of a field's axis: label, symbol, and the unit in brackets."""
    about = spec.about
    symbol = "" if about.symbol in about.label.split() else about.symbol
    return " ".join(filter(None, (about.label, symbol, f"({about.unit})" if about.unit else "")))


def headline(text: str) -> dict[str, Any]:
    """The layout of a picture with a line of text above it."""
    return {
        "title": {
            "text": text,
            "x": 0.5,
            "xref": "paper",
            "xanchor": "center",
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "pad": {"b": 5},
            "font": {"size": 12},
        },
        "margin": MARGIN | {"t": 26},
    }


def sheet(
    xaxis: dict[str, Any], yaxis: dict[str, Any], description: str, **more: Any
) -> dict[str, Any]:
    """The layout. `meta.description` says in words what the picture shows, for those who cannot see
    it."""
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
def picture(
    traces: Sequence[dict[str, Any]], across: Axis, height: Axis, description: str
) -> Plain:
    """The figure, without a legend."""
    return {"data": list(traces), "layout": sheet(across.layout, height.layout, description)}


@Picture
def blank(sentence: str) -> Plain:
    """A sentence in place of a picture, where there is nothing to be drawn."""
    hidden = {"visible": False, "fixedrange": True}
    note = {
        "text": sentence,
        "x": 0.5,
        "y": 0.5,
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 14},
    }
    return {"data": [], "layout": sheet(hidden, hidden, sentence, annotations=[note])}


def alone(figure: go.Figure, title: str, caption: str) -> go.Figure:
    """A figure outside the page, which would give it a card: with a title, a legend, and the paper
    of plotly's theme.

    That is white, unless a reader on dark has set `plotly.io.templates.default = "plotly_dark"`.
    """
    theme = pio.templates[pio.templates.default or "none"].layout
    own = figure.layout.title.text
    figure.layout.title = {
        "text": f"{title}, {own}" if own else title,
        "subtitle": {"text": caption},
    }
    figure.update_layout(margin={"t": 80}, showlegend=True, paper_bgcolor="white")
    if theme.paper_bgcolor not in (None, "white"):
        figure.update_layout(paper_bgcolor=theme.paper_bgcolor, font_color=theme.font.color)
        figure.update_xaxes(gridcolor=theme.xaxis.gridcolor).update_yaxes(
            gridcolor=theme.yaxis.gridcolor
        )
    return figure


Trace = dict[str, Any]

MOST_DOTS = 64
"""Dots drawn of one series, evenly chosen; lines and bands pass through all of it."""
DOTTED = {"color": NEUTRAL, "width": 1.5, "dash": "dot"}
"""The line of everything that gives the scale."""


def masked(values: Array, log: bool) -> Array:
    """The values, with a gap (nan) wherever there is no place on the axis."""
    return np.where(drawable(values, log), values, np.nan)


def compact(values: Array) -> NDArray[Any]:
    """Half the bytes: float32, enough for a picture, unless a value would leave its range
    (predictions can)."""
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    limits = np.finfo(np.float32)
    fits = not len(size) or bool(size.max() < limits.max and size.min() > limits.tiny)
    return values.astype(np.float32) if fits else values


def mark(mode: str, name: str, x: Any, y: Any, **more: Any) -> Trace:
    """Marks of the scale, of a spread, or of values without a place on the axis: they have no entry
    in the legend."""
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": x,
        "y": y,
        "showlegend": False,
    } | more


def dots(
    x: ArrayLike,
    y: ArrayLike,
    look: Look,
    name: str,
    words: str,
    *,
    log: bool = False,
    **marker: Any,
) -> Trace:
    """Measured values. `words` are the hover text, with %{x} and %{y}; `log` is whether the
    vertical axis is so.

    `marker` changes some of the dots' marks.
    """
    marks = {"color": look.hue, "symbol": look.symbol, "size": 7, "maxdisplayed": MOST_DOTS}
    return _plain("markers", x, y, name, words, log) | {"marker": marks | marker}


def line(
    x: ArrayLike,
    y: ArrayLike,
    look: Look,
    name: str,
    words: str,
    *,
    log: bool = False,
    dash: str = "",
) -> Trace:
    """Predicted values; not in the legend, where its dots are. `dash` is another one than that of
    its look."""
    drawn = {"color": look.hue, "width": 2, "dash": dash or look.dash}
    return _plain("lines", x, y, name, words, log) | {"showlegend": False, "line": drawn}


def _plain(mode: str, x: ArrayLike, y: ArrayLike, name: str, words: str, log: bool) -> Trace:
    """Values with their hover text; a gap where one has no place on the axis."""
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": compact(np.asarray(x, dtype=float)),
        "y": compact(masked(np.asarray(y, dtype=float), log)),
        "hovertemplate": words,
    }


def hover(heading: str, sentence: str) -> str:
    """A hover text that begins with the design, and whether it was measured or predicted."""
    return f"<b>{heading[0].upper()}{heading[1:]}</b><br>{sentence}<extra></extra>"


def error_bars(look: Look, up: ArrayLike, down: ArrayLike) -> Trace:
    """For `dots`: their `error_y`, from `down` below to `up` above."""
    return {
        "type": "data",
        "array": compact(np.asarray(up, dtype=float)),
        "color": look.hue,
        "thickness": 1.5,
        "width": 3,
        "symmetric": False,
        "arrayminus": compact(np.asarray(down, dtype=float)),
    }


def level(
    value: float, words: str, across: Axis, height: Axis, side: str = "right", lift: float = 0.015
) -> Trace:
    """A horizontal gray line. Its name stands a share of the height above its end, clear of dots
    that lie on it."""
    low, high = across.ends.tolist()
    end, place = (high, "top left") if side == "right" else (low, "top right")
    return mark(
        "lines+text",
        words,
        [low, high, None, end],
        [value, value, None, height.above(value, lift)],
        text=["", "", "", words],
        textposition=place,
        textfont={"size": 11},
        line=DOTTED,
        hoverinfo="skip",
    )


def upright(
    value: float, words: str, height: Axis, side: str = "right", share: float = 0.93, **more: Any
) -> Trace:
    """A vertical gray line. Its name stands beside it, clear of it as of a marker, at a share of
    the height."""
    return (
        mark(
            "lines+markers+text",
            words,
            [value] * 3,
            [height.at(at) for at in (0.0, share, 1.0)],
            text=["", words, ""],
            textposition=f"middle {side}",
            textfont={"size": 11},
            line=DOTTED,
            marker={"opacity": 0},
            hoverinfo="skip",
        )
        | more
    )


def broken_off(
    value: float, words: str, across: Axis, height: Axis, hue: str, share: float, **more: Any
) -> Trace:
    """An upright in a design's hue where its values end; its words stand on the side that has
    room."""
    side = "right" if value < sum(across.extent) / 2 else "left"
    return upright(
        value,
        words,
        height,
        side,
        share,
        textfont={"size": 12},
        cliponaxis=False,
        line={"color": hue, "width": 2, "dash": "longdash"},
        hoverinfo=None,
        **more,
    )


def room_for_words(lines: int) -> float:
    """The share of a height that so many lines of words take above all data, in a chart that is not
    a picture.

    There are at most `MOST_LINES`.
    """
    return 0.03 + 0.075 * min(lines, MOST_LINES) if lines else 0.0


def capped(
    value: float, words: str, across: Axis, height: Axis, hue: str, lines: int, **more: Any
) -> Trace:
    """An upright as `broken_off`, with its words on top of it, which end so many lines below the
    upper end.

    They lie over no data where the height has `room_for_words`, and over no ticks: near an end they
    run to the middle. Below `MOST_LINES` lines there are no words: hovering says them."""
    if lines > MOST_LINES:
        words = ""
    third = int(np.clip(3 * across.fraction(value), 0, 2))
    top = 1 - room_for_words(lines)
    return broken_off(
        value,
        words,
        across,
        height,
        hue,
        top,
        textposition=f"top {('right', 'center', 'left')[third]}",
        **more,
    ) | {"y": [height.at(0.0), height.at(top), None]}


def colorbar(title: str, **ticks: Any) -> dict[str, Any]:
    """The scale of a heat map."""
    return {
        "title": {"text": title, "side": "right", "font": {"size": 12}},
        "thickness": 10,
        "xpad": 6,
        "outlinewidth": 0,
        "tickfont": {"size": 11},
    } | ticks


def described(subject: str, series: Sequence[Trace]) -> str:
    """A picture in words: its subject, and the ends and extremes of all that is drawn, marks of the
    scale left out."""
    drawn = [
        trace for trace in series if "hovertemplate" in trace and trace.get("hoverinfo") != "skip"
    ]
    names = [untagged(trace["name"]) for trace in drawn]
    rows = [
        ends(name, np.asarray(trace["x"]), np.asarray(trace["y"]))
        for name, trace in zip(names, drawn, strict=True)
    ]
    return " ".join([f"{subject}.", *rows])


def ends(name: str, x: Array, y: Array, unit: str = "") -> str:
    """One series in words: where it starts and ends, its lowest and highest point; `unit` stands
    before each `x`."""
    finite = np.flatnonzero(np.isfinite(y))
    if not len(finite):
        return f"{name}: no finite value."
    places = finite[0], finite[-1], finite[np.argmin(y[finite])], finite[np.argmax(y[finite])]
    first, last, low, high = (
        f"{number(float(y[at]))} at {unit}{number(float(x[at]), 4)}" for at in places
    )
    text = (
        f"{name}: {first}"
        if len(y) == 1
        else f"{name}: {first}, {last}; lowest {low}, highest {high}"
    )
    lost = len(y) - len(finite)
    return f"{text}; not finite at {lost} of {len(y)}." if lost else f"{text}."
