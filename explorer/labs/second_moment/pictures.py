"""Pictures of the second-moment lab: forward against backward, the input's mean, a stack's signal and gradient."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import LEAST, Axis, axis, depth_axis, picture
from explorer.figures.traces import DOTTED, described, dots, error_bars, level, line, upright
from explorer.labs.second_moment.experiment import MEANS, RULES, SecondMomentResult, mean_error, variance_share
from explorer.profile import Array


def both_ways(result: SecondMomentResult) -> go.Figure:
    """Forward against backward factor of one layer, a dot a rule; any variance lies on the line, the goal at (1, 1)."""
    ratio = result.settings.m / result.settings.n
    points = [mean_error(result.factors(rule)) for rule in RULES]
    middles = np.array([middle for middle, _ in points])  # [rule, 2]
    across = axis("signal: × E x²", [middles[:, 0], [0.5, 2]], log=True, air=0.12)
    height = axis("gradient: × E (∂L/∂y)²", [middles[:, 1], [0.5, 2]], log=True, air=0.12)
    ends = across.ends * [0.1, 10]
    traces = [
        level(1.0, "gradient kept", across, height, lift=0.02),
        upright(1.0, "signal kept", height, side="left", share=0.06),
        line(ends, ratio * ends, "any variance", 0, "signal × %{x:.3g}, gradient × %{y:.3g}", log=True,
             showlegend=True, line=DOTTED | {"dash": "dash"}),
    ]
    traces += [
        dots(middle[:1], middle[1:], rule.name, i, "signal × %{x:.4g}, gradient × %{y:.4g}", log=True,
             error_x=error_bars(i, error[:1]), error_y=error_bars(i, error[1:]), marker={"size": 11})
        for i, (rule, (middle, error)) in enumerate(zip(RULES, points, strict=True))
    ]
    return picture(traces, across, height, described("Backward factor of one layer by the forward one", traces))


def input_mean(result: SecondMomentResult) -> go.Figure:
    """E y² over n·Var(W)·E x² against the input's mean, for x and |x|: flat at 1. Dashed: if only Var x counted."""
    across = Axis("mean of the input before any | | (std)", (-4.4, 4.4))
    height = Axis("E y² / (n Var W · E x²)", (-0.05, 1.35))
    fine, mean = np.linspace(-4.4, 4.4, 161), result.settings.mean
    traces = [
        line(fine, variance_share(fine), "if only Var x counted", 4, "Var x is %{y:.3g} of E x²", dash="dash",
             showlegend=True),
        level(1.0, "", across, height),
        upright(mean, "chosen", height, "left" if mean > 2 else "right", share=0.06),
    ]
    for kind, name in enumerate(("x", "|x|")):
        middle, error = mean_error(result.sweep[kind])
        traces.append(dots(MEANS + 0.1 * kind, middle, f"input {name}", kind, "mean %{x:.2g}: %{y:.4g}",
                           error_y=error_bars(kind, error)))
    return picture(traces, across, height, described("Forward factor over n Var W, by the input's mean", traces))


def signal(result: SecondMomentResult) -> go.Figure:
    """Second moment after each layer, relative to the input's, a hue a rule; 1 is marked."""
    return _stack([result.signal(rule) for rule in RULES], [result.expected(rule)[0] for rule in RULES],
                  "mean x² (input = 1)", "signal kept", "Signal by layer, relative to the input")


def gradient(result: SecondMomentResult) -> go.Figure:
    """Squared gradient after each layer, relative to the output's, a hue a rule; 1 is marked."""
    return _stack([result.gradient(rule) for rule in RULES], [result.expected(rule)[1] for rule in RULES],
                  "mean (∂L/∂x)² (output = 1)", "gradient kept", "Gradient by layer, relative to the output")


def _stack(draws: list[Array], expected: list[Array], title: str, words: str, subject: str) -> go.Figure:
    """`[draw, layer + 1]` and `[layer + 1]` of each rule."""
    errors, layers = [mean_error(draw) for draw in draws], np.arange(len(expected[0]))
    across = depth_axis(layers)
    height = axis(title, [[1.0], *expected, *(middle for middle, _ in errors)], log=True, least=LEAST, air=0.16)
    sentence = "after %{x:.0f} layers × %{y:.4g}"
    traces = [level(1.0, words, across, height, lift=0.05)]
    traces += [line(layers, expected[i], rule.name, i, sentence, log=True) for i, rule in enumerate(RULES)]
    for i, (rule, (middle, error)) in enumerate(zip(RULES, errors, strict=True)):
        traces.append(dots(layers, middle, rule.name, i, sentence, log=True, error_y=error_bars(i, error)))
    return picture(traces, across, height, described(subject, traces))
