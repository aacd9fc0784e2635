"""The lab on α in training: losses, and α over the steps and by layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from explorer.figures.race import held_out_loss, over_steps
from explorer.figures.race_maps import Grid, Map, layer_map
from explorer.labs.alpha_schedule.experiment import NAMES, AlphaSchedule
from explorer.labs.charts import course, designs, with_legend
from explorer.labs.trained import Trained, alphas
from explorer.training.history import History

FOUR = designs(dict(zip(NAMES.values(), ("learned", "own rate", "ramp", "α = 1"), strict=True)))


def losses(result: Trained[AlphaSchedule]) -> go.Figure:
    """Held-out loss over the steps."""
    return with_legend(held_out_loss(course(result, FOUR)), FOUR.values())


def means(result: Trained[AlphaSchedule]) -> go.Figure:
    """|α| over the steps, mean over layers."""
    series = [alphas(history) for history in result.histories.values()]
    series = [(steps, values.mean(1)) for steps, values in series]
    figure = over_steps(course(result, FOUR), series, "mean |α| (ratio)", "|α| = %{y:.3g}", "Mean |α| of the layers",
                        levels={0.0: "", 1.0: ""})
    return with_legend(figure, FOUR.values())


def by_layer(result: Trained[AlphaSchedule]) -> go.Figure:
    """|α| of the contender that learns it with the other weights: layer against step."""

    def grid(history: History) -> Grid:
        steps, values = alphas(history)
        return Grid(steps, np.arange(1.0, values.shape[1] + 1), values)

    every = course(result, FOUR)
    return layer_map(replace(every, tracks=every.tracks[:1]), 0, Map("alpha", "|α|", "|α| (ratio)", grid))
