"""The lab on small branches: growth with depth in all three directions, one step, and products of random matrices."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.outlines import mark
from explorer.figures.palette import HUES
from explorer.figures.parts import Array, Axis, Trace, axis, dots, level, line, picture, upright
from explorer.figures.series import compact
from explorer.labs.why_residuals.experiment import EXPONENTS, STARTS, Rule, WhyResidualsResult
from explorer.theory.depth import aligned_growth, random_growth

HUE = {"none": 4, "root": 0, "inverse": 2, "own": 1}
DEPTH = "depth N (layers)"
STEEPEST = 2.0
"""A step's ratio is drawn up to this; larger ones are drawn on the edge."""
ASTRAY = 1e3
"""A change of the loss is drawn up to so many times the largest that is expected."""


def growths(result: WhyResidualsResult) -> go.Figure:
    """Signal forward, gradient backward and the gradient of all weights, of the chosen branches, against depth."""
    rule, depths = result.rule, _depths(result)
    parts = (
        ("signal", 0, result.forward, rule.growth),
        ("gradient", 1, result.backward, rule.growth),
        ("gradient of all weights", 2, result.sweeps[result.settings.chosen].gradient, rule.gradient),
    )
    lines = [np.array([expected(n) for n in _fine(result)]) for *_, expected in parts]
    height = axis("growth (ratio)", [*(values for _, _, values, _ in parts), *lines, [1.0]], log=True, least=1.0)
    across, sentence = _across(result), "N = %{x:.0f}<br>× %{y:.3g}"
    traces = [level(1.0, "", across)]
    for (name, index, values, _), expected in zip(parts, lines, strict=True):
        dash = "dash" if index == 1 else "solid"  # the backward line lies on the forward one
        traces += [line(np.array(_fine(result)), expected, name, index, sentence, log=True, dash=dash),
                   _seeds(depths, values, name, index, sentence)]
    text = ", ".join(f"{name} × {np.median(values[-1]):.3g}" for name, _, values, _ in parts)
    return picture(traces, across, height, f"In {result.settings.n_layers} layers with {rule.label}: {text}.")


def gradients(result: WhyResidualsResult) -> go.Figure:
    """Σ‖∂L/∂W‖² over that of one plain layer, against depth, with every residual."""
    lines = {key: np.array([rule.gradient(n) for n in _fine(result)]) for key, rule in _rules(result)}
    values = {key: sweep.gradient for key, sweep in result.sweeps.items()}
    height = axis("Σ‖∂L/∂W‖² / (2d) (ratio)", [*values.values(), *lines.values()], log=True, least=1.0)
    across, sentence = _across(result), "N = %{x:.0f}<br>%{y:.3g} × one plain layer's"
    traces = [mark(1.0, "one plain layer", across, height, share=-0.09)]
    for key, rule in _rules(result):
        traces += [line(np.array(_fine(result)), lines[key], rule.label, HUE[key], sentence, log=True),
                   _seeds(_depths(result), values[key], rule.label, HUE[key], sentence)]
    text = ", ".join(f"{rule.label} {np.median(values[key][-1]):.3g}" for key, rule in _rules(result))
    return picture(traces, across, height, f"Gradient² of all weights in {result.settings.n_layers} layers, over one "
                                           f"plain layer's: {text}.")


def step(result: WhyResidualsResult) -> go.Figure:
    """Fall of the loss in one step, against depth; lines are the first order with the expected gradient."""
    settings = result.settings
    scale = settings.learning_rate * 2 * settings.width
    lines = {key: scale * np.array([rule.gradient(n) for n in _fine(result)]) for key, rule in _rules(result)}
    values = {key: -sweep.change for key, sweep in result.sweeps.items()}
    for key, part in values.items():  # a step that leads far away says nothing; `rates` shows that it does
        values[key] = np.where(np.abs(part) < ASTRAY * max(lines[key]), part, np.nan)
    height = axis("loss before − after", [*values.values(), *lines.values()], log=True, least=1.0)
    across, sentence = _across(result), "N = %{x:.0f}<br>the loss falls by %{y:.3g}"
    traces: list[Trace] = []
    for key, rule in _rules(result):
        traces += [line(np.array(_fine(result)), lines[key], rule.label, HUE[key], sentence, log=True),
                   _seeds(_depths(result), values[key], rule.label, HUE[key], sentence)]
    text = ", ".join(f"{rule.label} {-np.median(result.sweeps[key].change[-1]):.3g}" for key, rule in _rules(result))
    return picture(traces, across, height, f"One step at η = {settings.learning_rate:g} in {settings.n_layers} layers "
                                           f"lowers the loss by: {text}.")


def rates(result: WhyResidualsResult) -> go.Figure:
    """The loss's change over its first order, against the learning rate, of the deepest stacks."""
    settings = result.settings
    eta = np.array(settings.rates)
    height = axis("ΔL / (−η‖∇L‖²) (ratio)", [[0.0, STEEPEST]], air=0.08)
    across = axis("learning rate η", [eta], log=True)
    traces = [
        mark(1.0, "first order holds", across, height),
        upright(settings.learning_rate, "η", height, "right", 0.06),
    ]
    for key, rule in _rules(result):
        ratio = np.clip(np.nan_to_num(np.median(result.ratio[key], axis=1), nan=STEEPEST), 0, STEEPEST)
        hue = HUES[HUE[key]]
        traces.append(dots(eta, ratio, rule.label, HUE[key], "η = %{x:.3g}<br>%{y:.3g} of the first order",
                           mode="lines+markers", line={"color": hue, "width": 1, "dash": "dot"}))
    at = settings.rates.index(settings.learning_rate)
    text = ", ".join(f"{rule.label} {np.median(result.ratio[key][at]):.3g}" for key, rule in _rules(result))
    return picture(traces, across, height, f"Change of the loss over its first order at η = {settings.learning_rate:g} "
                                           f"in {settings.n_layers} layers: {text}.")


def product(result: WhyResidualsResult) -> go.Figure:
    """∏(I + εW) of random matrices against (1+ε²)^N, and (1+ε)^N of aligned ones, by depth."""
    rule, fine, depths = result.rule, _fine(result), _depths(result)
    aligned = np.array([aligned_growth(rule.epsilon(n), n) for n in fine])
    random = np.array([random_growth(rule.epsilon(n), n) for n in fine])
    height = axis("growth (ratio)", [aligned, random, result.by_depth, [1.0]], log=True, least=1.0)
    across = _across(result)
    traces = [
        level(1.0, "", across),
        line(np.array(fine), aligned, "(1 + ε)<sup>N</sup>, aligned", 4, "N = %{x:.0f}<br>× %{y:.3g}", log=True,
             showlegend=True) | {"name": "(1 + ε)<sup>N</sup>, aligned"},
        line(np.array(fine), random, "(1 + ε²)<sup>N</sup>", 0, "N = %{x:.0f}<br>× %{y:.3g}", log=True, showlegend=True)
        | {"name": "(1 + ε²)<sup>N</sup>"},
        _means(depths, result.by_depth, "∏(I + εW), drawn", "N = %{x:.0f}<br>squared length × %{y:.3g}"),
    ]
    text = (f"{len(fine)} random layers multiply a squared length by {result.by_depth[-1].mean():.3g}, theory "
            f"{random[-1]:.3g}; aligned ones a length by {aligned[-1]:.3g}.")
    return picture(traces, across, height, text)


def small_enough(result: WhyResidualsResult) -> go.Figure:
    """Growth in N layers against the exponent a of ε = N^−a: random, aligned, and the gradient of all weights."""
    settings, n = result.settings, result.settings.n_layers
    fine = np.linspace(min(EXPONENTS[0], settings.exponent), EXPONENTS[-1], 61)
    epsilon = n**-fine
    aligned = np.array([aligned_growth(one, n) for one in epsilon])
    random = np.array([random_growth(one, n) for one in epsilon])
    gradient = np.array([Rule("", a).gradient(n) for a in fine])
    height = axis("growth (ratio)", [aligned, random, gradient, result.by_exponent], log=True)
    across = axis("exponent a of ε = N<sup>−a</sup>", [fine], air=0.02)
    sentence = "a = %{x:.3g}<br>× %{y:.3g}"
    named = (("(1 + ε)<sup>N</sup>", 4, aligned), ("(1 + ε²)<sup>N</sup>", 0, random), ("Σ‖∂L/∂W‖²", 2, gradient))
    here = np.array([settings.exponent])
    sweep = result.sweeps[settings.chosen].gradient[-1]
    traces = [
        level(1.0, "", across), upright(0.5, "1/√N", height, "right"), upright(1.0, "1/N", height, "right"),
        *(line(fine, values, name, index, sentence, log=True, showlegend=True) | {"name": name}
          for name, index, values in named),
        _means(EXPONENTS, result.by_exponent, "drawn", sentence),
        dots(here, np.array([np.median(sweep)]), "measured here", 2, sentence, log=True, showlegend=False),
    ]
    text = (f"In {n} layers with {result.rule.label} the signal's second moment grows by {result.rule.growth(n):.3g}, "
            f"the gradient² of all weights by {result.rule.gradient(n):.3g}.")
    return picture(traces, across, height, text)


def _rules(result: WhyResidualsResult) -> list[tuple[str, Rule]]:
    return list(result.settings.rules().items())


def _depths(result: WhyResidualsResult) -> Array:
    return np.array(result.settings.depths, float)


def _fine(result: WhyResidualsResult) -> list[int]:
    return list(range(1, result.settings.n_layers + 1))


def _across(result: WhyResidualsResult) -> Axis:
    return axis(DEPTH, [_depths(result)], log=True, air=0.04)


def _seeds(x: Array, values: Array, name: str, index: int, sentence: str) -> Trace:
    """Medians of `[x, seed]`, with the range of the seeds as bars."""
    middle = np.median(values, axis=1)
    return dots(x, middle, name, index, sentence, log=True, error_y=_bars(middle, values, index))


def _means(x: Array, values: Array, name: str, sentence: str) -> Trace:
    """Means of `[x, start]`, with two standard errors as bars."""
    mean, error = values.mean(1), 2 * values.std(1) / STARTS**0.5
    ends = np.stack([np.maximum(mean - error, values.min(1)), mean + error], axis=1)
    return dots(x, mean, name, 0, sentence, log=True, error_y=_bars(mean, ends, 0))


def _bars(middle: Array, values: Array, index: int) -> Trace:
    """From the least to the largest value that can be drawn on a logarithmic axis."""
    usable = np.where(np.isfinite(values) & (values > 0), values, middle[:, None])
    return {
        "type": "data", "symmetric": False, "color": HUES[index], "thickness": 1.2, "width": 3,
        "array": compact(usable.max(1) - middle), "arrayminus": compact(middle - usable.min(1)),
    }
