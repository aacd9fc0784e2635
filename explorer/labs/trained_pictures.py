"""Contenders of the labs on training, over the steps and over the layers. All that is drawn is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import MARGIN
from explorer.figures.outlines import mark
from explorer.figures.palette import HUES
from explorer.figures.parts import LEGEND, Array, Axis, Trace, axis, dots, level, picture
from explorer.labs.trained import Curve, Trained

ABOVE = 0.7
"""Nats above the unigram's loss up to which losses are drawn: all models begin higher."""
WORDS, BELOW = 0.08, -0.09
"""Position of a mark's words, in heights of the sheet: clear of the lines."""
LOWEST = 1e-6
"""Ratios of gradients are drawn down to this."""
WIDE: dict[str, Any] = {"legend": LEGEND | {"x": -0.2}}
"""A legend that begins above the vertical axis' title: four in a row."""
TWO_ROWS: dict[str, Any] = {
    "legend": LEGEND | {"x": -0.2, "font": {"size": 11}, "entrywidthmode": "fraction", "entrywidth": 0.33},
    "margin": MARGIN | {"t": 50},
}
"""A legend of six, three in a row."""


class Look(NamedTuple):
    """Look of one contender."""

    name: str
    """Name in the legend."""
    place: int
    """Of its hue and its symbol."""
    dash: str = "solid"


Looks = Mapping[str, Look]
"""By the contenders' names."""


def losses(trained: Trained, looks: Looks, **more: Any) -> go.Figure:
    """Held-out loss over the steps, with the levels of a unigram and a bigram."""
    unigram, bigram = trained.levels
    ends = [curve.loss for curve in trained.curves.values()]
    lowest = min([bigram, *(float(np.nanmin(loss)) for loss in ends if np.isfinite(loss).any())])
    height = Axis("held-out loss (nats)", (lowest - 0.1, unigram + ABOVE))
    across = steps_axis(trained)
    traces = [mark(unigram, "unigram", across, height, WORDS), level(bigram, "bigram", across)]
    for name, curve in trained.curves.items():
        steps = np.append(curve.steps, curve.made)
        traces.append(over_steps(steps, curve.loss, name, looks[name], "%{y:.3g} nats a character"))
        if curve.retired and len(curve.steps):
            traces.append(_out(curve, looks[name], unigram + 0.8 * ABOVE))
    text = "; ".join(f"{name}: {_said(curve)}" for name, curve in trained.curves.items())
    words = f"Held-out loss at the end: {text}. A unigram has {unigram:.3g}, a bigram {bigram:.3g}."
    return picture(traces, across, height, words).update_layout(**more)


def course(trained: Trained, looks: Looks, values: Callable[[Curve], Array], title: str, says: str, *,
           log: bool = False, flat: tuple[float, str] | None = None, least: float = 1.0, **more: Any) -> go.Figure:
    """A number of each contender over the steps, `values(curve)` `[reading]`; `flat` is a mark and its name."""
    found = {name: values(curve) for name, curve in trained.curves.items()}
    if log:
        found = {name: np.maximum(part, LOWEST) for name, part in found.items()}
    marks = [] if flat is None else [np.array([flat[0]])]
    height, across = axis(title, [*found.values(), *marks], log=log, least=least), steps_axis(trained)
    traces = [] if flat is None else [mark(*flat, across, height, BELOW)]
    traces += [
        over_steps(trained.curves[name].steps, part, name, looks[name], says, log=log) for name, part in found.items()
    ]
    text = "; ".join(f"{name}: {_last(part):.3g}" for name, part in found.items())
    return picture(traces, across, height, f"{title}, at the end: {text}.").update_layout(**more)


def by_layer(trained: Trained, looks: Looks, values: Callable[[Curve], Array], title: str, says: str, *,
             first: int = 1, log: bool = True, flat: tuple[float, str] | None = None, **more: Any) -> go.Figure:
    """A number of each contender by layer, `values(curve)` `[layer]`; the first of them is layer `first`."""
    found = {name: values(trained.curves[name]) for name in looks}
    marks = [] if flat is None else [np.array([flat[0]])]
    height = axis(title, [*found.values(), *marks], log=log, least=1.0)
    layers = np.arange(first, first + max(len(part) for part in found.values()), dtype=float)
    across = axis("depth (layers)", [layers], air=0.04)
    traces = [] if flat is None else [mark(*flat, across, height, BELOW)]
    for name, part in found.items():
        look = looks[name]
        joined = {"color": HUES[look.place], "width": 1.5, "dash": look.dash}
        traces.append(dots(layers[: len(part)], part, look.name, look.place, f"layer %{{x}}<br>{says}", log=log,
                           mode="lines+markers", line=joined))
    text = "; ".join(f"{name}: {part[0]:.3g} to {part[-1]:.3g}" for name, part in found.items())
    words = f"{title}, from layer {first} to the last: {text}."
    return picture(traces, across, height, words).update_layout(**more)


def over_steps(steps: Array, values: Array, name: str, look: Look, says: str, *, log: bool = False) -> Trace:
    """One contender's readings, joined."""
    hue = HUES[look.place]
    joined = {"color": hue, "width": 2, "dash": look.dash}
    found = dots(steps, values, look.name, look.place, "", log=log, mode="lines+markers", line=joined)
    found["marker"] = found["marker"] | {"size": 4}
    return found | {"hovertemplate": f"<b>{name}</b><br>after step %{{x:.0f}}<br>{says}<extra></extra>"}


def steps_axis(trained: Trained) -> Axis:
    """Steps, from none to all."""
    return axis("step (steps made)", [np.array([0.0, max(curve.made for curve in trained.curves.values())])], air=0.03)


def _out(curve: Curve, look: Look, height: float) -> Trace:
    """Mark where a contender went out of the race."""
    return {
        "type": "scatter", "mode": "markers+text", "name": f"{look.name}, out", "showlegend": False,
        "x": [curve.made], "y": [height], "text": [f"out at step {curve.made}"], "textposition": "middle right",
        "textfont": {"size": 11}, "marker": {"symbol": "x", "size": 8, "color": HUES[look.place]},
        "hovertemplate": f"<b>{look.name}</b><br>{curve.retired}<extra></extra>",
    }


def _said(curve: Curve) -> str:
    return f"out at step {curve.made}, for {curve.retired}" if curve.retired else f"{curve.final:.3g}"


def _last(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else float("nan")
