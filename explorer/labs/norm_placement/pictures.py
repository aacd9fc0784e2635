"""The lab on norm placement: a theorem's slopes and a lemma's band, then gradients by attention and of five designs."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import axis, picture
from explorer.figures.traces import DOTTED, Trace, compact, dots, line
from explorer.labs.charts import designs, moments_axis, seeds_range, side_by_side
from explorer.labs.norm_placement.experiment import BENDS, DESIGNS, PLACEMENTS, NormPlacementResult, band

BEND_HUES = {"none": 5, "uniform": 3, "softmax": 0}
"""Softmax attention makes it the Post-LN of the other charts."""


def theorem(result: NormPlacementResult) -> go.Figure:
    """The last MLP's gradient against the depth of the stack, in the setting of Xiong et al., both axes logarithmic."""
    depths, theirs = np.array(result.settings.depths, float), result.theorem
    height = axis("‖∂L/∂W<sub>out</sub>‖ (for a unit loss)", [part for sizes in theirs.values() for part in sizes],
                  log=True, least=1.0)
    across = axis("layers of the stack L", [depths], log=True, air=0.04)
    sentence = "in %{x:.0f} layers, the last W_out's gradient<br>has norm %{y:.3g}"
    root = theirs["pre"].predicted[-1] * np.sqrt(depths[-1] / depths)
    traces: list[Trace] = [
        {"type": "scatter", "mode": "lines", "name": "1/√L", "x": compact(depths), "y": compact(root),
         "hoverinfo": "skip", "line": DOTTED},
    ]
    for index, (placement, words) in enumerate(PLACEMENTS.items()):
        middle = theirs[placement].typical
        traces += [line(depths, theirs[placement].predicted, words, index, sentence, log=True),
                   dots(depths, middle, words, index, sentence, log=True,
                        error_y=seeds_range(index, middle, theirs[placement].measured))]
    text = "; ".join(f"{words} {result.slopes(placement)[0]:.2f}, predicted {result.slopes(placement)[1]:.2f}"
                     for placement, words in PLACEMENTS.items())
    return picture(traces, across, height, f"Exponent of the depth in the last MLP's gradient: {text}.")


def stream(result: NormPlacementResult) -> go.Figure:
    """Second moment of the Pre-LN stream by layer, in Lemma 2's band."""
    low, high = band(result.settings.n_layers)
    layer = np.arange(len(low), dtype=float)
    edge: Trace = {
        "type": "scatter", "mode": "lines", "name": "Lemma 2", "fill": "toself", "hoverinfo": "skip",
        "x": compact(np.concatenate([layer, layer[::-1]])), "y": compact(np.concatenate([low, high[::-1]])),
        "line": {"width": 0}, "fillcolor": "rgba(128, 128, 128, 0.18)",
    }
    stacks = {"pre": result.deepest}
    return side_by_side("second_moment", stacks, designs({"pre": "Pre-LN"}, {"pre": 1}),
                        moments_axis(stacks.values(), high), below=[edge])


def bends(result: NormPlacementResult) -> go.Figure:
    """Squared gradient of Post-LN by layer: without attention, with uniform attention, and with softmax."""
    return side_by_side("activation_gradient", result.bends, designs(BENDS, BEND_HUES))


def gradients(result: NormPlacementResult) -> go.Figure:
    """Squared gradient along the stream, relative to the output, of five designs."""
    return side_by_side("activation_gradient", result.designs, designs(DESIGNS))
