"""Old names of the drawing kit, see `traces`: to be deleted as soon as nothing imports them."""

from __future__ import annotations

from explorer.figures.axes import Axis
from explorer.figures.traces import Trace
from explorer.figures.traces import level as _level


def faint(hue: str, opacity: float) -> str:
    """`Look.faint`."""
    red, green, blue = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def mark(value: float, words: str, across: Axis, height: Axis, share: float = 0.05) -> Trace:
    """`level` with a lift."""
    return _level(value, words, across, height, lift=share)
