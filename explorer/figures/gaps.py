"""Marks of what a series cannot show: values that are not finite, and zeros on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.figures.axes import Axis
from explorer.figures.numbers import HIDDEN
from explorer.figures.palette import Design
from explorer.figures.series import Series
from explorer.figures.traces import MOST_DOTS, Trace, compact, upright
from explorer.figures.words import typeset
from explorer.profile import Breakdown, Profile

GRADIENTS = {"activation_gradient": "gradient at ", "parameter_gradient": "gradient of "}
"""Statistics that break on the way back, from a layer down."""


def broken(series: Sequence[Series], across: Axis, height: Axis) -> list[Trace]:
    """Vertical lines at the depth where values stop being finite, one a design."""
    breakdowns: dict[Design, tuple[Profile, Breakdown]] = {}
    for row in sorted(series, key=lambda row: not row.measured):
        if all(np.isfinite(part).all() for part in row.drawn_values):
            continue
        if breakdown := row.profile.first_nonfinite:
            breakdowns.setdefault(row.design, (row.profile, breakdown))
    return [
        _break(design, *where, across, height, 0.84 - 0.12 * number, len(breakdowns) == 1)
        for number, (design, where) in enumerate(breakdowns.items())
    ]


def _break(design: Design, profile: Profile, breakdown: Breakdown, across: Axis, height: Axis, share: float, alone: bool
           ) -> Trace:
    """One vertical line; its words stand on the side that has room, those of several designs below each other.

    Two lines of words for one design alone; of several, the second line is left to hovering.
    """
    depth, words = _depth(breakdown), _verdict(profile, breakdown)
    side = "right" if depth < sum(across.extent) / 2 else "left"
    return upright(
        depth, words if alone else words.partition("<br>")[0], height, side, share,
        name=f"{design.heading}, not finite".removeprefix(", "), textposition=f"bottom {side}", textfont={"size": 12},
        cliponaxis=False, line={"color": design.hue, "width": 2, "dash": "longdash"}, hoverinfo=None,
        hovertemplate=f"<b>{design.heading}</b><br>{words}<extra></extra>".removeprefix("<b></b><br>"),
    )


def _depth(breakdown: Breakdown) -> float:
    """Depth of the vertical line: half a layer earlier when attention is the cause."""
    return breakdown.layer - (0.5 if breakdown.site in ("resid_mid", "attn_out", "attn_scores", "pattern") else 0.0)


def _verdict(profile: Profile, breakdown: Breakdown) -> str:
    """'not finite from layer 5 on (attention output)', with its origin when it was not measured."""
    start = f"layer {breakdown.layer}" if breakdown.layer else "the input"
    site = typeset(breakdown.site_label)
    gradient = GRADIENTS.get(breakdown.statistic, "")
    said = "predicted " if profile.origin == "predicted" else ""
    return f"{said}not finite from {start} {'down' if gradient else 'on'}<br>({gradient}{site})"


def floor(named: Sequence[tuple[str, Series]], height: Axis) -> list[Trace]:
    """Zeros on a log axis: hollow arrows along the bottom, a row a design, with a word on the zeros."""
    traces: list[Trace] = []
    for design in dict.fromkeys(row.design for _, row in named):
        zero = {name: row for name, row in named if row.design == design and (row.middle <= 0).any()}
        if not zero:
            continue
        depth = np.unique(np.concatenate([row.depth[row.middle <= 0] for row in zero.values()]))
        depth = depth[:: -(-len(depth) // MOST_DOTS)]
        words = f"{typeset(', '.join(zero))}<br>= 0".removeprefix("<br>= ")
        level = height.at(0.02 + 0.05 * len(traces))
        who = f"<b>{design.heading}</b><br>".removeprefix("<b></b><br>")
        traces.append({
            "type": "scatter", "mode": "markers+text", "name": f"{design.heading}, zero".removeprefix(", "),
            "x": compact(depth), "y": compact(np.full(len(depth), level)),
            "text": [] if traces else [f"{words}, below a log axis"],
            "textposition": "top right", "textfont": {"size": 11},
            "marker": {"color": design.hue, "symbol": "triangle-down-open", "size": 7},
            "cliponaxis": False, "showlegend": False, "meta": {"kind": HIDDEN},
            "hovertemplate": f"{who}{words} after %{{x}} layers<extra></extra>",
        })
    return traces
