"""Pictures of the normalization lab: groups of values, outputs, and the time of each norm."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import BARE, label, sheet
from explorer.figures.palette import HUES, NEUTRAL
from explorer.figures.parts import Array, Trace, axis, dots, level, line, picture
from explorer.labs.normalization.experiment import NORMS, OFFSETS, SCALES, NormalizationResult

TOY = (2, 4, 6)
"""Sequences, tokens and features of the small tensor that shows the groups."""
MARKED = (0, 1, 2)
INDEX = {name: index for index, name in enumerate(NORMS)}
RING, DOT = {"size": 9, "line": {"width": 2}}, {"size": 6}
MARKS = {  # pairs often coincide: a ring shows around a dot
    "layer": {"symbol": "circle-open", **RING}, "rms": {"symbol": "square", **DOT},
    "batch": {"symbol": "diamond-open", **RING}, "instance": {"symbol": "triangle-up", **DOT},
}


def sharing(_: NormalizationResult) -> go.Figure:
    """A small tensor for each norm, tokens as rows and features as columns: shaded values are averaged together."""
    traces: list[Trace] = []
    axes: dict[str, object] = {}
    width = 1 / len(NORMS)
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True}
    rows = [f"seq {b + 1}, tok {t + 1}" for b in range(TOY[0]) for t in range(TOY[1])]
    for index, norm in enumerate(NORMS.values()):
        suffix = str(index + 1) if index else ""
        own = np.zeros(TOY)
        own[tuple(slice(None) if at in norm.axes else place for at, place in enumerate(MARKED))] = 1.0
        own[MARKED] = 2.0
        traces.append({
            "type": "heatmap", "name": norm.label, "z": own.reshape(-1, TOY[2]).astype(np.float32), "y": rows,
            "x": [f"{feature + 1}" for feature in range(TOY[2])], "xaxis": f"x{suffix}", "zmin": 0, "zmax": 2,
            "colorscale": [[0, "rgba(128, 128, 128, 0.12)"], [0.5, f"{HUES[index]}88"], [1, HUES[index]]],
            "showscale": False, "xgap": 2, "ygap": 2,
            "hovertemplate": f"<b>{norm.label}</b><br>averages {norm.shares}<extra>%{{y}}, feature %{{x}}</extra>",
        })
        axes[f"xaxis{suffix}"] = {
            "domain": [index * width + 0.01, (index + 1) * width - 0.01],
            "title": label(norm.label.removesuffix("Norm")),
            "range": [-0.5, TOY[2] - 0.5], "showticklabels": False, "ticks": "", **bare,
        }
    yaxis = {**bare, "range": [len(rows) - 0.5, -0.5], "tickfont": {"size": 11}, "title": label("token of a sequence")}
    text = "; ".join(f"{norm.label} averages {norm.shares}" for norm in NORMS.values())
    layout = sheet({}, yaxis, f"{text}.") | axes
    layout["margin"] = {"l": 100, "r": 8, "t": 10, "b": 34}
    layout["template"] = BARE
    return go.Figure({"data": traces, "layout": layout})


def by_token(result: NormalizationResult) -> go.Figure:
    """Second moment of single tokens before and after, quietest token first."""
    return _one_by_one(result, "token", "by_token")


def by_feature(result: NormalizationResult) -> go.Figure:
    """Second moment of single features before and after, quietest feature first."""
    return _one_by_one(result, "feature", "by_feature")


def _one_by_one(result: NormalizationResult, what: str, field: str) -> go.Figure:
    before: Array = getattr(result.before, field)
    after = {name: getattr(output, field) for name, output in result.after.items()}
    rank = np.arange(1, len(before) + 1)
    height = axis("mean y² (ratio to 1)", [before, *after.values(), [1.0]], log=True, least=1.0)
    across = axis(f"{what} (rank, quietest first)", [rank], least=1.0, air=0.03)
    sentence = f"{what} %{{x:.0f}}: mean y² is %{{y:.3g}}"
    traces = [
        level(1.0, "", across),
        {**dots(rank, before, "input", 0, sentence, log=True), "mode": "lines",
         "line": {"color": NEUTRAL, "width": 2}},
        *(_dots(rank, after[name], name, sentence, log=True) for name in NORMS),
    ]
    return picture(traces, across, height, f"Second moment by {what}: {_ends(before, after)}")


def _dots(x: Array, y: Array, name: str, sentence: str, log: bool = False) -> Trace:
    """Measured values of one norm, in its own mark."""
    marker = {"color": HUES[INDEX[name]], **MARKS[name]}
    return dots(x, y, NORMS[name].label.removesuffix("Norm"), INDEX[name], sentence, log=log, marker=marker)


def _ends(before: Array, after: dict[str, Array]) -> str:
    parts = [f"the input from {before.min():.2g} to {before.max():.2g}"]
    parts += [f"{NORMS[name].label} from {y.min():.2g} to {y.max():.2g}" for name, y in after.items()]
    return "; ".join(parts) + "."


def offset(result: NormalizationResult) -> go.Figure:
    """Share of each output's second moment that is one constant, against the offset of the input."""
    height = axis("constant's share (ratio)", [[0.0, 1.0]], air=0.1)
    across = axis("offset c (std)", [OFFSETS], air=0.02)
    sentence = "at an offset of %{x:.3g}<br>the constant's share is %{y:.3g}"
    traces = [level(1.0, "nothing but the constant", across, "left")]
    for name, norm in NORMS.items():
        traces.append(line(OFFSETS, result.share_by_offset[name], norm.label, INDEX[name], sentence))
        here = np.array([result.after[name].constant_share])
        traces.append(_dots(np.array([result.settings.offset]), here, name, sentence))
    shares = ", ".join(f"{norm.label} {result.after[name].constant_share:.2g}" for name, norm in NORMS.items())
    text = f"Share of the output that is one constant, at an offset of {result.settings.offset:g}: {shares}."
    return picture(traces, across, height, text)


def epsilon(result: NormalizationResult) -> go.Figure:
    """Output second moment against the input's size: 1 unless the variance is near ε."""
    moments = result.moment_by_scale
    height = axis("mean y² (ratio to 1)", [*moments.values(), [1.0, 1e-3]], log=True)
    across = axis("input scale s (×)", [SCALES], log=True, air=0.02)
    sentence = "at a scale of %{x:.3g}<br>mean y² is %{y:.3g}"
    traces = [level(1.0, "", across)]
    for name, norm in NORMS.items():
        traces.append(line(SCALES, moments[name], norm.label, INDEX[name], sentence, log=True))
        here = np.array([result.after[name].second_moment])
        traces.append(_dots(np.array([result.settings.scale]), here, name, sentence, log=True))
    found = ", ".join(f"{norm.label} {result.after[name].second_moment:.3g}" for name, norm in NORMS.items())
    return picture(traces, across, height, f"Mean y² at an input scale of {result.settings.scale:g}: {found}.")


def cost(result: NormalizationResult) -> go.Figure:
    """Median time of a call over that of x + x on the same tensor; the whiskers are the quartiles."""
    low, middle, high = np.array([result.cost[name] for name in NORMS]).T
    names = [norm.label for norm in NORMS.values()]
    bars = {
        "type": "bar", "name": "time", "x": names, "y": middle.astype(np.float32),
        "marker": {"color": [HUES[INDEX[name]] for name in NORMS]},
        "error_y": {"type": "data", "symmetric": False, "array": (high - middle).astype(np.float32),
                    "arrayminus": (middle - low).astype(np.float32), "color": NEUTRAL},
        "text": [f"{value:.2g} ×" for value in middle], "textposition": "inside", "insidetextanchor": "middle",
        "hovertemplate": "<b>%{x}</b><br>%{y:.3g} × the time of x + x<extra></extra>",
    }
    height = axis("time of a call (× x + x)", [[0.0], high], air=0.04)
    height = height._replace(extent=(0.0, height.extent[1]))
    text = ", ".join(f"{name} {value:.2g}" for name, value in zip(names, middle, strict=True))
    mark = {"type": "scatter", "mode": "lines", "name": "x + x", "x": names, "y": [1.0] * len(names),
            "hoverinfo": "skip", "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}}
    figure = picture([bars, mark], axis("", [[0.0, 1.0]]), height, f"Time of a call over x + x: {text}.", legend=False)
    figure.layout.xaxis = {"type": "category", "title": label("norm (torch, forward, float32)"), "showgrid": False}
    return figure
