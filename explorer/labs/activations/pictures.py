"""Pictures of the activations lab: moments, an MLP's signal and gradient, the map of q, and SELU."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import LEAST, Axis, axis, depth_axis, picture
from explorer.figures.palette import HUES
from explorer.figures.traces import DOTTED, described, dots, error_bars, level, line, ring, upright
from explorer.labs.activations.experiment import MAP, NAMES, ActivationsResult, selu_scale, solve_selu
from explorer.schemes.activation import SELU_ALPHA, SELU_SCALE

WORDS = tuple(name.replace("_", " ") for name in NAMES)
MOMENTS = ("E φ", "E φ²", "E φ′²")


def moments(result: ActivationsResult) -> go.Figure:
    """E φ, E φ², E φ′² of every activation under N(0, 1): bars by quadrature, dots by sampling."""
    traces = []
    for i, name in enumerate(MOMENTS):
        at, exact = np.arange(len(NAMES)) + 0.22 * (i - 1), result.quadrature[:, i]
        bar = {"symbol": "line-ew", "size": 16, "line": {"color": HUES[i], "width": 2.5}}
        traces.append(dots(at, exact, name, i, f"{name} = %{{y:.10g}} by quadrature", marker=bar, showlegend=False)
                      | {"y": exact})  # ten digits, not float32's seven
        traces.append(dots(at, result.sampled[:, i], name, i, f"{name} = %{{y:.4g}} ± %{{error_y.array:.1g}} sampled",
                           error_y=error_bars(i, result.errors[:, i])))
    said = "Moments under N(0, 1) by quadrature, E φ, E φ², E φ′². " + " ".join(
        f"{name}: {', '.join(f'{value:.4g}' for value in row)}."
        for name, row in zip(WORDS, result.quadrature, strict=True)
    )
    across = Axis("", (-0.5, len(NAMES) - 0.5))
    height = Axis("moment under N(0, 1)", (-0.08, 1.1 * float(result.quadrature.max())))
    names = [f"<b>{word}</b>" if name == result.settings.activation else word
             for name, word in zip(NAMES, WORDS, strict=True)]
    return picture(traces, across, height, said).update_xaxes(
        tickvals=list(range(len(NAMES))), ticktext=names, tickangle=-40, showgrid=False, automargin=True,
    )


def by_layer(result: ActivationsResult) -> go.Figure:
    """Second moment of what enters each layer, and the squared gradient relative to the last: draws and recursion."""
    rows = (("mean x²", result.signal, result.expected_signal),
            ("mean (∂L/∂x)²", result.gradient, result.expected_gradient))
    layers, q = np.arange(len(result.expected_signal)), result.fixed.q
    levels = {1.0: ""} | ({q: "q*"} if 0 < q < math.inf and abs(math.log(q)) > 1e-6 else {})
    height = axis("mean square (ratio)", [list(levels), *(part for row in rows for part in row[1:])],
                  log=True, least=LEAST, air=0.12)
    across, words = depth_axis(layers), "after %{x:.0f} layers %{y:.4g}"
    traces = [level(value, name, across, height, lift=0.05) for value, name in levels.items()]
    traces += [line(layers, expected, name, i, words, log=True) for i, (name, _, expected) in enumerate(rows)]
    for i, (name, (first, second), _) in enumerate(rows):
        traces += [dots(layers, first, name, i, words, log=True, marker={"size": 6}),
                   dots(layers, second, f"{name}, another draw", i, words, log=True, showlegend=False,
                        marker=ring(6, i) | {"line": {"width": 1}})]
    return picture(traces, across, height, described("Signal and gradient by layer", traces))


def length_map(result: ActivationsResult) -> go.Figure:
    """V(q), the next layer's second moment, against q; measured pairs of layers are dots, the diagonal keeps q."""
    before, after = result.signal[:, :-1].ravel(), result.signal[:, 1:].ravel()
    inside = before[(before > 1e-3) & (before < 1e3)]
    across = axis("q of a layer (mean x²)", [inside, [0.2, 5.0]], log=True, air=0.08)
    near = (across.at(0) <= MAP) & (across.at(1) >= MAP)
    height = axis("q of the next layer", [result.length_map[near], [0.2, 5.0]], log=True)
    q, words = result.fixed.q, "V(%{x:.3g}) = %{y:.4g}"
    traces = [
        line(across.ends, across.ends, "q kept", 0, "", log=True, hoverinfo="skip", line=DOTTED, showlegend=True),
        line(MAP, result.length_map, "V(q)", 0, words, log=True, showlegend=True),
        dots(before, after, "MLP", 0, "from %{x:.4g} to %{y:.4g}", log=True, marker={"size": 6, "opacity": 0.6}),
    ]
    if 0 < q < math.inf:
        traces.append(dots([q], [q], "q*", 4, "q* = %{x:.4g}", log=True, marker={"symbol": "x", "size": 10}))
    said = described(f"Next second moment by second moment, slope {result.fixed.slope:.4g} at the fixed point", traces)
    return picture(traces, across, height, said)


def selu(result: ActivationsResult) -> go.Figure:
    """The two conditions on λ·elu_α in the plane of α and λ: they cross at SELU when the variance is 1."""
    alpha, variance = np.linspace(1.0, 3.0, 41), result.settings.fixed_point
    curve, (scale, solved) = selu_scale(alpha, variance), solve_selu(variance)
    height = axis("λ", [curve, [SELU_SCALE, scale]], least=0.2, air=0.1)
    words = "α = %{x:.10g}<br>λ = %{y:.10g}"
    traces = [
        upright(solved, "mean 0", height, share=0.9),
        line(alpha, curve, f"variance {variance:.3g}", 1, words, showlegend=True),
        dots([SELU_ALPHA], [SELU_SCALE], "published", 2, words, marker=ring(15)),
        dots([solved], [scale], "solved", 0, words) | {"x": [solved], "y": [scale]},  # ten digits
    ]
    said = f"Mean 0 asks for α = {solved:.10g}; variance {variance:.4g} then for λ = {scale:.10g}."
    return picture(traces, Axis("α", (0.95, 3.05)), height, said)
