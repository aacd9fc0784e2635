"""The parametrization lab: one function at first, unequal first steps, and the learning rate that transfers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from explorer.figures.palette import HUES, NEUTRAL, SYMBOLS
from explorer.figures.parts import Array, Axis, Trace, axis, dots, level, line, picture
from explorer.labs.parametrization.experiment import STEP_WIDTHS, ParametrizationResult
from explorer.labs.parametrization.network import BASE, SCHEMES

INDEX = {name: index for index, name in enumerate(SCHEMES)}
WIDTH = "width m (units)"
BEYOND = 8.0
"""Losses above this multiple of the untrained network's are drawn at it: training has diverged."""


def functions(result: ParametrizationResult) -> go.Figure:
    """Outputs of the widest network at initialization against those of the standard one, on the same inputs."""
    standard = result.outputs["standard"]
    width = result.settings.widths[-1]
    across = axis("output, standard (target units)", [standard])
    height = axis("output (target units)", [standard])
    ends = np.array(across.extent)
    sentence = "standard %{x:.3g}<br>here %{y:.3g}"
    slopes = {"ntk": 1.0, "mup": math.sqrt(BASE / width)}
    traces: list[Trace] = []
    for name, slope in slopes.items():
        label = SCHEMES[name].label
        traces.append(line(ends, slope * ends, label, INDEX[name], sentence))
        traces.append(dots(standard, result.outputs[name], label, INDEX[name], sentence))
    apart = float(np.abs(result.outputs["ntk"] - standard).max())
    text = (f"Outputs of networks of width {width} before training. NTK's differ from standard's by at most "
            f"{apart:.2g}; μP's are {slopes['mup']:.3g} times standard's.")
    return picture(traces, across, height, text)


def first_weights(result: ParametrizationResult) -> go.Figure:
    """RMS change of the hidden matrix's entries in the first step, relative to their RMS, against the width."""
    exact = result.settings.optimizer == "adam"
    return _first(result, "weights", "RMS ΔW / RMS W (ratio)", exact, "the weights change by %{y:.3g} of their size")


def first_output(result: ParametrizationResult) -> go.Figure:
    """Change of the hidden matrix's output in the first step, relative to the output, against the width."""
    return _first(result, "output", "‖ΔW h‖ / ‖W h‖ (ratio)", False, "its output changes by %{y:.3g} of its size")


def _first(result: ParametrizationResult, field: str, title: str, exact: bool, words: str) -> go.Figure:
    """Dots by width, and lines of the expected power: through their middle, or by Adam's own formula where exact."""
    widths, settings = np.array(STEP_WIDTHS, float), result.settings
    found = {name: np.asarray(getattr(step, field)) for name, step in result.step.items()}
    height = axis(title, list(found.values()), log=True, least=1.0)
    across = axis(WIDTH, [widths], log=True)
    sentence = f"at width %{{x}}<br>{words}"
    traces: list[Trace] = []
    for name, values in found.items():
        label, power = SCHEMES[name].label, getattr(SCHEMES[name].growth[settings.optimizer], field)
        start = math.sqrt(BASE) * settings.learning_rate if name != "ntk" else settings.learning_rate
        middle = np.exp(np.mean(np.log(values) - power * np.log(widths / BASE)))
        expected = (start if exact else middle) * (widths / BASE) ** power
        traces += [line(widths, expected, label, INDEX[name], sentence, log=True),
                   dots(widths, values, label, INDEX[name], sentence, log=True)]
    ends = "; ".join(f"{SCHEMES[name].label} {values[0]:.3g} at width {STEP_WIDTHS[0]}, {values[-1]:.3g} at "
                     f"{STEP_WIDTHS[-1]}" for name, values in found.items())
    return _with_widths(picture(traces, across, height, f"First step: {ends}."), STEP_WIDTHS)


def sweep(scheme: str) -> Callable[[ParametrizationResult], go.Figure]:
    """Loss after the steps against the learning rate, one curve a width, for one parametrization."""
    return lambda result: _sweep(result, scheme)


def _sweep(result: ParametrizationResult, scheme: str) -> go.Figure:
    ceiling = BEYOND * result.untrained
    rates, widths = result.rates[scheme], result.settings.widths
    height = _loss_axis(result)
    across = axis("learning rate η", [rates], log=True)
    traces = [level(result.untrained, "untrained", across)]
    for index, width in enumerate(widths):
        values = np.where(np.isfinite(result.losses[scheme][index]), result.losses[scheme][index], np.inf)
        share = 0.35 + 0.65 * (index + 1) / len(widths)
        color = _faint(HUES[INDEX[scheme]], share)
        traces.append(dots(
            rates, np.minimum(values, ceiling), f"m = {width}", index,
            f"m = {width}, η = %{{x:.3g}}<br>loss %{{y:.3g}}", log=True, mode="lines+markers",
            line={"color": color, "width": 1 + 1.5 * (index + 1) / len(widths)},
            marker={"color": color, "symbol": SYMBOLS[index], "size": 6},
        ))
    best = result.best(scheme)
    lowest = np.array([result.losses[scheme][i, rates == rate][0] for i, rate in enumerate(best)])
    ring = {"color": "rgba(0, 0, 0, 0)", "symbol": "circle", "size": 15, "line": {"color": NEUTRAL, "width": 2}}
    sentence = "best: η = %{x:.3g}<br>loss %{y:.3g}"
    traces.append(dots(best, lowest, "best", INDEX[scheme], sentence, log=True, showlegend=False, marker=ring))
    text = ", ".join(f"{rate:.3g} at width {width}" for rate, width in zip(best, widths, strict=True))
    return picture(traces, across, height, f"{SCHEMES[scheme].label}: the best learning rate is {text}.")


def _loss_axis(result: ParametrizationResult) -> Axis:
    """The same for every parametrization, up to where training has left."""
    ceiling = BEYOND * result.untrained
    return axis("loss (target² units)", [np.minimum(np.nan_to_num(losses, nan=np.inf, posinf=ceiling), ceiling)
                                         for losses in result.losses.values()], log=True, least=1.0)


def _faint(hue: str, share: float) -> str:
    red, green, blue = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {share:g})"


def best_rate(result: ParametrizationResult) -> go.Figure:
    """The best learning rate of each width over that of the narrowest; 1 is transfer."""
    return _by_width(result, {name: result.best(name) / result.best(name)[0] for name in SCHEMES},
                     "best η (× best at m = 32)", 1.0, "the same η", "the best learning rate is %{y:.3g} ×")


def transferred(result: ParametrizationResult) -> go.Figure:
    """Loss at each width when the learning rate was tuned on the narrowest network."""
    ceiling = BEYOND * result.untrained
    values = {
        name: np.minimum(np.nan_to_num(result.transferred(name), nan=np.inf, posinf=ceiling), ceiling)
        for name in SCHEMES
    }
    return _by_width(result, values, "loss (target² units)", result.untrained, "untrained", "the loss is %{y:.3g}")


def _by_width(result: ParametrizationResult, values: dict[str, Array], title: str, mark: float, words: str,
              says: str) -> go.Figure:
    widths = np.array(result.settings.widths, float)
    height = axis(title, [*values.values(), [mark]], log=True, least=1.0, air=0.1)
    across = axis(WIDTH, [widths], log=True, least=0.3)
    traces = [level(mark, words, across)]
    for name, row in values.items():
        traces.append(dots(widths, row, SCHEMES[name].label, INDEX[name], f"at width %{{x}}<br>{says}", log=True,
                           mode="lines+markers", line={"color": HUES[INDEX[name]], "width": 1, "dash": "dot"}))
    text = "; ".join(f"{SCHEMES[name].label} {row[-1]:.3g}" for name, row in values.items())
    figure = picture(traces, across, height, f"{title} at width {int(widths[-1])}: {text}.")
    return _with_widths(figure, result.settings.widths)


def _with_widths(figure: go.Figure, widths: Sequence[int]) -> go.Figure:
    """The widths themselves as ticks: powers of two between which there is nothing."""
    figure.layout.xaxis.update(tickvals=list(widths), ticktext=[str(width) for width in widths], minorloglabels=None)
    return figure
