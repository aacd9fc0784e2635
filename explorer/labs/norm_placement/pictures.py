"""The lab on norm placement: a theorem's slopes and a lemma's band, then gradients and streams of five designs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from explorer.figures.outlines import mark
from explorer.figures.palette import HUES, NEUTRAL
from explorer.figures.parts import Trace, axis, dots, level, line, picture
from explorer.figures.series import compact
from explorer.labs.norm_placement.experiment import BENDS, DESIGNS, PLACEMENTS, NormPlacementResult, band, lemma
from explorer.labs.stack_pictures import curves, depth_axis, measured, values
from explorer.labs.stacks import Line

GRADIENT = "γ / γ<sub>N</sub> (ratio)"
WEIGHTS = "‖∂L/∂W‖ (for a unit loss)"
LAST = "‖∂L/∂W<sub>out</sub>‖ (for a unit loss)"
BEND_HUES = {"none": 5, "uniform": 3, "softmax": 0}
"""Softmax attention makes it the Post-LN of the other charts."""


def theorem(result: NormPlacementResult) -> go.Figure:
    """The last MLP's gradient against the depth of the stack, in the setting of Xiong et al., both axes logarithmic."""
    depths = np.array(result.settings.depths, float)
    found = result.theorem
    height = axis(LAST, [part for one in found.values() for part in (one.measured, one.predicted)], log=True, least=1.0)
    across = axis("layers of the stack L", [depths], log=True, air=0.04)
    sentence = "in %{x:.0f} layers, the last W_out's gradient<br>has norm %{y:.3g}"
    root = found["pre"].predicted[-1] * np.sqrt(depths[-1] / depths)
    traces: list[Trace] = [
        {"type": "scatter", "mode": "lines", "name": "1/√L", "x": compact(depths), "y": compact(root),
         "hoverinfo": "skip", "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}},
        *(line(depths, found[place].predicted, words, index, sentence, log=True)
          for index, (place, words) in enumerate(PLACEMENTS.items())),
    ]
    for index, (place, words) in enumerate(PLACEMENTS.items()):
        middle, seeds = found[place].typical, found[place].measured
        bars = {"type": "data", "symmetric": False, "color": HUES[index], "thickness": 1.2, "width": 0,
                "array": compact(seeds.max(1) - middle), "arrayminus": compact(middle - seeds.min(1))}
        traces.append(dots(depths, middle, words, index, sentence, log=True, error_y=bars))
    text = "; ".join(f"{words} {result.slopes(place)[0]:.2f}, predicted {result.slopes(place)[1]:.2f}"
                     for place, words in PLACEMENTS.items())
    return picture(traces, across, height, f"Exponent of the depth in the last MLP's gradient: {text}.")


def last(result: NormPlacementResult) -> go.Figure:
    """Every MLP's ‖∂L/∂W_out‖ in the deepest stack of the same setting."""
    lines = result.last
    height = axis(LAST, values(lines), log=True, least=1.0)
    sentence = "in layer %{x:.0f} the gradient of W_out<br>has norm %{y:.3g}"
    text = "; ".join(f"{words} from {lines[place].measured.mean(0)[0]:.3g} in the first layer to "
                     f"{lines[place].measured.mean(0)[-1]:.3g} in the last" for place, words in PLACEMENTS.items())
    return picture(curves(lines, PLACEMENTS, sentence, log=True), depth_axis(lines), height,
                   f"Norm of the gradient of W_out by layer: {text}.")


def stream(result: NormPlacementResult) -> go.Figure:
    """Second moment of the Pre-LN stream by layer, in Lemma 2's band, with the recursion between."""
    n, n_ctx = result.settings.n_layers, result.settings.n_ctx
    layer, (low, high) = np.arange(n + 1, dtype=float), band(n)
    one = Line(layer, result.stream.measured[:, ::2], lemma(n, n_ctx))
    height = axis("q (ratio to 1)", [low, high, one.measured, [0.0]], least=1.0)
    sentence = "after %{x:.0f} layers<br>second moment %{y:.3g}"
    traces: list[Trace] = [
        {"type": "scatter", "mode": "lines", "name": "Lemma 2", "fill": "toself", "hoverinfo": "skip",
         "x": compact(np.concatenate([layer, layer[::-1]])), "y": compact(np.concatenate([low, high[::-1]])),
         "line": {"width": 0, "color": NEUTRAL}, "fillcolor": "rgba(128, 128, 128, 0.18)"},
        line(layer, one.predicted, "recursion", 1, sentence, showlegend=True) | {"name": "recursion"},
        measured(one, "Pre-LN", 1, sentence),
    ]
    text = (f"After {n} layers the Pre-LN stream's second moment is {one.measured[:, -1].mean():.3g}; recursion "
            f"{one.predicted[-1]:.3g}, band from {low[-1]:g} to {high[-1]:g}.")
    return picture(traces, depth_axis({"pre": one}), height, text)


def bends(result: NormPlacementResult) -> go.Figure:
    """Squared gradient of Post-LN by layer: without attention, with uniform attention, and with softmax."""
    return _gradient(result.bends, BENDS, BEND_HUES, "Post-LN's squared gradient")


def gradients(result: NormPlacementResult) -> go.Figure:
    """Squared gradient along the stream, relative to the output, of five designs."""
    return _gradient(result.gradients, DESIGNS, None, "Squared gradient")


def _gradient(lines: Mapping[str, Line], names: Mapping[str, str], hues: Mapping[str, int] | None, subject: str
              ) -> go.Figure:
    height = axis(GRADIENT, [*values(lines), [1.0]], log=True, least=1.0)
    across = depth_axis(lines)
    sentence = "after %{x:~g} layers<br>gradient² is %{y:.3g} × the output's"
    traces = [mark(1.0, "flat", across, height), *curves(lines, names, sentence, log=True, hues=hues)]
    text = "; ".join(f"{names[key]} {one.measured.mean(0)[0]:.2g} at the input, {one.measured.mean(0).min():.2g} at "
                     "the lowest" for key, one in lines.items())
    return picture(traces, across, height, f"{subject} relative to the output's: {text}.")


def weights(result: NormPlacementResult) -> go.Figure:
    """‖∂L/∂W‖ of all matrices of a layer, by layer, of five designs."""
    lines = result.weights
    height = axis(WEIGHTS, values(lines), log=True, least=1.0)
    sentence = "in layer %{x:.0f} the gradient of all matrices<br>has norm %{y:.3g}"
    text = "; ".join(f"{DESIGNS[key]} from {one.measured.mean(0)[0]:.3g} to {one.measured.mean(0)[-1]:.3g}"
                     for key, one in lines.items())
    return picture(curves(lines, DESIGNS, sentence, log=True), depth_axis(lines), height,
                   f"Norm of the gradient of a layer's matrices, from the first layer to the last: {text}.")


def moments(result: NormPlacementResult) -> go.Figure:
    """Second moment of the stream, of five designs."""
    lines = result.moments
    height = axis("q (ratio to 1)", [*values(lines), [0.0]], least=1.0)
    text = ", ".join(f"{DESIGNS[key]} {one.measured[:, -1].mean():.3g}" for key, one in lines.items())
    return picture(curves(lines, DESIGNS, "after %{x:~g} layers<br>second moment %{y:.3g}"), depth_axis(lines), height,
                   f"Second moment after the last layer: {text}.")


def correlations(result: NormPlacementResult) -> go.Figure:
    """Overlap of two tokens of the stream over its second moment, of five designs."""
    lines = result.correlations
    height = axis("ρ = p / q (ratio)", [*values(lines), [0.0, 1.06]])
    across = depth_axis(lines)
    traces = [level(1.0, "all tokens alike", across, "left"),
              *curves(lines, DESIGNS, "after %{x:~g} layers<br>token correlation %{y:.3g}")]
    text = ", ".join(f"{DESIGNS[key]} {one.measured[:, -1].mean():.2g}" for key, one in lines.items())
    return picture(traces, across, height, f"Token correlation after the last layer: {text}.")
