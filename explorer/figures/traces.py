"""The marks: dots are measured, lines are predicted, bands are the spread. Each function gives plotly traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from explorer.figures.axes import Range, above, position
from explorer.figures.palette import NEUTRAL, Design
from explorer.figures.series import Series, compact, drawable, masked, runs
from explorer.figures.words import typeset
from explorer.profile import Breakdown, Profile

Trace = dict[str, Any]

MOST_DOTS = 64
"""Dots drawn of one series; the band passes through every layer all the same."""


def band(row: Series, log: bool, opacity: float = 0.25) -> list[Trace]:
    """The spread from lowest to highest: one closed outline for every unbroken run of depths.

    None for a prediction. That of a single draw has no height: it is a hairline, there if its dots cannot all be.
    """
    pieces = list(runs(drawable(row.low, log) & drawable(row.high, log)))
    flat = np.array_equal(row.low, row.high, equal_nan=True)
    if not row.measured or not pieces or (flat and len(row.depth) <= MOST_DOTS):
        return []
    gap = np.array([np.nan])
    x = [part for at in pieces for part in (row.depth[at], row.depth[at][::-1], gap)]
    y = [part for at in pieces for part in (row.low[at], row.high[at][::-1], gap)]
    return [{
        "type": "scatter", "mode": "lines", "name": f"{row.heading}, spread", "fill": "toself", "hoverinfo": "skip",
        "x": compact(np.concatenate(x)[:-1]), "y": compact(np.concatenate(y)[:-1]), "showlegend": False,
        "line": {"width": 1 if flat else 0, "color": row.design.faint(0.6)},
        "fillcolor": row.design.faint(opacity),
    }]


def dots(row: Series, log: bool, sentence: str, symbol: str = "", **more: Any) -> Trace:
    """Measured middles. `sentence` is the hover text, with `%{x}` the depth and `%{y}` the value."""
    hollow = "open" in symbol
    return {
        "type": "scatter", "mode": "markers", "name": row.heading,
        "x": compact(row.depth), "y": compact(masked(row.middle, log)),
        "customdata": compact(np.stack([row.low, row.high], axis=1)),
        "marker": {
            "color": row.design.hue, "symbol": symbol or row.design.symbol, "maxdisplayed": MOST_DOTS,
            "size": 10 if hollow else 7 if len(row.depth) <= MOST_DOTS else 5,  # a ring shows around a dot
            "line": {"width": 1.5 if hollow else 0},
        },
        "hovertemplate": f"{_who(row)}{sentence}<br>({row.sample}, from %{{customdata[0]:.3g}} to "
                         "%{customdata[1]:.3g})<extra></extra>",
    } | more


def line(row: Series, log: bool, sentence: str, dash: str = "", **more: Any) -> Trace:
    """Predicted middles: dashed, and with the reason on hovering, where the theory is unreliable."""
    said = f"<br>theory: {typeset(row.note)}" if row.note else ""
    return {
        "type": "scatter", "mode": "lines", "name": row.heading,
        "x": compact(row.depth), "y": compact(masked(row.middle, log)),
        "line": {"color": row.design.hue, "width": 2, "dash": "dot" if row.note else dash or row.design.dash},
        "hovertemplate": f"{_who(row)}{sentence}{said}<extra></extra>",
    } | more


def rows(series: Sequence[Series], log: bool, sentence: str) -> list[Trace]:
    """All bands first, then lines, then dots on top."""
    return [
        *(trace for row in series for trace in band(row, log)),
        *(line(row, log, sentence) for row in series if not row.measured),
        *(dots(row, log, sentence) for row in series if row.measured),
    ]


def reference(value: float, words: str, across: Range, height: Range, log: bool) -> Trace:
    """A reference level with its name above it, clear of dots that lie on the level."""
    return {
        "type": "scatter", "mode": "lines+text", "name": words, "hoverinfo": "skip", "showlegend": False,
        "x": [*across, None, across[1]], "y": [value, value, None, above(value, height, 0.015, log)],
        "text": ["", "", "", words], "textposition": "top left", "textfont": {"size": 11},
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"},
    }


def broken(series: Sequence[Series], across: Range, height: Range, log: bool) -> list[Trace]:
    """Marks where values stop being finite, one vertical line a design."""
    marks: dict[Design, tuple[Profile, Breakdown]] = {}
    for row in sorted(series, key=lambda row: not row.measured):
        place = row.profile.first_nonfinite
        if place and not all(np.isfinite(part).all() for part in (row.middle, row.low, row.high)):
            marks.setdefault(row.design, (row.profile, place))
    return [
        _upright(design, *mark, across, height, log, number, len(marks))
        for number, (design, mark) in enumerate(marks.items())
    ]


def _upright(
    design: Design, profile: Profile, place: Breakdown, across: Range, height: Range, log: bool, number: int,
    among: int,
) -> Trace:
    """One vertical line; its words stand on the side that has room, those of several designs below each other.

    Two lines for one design alone; for one of `among`, the second line is left to hovering.
    """
    depth, words = _depth(place), _verdict(profile, place)
    side = "right" if depth < sum(across) / 2 else "left"
    bottom, beside, top = (position(height, at, log) for at in (0.0, 0.84 - 0.12 * number, 1.0))
    written = words if among == 1 else words.partition("<br>")[0]
    return {
        "type": "scatter", "mode": "lines+text", "name": f"{design.heading}, not finite".removeprefix(", "),
        "x": [depth] * 3, "y": [bottom, beside, top], "text": ["", written, ""],
        "textposition": f"bottom {side}", "textfont": {"size": 12}, "cliponaxis": False, "showlegend": False,
        "line": {"color": design.hue, "width": 2, "dash": "longdash"},
        "hovertemplate": f"<b>{design.heading}</b><br>{words}<extra></extra>".removeprefix("<b></b><br>"),
    }


def _depth(place: Breakdown) -> float:
    """Depth of the vertical line: half a layer earlier when attention is the cause."""
    return place.layer - (0.5 if place.site in ("resid_mid", "attn_out", "attn_scores", "pattern") else 0.0)


def _verdict(profile: Profile, place: Breakdown) -> str:
    """'not finite from layer 5 on (attention output)', with its origin when it was not measured."""
    backward = place.statistic in ("activation_gradient", "parameter_gradient")
    start = f"layer {place.layer}" if place.layer else "the input"
    site = typeset(place.words)
    gradient = {"activation_gradient": "gradient at ", "parameter_gradient": "gradient of "}.get(place.statistic, "")
    said = "predicted " if profile.origin == "predicted" else ""
    return f"{said}not finite from {start} {'down' if backward else 'on'}<br>({gradient}{site})"


def floor(named: Sequence[tuple[str, Series]], height: Range) -> list[Trace]:
    """Zeros on a log axis: hollow arrows along the bottom, a row a design, with a word on the zeros."""
    traces: list[Trace] = []
    for design in dict.fromkeys(row.design for _, row in named):
        zero = {name: row for name, row in named if row.design == design and (row.middle <= 0).any()}
        if not zero:
            continue
        depth = np.unique(np.concatenate([row.depth[row.middle <= 0] for row in zero.values()]))
        depth = depth[:: -(-len(depth) // MOST_DOTS)]
        words = f"{typeset(', '.join(zero))}<br>= 0".removeprefix("<br>= ")
        level = position(height, 0.02 + 0.05 * len(traces), log=True)
        who = f"<b>{design.heading}</b><br>".removeprefix("<b></b><br>")
        traces.append({
            "type": "scatter", "mode": "markers+text", "name": f"{design.heading}, zero".removeprefix(", "),
            "x": compact(depth), "y": compact(np.full(len(depth), level)),
            "text": [] if traces else [f"{words}, below a log axis"],
            "textposition": "top right", "textfont": {"size": 11},
            "marker": {"color": design.hue, "symbol": "triangle-down-open", "size": 7},
            "cliponaxis": False, "showlegend": False,
            "hovertemplate": f"{who}{words} after %{{x}} layers<extra></extra>",
        })
    return traces


def _who(row: Series) -> str:
    """The start of a hover text: the design, and whether it was measured or predicted."""
    return f"<b>{row.heading[0].upper()}{row.heading[1:]}</b><br>"
