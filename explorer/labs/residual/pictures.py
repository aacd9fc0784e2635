"""Pictures of the residual lab: sums of moments, the input's coefficient, streams, gradients, first gradients."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import BARE, label, sheet
from explorer.figures.matrices import WRITTEN
from explorer.figures.outlines import faint, mark
from explorer.figures.palette import HUES, NEUTRAL
from explorer.figures.parts import Array, Trace, axis, dots, level, line, picture, upright
from explorer.figures.series import compact
from explorer.labs.residual.experiment import (
    CORRELATIONS,
    GRADIENTS,
    GROWTHS,
    IDENTITY,
    LABELS,
    PARAMETERS,
    STARTS,
    ResidualResult,
    Stack,
)
from explorer.theory.depth import identity_path

FLOOR = 0.1
"""Coefficients are drawn down to this part of their noise."""
RINGS = {  # three designs coincide: a ring around a ring around a dot
    "rezero": {"symbol": "circle-open", "size": 15, "line": {"width": 2}},
    "skipinit": {"symbol": "circle-open", "size": 10, "line": {"width": 2}},
    "fixup": {"symbol": "circle", "size": 5},
}


def sums(result: ResidualResult) -> go.Figure:
    """Second moment of x + αF against the correlation of F with x; real branches beside drawn ones."""
    alpha = result.settings.alpha
    fine = np.linspace(-1, 1, 41)
    expected = 1 + alpha**2 + 2 * alpha * fine
    height = axis("q of x + αF (ratio)", [expected, result.sums, result.branches[:, 1], [0.0]], least=0.5)
    across = axis("correlation of F with x", [fine], air=0.04)
    sentence = "correlation %{x:.3g}<br>second moment of the sum %{y:.3g}"
    traces = [
        level(1 + alpha**2, "σ₁² + σ₂²", across, "left"), upright(0.0, "independent", height, "right", 0.06),
        line(fine, expected, "1 + α² + 2αc", 0, sentence),
        dots(CORRELATIONS, result.sums, "drawn", 0, sentence),
        dots(result.branches[:, 0], result.branches[:, 1], "branches of a stack", 1, sentence,
             marker={"color": faint(HUES[1], 0.75), "symbol": "square", "size": 6}),
    ]
    text = (f"x + {alpha:g} F has second moment {1 + alpha**2:.3g} where F is independent of x. {len(result.branches)} "
            f"branches of a stack have correlations from {result.branches[:, 0].min():.2g} to "
            f"{result.branches[:, 0].max():.2g}.")
    return picture(traces, across, height, text)


def path(result: ResidualResult) -> go.Figure:
    """Coefficient of the input in a post-norm stream, against the number of branches."""
    n, noise = result.settings.n_layers, result.noise
    branch = np.arange(n + 1, dtype=float)
    expected = identity_path(n, 1.0, result.settings.alpha)
    mean = result.path.mean(0)
    ends = np.array([1.0, min(noise, max(float(expected[-1]), FLOOR * noise))])
    height = axis("coefficient of x<sub>0</sub>", [ends], log=True, least=0.5)
    across = axis("branches l (post-norm MLPs)", [branch], air=0.03)
    sentence = "after %{x:.0f} branches<br>the input's coefficient is %{y:.3g}"
    traces = [
        level(noise, "noise", across, "left"),
        line(branch, expected, "(1 + α²)<sup>−l/2</sup>", 0, sentence, log=True, showlegend=True)
        | {"name": "(1 + α²)<sup>−l/2</sup>, predicted"},
        dots(branch, mean, "x<sub>l</sub> regressed on x<sub>0</sub>", 0, sentence, log=True,
             error_y=_spread(result.path)),
    ]
    text = (f"After {n} branches {mean[-1]:.2g} of the input is left, plus or minus {noise:.1g}; theory "
            f"{expected[-1]:.2g}.")
    return picture(traces, across, height, text)


def gradient(result: ResidualResult) -> go.Figure:
    """Gradient² of Post-LN by layer, without and with attention, and the square of the identity path's weight."""
    n = result.settings.n_layers
    depth = np.arange(n + 1, dtype=float)
    weight = identity_path(n, 1.0, result.settings.alpha)[::-1] ** 2
    stacks = [result.gradient[name] for name in GRADIENTS]
    seen = [part for stack in stacks for part in (stack.measured, stack.predicted)]
    height = axis("γ / γ<sub>N</sub> (ratio)", [*seen, [2.0, max(float(weight[0]), 1e-4)]], log=True, least=1.0)
    across = axis("depth (layers)", [depth], air=0.03)
    traces = [
        mark(1.0, "flat", across, height),
        line(depth, weight, "the path's weight²", 0, "after %{x:.0f} layers: %{y:.3g}", log=True, dash="dot",
             showlegend=True, line={"color": NEUTRAL, "width": 2, "dash": "dash"}) | {"name": "the path's weight²"},
    ]
    for index, (name, words) in enumerate(GRADIENTS.items()):
        traces += _stack(result.gradient[name], words, index, "gradient² is %{y:.3g} × the output's", log=True)
    text = "; ".join(
        f"{words} {stack.measured.mean(0)[0]:.2g} at the input, {stack.measured.mean(0).min():.2g} at the lowest"
        for words, stack in zip(GRADIENTS.values(), stacks, strict=True)
    )
    return picture(traces, across, height, f"Squared gradient of Post-LN over the output's: {text}.")


def growth(result: ResidualResult) -> go.Figure:
    """Second moment of the stream by layer: post-norm, pre-norm, and norms around the branch."""
    parts = [part for stack in result.growth.values() for part in (stack.measured, stack.predicted)]
    height = axis("q (ratio to 1)", [*parts, [0.0]], least=1.0)
    across = axis("depth (layers)", [result.growth["post"].depth], air=0.03)
    traces: list[Trace] = []
    for index, (name, words) in enumerate(GROWTHS.items()):
        traces += _stack(result.growth[name], words, index, "second moment %{y:.3g}")
    text = ", ".join(f"{words} {result.growth[name].measured[:, -1].mean():.3g}" for name, words in GROWTHS.items())
    unit = 2 * result.settings.n_layers * result.settings.alpha**2
    return picture(traces, across, height, f"Second moment after {result.settings.n_layers} layers: {text}. Branches "
                                           f"of unit second moment would add {unit:.3g}.")


def first_gradients(result: ResidualResult) -> go.Figure:
    """Matrices with a gradient before the first step: a table of norms, zero where it is exactly so."""
    names, rows = [LABELS[name] for name in STARTS], [WRITTEN[name] for name in PARAMETERS]
    norms = [[result.starts[name].norms.get(parameter) for name in STARTS] for parameter in PARAMETERS]
    colors = [[np.nan if norm is None else float(norm > 0) for norm in row] for row in norms]
    grid = {
        "type": "heatmap", "name": "‖∂L/∂W‖", "z": np.array(colors, dtype=np.float32), "zmin": 0, "zmax": 1,
        "x": names, "y": rows, "showscale": False, "xgap": 3, "ygap": 3,
        "colorscale": [[0, faint(HUES[4], 0.3)], [1, faint(HUES[0], 0.22)]],
        "customdata": [[_told(norm) for norm in row] for row in norms],
        "hovertemplate": "<b>%{x}, %{y}</b><br>%{customdata}<extra></extra>",
    }
    words: Trace = {  # a heat map's own text would not change with the page's theme
        "type": "scatter", "mode": "text", "name": "norms", "hoverinfo": "skip", "showlegend": False,
        "x": names * len(rows), "y": [row for row in rows for _ in names],
        "text": ["" if norm is None else "0" if norm == 0 else f"{norm:.2g}" for row in norms for norm in row],
        "textfont": {"size": 12},
    }
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticks": ""}
    xaxis = {**bare, "type": "category", "title": label("design, before its first step"), "tickangle": 0,
             "tickfont": {"size": 11}, "tickvals": list(range(len(STARTS))),
             "ticktext": [LABELS[name].replace("rS", "r<br>S") for name in STARTS]}
    yaxis = {**bare, "type": "category", "autorange": "reversed", "title": label("‖∂L/∂W‖, all layers")}
    text = "; ".join(
        f"{LABELS[name]}: {sum(norm == 0 for norm in result.starts[name].norms.values())} of "
        f"{len(result.starts[name].norms)} kinds of parameters without a gradient" for name in STARTS
    )
    layout = sheet(xaxis, yaxis, f"{text}.") | {"template": BARE}
    layout["margin"] = {"l": 62, "r": 14, "t": 10, "b": 56}
    return go.Figure({"data": [grid, words], "layout": layout})


def _told(norm: float | None) -> str:
    if norm is None:
        return "there is none"
    return "gradient exactly zero" if norm == 0 else f"gradient of norm {norm:.3g}"


def identities(result: ResidualResult) -> go.Figure:
    """Gradient² by layer of the same designs: exactly 1 where the stack is the identity."""
    parts = [start.gradient for start in result.starts.values()]
    height = axis("γ / γ<sub>N</sub> (ratio)", [*parts, [2.0]], log=True, least=1.0)
    across = axis("depth (layers)", [result.starts["pre_ln"].depth], air=0.03)
    sentence = "after %{x:~g} layers<br>gradient² is %{y:.4g} × the output's"
    traces = [mark(1.0, "flat", across, height)]
    for index, name in enumerate(STARTS):
        start = result.starts[name]
        more: Trace = {"mode": "lines+markers", "line": {"color": HUES[index], "width": 1, "dash": "dot"}}
        places = np.arange(len(start.depth))
        if name in RINGS:  # about a dozen, or they run into each other
            more = {"marker": {"color": HUES[index], **RINGS[name]}}
            places = np.unique(np.linspace(0, len(places) - 1, 13).round().astype(int))
        where, gradient = start.depth[places], start.gradient[places]
        traces.append(dots(where, gradient, LABELS[name], index, sentence, log=True, **more))
    moved = ", ".join(f"{LABELS[name]} {result.starts[name].moved:.2g}" for name in IDENTITY)
    text = ", ".join(f"{LABELS[name]} {result.starts[name].gradient[0]:.3g}" for name in STARTS)
    text = f"Squared gradient at the input over the output's: {text}. Largest change of the stream: {moved}."
    return picture(traces, across, height, text)


def _stack(stack: Stack, name: str, index: int, says: str, log: bool = False) -> list[Trace]:
    sentence = f"after %{{x:~g}} layers<br>{says}"
    bars = _spread(stack.measured, index)
    return [
        line(stack.depth, stack.predicted, name, index, sentence, log=log),
        dots(stack.depth, stack.measured.mean(0), name, index, sentence, log=log, error_y=bars),
    ]


def _spread(values: Array, index: int = 0) -> Trace:
    """The seeds' range around their mean, `[seed, x]`."""
    mean = values.mean(0)
    return {
        "type": "data", "symmetric": False, "color": HUES[index], "thickness": 1.2, "width": 0,
        "array": compact(values.max(0) - mean), "arrayminus": compact(mean - values.min(0)),
    }
