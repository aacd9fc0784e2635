"""Pictures of the second-moment lab: forward against backward, the input's mean, a stack's signal and gradient."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.outlines import bars, mark
from explorer.figures.palette import NEUTRAL
from explorer.figures.parts import Array, Axis, axis, dots, level, line, picture, upright
from explorer.labs.second_moment.experiment import MEANS, RULES, SecondMomentResult, mean_error


def both_ways(result: SecondMomentResult) -> go.Figure:
    """Forward against backward factor of one layer, a dot a rule; any variance lies on the line, the goal at (1, 1)."""
    ratio = result.settings.m / result.settings.n
    points = [mean_error(result.factors(rule)) for rule in RULES]
    found = np.array([middle for middle, _ in points])  # [rule, 2]
    across = axis("signal: × E x²", [found[:, 0], [0.5, 2]], log=True, air=0.12)
    height = axis("gradient: × E (∂L/∂y)²", [found[:, 1], [0.5, 2]], log=True, air=0.12)
    ends = 10.0 ** np.array([across.extent[0] - 1, across.extent[1] + 1])
    traces = [
        mark(1.0, "gradient kept", across, height, 0.02), upright(1.0, "signal kept", height, side="left", share=0.06),
        line(ends, ratio * ends, "any variance", 0, "signal × %{x:.3g}, gradient × %{y:.3g}", log=True) | {
            "line": {"color": NEUTRAL, "width": 2, "dash": "dash"}, "name": "any variance", "showlegend": True,
        },
    ]
    for i, (rule, (middle, error)) in enumerate(zip(RULES, points, strict=True)):
        traces.append(dots(
            middle[:1], middle[1:], rule.name, i, "signal × %{x:.4g}, gradient × %{y:.4g}", log=True,
            error_x=bars(error[:1], i), error_y=bars(error[1:], i),
        ) | {"marker": {"color": bars(error, i)["color"], "symbol": ("circle", "square", "diamond")[i], "size": 11}})
    said = "Forward and backward factor of one layer. " + " ".join(
        f"{rule.name}: {x:.4g} and {y:.4g}." for rule, (x, y) in zip(RULES, found, strict=True)
    ) + f" All lie on a line on which backward is {ratio:.3g} × forward."
    return picture(traces, across, height, said)


def input_mean(result: SecondMomentResult) -> go.Figure:
    """E y² over n·Var(W)·E x² against the input's mean, for x and |x|: flat at 1. Dashed: if only Var x counted."""
    across = Axis("mean of the input before any | | (std)", (-4.4, 4.4))
    height = Axis("E y² / (n Var W · E x²)", (-0.05, 1.35))
    fine = np.linspace(-4.4, 4.4, 161)
    traces = [
        line(fine, 1 / (1 + fine**2), "", 4, "Var x is %{y:.3g} of E x²", dash="dash") | {
            "name": "if only Var x counted", "showlegend": True,
        },
        level(1.0, "", across),
        upright(result.settings.mean, "chosen", height, "left" if result.settings.mean > 2 else "right", share=0.06),
    ]
    said = "Forward factor over n Var W, by the input's mean."
    for kind, name in enumerate(("x", "|x|")):
        middle, error = mean_error(result.sweep[kind])
        traces.append(dots(MEANS + 0.1 * kind, middle, f"input {name}", 0 + kind, "mean %{x:.2g}: %{y:.4g}",
                           error_y=bars(error, kind)))
        said += f" Input {name}: from {middle.min():.4g} to {middle.max():.4g}."
    return picture(traces, across, height, said)


def signal(result: SecondMomentResult) -> go.Figure:
    """Second moment after each layer, relative to the input's, a hue a rule; 1 is marked."""
    return _stack(result, 0, "mean x² (input = 1)", "signal kept", "Signal by layer, relative to the input.")


def gradient(result: SecondMomentResult) -> go.Figure:
    """Squared gradient after each layer, relative to the output's, a hue a rule; 1 is marked."""
    said = "Gradient by layer, relative to the output."
    return _stack(result, 1, "mean (∂L/∂x)² (output = 1)", "gradient kept", said)


def _stack(result: SecondMomentResult, way: int, title: str, kept: str, said: str) -> go.Figure:
    layers = np.arange(result.settings.depth + 1)
    found: list[tuple[Array, Array]] = [
        mean_error((result.gradient if way else result.signal)(rule)) for rule in RULES
    ]
    expected = [result.expected(rule)[way] for rule in RULES]
    across = Axis("depth (layers)", (-0.03 * layers[-1] - 0.02, 1.03 * layers[-1] + 0.02))
    height = axis(title, [middle for middle, _ in found] + expected + [[1.0]], log=True, least=1.0, air=0.16)
    traces = [mark(1.0, kept, across, height)]
    words = "after %{x:.0f} layers × %{y:.4g}"
    traces += [line(layers, expected[i], rule.name, i, words, log=True) for i, rule in enumerate(RULES)]
    traces += [
        dots(layers, middle, rule.name, i, words, log=True, error_y=bars(error, i))
        for i, (rule, (middle, error)) in enumerate(zip(RULES, found, strict=True))
    ]
    said += " " + " ".join(
        f"{rule.name}: {middle[0]:.3g} at the input, {middle[-1]:.3g} at the output."
        for rule, (middle, _) in zip(RULES, found, strict=True)
    )
    return picture(traces, across, height, said)
