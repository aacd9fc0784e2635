"""The parametrization lab: the learning rate that transfers, the sweeps that show it, and unequal first steps."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import LEAST, axis, picture
from explorer.figures.palette import NEUTRAL
from explorer.figures.traces import Trace, described, dots, joined, level, line, ring
from explorer.labs.parametrization.experiment import STEP_WIDTHS, ParametrizationResult
from explorer.labs.parametrization.network import BASE, SCHEMES

WIDTH = "width m (units)"
BEYOND = 8.0
"""Losses above this multiple of the untrained network's are drawn at it: training has diverged."""


def best_rate(result: ParametrizationResult) -> go.Figure:
    """The best learning rate of each width over that of the narrowest; 1 is transfer."""
    widths = np.array(result.settings.widths, float)
    values = {name: result.best(name) / result.best(name)[0] for name in SCHEMES}
    height = axis(f"best η (× best at m = {BASE})", [*values.values(), [1.0]], log=True, least=LEAST, top=0.2)
    across = axis(WIDTH, [widths], log=True, least=0.3)
    traces = [level(1.0, "the same η", across, height)]
    traces += [
        dots(widths, row, SCHEMES[name].label, index, "at width %{x}<br>the best learning rate is %{y:.3g} ×",
             log=True, **joined(index)) for index, (name, row) in enumerate(values.items())
    ]
    said = described(f"Best learning rate by width, over that at {BASE}", traces)
    return _at_widths(picture(traces, across, height, said), result.settings.widths)


def sweeps(result: ParametrizationResult) -> go.Figure:
    """Loss after the steps against the learning rate, of the narrowest and the widest network; a ring on the best."""
    ceiling, widths = BEYOND * result.untrained, result.settings.widths
    losses = {name: np.minimum(result.finite(name), ceiling) for name in SCHEMES}
    height = axis("loss (target² units)", [[result.untrained], *losses.values()], log=True, least=LEAST)
    across = axis("learning rate η", list(result.rates.values()), log=True)
    traces = [level(result.untrained, "untrained", across, height)]
    best = {"color": "rgba(0, 0, 0, 0)", "symbol": "circle", "size": 15, "line": {"color": NEUTRAL, "width": 2}}
    for index, (name, row) in enumerate(SCHEMES.items()):
        rates, lowest = result.rates[name], losses[name].min(axis=1)
        for at, end, style in ((0, ", narrowest", joined(index, "dot", 1.5)), (-1, "", joined(index, "solid", 2))):
            words = f"m = {widths[at]}, η = %{{x:.3g}}<br>loss %{{y:.3g}}"
            traces.append(dots(rates, losses[name][at], row.label + end, index, words, log=True, showlegend=at == -1,
                               marker={"size": 5}, **style))
        traces.append(dots(result.best(name)[[0, -1]], lowest[[0, -1]], f"{row.label}, best", index,
                           "best: η = %{x:.3g}<br>loss %{y:.3g}", log=True, showlegend=False, marker=best))
    said = described(f"Loss by learning rate at widths {widths[0]} and {widths[-1]}", traces)
    return picture(traces, across, height, said)


def first_step(result: ParametrizationResult) -> go.Figure:
    """Relative change in the first step of the hidden matrix and of its output, against the width."""
    widths = np.array(STEP_WIDTHS, float)
    height = axis("change / size (ratio)", [part for step in result.step.values() for part in step], log=True,
                  least=LEAST)
    across = axis(WIDTH, [widths], log=True)
    traces: list[Trace] = []
    for index, (name, row) in enumerate(SCHEMES.items()):
        step, expected = result.step[name], result.expected_step(name)
        weights, output = (f"at width %{{x}}<br>{change} by %{{y:.3g}} of their size"
                           for change in ("the weights change", "its outputs change"))
        traces += [
            line(widths, expected.weights, row.label, index, weights, log=True),
            line(widths, expected.output, f"{row.label}, output", index, output, log=True, dash="dot"),
            dots(widths, step.weights, row.label, index, weights, log=True),
            dots(widths, step.output, f"{row.label}, output", index, output, log=True, showlegend=False,
                 marker=ring(9, index)),
        ]
    said = described("Relative change in the first step, by width", traces)
    return _at_widths(picture(traces, across, height, said), STEP_WIDTHS)


def _at_widths(figure: go.Figure, widths: tuple[int, ...]) -> go.Figure:
    """The widths themselves as ticks: powers of two between which there is nothing."""
    return figure.update_xaxes(tickvals=list(widths), ticktext=[str(width) for width in widths], minorloglabels=None)
