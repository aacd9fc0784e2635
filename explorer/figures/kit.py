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
from explorer.translation import translated
from explorer.vocabulary import Array

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
"""A row of entries above the plot."""
LEGEND_ABOVE: dict[str, Any] = {"legend": LEGEND, "showlegend": True, "margin": MARGIN | {"t": 34}}
"""Properties of a layout with this legend, and the room that it needs."""
FEW = 10.5
"""A counting axis that ends below it, at 10 and the air beyond, has a tick at each whole number."""
AIR, TOP = 0.04, 0.1
"""Shares of an axis's data that are left free at its ends; `TOP` above, where the label of a gray
level stands on its line."""
SIDE_AIR = 0.03
"""As `AIR`, of a horizontal axis: enough for the first and the last dot."""
MOST_LINES = 5
"""Lines of words that stand above all data, at most: of more designs the chart would be too low."""
STEPS = 8
"""Ends of an axis are rounded to a grid whose step is 1/8 to 1/16 of the axis, so that they mostly
stay while a slider is dragged."""
SLACK = 1e-9
"""Tolerance for rounding errors of floats, relative to an axis or to a step."""
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
        """The value at a fraction of the length, 0 … 1 from the lower end to the upper."""
        low, high = self.extent
        position = low + fraction * (high - low)
        if self.log:
            return float(10.0 ** np.clip(position, -307.0, 307.0))  # as far as floats go
        return position

    @property
    def ends(self) -> Array:
        """The values at both ends."""
        return np.array([self.at(0.0), self.at(1.0)])

    def above(self, value: float, fraction: float) -> float:
        """The value that lies a fraction of the axis's length above another value."""
        return self.at(self.fraction(value) + fraction)

    def fraction(self, value: float) -> float:
        """The fraction of the length at which a value lies."""
        low, high = self.extent
        position = float(np.log10(value)) if self.log else value
        return (position - low) / (high - low)

    def with_room(self, share: float) -> Axis:
        """The axis, extended upwards so that a share of its new length is free above all that it
        holds."""
        low, high = self.extent
        return self._replace(extent=(low, low + (high - low) / (1 - share)))

    @property
    def layout(self) -> dict[str, Any]:
        """The axis as plotly has it."""
        title = {"text": typeset(self.title), "standoff": 6, "font": {"size": 12}}
        layout = {"title": title, "range": self.extent, "zeroline": False, "tickangle": 0}
        if self.log:
            return layout | _log_ticks(*self.extent)
        layout |= {"nticks": 7, "tickformat": "~g"}
        last = max(self.extent)
        if self.counts and last <= FEW:
            del layout["nticks"]  # plotly would put fractions between few whole numbers
            layout |= {"tick0": 0, "dtick": 1}
        if self.counts and last > 9999:
            layout["tickformat"] = "~s"  # 20k
        return layout


def _log_ticks(low: float, high: float) -> dict[str, Any]:
    """Ticks of a logarithmic axis, as plotly has them, between two exponents of ten.

    plotly labels 1, 2, 5 where a tick has 0.3 decades, and powers alone where it has 0.7. Labels
    that are so close collide, and a little more is asked for."""
    decades = high - low
    if decades < 2.6:  # up to here labels of 1, 2 and 5 do not crowd
        ticks = decades / 0.35
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
        title: with the unit in brackets.
        values: arrays of any shape.
        least: the shortest extent, in decades or units: a flat line must look flat, not like
            rounding errors.
        air: the share of the values' extent that is free at each end.
        top: the air at the upper end, if it differs.
        counts: whether ticks are whole numbers only, as of layers.
    """
    numbers = [np.ravel(np.asarray(array, dtype=float)) for array in values]
    positions = np.concatenate([np.empty(0), *numbers])
    positions = positions[drawable(positions, log)]
    if log:
        positions = np.log10(positions)
    low, high = extremes(positions)
    length = max(high - low, least) or 1.0  # all values may be the same
    missing = length - (high - low)
    low -= missing / 2 + air * length
    high += missing / 2 + (air if top is None else top) * length
    return Axis(title, (low, high) if counts else steady(low, high), log, counts)


def extremes(values: Array) -> tuple[float, float]:
    """The smallest and the largest value; 0 and 1, for an empty picture, of no values."""
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def steady(low: float, high: float) -> Range:
    """An interval rounded outwards to a grid, see `STEPS`; the interval itself where floats
    overflow."""
    # the power of two between half the length and the length, so that the ends are exact
    power = math.ldexp(1.0, math.frexp(high - low)[1] - 1)
    step = max(power / STEPS, sys.float_info.min)
    ends = float(np.floor(low / step) * step), float(np.ceil(high / step) * step)
    return ends if np.isfinite(ends).all() else (low, high)


def round_values(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of
    ten."""
    least = (high - low) / count * (1 - SLACK)
    power = 10.0 ** np.floor(np.log10(least))
    step = next(lead * power for lead in (1.0, 2.0, 5.0, 10.0) if lead * power >= least)
    first, last = math.ceil(low / step - SLACK), math.floor(high / step + SLACK)
    return [float(step * multiple) for multiple in range(first, last + 1)]


def drawable(values: Array, log: bool) -> Any:
    """Mask of the values that have a place on an axis: finite, and above 0 where it is
    logarithmic."""
    return np.isfinite(values) & (values > 0) if log else np.isfinite(values)


def depth_axis(*depths: ArrayLike) -> Axis:
    """The horizontal axis of everything that runs over layers: from the input to the deepest."""
    return axis("depth (layers)", [0.0, *depths], air=SIDE_AIR, counts=True)


def field_title(spec: Spec) -> str:
    """The title of a field's axis: label, symbol, and the unit in brackets; a symbol that the label
    has in it is not repeated."""
    about = spec.about
    title = about.label
    if about.symbol and about.symbol not in about.label.split():
        title += f" {about.symbol}"
    if about.unit:
        title += f" ({about.unit})"
    return title


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
    """A figure of traces on two axes, without a legend; its description is for those who cannot see
    it."""
    return {"data": list(traces), "layout": sheet(across.layout, height.layout, description)}


@Picture
def blank(sentence: str) -> Plain:
    """A figure without axes that shows a sentence, where there is nothing to be drawn."""
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
    """Makes a figure stand by itself, as in a notebook: with title, caption, legend and paper
    color.

    On the page a card gives these. The paper is white, unless a reader on dark has set
    `plotly.io.templates.default = "plotly_dark"`."""
    theme = pio.templates[pio.templates.default or "none"].layout
    heading = figure.layout.title.text  # such as "layer 3, head 1"
    figure.layout.title = {
        "text": f"{title}, {heading}" if heading else title,
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
"""A trace of a figure, by plotly's names of its properties."""
MOST_DOTS = 64
"""Dots drawn of one series at most, evenly chosen; lines and bands pass through all points."""
DOTTED = {"color": NEUTRAL, "width": 1.5, "dash": "dot"}
"""The line of marks that give the scale: levels and uprights."""


def masked(values: Array, log: bool) -> Array:
    """The values, with nan, a gap in a line, wherever one has no place on the axis."""
    return np.where(drawable(values, log), values, np.nan)


def compact(values: Array) -> NDArray[Any]:
    """The values as float32, which is enough for a picture and sends half the bytes; unchanged
    where one would overflow or underflow, as predictions can."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    limits = np.finfo(np.float32)
    if len(sizes) and (sizes.max() >= limits.max or sizes.min() <= limits.tiny):
        return values
    return values.astype(np.float32)


def mark(mode: str, name: str, x: Any, y: Any, **more: Any) -> Trace:
    """A trace without an entry in the legend: a level or upright, a band, or arrows for values that
    have no place on the axis.

    Args:
        mode: plotly's: "lines", "markers" or "text", joined by "+".
        name: says in words what it marks.
        more: other properties of the trace.
    """
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
    """Dots of measured values.

    Args:
        x, y: values in the units of the axes.
        look: gives hue and symbol.
        name: the entry in the legend.
        words: the hover text, with %{x} and %{y}.
        log: whether the vertical axis is logarithmic.
        marker: properties of the dots that differ from the look's.
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
    """A line of predicted values; it has no entry in the legend, where its dots have one.

    Args:
        x, y: values in the units of the axes.
        look: gives hue and dash.
        name: "predicted", with the design.
        words: the hover text, with %{x} and %{y}.
        log: whether the vertical axis is logarithmic.
        dash: another dash than the look's.
    """
    drawn = {"color": look.hue, "width": 2, "dash": dash or look.dash}
    return _plain("lines", x, y, name, words, log) | {"showlegend": False, "line": drawn}


def _plain(mode: str, x: ArrayLike, y: ArrayLike, name: str, words: str, log: bool) -> Trace:
    """A trace of values with their hover text; a gap where a value has no place on the axis."""
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": compact(np.asarray(x, dtype=float)),
        "y": compact(masked(np.asarray(y, dtype=float), log)),
        "hovertemplate": words,
    }


def hover(heading: str, sentence: str) -> str:
    """A hover text below a bold heading: the design, and whether it was measured or predicted."""
    return f"<b>{heading[0].upper()}{heading[1:]}</b><br>{sentence}<extra></extra>"


def error_bars(look: Look, up: ArrayLike, down: ArrayLike) -> Trace:
    """`error_y` of `dots`: bars that reach `up` above and `down` below, in the axis's unit."""
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
    """A horizontal gray line with its label above one end.

    Args:
        value: of the vertical axis.
        words: the label, as "healthy".
        across, height: the horizontal and the vertical axis.
        side: the end at which the label stands, "left" or "right".
        lift: share of the height between the line and its label, clear of dots on the line.
    """
    words = translated(words)
    low, high = across.ends.tolist()
    end, position = (high, "top left") if side == "right" else (low, "top right")
    # three points of the line, the last a gap, and one for the label
    return mark(
        "lines+text",
        words,
        [low, high, None, end],
        [value, value, None, height.above(value, lift)],
        text=["", "", "", words],
        textposition=position,
        textfont={"size": 11},
        line=DOTTED,
        hoverinfo="skip",
    )


def upright(
    value: float, words: str, height: Axis, side: str = "right", share: float = 0.93, **more: Any
) -> Trace:
    """A vertical gray line with its label beside it.

    Args:
        value: of the horizontal axis.
        words: the label.
        height: the vertical axis.
        side: of the line, on which the label stands: "left" or "right".
        share: of the height, at which the label stands.
        more: other properties of the trace.
    """
    trace = mark(
        "lines+markers+text",
        words,
        [value] * 3,
        [height.at(0.0), height.at(share), height.at(1.0)],
        text=["", words, ""],
        textposition=f"middle {side}",
        textfont={"size": 11},
        line=DOTTED,
        marker={"opacity": 0},  # not seen: it holds the label off the line
        hoverinfo="skip",
    )
    return trace | more


def broken_off(
    value: float, words: str, across: Axis, height: Axis, hue: str, share: float, **more: Any
) -> Trace:
    """A vertical line in a design's hue at the depth or step where its values end.

    Its label stands at a `share` of the height, on the side that has more room."""
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
    """The share of a chart's height that so many lines of labels take above all data: at most
    `MOST_LINES` have room."""
    return 0.03 + 0.075 * min(lines, MOST_LINES) if lines else 0.0


def capped(
    value: float, words: str, across: Axis, height: Axis, hue: str, lowest_line: int, **more: Any
) -> Trace:
    """A vertical line as `broken_off`, which ends below its label; the label stands in the room
    above all data.

    Args:
        value: of the horizontal axis.
        words: the label; left out where it does not fit into `MOST_LINES`: hovering says it.
        across, height: the axes; the height has `room_for_words`.
        hue: of the line.
        lowest_line: the line of text on which the label ends, from 1 at the upper end.
        more: other properties of the trace.
    """
    if lowest_line > MOST_LINES:
        words = ""
    # A label in the left third of the chart runs to the right of the line, and one in the right
    # third to its left, so that it stays within the chart. plotly names this by where the text is.
    third = int(np.clip(3 * across.fraction(value), 0, 2))
    side = ("right", "center", "left")[third]
    top = 1 - room_for_words(lowest_line)
    trace = broken_off(value, words, across, height, hue, top, textposition=f"top {side}", **more)
    # `broken_off` goes on to the upper end of the chart; this line ends where its label begins
    return trace | {"y": [height.at(0.0), height.at(top), None]}


def colorbar(title: str, **ticks: Any) -> dict[str, Any]:
    """A heat map's color scale, with plotly's properties of its ticks."""
    return {
        "title": {"text": title, "side": "right", "font": {"size": 12}},
        "thickness": 10,
        "xpad": 6,
        "outlinewidth": 0,
        "tickfont": {"size": 11},
    } | ticks


def described(subject: str, series: Sequence[Trace]) -> str:
    """A picture in words, for those who cannot see it: its subject, then ends and extremes of each
    series. Levels and other marks have no hover text, and are left out."""
    sentences = [f"{subject}."]
    for trace in series:
        if "hovertemplate" in trace and trace.get("hoverinfo") != "skip":
            name = untagged(trace["name"])
            sentences.append(ends(name, np.asarray(trace["x"]), np.asarray(trace["y"])))
    return " ".join(sentences)


def ends(name: str, x: Array, y: Array, unit: str = "") -> str:
    """One series in words: where it starts and ends, its lowest and highest point; `unit` stands
    before each `x`."""
    finite = np.flatnonzero(np.isfinite(y))
    if not len(finite):
        return translated("{name}: no finite value.", name=name)

    def point(index: int) -> str:
        place = unit + number(float(x[index]), 4)
        return translated("{value} at {place}", value=number(float(y[index])), place=place)

    values = {
        "first": point(finite[0]),
        "last": point(finite[-1]),
        "low": point(finite[np.argmin(y[finite])]),
        "high": point(finite[np.argmax(y[finite])]),
    }
    if len(y) == 1:
        return translated("{name}: {first}.", name=name, **values)
    if len(finite) < len(y):
        return translated(
            "{name}: {first}, {last}; lowest {low}, highest {high}; not finite at {lost} of {count}.",
            name=name,
            lost=len(y) - len(finite),
            count=len(y),
            **values,
        )
    return translated("{name}: {first}, {last}; lowest {low}, highest {high}.", name=name, **values)
