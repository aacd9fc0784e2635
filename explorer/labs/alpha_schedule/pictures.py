"""The lab on α in training: losses, α over the steps and by layer, gradients at the start and at the end."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import MARGIN, label, sheet
from explorer.figures.palette import SEQUENTIAL
from explorer.figures.series import compact
from explorer.labs.alpha_schedule.experiment import NAMES, AlphaScheduleResult
from explorer.labs.trained import Curve
from explorer.labs.trained_pictures import WIDE, Look, Looks, by_layer, course
from explorer.labs.trained_pictures import losses as _losses
from explorer.profile import Array

FOUR: Looks = {
    NAMES["learned"]: Look("learned", 0), NAMES["own_rate"]: Look("own rate", 1, "dash"),
    NAMES["ramp"]: Look("ramp", 2), NAMES["fixed"]: Look("α = 1", 3, "dot"),
}


def losses(result: AlphaScheduleResult) -> go.Figure:
    """Held-out loss over the steps."""
    return _losses(result.trained, FOUR, **WIDE)


def alphas(result: AlphaScheduleResult) -> go.Figure:
    """|α| over the steps, mean over layers."""
    return course(result.trained, FOUR, lambda curve: curve.alpha.mean(1), "mean |α| (ratio)",
                  "|α| = %{y:.3g}", flat=(1.0, ""), least=0.5, **WIDE)


def learned(result: AlphaScheduleResult) -> go.Figure:
    """|α| of the contender that learns it with the other weights: layer against step."""
    curve = result.trained.curves[NAMES["learned"]]
    shown = curve.alpha.T  # [layer, reading]
    known = shown[np.isfinite(shown)]
    top = float(known.max(initial=0.0)) or 1.0
    layers = len(shown)
    heat = {
        "type": "heatmap", "name": "|α|", "z": compact(shown), "x": compact(curve.steps), "y0": 1, "dy": 1,
        "zmin": 0.0, "zmax": top, "colorscale": SEQUENTIAL, "hoverongaps": False,
        "colorbar": {
            "title": {"text": "|α|", "side": "right", "font": {"size": 12}}, "thickness": 10, "xpad": 6,
            "outlinewidth": 0, "nticks": 6, "tickformat": "~g", "tickfont": {"size": 11},
        },
        "hovertemplate": "layer %{y}, after step %{x:.0f}<br>|α| = %{z:.3g}<extra></extra>",
    }
    bare = {"zeroline": False, "showgrid": False, "ticks": ""}
    xaxis = bare | {"title": label("step (steps made)"), "tickformat": "~g", "nticks": 8, "tickangle": 0}
    yaxis = bare | {"title": label("depth (layers)"), "tickformat": "d", "range": (0.5, layers + 0.5)}
    yaxis |= {"tick0": 1, "dtick": 1} if layers <= 12 else {"nticks": 7}
    words = (f"|α| of {layers} layers, learned from 0: at the end {', '.join(_said(shown[:, -1]))}, "
             f"from the first layer to the last.")
    return go.Figure({"data": [heat], "layout": sheet(xaxis, yaxis, words, margin=MARGIN)})


def before(result: AlphaScheduleResult) -> go.Figure:
    """Gradient by the stream before the first step, relative to the last layer's."""
    return by_layer(result.trained, FOUR, lambda curve: _relative(curve, 0), "‖∂L/∂x‖ / last (ratio)",
                    "‖∂L/∂x‖ is %{y:.3g} × the last layer's", first=0, flat=(1.0, "flat"), **WIDE)


def ends(result: AlphaScheduleResult) -> go.Figure:
    """The same at the last reading."""
    return by_layer(result.trained, FOUR, lambda curve: _relative(curve, -1), "‖∂L/∂x‖ / last (ratio)",
                    "‖∂L/∂x‖ is %{y:.3g} × the last layer's", first=0, flat=(1.0, "flat"), **WIDE)


def weights(result: AlphaScheduleResult) -> go.Figure:
    """Gradient of each layer's matrices at the last reading."""
    return by_layer(result.trained, FOUR, lambda curve: curve.weights[-1], "‖∂L/∂W‖ of a layer", "‖∂L/∂W‖ = %{y:.3g}",
                    **WIDE)


def _relative(curve: Curve, reading: int) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(curve.stream[reading] / curve.stream[reading, -1])


def _said(values: Array) -> list[str]:
    return [f"{value:.2g}" for value in values]
