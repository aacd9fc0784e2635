"""The RealFormer lab: growth of logits, attention patterns, gradients beside Post-LN's, memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from explorer.figures.outlines import mark
from explorer.figures.palette import HUES, NEUTRAL
from explorer.figures.parts import Trace, axis, dots, level, line, picture, upright
from explorer.labs.realformer.experiment import FORMS, HEAD, LENGTHS, RealFormerResult
from explorer.labs.stack_pictures import curves, depth_axis, measured, values
from explorer.labs.stacks import Line

HUE = {"none": 0, "scores": 4, "qk": 5}
"""Those of Post-LN and RealFormer in the lab on norm placement."""
LAYER = "layer l"
COMPARED = ("none", "scores")


def independent(result: RealFormerResult) -> go.Figure:
    """Spread of the logits of independent layers, against the layer, both axes logarithmic: slopes 0, ½ and 1."""
    lines = result.independent
    height = axis("logits (standard deviation)", values(lines), log=True, least=1.0)
    across = axis(LAYER, [lines["none"].depth], log=True, air=0.04)
    traces = curves(lines, FORMS, "in layer %{x:.0f}<br>logits of size %{y:.3g}", log=True, hues=HUE)
    text = ", ".join(f"{words} {lines[form].measured[:, -1].mean():.3g}, expected {lines[form].predicted[-1]:.3g}"
                     for form, words in FORMS.items())
    return picture(traces, across, height, f"Logits of {result.settings.n_layers} independent layers with heads "
                                           f"{HEAD} wide: {text}.")


def spread(result: RealFormerResult) -> go.Figure:
    """The same of a Post-LN stack, with its theory, and the values of independent layers."""
    lines = result.spread
    shown = [part for form in ("scores", "qk") for part in (lines[form].measured, lines[form].predicted)]
    least = float(lines["none"].measured[:, 0].min()) / 30  # Post-LN's own may fall without end
    low = np.array([max(least, float(lines["none"].measured.min()))])
    height = axis("logits (standard deviation)", [*shown, result.ideal("scores"), result.ideal("qk"), low], log=True)
    across = axis(LAYER, [lines["none"].depth], log=True, air=0.04)
    traces: list[Trace] = [
        line(lines[form].depth, result.ideal(form), f"{words}, layers independent", HUE[form],
             "in layer %{x:.0f}, independent of the others<br>logits of size %{y:.3g}", log=True, dash="dot")
        for form, words in FORMS.items() if form != "none"
    ]
    traces += curves(lines, FORMS, "in layer %{x:.0f}<br>logits of size %{y:.3g}", log=True, hues=HUE)
    text = ", ".join(f"{words} {lines[form].measured[:, -1].mean():.3g}, predicted {lines[form].predicted[-1]:.3g}"
                     for form, words in FORMS.items())
    return picture(traces, across, height, f"Logits of layer {result.settings.n_layers} of a stack: {text}.")


def entropy(result: RealFormerResult) -> go.Figure:
    """Entropy of attention over that of a uniform row, by layer."""
    lines = result.entropy
    height = axis("H / ln n (ratio)", [*values(lines), [0.0, 1.06]])
    across = depth_axis(lines)
    traces = [level(1.0, "uniform", across, "left"), level(0.0, "one-hot", across, "left"),
              *curves(lines, FORMS, "in layer %{x:.0f}<br>entropy is %{y:.3g} of the uniform one", hues=HUE)]
    text = ", ".join(f"{words} {lines[form].measured[:, -1].mean():.2g}" for form, words in FORMS.items())
    return picture(traces, across, height, f"Entropy of attention in the last layer, over the uniform one: {text}.")


def similarity(result: RealFormerResult) -> go.Figure:
    """Overlap of each layer's pattern with the one below: of the same head full, of another one hollow."""
    layer = np.arange(2.0, result.settings.n_layers + 1)
    height = axis("overlap Σ min(p, p′) (share)", [[0.0, 1.0]])
    across = axis(LAYER, [[1.0], layer], air=0.03)
    missing = np.full(len(layer), np.nan)
    traces: list[Trace] = []
    for form, words in FORMS.items():
        one = result.similarity[form]
        hollow = {"color": HUES[HUE[form]], "symbol": "circle-open", "size": 6}
        traces.append(dots(layer, one.random.mean(0), f"{words}, another head", HUE[form],
                           "layer %{x:.0f} and another head of the one below<br>share %{y:.0%} of their weight",
                           showlegend=False, marker=hollow, mode="lines+markers",
                           line={"color": HUES[HUE[form]], "width": 1, "dash": "dot"}))
    for form, words in FORMS.items():
        traces.append(measured(Line(layer, result.similarity[form].measured, missing), words, HUE[form],
                               "layer %{x:.0f} and the one below<br>share %{y:.0%} of their weight"))
    text = "; ".join(f"{words} {result.similarity[form].measured[:, -1].mean():.2g}, with another head "
                     f"{result.similarity[form].random[:, -1].mean():.2g}" for form, words in FORMS.items())
    return picture(traces, across, height, f"Weight that the last two layers' patterns share: {text}.")


def gradients(result: RealFormerResult) -> go.Figure:
    """Squared gradient along the stream, relative to the output."""
    lines = result.gradients
    height = axis("γ / γ<sub>N</sub> (ratio)", [*values(lines), [1.0]], log=True, least=1.0)
    across = depth_axis(lines)
    sentence = "after %{x:~g} layers<br>gradient² is %{y:.3g} × the output's"
    traces = [mark(1.0, "flat", across, height), *curves(lines, FORMS, sentence, log=True, hues=HUE)]
    return picture(traces, across, height, f"Squared gradient relative to the output's, largest over smallest: "
                                           f"{_apart(lines)}.")


def weights(result: RealFormerResult) -> go.Figure:
    """‖∂L/∂W‖ of all matrices of a layer, by layer."""
    lines = result.weights
    height = axis("‖∂L/∂W‖ (for a unit loss)", values(lines), log=True, least=1.0)
    sentence = "in layer %{x:.0f} the gradient of all matrices<br>has norm %{y:.3g}"
    return picture(curves(lines, FORMS, sentence, log=True, hues=HUE), depth_axis(lines), height,
                   f"Norm of the gradient of a layer's matrices, largest over smallest: {_apart(lines)}.")


def _apart(lines: Mapping[str, Line]) -> str:
    return ", ".join(f"{words} {np.median(lines[form].apart):.3g}" for form, words in FORMS.items())


def closer(result: RealFormerResult) -> go.Figure:
    """Largest over smallest gradient of the layers: RealFormer's against Post-LN's of the same seed."""
    both = (("stream, γ", 4, result.gradients), ("weights, ‖∂L/∂W‖²", 2, result.weights))
    apart = [[lines[form].apart for form in COMPARED] for *_, lines in both]
    apart[1] = [one**2 for one in apart[1]]  # squares beside squares
    ends = [part for pair in apart for part in pair] + [[1.0]]
    across = axis("Post-LN: largest / smallest (ratio)", ends, log=True)
    height = axis("RealFormer: the same (ratio)", ends, log=True)
    diagonal = 10.0 ** np.array(across.extent)
    middle = 10.0 ** (across.extent[0] + 0.12 * (across.extent[1] - across.extent[0]))
    traces: list[Trace] = [
        {"type": "scatter", "mode": "lines+text", "name": "equal", "hoverinfo": "skip", "showlegend": False,
         "x": [diagonal[0], middle, diagonal[1]], "y": [diagonal[0], middle, diagonal[1]],
         "text": ["", "equal", ""], "textposition": "top left", "textfont": {"size": 11},
         "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}},
        *(dots(post, own, words, hue, "a seed: Post-LN %{x:.3g}, RealFormer %{y:.3g}", log=True)
          for (words, hue, _), (post, own) in zip(both, apart, strict=True)),
    ]
    text = "; ".join(f"{words}: closer in {result.closer(lines)} of {result.settings.n_seeds} seeds"
                     for words, _, lines in both)
    return picture(traces, across, height, f"Largest over smallest gradient, RealFormer against Post-LN. {text}.")


def memory(result: RealFormerResult) -> go.Figure:
    """Bytes that a layer keeps for the way back, against the length of the sequence, both axes logarithmic."""
    found, settings = result.memory, result.settings
    n = np.array(LENGTHS, float)
    rows = (("written out", 0, found.written_out), ("fused", 2, found.fused))
    tensors = (("score tensor", 4, found.scores, 0), ("stream", 3, found.stream, 3))
    every = [found.written_out / 1024, found.scores / 2048, found.stream / 1024]  # half a score: room for its name
    height = axis("a layer's memory (KiB)", every, log=True)
    across = axis("tokens n", [n], log=True, air=0.04)
    sentence = "%{x:.0f} tokens<br>%{y:,.0f} KiB a layer"
    ring = {"color": HUES[4], "symbol": "circle-open", "size": 12, "line": {"width": 2}}
    traces: list[Trace] = [
        *(line(n, values / 1024, words, hue, sentence, log=True, showlegend=True) | {"name": words}
          for words, hue, values in rows),
        *(line(n, values / 1024, words, hue, sentence, log=True, mode="lines+text",
               text=[words if at == place else "" for at in range(len(n))], textposition="bottom right",
               textfont={"size": 11}) | {"name": words}
          for words, hue, values, place in tensors),
        dots(n, found.counted["none"] / 1024, "Post-LN", 0, sentence, log=True),
        dots(n, found.counted["scores"] / 1024, "RealFormer", 4, sentence, log=True, marker=ring),
    ]
    equal = settings.width / settings.n_heads
    if across.extent[0] < np.log10(equal) < across.extent[1]:
        traces.insert(0, upright(equal, "n = d/H", height, "left"))
    ends = [values[-1] / 2**20 for values in (*found.counted.values(), found.scores, found.stream)]
    text = ("With {} tokens a layer keeps {:.2f} MiB in Post-LN and {:.2f} in RealFormer; a score tensor is {:.2f}, "
            "the stream {:.2f}.").format(LENGTHS[-1], *ends)
    return picture(traces, across, height, text)
