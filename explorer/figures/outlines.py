"""Marks of the first labs beside the common ones: a histogram's outline, bars of error, axes of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from explorer.figures.axes import label
from explorer.figures.palette import HUES, NEUTRAL
from explorer.figures.parts import Array, Axis, Trace
from explorer.figures.series import compact


def faint(hue: str, opacity: float) -> str:
    """A hue of the palette, see-through."""
    red, green, blue = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def steps(edges: Array, heights: Array, name: str, index: int, sentence: str) -> Trace:
    """A measured histogram as a filled outline; `edges` has one number more than `heights`."""
    hue = HUES[index]
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": compact((edges[:-1] + edges[1:]) / 2),
        "y": compact(heights), "line": {"color": faint(hue, 0.55), "width": 1, "shape": "hvh"},
        "fill": "tozeroy", "fillcolor": faint(hue, 0.22),
        "hovertemplate": f"<b>{name}</b><br>{sentence}<extra></extra>",
    }


def bars(error: Array, index: int) -> Trace:
    """± `error` on dots of the same `index`: to be given to `dots` as its `error_y`."""
    return {
        "type": "data", "array": compact(np.asarray(error, float)), "color": HUES[index], "thickness": 1.5, "width": 3,
    }


def mark(value: float, words: str, across: Axis, height: Axis, share: float = 0.05) -> Trace:
    """A horizontal gray mark; its name stands a share of the height above its end, clear of dots that lie on it."""
    ends, at = np.array(across.extent), float(np.log10(value)) if height.log else value
    lift = at + share * (height.extent[1] - height.extent[0])
    low, high = (10.0**ends if across.log else ends).tolist()
    return {
        "type": "scatter", "mode": "lines+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [low, high, None, high], "y": [value, value, None, 10.0**lift if height.log else lift],
        "text": ["", "", "", words], "textposition": "top left", "textfont": {"size": 11},
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"},
    }


def name_axis(title: str, names: Sequence[str]) -> dict[str, Any]:
    """A horizontal axis of names, at 0, 1, 2, …"""
    return {
        "title": label(title), "range": (-0.5, len(names) - 0.5), "zeroline": False, "showgrid": False,
        "tickvals": list(range(len(names))), "ticktext": list(names), "tickangle": -40, "automargin": True,
    }
