"""The lab on small branches: growth with depth in all three directions, longer steps, and how small is small enough."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import axis, picture
from explorer.figures.traces import Trace, described, dots, error_bars, joined, level, line, upright
from explorer.labs.charts import seeds_range
from explorer.labs.why_residuals.experiment import EXPONENTS, STARTS, Rule, WhyResidualsResult
from explorer.profile import Array

HUE = {"none": 4, "root": 0, "inverse": 2, "own": 1}
SAYS = "N = %{x:.0f}<br>× %{y:.3g}"
STEEPEST = 2.0
"""A step's ratio is drawn up to this; larger ones are drawn on the edge."""

Row = tuple[str, int, Array, Callable[[int], float]]
"""A name, its hue, what was measured `[depth, seed]`, and what is expected at a depth."""


def growths(result: WhyResidualsResult) -> go.Figure:
    """Signal forward, gradient backward and the gradient of all weights, of the chosen branches, against depth."""
    rule = result.rule
    figure = _against_depth(result, "growth (ratio)", [
        ("signal", 0, result.forward, rule.growth),
        ("gradient", 1, result.backward, rule.growth),
        ("gradient of all weights", 2, result.weights(result.settings.chosen), rule.gradient),
    ], f"Growth by depth with {rule.label}")
    return figure.update_traces(line_dash="dash", selector={"name": "gradient, predicted"})  # it lies on the signal's


def gradients(result: WhyResidualsResult) -> go.Figure:
    """Σ‖∂L/∂W‖² over that of one plain layer, against depth, with every residual."""
    rows: list[Row] = [
        (rule.label, HUE[key], result.weights(key), rule.gradient) for key, rule in result.settings.rules().items()
    ]
    return _against_depth(result, "Σ‖∂L/∂W‖² / (2d) (ratio)", rows,
                          "Gradient² of all weights by depth, over one plain layer's", "one plain layer")


def _against_depth(result: WhyResidualsResult, title: str, rows: list[Row], subject: str, unit: str = "") -> go.Figure:
    """Medians of the seeds, with their range, on what is expected at every depth; 1 is marked."""
    depths, fine = np.array(result.settings.depths, float), np.arange(1, result.settings.n_layers + 1)
    lines = [np.array([expected(int(n)) for n in fine]) for *_, expected in rows]
    height = axis(title, [*(values for _, _, values, _ in rows), *lines, [1.0]], log=True, least=1.0)
    across = axis("depth N (layers)", [depths], log=True, air=0.04)
    traces: list[Trace] = [level(1.0, unit, across, height, lift=-0.09)]
    for (name, index, values, _), expected in zip(rows, lines, strict=True):
        middle = np.median(values, axis=1)
        traces += [line(fine, expected, name, index, SAYS, log=True),
                   dots(depths, middle, name, index, SAYS, log=True, error_y=seeds_range(index, middle, values))]
    return picture(traces, across, height, described(subject, traces))


def rates(result: WhyResidualsResult) -> go.Figure:
    """The loss's change over its first order, against the learning rate, of the deepest stacks."""
    settings, eta = result.settings, np.array(result.settings.rates)
    height = axis("ΔL / (−η‖∇L‖²) (ratio)", [[0.0, STEEPEST]], air=0.08)
    across = axis("learning rate η", [eta], log=True)
    traces = [
        level(1.0, "first order holds", across, height, "left", lift=0.04),
        upright(settings.learning_rate, "η", height, "right", 0.06),
    ]
    for key, rule in settings.rules().items():
        shown = np.clip(np.nan_to_num(result.ratios(key), nan=STEEPEST), 0, STEEPEST)
        traces.append(dots(eta, shown, rule.label, HUE[key], "η = %{x:.3g}<br>%{y:.3g} of the first order",
                           **joined(HUE[key])))
    return picture(traces, across, height, described("Change of the loss over its first order, by η", traces))


def small_enough(result: WhyResidualsResult) -> go.Figure:
    """Growth in N layers against the exponent a of ε = N^−a: random, aligned, and the gradient of all weights."""
    settings, n = result.settings, result.settings.n_layers
    fine = np.linspace(min(EXPONENTS[0], settings.exponent), EXPONENTS[-1], 61)
    rules = [Rule("", float(a)) for a in fine]
    lines = (
        ("(1 + ε)<sup>N</sup>, aligned", 4, np.array([rule.aligned(n) for rule in rules])),
        ("(1 + ε²)<sup>N</sup>", 0, np.array([rule.growth(n) for rule in rules])),
        ("Σ‖∂L/∂W‖²", 2, np.array([rule.gradient(n) for rule in rules])),
    )
    height = axis("growth (ratio)", [*(values for *_, values in lines), result.products], log=True)
    across = axis("exponent a of ε = N<sup>−a</sup>", [fine], air=0.02)
    sentence = "a = %{x:.3g}<br>× %{y:.3g}"
    here, measured = np.array([settings.exponent]), np.median(result.weights(settings.chosen)[-1:], axis=1)
    traces = [
        level(1.0, "", across, height), upright(0.5, "1/√N", height, "right"), upright(1.0, "1/N", height, "right"),
        *(line(fine, values, name, index, sentence, log=True, showlegend=True) for name, index, values in lines),
        dots(EXPONENTS, result.products.mean(1), "∏(I + εW), drawn", 0, sentence, log=True,
             error_y=error_bars(0, 2 * result.products.std(1) / STARTS**0.5)),  # two standard errors
        dots(here, measured, "measured here", 2, sentence, log=True, showlegend=False),
    ]
    return picture(traces, across, height, described(f"Growth in {n} layers by the exponent", traces))
