"""A chart while a question about it stands: its axes alone; and afterwards, with the guess beside what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from explorer.figures.axes import AIR, TOP, Axis, blank, depth_axis, picture
from explorer.figures.palette import NEUTRAL
from explorer.figures.traces import compact, ends, level
from explorer.profile import Statistic

WITHHELD = "Withheld until the question is answered."
GUESS = "your guess"


def withheld() -> go.Figure:
    """A sentence in place of a chart that would give the answer away."""
    return blank(WITHHELD)


def asked(row: Statistic, layers: int, extent: tuple[float, float]) -> go.Figure:
    """The axes of a statistic over depth and their marks, with nothing of a design.

    Args:
        extent: ends of the vertical axis; exponents where it is logarithmic.
    """
    low, high = extent
    length = high - low
    height = Axis(f"{row.symbol} ({row.unit})", (low - AIR * length, high + TOP * length), row.log)
    across = depth_axis(float(layers))
    marks = [level(value, words, across, height) for value, words in row.marks.items()]
    return picture(marks, across, height, f"{row.label} over {layers} layers. {WITHHELD}", legend=False)


def with_guess(figure: go.Figure, depth: ArrayLike, values: ArrayLike) -> go.Figure:
    """A figure by layer with the line of a guess; its axis is made longer where that needs it.

    Args:
        depth, values: points of the line, values in the unit of the axis.
    """
    x, y = np.asarray(depth, dtype=float), np.asarray(values, dtype=float)
    heights = np.log10(y) if figure.layout.yaxis.type == "log" else y
    low, high = figure.layout.yaxis.range
    air = AIR * (high - low)
    figure.layout.yaxis.range = (min(low, heights.min() - air), max(high, heights.max() + air))
    figure.add_trace(_line(x, y))
    figure.layout.meta = {"description": f"{figure.layout.meta['description']} {ends(GUESS, x, y, 'depth ')}"}
    return figure


def _line(x: Any, y: Any) -> dict[str, Any]:
    words = [""] * len(x)
    words[len(words) // 2] = GUESS
    return {
        "type": "scatter", "mode": "lines+markers+text", "name": GUESS, "x": compact(x), "y": compact(y), "text": words,
        "textposition": "top center", "textfont": {"size": 11}, "cliponaxis": False,
        "line": {"color": NEUTRAL, "width": 2, "dash": "dash"},
        "marker": {"color": NEUTRAL, "symbol": "x-thin-open", "size": 8, "line": {"width": 2}},
        "hovertemplate": f"<b>{GUESS}</b><br>%{{y:.3g}} at depth %{{x:~g}}<extra></extra>",
    }
