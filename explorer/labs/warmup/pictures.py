"""Pictures of the warm-up lab: losses, gradients before training and after warm-up, token correlation."""

from __future__ import annotations

from collections.abc import Collection

import plotly.graph_objects as go

from explorer.figures import gradient_by_matrix
from explorer.figures.palette import Design
from explorer.figures.training.course import series
from explorer.figures.training.curves import held_out_loss, over_steps
from explorer.labs.charts import Variant, course, with_legend
from explorer.labs.trained import Trained, profile_at
from explorer.labs.warmup.experiment import ALL, DESIGNS, LENGTHS, Warmup, name_of

HUES = {design: index for index, design in enumerate(DESIGNS)}
SIX: dict[str, Design] = {
    name_of(design, length): Variant(
        HUES[design], None, f"{DESIGNS[design].removesuffix('-LN')}, {length}", LENGTHS[::-1].index(length))
    for design, length in ALL
}


def losses(result: Trained[Warmup]) -> go.Figure:
    """Held-out loss over the steps."""
    return _legend(held_out_loss(course(result, SIX)))


def gradients(result: Trained[Warmup]) -> go.Figure:
    """Gradient of each layer's matrices before the first step, and when the long warm-up ends, with it and without."""
    moments = (("as drawn", "long", 0), ("with", "long", result.settings.warmup),
               ("without", "none", result.settings.warmup))
    rows = [(design, *moment) for design in DESIGNS for moment in moments]
    profiles = [profile_at(result.histories[name_of(design, length)], step) for design, _, length, step in rows]
    marks = [Variant(HUES[design], None, f"{DESIGNS[design].removesuffix('-LN')}, {words}", index % len(moments))
             for index, (design, words, *_) in enumerate(rows)]
    figure = gradient_by_matrix(profiles, marks)
    for trace, mark in zip((trace for trace in figure.data if trace.mode == "markers"), marks, strict=False):
        trace.update(mode="lines+markers", line={"color": mark.hue, "width": 1.5, "dash": mark.dash})
    return _legend(figure, marks)


def correlation(result: Trained[Warmup]) -> go.Figure:
    """Token correlation after the last layer, over the steps."""
    found = [series(history, "token_correlation", "resid_post") for history in result.histories.values()]
    last = [(steps, values[:, -1]) if len(steps) else (steps, values) for steps, values in found]
    return _legend(over_steps(course(result, SIX), last, "ρ, last layer (ratio)", "tokens overlap by %{y:.3g}",
                                "Token correlation after the last layer", marks={1.0: "all tokens alike", 0.0: ""}))


def _legend(figure: go.Figure, marks: Collection[Design] = ()) -> go.Figure:
    """With a legend of six entries: two rows, three on a narrow screen."""
    return with_legend(figure, marks or SIX.values(), font={"size": 11}).update_layout(margin_t=56)
