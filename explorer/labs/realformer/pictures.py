"""The RealFormer lab: growth of logits, attention patterns, gradients beside Post-LN's, memory."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import axis, picture
from explorer.figures.traces import Trace, described, dots, joined, line, ring, upright
from explorer.labs.charts import designs, side_by_side
from explorer.labs.realformer.experiment import FORMS, HEAD, RealFormerResult
from explorer.labs.realformer.memory import LENGTHS

HUE = {"none": 0, "scores": 4, "qk": 5}
"""Hues of Post-LN and RealFormer as in the lab on norm placement."""
LAYER = "layer l"
SAYS = "in layer %{x:.0f}<br>logits of size %{y:.3g}"
LOGITS = "logits (standard deviation)"
DECADES = 1.5
"""By which the axis of logits goes below the first layer's: Post-LN's own may fall without end."""


def independent(result: RealFormerResult) -> go.Figure:
    """Spread of the logits of independent layers, against the layer, both axes logarithmic: slopes 0, ½ and 1."""
    spreads, layers = result.independent, result.layers
    lines = {form: result.expected(form) for form in FORMS}
    height = axis(LOGITS, [*spreads.values(), *lines.values()], log=True, least=1.0)
    across = axis(LAYER, [layers], log=True, air=0.04)
    traces = [line(layers, lines[form], words, HUE[form], SAYS, log=True) for form, words in FORMS.items()]
    traces += [dots(layers, spreads[form].mean(0), words, HUE[form], SAYS, log=True) for form, words in FORMS.items()]
    return picture(traces, across, height, described(f"Logits of independent layers, heads {HEAD} wide", traces))


def spread(result: RealFormerResult) -> go.Figure:
    """Logits by layer of a Post-LN stack, with its theory, and the values of independent layers."""
    ideals = {form: result.ideal(form) for form in ("scores", "qk")}
    first = result.spread("none")[:, 0].mean()
    shown = [profile["logit_std"] for form in ideals for profile in result.stacks[form]]
    least = max(float(result.spread("none").min()), first / 10**DECADES)
    height = axis(LOGITS, [*shown, *ideals.values(), [least]], log=True)
    dotted = [
        line(result.layers, values, f"{FORMS[form]}, layers independent", HUE[form],
             "in layer %{x:.0f}, independent of the others<br>logits of size %{y:.3g}", log=True, dash="dot")
        for form, values in ideals.items()
    ]
    return side_by_side("logit_std", result.stacks, designs(FORMS, HUE), height, dotted)


def entropy(result: RealFormerResult) -> go.Figure:
    """Entropy of attention over that of a uniform row, by layer."""
    return side_by_side("attention_entropy_normalized", result.stacks, designs(FORMS, HUE))


def similarity(result: RealFormerResult) -> go.Figure:
    """Overlap of each layer's pattern with the one below: of the same head full, of another one hollow."""
    layers = result.layers[1:]
    height = axis("overlap Σ min(p, p′) (share)", [[0.0, 1.0]])
    across = axis(LAYER, [result.layers], air=0.03)
    traces: list[Trace] = []
    for form, words in FORMS.items():
        traces += [
            dots(layers, result.similarity[form].random.mean(0), f"{words}, another head", HUE[form],
                 "layer %{x:.0f} and another head of the one below<br>share %{y:.0%} of their weight",
                 showlegend=False, marker=ring(6), **joined(HUE[form])),
            dots(layers, result.similarity[form].measured.mean(0), words, HUE[form],
                 "layer %{x:.0f} and the one below<br>share %{y:.0%} of their weight"),
        ]
    return picture(traces, across, height, described("Weight that successive layers' patterns share", traces))


def gradients(result: RealFormerResult) -> go.Figure:
    """Squared gradient along the stream, relative to the output."""
    return side_by_side("activation_gradient", result.stacks, designs(FORMS, HUE))


def memory(result: RealFormerResult) -> go.Figure:
    """Bytes that a layer keeps for the way back, against the length of the sequence, both axes logarithmic."""
    memory, n = result.memory, np.array(LENGTHS, float)
    rows = (("written out", 0, memory.written_out), ("fused", 2, memory.fused),
            ("score tensor", 4, memory.scores), ("stream", 3, memory.stream))
    height = axis("a layer's memory (KiB)", [values / 1024 for *_, values in rows], log=True)
    across = axis("tokens n", [n], log=True, air=0.04)
    sentence = "%{x:.0f} tokens<br>%{y:,.0f} KiB a layer"
    traces: list[Trace] = [
        *(line(n, values / 1024, words, hue, sentence, log=True, showlegend=True) for words, hue, values in rows),
        dots(n, memory.counted["none"] / 1024, "Post-LN", 0, sentence, log=True),
        dots(n, memory.counted["scores"] / 1024, "RealFormer", 4, sentence, log=True, marker=ring()),
    ]
    equal = result.settings.width / result.settings.n_heads
    if across.extent[0] < np.log10(equal) < across.extent[1]:
        traces.insert(0, upright(equal, "n = d/H", height, "left"))
    return picture(traces, across, height, described("KiB that a layer keeps, by tokens", traces))
