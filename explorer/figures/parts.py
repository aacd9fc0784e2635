"""Old names of the drawing kit, see `axes` and `traces`: to be deleted as soon as nothing imports them."""

from __future__ import annotations

from explorer.figures.axes import LEGEND, Axis, Range, axis, picture
from explorer.figures.traces import DOTTED, Trace, dots, line, upright
from explorer.profile import Array

__all__ = ["LEGEND", "Array", "Axis", "Trace", "axis", "dots", "level", "line", "picture", "upright"]


def level(value: float, words: str, across: Axis, side: str = "right") -> Trace:
    """A level without the height of its picture."""
    low, high = across.ends.tolist()
    return {
        "type": "scatter", "mode": "lines+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [low, high], "y": [value, value], "text": ["", words] if side == "right" else [words, ""],
        "textposition": "top left" if side == "right" else "top right", "textfont": {"size": 11}, "line": DOTTED,
    }


def position(extent: Range, fraction: float, log: bool) -> float:
    """`Axis.at`."""
    return Axis("", extent, log).at(fraction)


def whole(most: float) -> dict[str, object]:
    """`Axis.layout` of an axis that counts."""
    return {"tick0": 0, "dtick": 1} if most <= 7 else {"nticks": 7}


def value_axis(title: str, extent: Range, log: bool) -> dict[str, object]:
    """`Axis.layout`."""
    return Axis(title, extent, log).layout
