"""Pictures of the lab: each change's factors, the tokens' correlation by layer, and rotary positions by overlap."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import axis, picture
from explorer.figures.traces import Trace, described, dots, error_bars, level, line
from explorer.labs.charts import designs, seeds_range, side_by_side
from explorer.labs.gated_mlp_and_rotary.experiment import (
    BLOCKS,
    CHANGES,
    OVERLAPS,
    QUANTITIES,
    GatedMlpAndRotaryResult,
)

BESIDE = 0.17
"""Of the room of a change: how far its quantities stand from each other."""
STACKS = {"gpt2": BLOCKS["gpt2"], "gate": "up to the gate", CHANGES[-1]: "Llama's block"}


def factors(result: GatedMlpAndRotaryResult) -> go.Figure:
    """Each quantity after a change over the same before it, on a logarithmic axis; dashes are the theory's."""
    places = np.arange(len(CHANGES), dtype=float)
    ratios = {name: [result.factor(change, name) for change in CHANGES] for name in QUANTITIES}
    drawn = [part for row in ratios.values() for factor in row for part in (factor.measured, [factor.predicted])]
    height = axis("after the change, over before", [*drawn, [1.0]], log=True, least=1.0)
    across = axis("change, each on top of those before", [[-0.5, len(places)]], air=0.0)  # and room for a word
    traces: list[Trace] = [level(1.0, "no change", across, height)]
    for index, (name, (words, _)) in enumerate(QUANTITIES.items()):
        at = places + BESIDE * (index - (len(QUANTITIES) - 1) / 2)
        mean = np.array([factor.mean for factor in ratios[name]])
        draws = np.array([factor.measured for factor in ratios[name]])
        ends = np.stack([at - BESIDE / 2, at + BESIDE / 2, np.full(len(at), np.nan)], 1)
        theory = np.repeat([factor.predicted for factor in ratios[name]], 3)
        sentence = "× %{y:.3g}"
        traces += [line(ends.ravel(), theory, words, index, sentence, log=True),
                   dots(at, mean, words, index, sentence, log=True,
                        error_y=error_bars(index, draws.max(1) - mean, mean - draws.min(1)))]
    text = " ".join(f"{BLOCKS[change]}: " + ", ".join(
        f"{words} × {ratios[name][place].mean:.2g}, theory {ratios[name][place].predicted:.2g}"
        for name, (words, _) in QUANTITIES.items()) + "." for place, change in enumerate(CHANGES))
    figure = picture(traces, across, height, f"What each change does. {text}")
    names = [BLOCKS[change].replace(" ", "<br>").replace("SN", "S<br>N") for change in CHANGES]
    return figure.update_xaxes(tickvals=places, ticktext=names, showgrid=False, automargin=True, title_standoff=16)


def correlation(result: GatedMlpAndRotaryResult) -> go.Figure:
    """Token correlation along the stream, of three blocks."""
    return side_by_side("token_correlation", {name: result.blocks[name] for name in STACKS}, designs(STACKS))


def turned(result: GatedMlpAndRotaryResult) -> go.Figure:
    """Gradient² by W_Q of a single layer with rotary positions, over the same without, by overlap of its tokens."""
    overlaps, ratios = np.array(OVERLAPS), [result.turned(overlap) for overlap in OVERLAPS]
    mean, draws = np.array([factor.mean for factor in ratios]), np.array([factor.measured for factor in ratios])
    theory = np.array([factor.predicted for factor in ratios])
    height = axis("factor on ‖∂L/∂W_Q‖²", [draws, theory, [1.0]], log=True, least=0.8)
    across = axis("overlap of the input tokens ρ", [overlaps], air=0.05)
    sentence = "tokens of overlap %{x:.1f}<br>gradient² × %{y:.3g}"
    traces = [
        level(1.0, "no change", across, height),
        line(overlaps, theory, "rotary", 0, sentence, log=True),
        dots(overlaps, mean, "rotary", 0, sentence, log=True, error_y=seeds_range(0, mean, draws)),
    ]
    return picture(traces, across, height, described("Factor of rotary positions on W_Q's gradient²", traces),
                   legend=False)
