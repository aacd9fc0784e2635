"""Pictures of the lab on residual streams: correlation and gradient by layer, untrained and trained."""

from __future__ import annotations

import plotly.graph_objects as go

from explorer.figures.layers import by_layer
from explorer.figures.race import held_out_loss
from explorer.labs.charts import course, designs, side_by_side, with_legend
from explorer.labs.residual_streams.experiment import DESIGNS, StreamsResult

LOOKS = designs(DESIGNS)


def untrained_correlation(result: StreamsResult) -> go.Figure:
    """Token correlation by layer, untrained, with the theory's lines."""
    return _narrow(side_by_side("token_correlation", result.stacks, LOOKS))


def untrained_gradient(result: StreamsResult) -> go.Figure:
    """Squared gradient along the stream, untrained, with the theory's lines."""
    return _narrow(side_by_side("activation_gradient", result.stacks, LOOKS))


def trained_correlation(result: StreamsResult) -> go.Figure:
    """Token correlation by layer after the last reading."""
    return _trained(result, "token_correlation")


def trained_gradient(result: StreamsResult) -> go.Figure:
    """Squared gradient along the stream after the last reading."""
    return _trained(result, "activation_gradient")


def losses(result: StreamsResult) -> go.Figure:
    """Held-out loss over the steps."""
    whose = {DESIGNS[name]: look for name, look in LOOKS.items()}
    return _narrow(with_legend(held_out_loss(course(result.trained, whose)), LOOKS.values()))


def _trained(result: StreamsResult, statistic: str) -> go.Figure:
    profiles = [result.after(name) for name in DESIGNS]
    return _narrow(with_legend(by_layer(statistic, profiles, list(LOOKS.values())), LOOKS.values()))


def _narrow(figure: go.Figure) -> go.Figure:
    """Room for a legend of five entries: three rows on a narrow screen."""
    return figure.update_layout(legend_font_size=11, margin_t=56)
