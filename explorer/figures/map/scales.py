"""Colors of a map: the healthy value of each statistic, and the scale around it, a row each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from explorer.ends import ENDS, End
from explorer.figures.axes import drawable
from explorer.figures.palette import DIVERGING, SEQUENTIAL
from explorer.figures.traces import colorbar
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array

MOST_DECADES = 6.0
"""Decades on each side of the healthy value that have colors of their own: 10⁻³⁰⁰ and 10⁻¹⁰ are equally dead."""
LEAST = 0.5
"""Decades that each side shows at least: a flat map must look flat."""
TICKS, LINES, FINE_TICKS = 7, 4, 2.5
"""About as many ticks and contour lines are made; over fewer decades than the last number, of 1, 2 and 5."""
STOPS = 33
SLACK = 1e-9
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Contour lines of shares between 0 and 1."""


class Scale(NamedTuple):
    """How a statistic is colored."""

    title: str
    unit: str
    """Symbol and unit, for the color bar."""
    healthy: float | None = None
    """The value that has the neutral color; None where no value is healthy by itself, and colors only rise."""
    words: str = ""
    """Words for the healthy value."""
    log: bool = False
    bounds: tuple[float, float] = (-np.inf, np.inf)
    clip: tuple[float, float] = (-np.inf, np.inf)
    """Ends of the color scale; values beyond have the end's color: failures need no colors of their own."""
    levels: tuple[float, ...] = ()
    """Contour lines; empty: at decades, or at the color bar's ticks."""
    origin: str = "measured"
    """Origin of the values that theory is compared with: "measured" or "trained"."""


def _end(end: End) -> Scale:
    """The scale of a statistic at the end of a stack."""
    healthy, words = end.row.healthy or (None, "")
    return Scale(end.title, f"{end.symbol} ({end.row.unit})", healthy, words, end.row.log, end.row.bounds,
                 levels=LEVELS if end.row.bounded else ())


SCALES: Mapping[str, Scale] = MappingProxyType({
    **{name: _end(end) for name, end in ENDS.items()},
    # ln 103: as likely as each other are all characters of the task's text
    "held_out_loss": Scale("Held-out loss", "loss (nats/character)", clip=(0.0, 4.6), origin="trained"),
    "loss_drop": Scale("Loss below the unigram's", "drop (nats/character)", clip=(-0.1, np.inf),
                       origin="trained"),
})
"""The statistics of a map."""


class Colors(NamedTuple):
    """The scale that one map has. On a logarithmic one, z and extent are exponents."""

    scale: Scale
    low: float
    high: float
    stops: list[list[Any]] | str
    beyond: tuple[bool, bool]
    """Whether values lie below and above."""

    def z(self, values: Array) -> Array:
        """Places on the scale; what lies beyond an end, infinite or zero too, has that end's color."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(np.log10(values) if self.scale.log else values, self.low, self.high)

    @property
    def bar(self) -> dict[str, Any]:
        """The color bar, labeled with the values themselves, and the healthy one's word."""
        at = _ticks(self.scale, self.low, self.high)
        words = [number(10.0**value if self.scale.log else value, 3) for value in at]
        ends = ("≤ " * self.beyond[0], "≥ " * self.beyond[1])
        words[0], words[-1] = ends[0] + words[0], (ends[1] + words[-1] if len(words) > 1 else words[-1])
        return colorbar(typeset(self.scale.unit), tickvals=at, ticktext=words)


def colors(scale: Scale, values: Array) -> Colors:
    """The scale that holds all values that can be drawn, up to `MOST_DECADES` from the healthy one; from end to end
    where a statistic is bounded."""
    held = values[drawable(values, scale.log)]
    held = np.log10(held) if scale.log else held
    low, high = (float(held.min()), float(held.max())) if len(held) else (0.0, 1.0)
    if scale.healthy is None:
        ends = max(low, scale.clip[0]), min(high, scale.clip[1])
        air = max(0.0, LEAST * (1.0 if scale.log else 0.1) - (ends[1] - ends[0])) / 2
        return Colors(scale, ends[0] - air, ends[1] + air, SEQUENTIAL, (low < scale.clip[0], high > scale.clip[1]))
    middle = float(np.log10(scale.healthy)) if scale.log else scale.healthy
    far = MOST_DECADES if scale.log else np.inf
    ends = max(min(low, middle - LEAST), round(middle) - far), min(max(high, middle + LEAST), round(middle) + far)
    if np.isfinite(scale.bounds).all():
        ends = scale.bounds
    return Colors(scale, *ends, _stops(middle, *ends), (low < ends[0] - SLACK, high > ends[1] + SLACK))


def contour_levels(scaled: Colors) -> list[float]:
    """Values of the contour lines: the row's, or decades, few enough to be legible, the healthy value among them."""
    if scaled.scale.levels:
        return list(scaled.scale.levels)
    at = _ticks(scaled.scale, scaled.low, scaled.high, LINES)
    return [float(10.0**value) if scaled.scale.log else value for value in at]


def _ticks(scale: Scale, low: float, high: float, most: int = TICKS) -> list[float]:
    """Whole decades, or 1, 2 and 5 of each where there are few; even numbers on a scale that is not logarithmic."""
    if scale.log:
        decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
        stride = max(1, int(np.ceil((high - low) / most)))
        at = [float(power) for power in decades if power % stride == 0]
        if high - low < FINE_TICKS:
            at = [power + float(np.log10(lead)) for power in decades for lead in (1, 2, 5)]
    else:
        raw = (high - low) / 5
        power = 10.0 ** np.floor(np.log10(raw))
        step = power * next(lead for lead in (1, 2, 5, 10) if lead * power >= raw * (1 - SLACK))
        at = [float(k * step) for k in range(int(np.floor(low / step)), int(np.ceil(high / step)) + 1)]
    return [value for value in at if low - SLACK <= value <= high + SLACK]


def _stops(middle: float, low: float, high: float) -> list[list[Any]]:
    """The part of the diverging colors between two ends: equally far from the healthy value is equally dark."""
    far = max(middle - low, high - middle) or 1.0
    share = np.linspace(0.0, 1.0, STOPS)
    return [[float(at), _mixed(0.5 + (low + at * (high - low) - middle) / far / 2)] for at in share]


def _mixed(at: float) -> str:
    """The diverging color at a share of its length, between its named ones."""
    place = float(np.clip(at, 0.0, 1.0)) * (len(DIVERGING) - 1)
    first = min(int(place), len(DIVERGING) - 2)
    parts = np.array([[int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in DIVERGING[first : first + 2]])
    red, green, blue = np.rint(parts[0] + (place - first) * (parts[1] - parts[0])).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"
