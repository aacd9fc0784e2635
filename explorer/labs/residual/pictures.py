"""Pictures of the residual lab: the input's coefficient, streams, gradients, and first gradients."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import AIR, BARE, Axis, axis, label, picture, sheet
from explorer.figures.layers import WRITTEN
from explorer.figures.palette import NEUTRAL, Look
from explorer.figures.traces import Trace, described, dots, level, line
from explorer.labs.charts import designs, moments_axis, seeds_range, side_by_side
from explorer.labs.residual.experiment import BENDS, GROWTHS, LABELS, PARAMETERS, STARTS, ResidualResult

FLOOR = 0.1
"""Coefficients are drawn down to this part of their noise."""
LEAST_WEIGHT = 1e-4
"""The path's weight² is drawn down to this, or it would take the whole axis."""


def path(result: ResidualResult) -> go.Figure:
    """Coefficient of the input in a post-norm stream, against the number of branches."""
    noise, expected, mean = result.noise, result.expected, result.path.mean(0)
    branch = np.arange(len(expected), dtype=float)
    ends = np.array([1.0, min(noise, max(float(expected[-1]), FLOOR * noise))])
    height = axis("coefficient of x<sub>0</sub>", [ends], log=True, least=0.5)
    across = axis("branches l (post-norm MLPs)", [branch], air=0.03)
    sentence = "after %{x:.0f} branches<br>the input's coefficient is %{y:.3g}"
    traces = [
        level(noise, "noise", across, height, "left"),
        line(branch, expected, "(1 + α²)<sup>−l/2</sup>", 0, sentence, log=True, showlegend=True),
        dots(branch, mean, "x<sub>l</sub> regressed on x<sub>0</sub>", 0, sentence, log=True,
             error_y=seeds_range(0, mean, result.path.T)),
    ]
    return picture(traces, across, height, described("Coefficient of the input by branches", traces))


def gradient(result: ResidualResult) -> go.Figure:
    """Gradient² of Post-LN by layer, without and with attention, and the square of the identity path's weight."""
    weight = result.expected[::-1] ** 2
    path = line(np.arange(len(weight)), weight, "the path's weight²", 0, "after %{x:.0f} layers: %{y:.3g}", log=True,
                showlegend=True, line={"color": NEUTRAL, "width": 2, "dash": "dash"})
    figure = side_by_side("activation_gradient", result.bends, designs(BENDS), below=[path])
    low, high = figure.layout.yaxis.range
    extent = (min(low, float(np.log10(max(weight[0], LEAST_WEIGHT))) - AIR), high)
    return figure.update_layout(yaxis=Axis(figure.layout.yaxis.title.text, extent, log=True).layout)


def growth(result: ResidualResult) -> go.Figure:
    """Second moment of the stream by layer: post-norm, pre-norm, and norms around the branch."""
    return side_by_side("second_moment", result.growth, designs(GROWTHS), moments_axis(result.growth.values()))


def first_gradients(result: ResidualResult) -> go.Figure:
    """Matrices with a gradient before the first step: a table of norms, zero where it is exactly so."""
    names, rows = [LABELS[name] for name in STARTS], [WRITTEN[name] for name in PARAMETERS]
    norms = [[result.starts[name].norms.get(parameter) for name in STARTS] for parameter in PARAMETERS]
    grid = {
        "type": "heatmap", "name": "‖∂L/∂W‖", "x": names, "y": rows, "zmin": 0, "zmax": 1,
        "z": [[None if norm is None else float(norm > 0) for norm in row] for row in norms],
        "showscale": False, "xgap": 3, "ygap": 3, "hoverinfo": "skip", "customdata": norms,
        "colorscale": [[0, Look(4).faint(0.3)], [1, Look(0).faint(0.22)]],
    }
    words: Trace = {  # a heat map's own text would not change with the page's theme
        "type": "scatter", "mode": "text", "name": "norms", "showlegend": False,
        "x": names * len(rows), "y": [row for row in rows for _ in names],
        "text": ["" if norm is None else "0" if norm == 0 else f"{norm:.2g}" for row in norms for norm in row],
        "textfont": {"size": 12}, "hovertemplate": "<b>%{x}, %{y}</b><br>gradient of norm %{text}<extra></extra>",
    }
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticks": "", "type": "category"}
    xaxis = {**bare, "title": label("design, before its first step"), "tickangle": 0, "tickfont": {"size": 11},
             "tickvals": list(range(len(STARTS))), "ticktext": [name.replace("rS", "r<br>S") for name in names]}
    yaxis = {**bare, "autorange": "reversed", "title": label("‖∂L/∂W‖, all layers")}
    text = "; ".join(
        f"{LABELS[name]}: {sum(norm == 0 for norm in start.norms.values())} of {len(start.norms)} kinds of parameters "
        "without a gradient" for name, start in result.starts.items()
    )
    margin = {"l": 62, "r": 14, "t": 10, "b": 56}
    return go.Figure({"data": [grid, words], "layout": sheet(xaxis, yaxis, f"{text}.", template=BARE, margin=margin)})
