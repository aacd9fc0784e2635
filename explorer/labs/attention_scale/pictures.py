"""The attention scale lab: the logits' size, softmax's temperature and Jacobian, the cures, and the whole stack."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import Axis, axis, picture
from explorer.figures.traces import Trace, described, dots, joined, level, line, ring, upright
from explorer.labs.attention_scale.experiment import (
    CURES,
    DIMENSIONS,
    FINE,
    FINE_GROWTHS,
    GROWTHS,
    SIGMAS,
    AttentionScaleResult,
)
from explorer.labs.charts import designs, side_by_side

HUE = {"sqrt_d": 0, "t5": 1, "qk_norm": 2, "none": 4}
ACROSS = axis("σ of the logits", [SIGMAS], log=True, air=0.02)
SHARE = axis("H / ln n (ratio)", [[0.0, 1.0]], air=0.08, top=0.15)
LEAST = 1e-6
"""A median of ‖J‖² below this is drawn no more."""


def second_moment(result: AttentionScaleResult) -> go.Figure:
    """E(q·k)² against the head's width: a line of slope one."""
    d, here = np.array(DIMENSIONS, float), float(result.settings.d_head)
    height, across = axis("E(q·k)²", [result.moments, d], log=True), axis("head width d (coordinates)", [d], log=True)
    sentence = "d = %{x:.0f}<br>mean square %{y:.4g}"
    traces = [
        line(d, d, "= d", 0, sentence, log=True, showlegend=True),
        dots(d, result.moments, "drawn", 0, sentence, log=True),
        dots([here], [here * result.second_moment], "this head", 4, sentence, log=True),
    ]
    return picture(traces, across, height, described("Mean (q·k)² by the head's width", traces))


def entropy(result: AttentionScaleResult) -> go.Figure:
    """Entropy of a softmax row over ln n, against the logits' standard deviation."""
    expected, sentence = result.expected.entropy, "σ = %{x:.3g}<br>entropy is %{y:.3g} of uniform"
    traces = [
        level(1.0, "uniform", ACROSS, SHARE), level(0.0, "one-hot", ACROSS, SHARE, "left"),
        *_uprights(result, SHARE, 0.22),
        line(FINE, expected, "softmax", 0, sentence), dots(SIGMAS, result.sampled.entropy, "rows drawn", 0, sentence),
    ]
    return picture(traces, ACROSS, SHARE, described("Entropy over ln n by the logits' σ", traces), legend=False)


def _uprights(result: AttentionScaleResult, height: Axis, share: float, without: float = 0.5) -> list[Trace]:
    """Marks at the logits' spread with and without the division, and at the freezing threshold."""
    root = math.sqrt(result.settings.d_head)
    return [
        upright(1.0, "with √d", height, "left", 0.5), upright(root, "without", height, "right", without),
        upright(result.settings.freezing, "σ<sub>c</sub> =<br>√(2 ln n)", height, "left", share),
    ]


def jacobian(result: AttentionScaleResult) -> go.Figure:
    """‖J‖²_F of a row's softmax: its mean and its median against the logits' standard deviation."""
    sampled, expected = result.sampled, result.expected
    values = [sampled.jacobian, expected.jacobian, np.maximum(sampled.typical, LEAST)]
    height = axis("‖J‖² (1 / logit²)", values, log=True)
    sentence = "σ = %{{x:.3g}}<br>{} ‖J‖² is %{{y:.3g}}"
    traces = [
        *_uprights(result, height, 0.22, without=0.08),
        line(FINE, expected.jacobian, "mean", 0, sentence.format("mean"), log=True),
        dots(SIGMAS, sampled.jacobian, "mean", 0, sentence.format("mean"), log=True),
        dots(SIGMAS, sampled.typical, "median", 4, sentence.format("median"), log=True, **joined(4)),
    ]
    return picture(traces, ACROSS, height, described("Squared norm of the softmax Jacobian by the logits' σ", traces))


def growth(result: AttentionScaleResult) -> go.Figure:
    """Entropy when W_Q and W_K grow: the first two cures fall together, QK-norm holds."""
    across = axis("W_Q and W_K (× init)", [GROWTHS], log=True)
    sentence = "weights × %{x:.3g}<br>entropy is %{y:.3g} of uniform"
    traces = [level(1.0, "uniform", across, SHARE), level(0.0, "", across, SHARE)]
    for cure, row in CURES.items():
        t5 = cure == "t5"  # its rings stand around the dots that it equals
        traces += [line(FINE_GROWTHS, result.grown_expected[cure], row.label, HUE[cure], sentence,
                        dash="dash" if t5 else "solid"),
                   dots(GROWTHS, result.grown[cure], row.label, HUE[cure], sentence, marker=ring() if t5 else {})]
    return picture(traces, across, SHARE, described("Entropy over ln n as the weights grow", traces))


def gradient(result: AttentionScaleResult) -> go.Figure:
    """Squared gradient by the stream, relative to the output, of a stack with each cure."""
    names = {cure: row.label for cure, row in CURES.items()}
    return side_by_side("activation_gradient", result.stacks, designs(names, HUE))
