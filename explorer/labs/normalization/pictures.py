"""Pictures of the normalization lab: groups of values, outputs, an offset, and ε."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import LEAST, Axis, axis, label, picture, sheet
from explorer.figures.palette import HUES, Look
from explorer.figures.traces import Trace, described, dots, level, line, ring
from explorer.labs.normalization.experiment import NORMS, OFFSETS, SCALES, NormalizationResult
from explorer.profile import Array

TOY = (2, 4, 6)
"""Sequences, tokens and features of the small tensor that shows the groups."""
MARKED = (0, 1, 2)
LABELS = {name: norm.label.removesuffix("Norm") for name, norm in NORMS.items()}
MARKS = {  # pairs often coincide: a ring shows around a dot
    "layer": ring(9), "rms": {"size": 6}, "batch": ring(9, 2), "instance": {"size": 6},
}


def groups(_: NormalizationResult) -> go.Figure:
    """A small tensor for each norm, tokens as rows and features as columns: shaded values are averaged together."""
    traces: list[Trace] = []
    axes: dict[str, object] = {}
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True}
    rows = [f"seq {b + 1}, tok {t + 1}" for b in range(TOY[0]) for t in range(TOY[1])]
    for index, (name, norm) in enumerate(NORMS.items()):
        suffix = str(index + 1) if index else ""
        own = np.zeros(TOY)
        own[tuple(slice(None) if at in norm.axes else place for at, place in enumerate(MARKED))] = 1.0
        own[MARKED] = 2.0
        traces.append({
            "type": "heatmap", "name": norm.label, "z": own.reshape(-1, TOY[2]).astype(np.float32), "y": rows,
            "x": [f"{feature + 1}" for feature in range(TOY[2])], "xaxis": f"x{suffix}", "zmin": 0, "zmax": 2,
            "colorscale": [[0, "rgba(128, 128, 128, 0.12)"], [0.5, Look(index).faint(0.53)], [1, HUES[index]]],
            "showscale": False, "xgap": 2, "ygap": 2,
            "hovertemplate": f"<b>{norm.label}</b><br>averages {norm.shares}<extra>%{{y}}, feature %{{x}}</extra>",
        })
        axes[f"xaxis{suffix}"] = bare | {
            "domain": [index / len(NORMS) + 0.01, (index + 1) / len(NORMS) - 0.01], "title": label(LABELS[name]),
            "range": [-0.5, TOY[2] - 0.5], "showticklabels": False, "ticks": "",
        }
    yaxis = bare | {"range": [len(rows) - 0.5, -0.5], "tickfont": {"size": 11}, "title": label("token of a sequence")}
    text = "; ".join(f"{norm.label} averages {norm.shares}" for norm in NORMS.values())
    margin = {"l": 100, "r": 8, "t": 10, "b": 34}
    return go.Figure({"data": traces, "layout": sheet({}, yaxis, f"{text}.", margin=margin) | axes})


def one_by_one(result: NormalizationResult) -> go.Figure:
    """Second moments of single tokens and of single features, in the input and after each norm."""
    outputs = {"input": result.before} | {LABELS[name]: output for name, output in result.after.items()}
    kinds = {"tokens": [output.by_token for output in outputs.values()],
             "features": [output.by_feature for output in outputs.values()]}
    across = Axis("", (-0.5, len(outputs) - 0.5))
    height = axis("mean y² (ratio to 1)", [[1.0], *kinds["tokens"], *kinds["features"]], log=True, least=LEAST)
    traces = [level(1.0, "", across, height)]
    for index, (kind, values) in enumerate(kinds.items()):
        at = np.repeat(np.arange(len(outputs)) + 0.3 * index - 0.15, [len(part) for part in values])
        traces.append(dots(at, np.concatenate(values), kind, index, "mean y² of one is %{y:.3g}", log=True,
                           marker={"size": 5, "opacity": 0.8, "maxdisplayed": 0}))
    text = "; ".join(
        f"{name}: tokens from {output.by_token.min():.2g} to {output.by_token.max():.2g}, features from "
        f"{output.by_feature.min():.2g} to {output.by_feature.max():.2g}" for name, output in outputs.items()
    )
    figure = picture(traces, across, height, f"Second moments of single tokens and features. {text}.")
    return figure.update_xaxes(tickvals=list(range(len(outputs))), ticktext=list(outputs), showgrid=False)


def offset(result: NormalizationResult) -> go.Figure:
    """Share of each output's second moment that is one constant, against the offset of the input."""
    height = axis("constant's share (ratio)", [[0.0, 1.0]], air=0.1, top=0.15)
    across = axis("offset c (std)", [OFFSETS], air=0.02)
    here = {name: output.constant_share for name, output in result.after.items()}
    traces = [level(1.0, "nothing but the constant", across, height, "left")]
    traces += _by_norm(OFFSETS, result.share_by_offset, result.settings.offset, here,
                       "at an offset of %{x:.3g}<br>the constant's share is %{y:.3g}")
    return picture(traces, across, height, described("Share of the output that is one constant, by offset", traces))


def epsilon(result: NormalizationResult) -> go.Figure:
    """Output second moment against the input's size: 1 unless the variance is near ε."""
    height = axis("mean y² (ratio to 1)", [*result.moment_by_scale.values(), [1.0, 1e-3]], log=True)
    across = axis("input scale s (×)", [SCALES], log=True, air=0.02)
    here = {name: output.second_moment for name, output in result.after.items()}
    traces = [level(1.0, "", across, height)]
    traces += _by_norm(SCALES, result.moment_by_scale, result.settings.scale, here,
                       "at a scale of %{x:.3g}<br>mean y² is %{y:.3g}", log=True)
    return picture(traces, across, height, described("Mean y² by the scale of the input", traces))


def _by_norm(x: Array, curves: Mapping[str, Array], at: float, here: Mapping[str, float], sentence: str,
             log: bool = False) -> list[Trace]:
    """A line for each norm, and the tensor that is set as its dot."""
    traces: list[Trace] = []
    for index, (name, words) in enumerate(LABELS.items()):
        traces += [line(x, curves[name], words, index, sentence, log=log),
                   dots([at], [here[name]], words, index, sentence, log=log, marker=MARKS[name])]
    return traces
