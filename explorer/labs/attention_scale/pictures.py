"""The attention scale lab: the logits' size, softmax's temperature, its Jacobian, the cures, and the whole stack."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from explorer.figures.palette import HUES
from explorer.figures.parts import Array, Axis, Trace, axis, dots, level, line, picture, upright
from explorer.labs.attention_scale.experiment import (
    BINS,
    CURES,
    DIMENSIONS,
    FINE,
    FINE_GROWTHS,
    GROWTHS,
    SIGMAS,
    AttentionScaleResult,
)
from explorer.labs.stack_pictures import depth_axis, measured, values
from explorer.labs.stacks import Line

HUE = {"sqrt_d": 0, "t5": 1, "qk_norm": 2, "none": 4}
RING = {"symbol": "circle-open", "size": 12, "line": {"width": 2}}
SIGMA = "σ of the logits"
LEAST = 1e-6
"""A median of ‖J‖² below this is drawn no more."""


def histogram(result: AttentionScaleResult) -> go.Figure:
    """q·k of unit-second-moment vectors, with N(0, d) and ±3√d."""
    d = result.settings.d_head
    root = math.sqrt(d)
    middle, step = (BINS[1:] + BINS[:-1]) / 2, BINS[1] - BINS[0]
    share = result.counts / (result.settings.draws * step * root)
    normal = np.exp(-(middle**2) / 2) / math.sqrt(2 * math.pi) / root
    height = axis("density (1 / unit of q·k)", [share, normal, [0.0]], air=0.04)
    height = height._replace(extent=(0.0, height.extent[1]))
    across = axis("q·k", [BINS * root], air=0.0)
    bars = {
        "type": "bar", "name": "drawn", "x": (middle * root).astype(np.float32), "y": share.astype(np.float32),
        "width": step * root, "marker": {"color": HUES[0], "opacity": 0.45}, "showlegend": True,
        "hovertemplate": "q·k near %{x:.3g}<br>density %{y:.3g}<extra></extra>",
    }
    traces = [
        bars,
        line(middle * root, normal, "", 0, "density %{y:.3g} at %{x:.3g}", showlegend=True) | {"name": "N(0, d)"},
        upright(-3 * root, "−3√d", height, "right"), upright(3 * root, "3√d", height, "left"),
    ]
    text = (f"{result.settings.draws} products q·k at d = {d}: mean square {result.second_moment * d:.4g}, "
            f"kurtosis {result.kurtosis:.3g}; a normal has 3, theory {3 * (1 + 2 / d):.3g}.")
    return picture(traces, across, height, text, bargap=0)


def second_moment(result: AttentionScaleResult) -> go.Figure:
    """E(q·k)² against the head's width: a line of slope one."""
    d = np.array(DIMENSIONS, float)
    height, across = axis("E(q·k)²", [result.moments, d], log=True), axis("head width d (coordinates)", [d], log=True)
    sentence = "d = %{x:.0f}<br>mean square %{y:.4g}"
    here = np.array([float(result.settings.d_head)])
    traces = [
        line(d, d, "E(q·k)² = d", 0, sentence, log=True) | {"name": "= d, predicted", "showlegend": True},
        dots(d, result.moments, "drawn", 0, sentence, log=True),
        dots(here, here * result.second_moment, "this head", 4, sentence, log=True),
    ]
    text = (f"Mean (q·k)² of a head of width {result.settings.d_head} is {float(here[0]) * result.second_moment:.4g}; "
            f"from {result.moments[0]:.3g} at d = 1 to {result.moments[-1]:.4g} at d = {DIMENSIONS[-1]}.")
    return picture(traces, across, height, text)


def entropy(result: AttentionScaleResult) -> go.Figure:
    """Entropy of a softmax row over ln n, against the logits' standard deviation."""
    return _temperature(result, "entropy", "H / ln n (ratio)", {1.0: ("uniform", "right"), 0.0: ("one-hot", "left")},
                        "entropy is %{y:.3g} of uniform")


def largest(result: AttentionScaleResult) -> go.Figure:
    """Mean largest weight of a row, against the logits' standard deviation."""
    n = result.settings.n_keys
    marks = {1.0: ("one-hot", "left"), 1 / n: ("1/n", "right")}
    return _temperature(result, "largest", "max p (ratio)", marks, "largest weight %{y:.3g}")


def _temperature(result: AttentionScaleResult, field: str, title: str, marks: dict[float, tuple[str, str]],
                 says: str) -> go.Figure:
    sampled, expected = getattr(result.sampled, field), getattr(result.expected, field)
    height = axis(title, [[0.0, 1.0]], air=0.08)
    across = axis(SIGMA, [SIGMAS], log=True, air=0.02)
    sentence = f"σ = %{{x:.3g}}<br>{says}"
    traces = [
        *(level(value, words, across, side) for value, (words, side) in marks.items()),
        *_uprights(result, height, 0.22 if field == "entropy" else 0.7),
        line(FINE, expected, "softmax", 0, sentence), dots(SIGMAS, sampled, "rows drawn", 0, sentence),
    ]
    at = float(np.interp(math.log(result.settings.d_head) / 2, np.log(FINE), expected))
    with_root = float(np.interp(0.0, np.log(FINE), expected))
    return picture(traces, across, height, f"{title} at σ = 1: {with_root:.3g}; without the division: {at:.3g}.",
                   legend=False)


def _uprights(result: AttentionScaleResult, height: Axis, share: float, without: float = 0.5) -> list[Trace]:
    """Marks at the logits' spread with and without the division, and at the freezing threshold."""
    root = math.sqrt(result.settings.d_head)
    return [
        upright(1.0, "with √d", height, "left", 0.5), upright(root, "without", height, "right", without),
        upright(result.settings.freezing, "σ<sub>c</sub> = √(2 ln n)", height, "left", share),
    ]


def jacobian(result: AttentionScaleResult) -> go.Figure:
    """‖J‖²_F of a row's softmax: its mean and its median against the logits' standard deviation."""
    sampled, expected = result.sampled, result.expected
    seen = [sampled.jacobian, expected.jacobian, np.maximum(sampled.typical, LEAST)]
    height = axis("‖J‖² (1 / logit²)", seen, log=True)
    across = axis(SIGMA, [SIGMAS], log=True, air=0.02)
    traces = [
        *_uprights(result, height, 0.22, without=0.08),
        line(FINE, expected.jacobian, "mean", 0, "σ = %{x:.3g}<br>mean ‖J‖² is %{y:.3g}", log=True),
        dots(SIGMAS, sampled.jacobian, "mean", 0, "σ = %{x:.3g}<br>mean ‖J‖² is %{y:.3g}", log=True),
        dots(SIGMAS, sampled.typical, "median", 4, "σ = %{x:.3g}<br>median ‖J‖² is %{y:.3g}", log=True,
             mode="lines+markers", line={"color": HUES[4], "width": 1, "dash": "dot"}),
    ]
    text = f"At σ = {SIGMAS[-1]:g} the mean is {sampled.jacobian[-1]:.2g} and the median {sampled.typical[-1]:.2g}."
    return picture(traces, across, height, f"Squared norm of the softmax Jacobian. {text}")


def growth(result: AttentionScaleResult) -> go.Figure:
    """Entropy when W_Q and W_K grow: the first two cures fall together, QK-norm holds."""
    height, across = axis("H / ln n (ratio)", [[0.0, 1.0]], air=0.08), axis("W_Q and W_K (× init)", [GROWTHS], log=True)
    sentence = "weights × %{x:.3g}<br>entropy is %{y:.3g} of uniform"
    traces = [level(1.0, "uniform", across), level(0.0, "", across)]
    for cure in CURES:
        traces += [_cure_line(FINE_GROWTHS, result.grown_expected[cure], cure, sentence),
                   _cure_dots(GROWTHS, result.grown[cure], cure, sentence)]
    ends = {row.label: (result.grown[cure][0], result.grown[cure][-1]) for cure, row in CURES.items()}
    text = ", ".join(f"{label} {first:.2f} to {last:.2f}" for label, (first, last) in ends.items())
    return picture(traces, across, height, f"Entropy over ln n as the weights grow to {GROWTHS[-1]:g} times: {text}.")


def _cure_dots(x: Array, y: Array, cure: str, sentence: str, log: bool = False) -> Trace:
    """T5's rings stand around the dots that it equals."""
    trace = dots(x, y, CURES[cure].label, HUE[cure], sentence, log=log)
    if cure == "t5":
        trace["marker"] = RING | {"color": HUES[HUE[cure]]}
    return trace


def _cure_line(x: Array, y: Array, cure: str, sentence: str, log: bool = False) -> Trace:
    return line(x, y, CURES[cure].label, HUE[cure], sentence, log=log, dash="dash" if cure == "t5" else "solid")


def depth_entropy(result: AttentionScaleResult) -> go.Figure:
    """Entropy by layer of a Pre-LN stack with each cure."""
    across = axis("layer", [result.entropy["none"].depth], least=1.0)
    height = axis("H / ln n (ratio)", [[0.0, 1.0]], air=0.08)
    sentence = "layer %{x:.0f}<br>entropy is %{y:.3g} of uniform"
    traces = [level(1.0, "uniform", across), level(0.0, "one-hot", across, "left")]
    for cure, found in result.entropy.items():
        traces += _stack(found, cure, sentence)
    lowest = {CURES[cure].label: found.measured.mean(0).min() for cure, found in result.entropy.items()}
    text = ", ".join(f"{label} {value:.2f}" for label, value in lowest.items())
    return picture(traces, across, height, f"Lowest entropy over ln n of any layer: {text}.")


def depth_gradient(result: AttentionScaleResult) -> go.Figure:
    """Squared gradient by the stream, relative to the output, of the same stacks."""
    height = axis("γ / γ<sub>N</sub> (ratio)", [*values(result.gradient), [1.0]], log=True, least=1.0)
    across = depth_axis(result.gradient)
    sentence = "after %{x:~g} layers<br>gradient² is %{y:.3g} × the output's"
    traces = [level(1.0, "flat", across, "left")]
    for cure, found in result.gradient.items():
        traces += _stack(found, cure, sentence, log=True)
    start = {CURES[cure].label: found.measured[:, 0].mean() for cure, found in result.gradient.items()}
    text = ", ".join(f"{label} {value:.3g}" for label, value in start.items())
    return picture(traces, across, height, f"Squared gradient at the input over the output's, mean of "
                                           f"{result.settings.n_seeds} draws: {text}. Undivided, theory is "
                                           f"{result.overshoot:.2g} times that.")


def _stack(found: Line, cure: str, sentence: str, log: bool = False) -> list[Trace]:
    """A cure's line, and the mean of its draws with their range."""
    seen = measured(found, CURES[cure].label, HUE[cure], sentence, log=log)
    ring = {"marker": RING | {"color": HUES[HUE[cure]]}} if cure == "t5" else {}
    return [_cure_line(found.depth, found.predicted, cure, sentence, log), seen | ring]
