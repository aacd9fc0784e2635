"""Pictures of the sampling lab: densities, variance against draws, tails, and what a cut leaves of the variance."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.outlines import bars, mark, steps
from explorer.figures.palette import HUES
from explorer.figures.parts import Axis, dots, level, line, picture, upright
from explorer.labs.sampling.experiment import KINDS, REACH, SamplingResult, density, gamma, tail

HIGHEST = 2.4
"""Densities above this are cut off: a distribution cut very narrowly is a needle."""
CUT = Axis("cut (std of the normal that is cut)", (-1.0, 2.7), log=True)


def densities(result: SamplingResult) -> go.Figure:
    """Histograms (filled) and densities (lines) of the three distributions, in units of σ."""
    heights = result.counts / result.sizes[-1] / (result.edges[1] - result.edges[0])  # [kind, bin]
    x = np.linspace(-5, 5, 501)
    curves = density(result, x)
    top = min(max(float(curves.max()), float(heights.max())), HIGHEST)
    traces = [
        steps(result.edges, heights[i], kind, i, "density %{y:.3g} around %{x:.3g} σ") for i, kind in enumerate(KINDS)
    ]
    traces += [line(x, curves[i], kind, i, "density %{y:.3g} at %{x:.3g} σ") for i, kind in enumerate(KINDS)]
    said = f"Densities of {', '.join(KINDS)}. The normal is cut at ±{result.bound:.3g} σ. Highest density {top:.3g}."
    return picture(traces, Axis("weight (σ)", (-5, 5)), Axis("density (1/σ)", (0, 1.08 * top)), said)


def variances(result: SamplingResult) -> go.Figure:
    """Mean square of the draws so far with its standard error, against their number; the expected levels are marked."""
    last, low = len(result.sizes) - 1, float(result.expected.min())
    shown = np.unique(np.searchsorted(result.sizes, np.append(2.0 ** np.arange(7, 24), result.sizes[-1])).clip(0, last))
    across = Axis("draws n", (1.95, float(np.log10(result.sizes[-1])) + 0.15), log=True)
    height = Axis("variance (σ²)", (min(0.6, low - 0.1), 1.4))
    traces = [mark(1.0, "asked for", across, height)]
    if low < 0.98:
        ends = 10.0 ** np.array(across.extent)
        traces += [line(ends, np.array([low, low]), KINDS[2], 2, "variance %{y:.4g} σ²")]
    traces += [
        dots(result.sizes[shown] * 1.07 ** (i - 1), result.running[i, shown], kind, i,
             "variance %{y:.4g} σ² ± %{error_y.array:.2g}", error_y=bars(result.errors[i, shown], i))
        for i, kind in enumerate(KINDS)
    ]
    said = "Variance by number of draws. " + " ".join(
        f"{kind}: {result.variance[i]:.4g} ± {result.errors[i, -1]:.2g} after {result.sizes[-1]:.0f} draws, "
        f"expected {result.expected[i]:.4g}." for i, kind in enumerate(KINDS)
    )
    return picture(traces, across, height, said).update_xaxes(dtick=1)


def tails(result: SamplingResult) -> go.Figure:
    """Share of the draws farther from 0 than t, on a log axis: dots measured, lines expected."""
    middle, floor = len(result.edges) // 2, 0.5 / result.sizes[-1]
    folded = result.counts[:, middle:] + result.counts[:, middle - 1 :: -1]  # [kind, bin of |x|]
    within = np.concatenate([np.zeros((3, 1)), np.cumsum(folded, axis=1)], axis=1)
    share = 1 - within / result.sizes[-1]
    fine = np.linspace(0, REACH, 361)
    curves = tail(result, fine)
    said = "Share of draws beyond ±t. " + " ".join(
        f"{kind}: {share[i, 40]:.3g} beyond 2σ, {share[i, 60]:.3g} beyond 3σ." for i, kind in enumerate(KINDS)
    )
    words = "%{y:.3g} of the draws<br>lie beyond ±%{x:.3g} σ"
    traces = [line(fine, np.maximum(curves[i], 1e-12), kind, i, words, log=True) for i, kind in enumerate(KINDS)]
    traces += [
        dots(result.edges[middle::4], np.where(share[i, ::4] > floor, share[i, ::4], 0), kind, i, words, log=True)
        for i, kind in enumerate(KINDS)
    ]
    height = Axis("share beyond ±t", (float(np.log10(floor)) - 0.3, 0.3), log=True)
    return picture(traces, Axis("distance t from 0 (σ)", (0, REACH)), height, said)


def truncation(result: SamplingResult) -> go.Figure:
    """γ, the share of the variance that a cut leaves, against the cut; the cut that is set is a dot."""
    cut, height = 10.0 ** np.linspace(*CUT.extent, 400), Axis("γ (share of variance)", (-0.03, 1.25))
    measured, error = result.variance[2] / result.scale**2, result.errors[2, -1] / result.scale**2
    here = np.clip([result.relative_cut], *10.0 ** np.array(CUT.extent))
    traces = [
        level(1.0, "nothing cut", CUT, side="left"),
        upright(2.0, "±2σ", height),
        upright(100.0, "±2 at std 0.02", height, side="left"),
        line(cut, gamma(cut), "γ", 2, "a cut at ±%{x:.3g} standard deviations<br>leaves %{y:.4g} of the variance"),
        dots(here, np.array([measured]), "this cut", 2,
             "at ±%{x:.4g} standard deviations<br>%{y:.4g} of the variance is left",
             error_y=bars(np.array([error]), 2), marker={"color": HUES[2], "symbol": "diamond", "size": 10}),
    ]
    said = (f"Share of the variance that a cut leaves. Cut at {result.relative_cut:.4g} standard deviations: expected "
            f"{float(gamma(result.relative_cut)):.4g}, measured {measured:.4g}.")
    return picture(traces, CUT, height, said, legend=False)
