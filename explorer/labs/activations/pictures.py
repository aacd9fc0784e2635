"""Pictures of the activations lab: their shape and moments, an MLP's signal and gradient, the map of q, and SELU."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from explorer.figures.outlines import bars, mark, name_axis
from explorer.figures.palette import HUES, NEUTRAL
from explorer.figures.parts import Array, Axis, Trace, axis, dots, line, picture, upright
from explorer.labs.activations.experiment import MAP, NAMES, ActivationsResult, selu_scale, version
from explorer.schemes.activation import ACTIVATIONS

MOMENTS = ("E φ", "E φ²", "E φ′²")
REAL_SELU = (1.6732632424, 1.0507009874)
"""α and λ as published by Klambauer et al. 2017."""


def shape(result: ActivationsResult) -> go.Figure:
    """The activation in its chosen version, its slope, and the density of its inputs, N(0, 1)."""
    x = np.linspace(-4, 4, 321)
    form, (shift, divisor) = ACTIVATIONS[result.settings.activation], version(result.settings)
    value, slope = (form.value(x) - shift) / divisor, form.slope(x) / divisor
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    height = axis("φ(x), φ′(x)", [value, slope, density, [-0.2, 1.2]])
    traces: list[Trace] = [
        {"type": "scatter", "mode": "lines", "name": "N(0, 1)", "x": x, "y": density, "fill": "tozeroy",
         "line": {"color": NEUTRAL, "width": 0}, "fillcolor": "rgba(128, 128, 128, 0.18)", "hoverinfo": "skip"},
        line(x, value, "φ", 0, "φ(%{x:.2f}) = %{y:.4g}") | {"name": "φ", "showlegend": True},
        line(x, slope, "φ′", 1, "φ′(%{x:.2f}) = %{y:.4g}", dash="dash") | {"name": "φ′", "showlegend": True},
    ]
    name = result.settings.activation
    said = f"{name} as it is applied: {value[0]:.3g} at -4, {value[160]:.3g} at 0, {value[-1]:.3g} at 4; and its slope."
    return picture(traces, Axis("x (std)", (-4, 4)), height, said)


def moments(result: ActivationsResult) -> go.Figure:
    """E φ, E φ², E φ′² of every activation under N(0, 1): bars by quadrature, dots by sampling."""
    place = np.arange(len(NAMES))
    traces: list[Trace] = []
    for i, name in enumerate(MOMENTS):
        at, words = place + 0.22 * (i - 1), f"{name} = %{{y:.10g}}"
        traces.append(dots(at, result.quadrature[:, i], name, i, f"{words} by quadrature") | {
            "y": result.quadrature[:, i], "showlegend": False,
            "marker": {"symbol": "line-ew", "size": 16, "line": {"color": HUES[i], "width": 2.5}},
        })
        traces.append(dots(at, result.sampled[:, i], name, i, f"{name} = %{{y:.4g}} ± %{{error_y.array:.1g}} sampled",
                           error_y=bars(result.errors[:, i], i)))
    shown = [f"<b>{name}</b>" if name == result.settings.activation else name for name in NAMES]
    said = "Moments under N(0, 1) by quadrature, E φ, E φ², E φ′². " + " ".join(
        f"{name}: {', '.join(f'{value:.4g}' for value in row)}."
        for name, row in zip(NAMES, result.quadrature, strict=True)
    )
    across = Axis("", (-0.5, len(NAMES) - 0.5))
    return picture(traces, across, Axis("moment under N(0, 1)", (-0.08, 1.2)), said, xaxis=name_axis("", shown))


def signal(result: ActivationsResult) -> go.Figure:
    """Second moment of what enters each layer: dots of two draws, the recursion as a line, q* marked."""
    level = {result.fixed.q: "q*"} if 0 < result.fixed.q < math.inf else {1.0: "q = 1"}
    return _by_layer(result, result.signal, result.expected_signal, "q = mean x²", level, "Second moment by layer.")


def gradient(result: ActivationsResult) -> go.Figure:
    """Squared gradient of what enters each layer, relative to the last: dots of two draws, the recursion as a line."""
    said = "Squared gradient by layer, relative to the last."
    return _by_layer(result, result.gradient, result.expected_gradient, "γ / γ at the output", {1.0: "flat"}, said)


def _by_layer(
    result: ActivationsResult, draws: Array, expected: Array, title: str, levels: dict[float, str], said: str
) -> go.Figure:
    layers, depth = np.arange(len(expected)), result.settings.depth
    across = Axis("depth (layers)", (-0.03 * depth - 0.02, 1.03 * depth + 0.02))
    height = axis(title, [draws, expected, list(levels)], log=True, least=1.0, air=0.12)
    traces = [mark(value, words, across, height) for value, words in levels.items()]
    traces.append(line(layers, expected, "recursion", 0, "after %{x:.0f} layers %{y:.4g}", log=True))
    for draw, values in enumerate(draws):
        marker = {"color": HUES[0], "symbol": ("circle", "circle-open")[draw], "size": 6}
        words = "after %{x:.0f} layers %{y:.4g}"
        traces.append(dots(layers, values, f"draw {draw + 1}", 0, words, log=True, marker=marker))
    said += f" Recursion: {expected[0]:.3g} at the input, {expected[-1]:.3g} at the output."
    said += f" Measured: {draws[:, 0].mean():.3g} and {draws[:, -1].mean():.3g}."
    return picture(traces, across, height, said, legend=False)


def length_map(result: ActivationsResult) -> go.Figure:
    """V(q), the next layer's second moment, against q; measured pairs of layers are dots, the diagonal keeps q."""
    before, after = result.signal[:, :-1].ravel(), result.signal[:, 1:].ravel()
    seen = before[np.isfinite(before) & (before > 1e-3) & (before < 1e3)]
    across = axis("q of a layer (mean x²)", [seen, [0.2, 5.0]], log=True, air=0.08)
    near = (np.log10(MAP) >= across.extent[0]) & (np.log10(MAP) <= across.extent[1])
    height = axis("q of the next layer", [result.length_map[near], [0.2, 5.0]], log=True)
    ends = 10.0 ** np.array(across.extent)
    traces = [
        line(ends, ends, "q kept", 0, "", log=True) | {
            "name": "q kept", "hoverinfo": "skip", "hovertemplate": None,
            "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"},
        },
        line(MAP, result.length_map, "", 0, "V(%{x:.3g}) = %{y:.4g}", log=True) | {"name": "V(q)", "showlegend": True},
        dots(before, after, "MLP", 0, "from %{x:.4g} to %{y:.4g}", log=True,
             marker={"color": HUES[0], "size": 6, "opacity": 0.6}),
    ]
    q = result.fixed.q
    if 0 < q < math.inf:
        traces.append(dots(np.array([q]), np.array([q]), "q*", 4, "q* = %{x:.4g}", log=True,
                           marker={"color": HUES[4], "symbol": "x", "size": 10}))
    said = f"Next second moment by second moment. Fixed point {q:.4g}, slope {result.fixed.slope:.4g} on log axes."
    return picture(traces, across, height, said)


def selu(result: ActivationsResult) -> go.Figure:
    """The two conditions on λ·elu_α in the plane of α and λ: they cross at SELU when the variance is 1."""
    alpha = np.linspace(1.0, 3.0, 41)
    variance, (scale, solved) = result.settings.fixed_point, result.selu
    curve = selu_scale(alpha, variance)
    height = axis("λ", [curve, [REAL_SELU[1], scale]], least=0.2, air=0.1)
    words = "α = %{x:.10g}<br>λ = %{y:.10g}"
    traces: list[Trace] = [
        upright(solved, "mean 0", height, share=0.9),
        line(alpha, curve, "variance", 1, words) | {"name": f"variance {variance:.3g}", "showlegend": True},
        dots(np.array([REAL_SELU[0]]), np.array([REAL_SELU[1]]), "published", 2, words) | {
            "marker": {"symbol": "circle-open", "size": 15, "color": HUES[2], "line": {"width": 2}},
        },
        dots(np.array([solved]), np.array([scale]), "solved", 0, words) | {  # ten digits, not float32's seven
            "x": np.array([solved]), "y": np.array([scale]),
        },
    ]
    said = f"Mean 0 asks for α = {solved:.10g}; variance {variance:.4g} then for λ = {scale:.10g}."
    return picture(traces, Axis("α", (0.95, 3.05)), height, said)
