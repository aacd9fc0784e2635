"""Pictures of the warm-up lab: losses, gradients before training and after warm-up, token correlation."""

from __future__ import annotations

from collections.abc import Iterable

import plotly.graph_objects as go

from explorer.figures import gradient_by_matrix
from explorer.figures.palette import LegendEntry
from explorer.figures.race import held_out_loss, over_steps, series
from explorer.labs.charts import Variant, course, with_legend
from explorer.labs.trained import Trained, profile_at
from explorer.labs.warmup.experiment import ALL, DESIGNS, LENGTHS, Warmup, name_of


def variant(design: str, words: str, state: int) -> Variant:
    """A design in one of three states: the design gives the hue, the state dash and symbol."""
    return Variant(list(DESIGNS).index(design), None, f"{DESIGNS[design].removesuffix('-LN')}, {words}", state)


SIX = {name_of(design, length): variant(design, length, LENGTHS[::-1].index(length)) for design, length in ALL}


def losses(result: Trained[Warmup]) -> go.Figure:
    """Held-out loss over the steps."""
    return _legend(held_out_loss(course(result, SIX)))


def gradients(result: Trained[Warmup]) -> go.Figure:
    """Gradient of each layer's matrices before the first step, and when the long warm-up ends, with it and without."""
    end = result.settings.warmup
    moments = (("as drawn", "long", 0), ("with", "long", end), ("without", "none", end))
    drawn = {
        variant(design, words, state): profile_at(result.histories[name_of(design, length)], step)
        for design in DESIGNS for state, (words, length, step) in enumerate(moments)
    }
    figure = _legend(gradient_by_matrix(list(drawn.values()), list(drawn)), drawn)
    lines = {contender.heading: {"color": contender.hue, "width": 1.5, "dash": contender.dash} for contender in drawn}
    return figure.for_each_trace(lambda trace: trace.update(mode="lines+markers", line=lines[trace.name]),
                                 lambda trace: bool(trace.showlegend))


def correlation(result: Trained[Warmup]) -> go.Figure:
    """Token correlation after the last layer, over the steps."""
    curves = [series(history, "token_correlation", "resid_post") for history in result.histories.values()]
    last = [(steps, values[:, -1]) if len(steps) else (steps, values) for steps, values in curves]
    return _legend(over_steps(course(result, SIX), last, "ρ, last layer (ratio)", "tokens overlap by %{y:.3g}",
                              "Token correlation after the last layer", levels={1.0: "all tokens alike", 0.0: ""}))


def _legend(figure: go.Figure, entries: Iterable[LegendEntry] = SIX.values()) -> go.Figure:
    """With a legend of six entries: two rows, three on a narrow screen."""
    return with_legend(figure, entries, font={"size": 11}).update_layout(margin_t=56)
