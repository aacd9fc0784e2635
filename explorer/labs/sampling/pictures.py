"""Pictures of the sampling lab: densities, variance against draws, and the variance that a cut leaves."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import Axis, axis, picture
from explorer.figures.traces import described, dots, error_bars, histogram, level, line, upright
from explorer.labs.sampling.experiment import KINDS, SamplingResult, density, gamma

HIGHEST = 2.4
"""Densities above this are cut off: a distribution cut very narrowly is a needle."""
CUT = Axis("cut (std of the normal that is cut)", (-1.0, 2.7), log=True)


def densities(result: SamplingResult) -> go.Figure:
    """Histograms (filled) and densities (lines) of the three distributions, in units of σ."""
    x = np.linspace(-5, 5, 501)
    curves = density(result, x)
    top = min(max(float(curves.max()), float(result.heights.max())), HIGHEST)
    traces = [
        histogram(result.edges, result.heights[i], kind, i, "density %{y:.3g} around %{x:.3g} σ")
        for i, kind in enumerate(KINDS)
    ]
    traces += [line(x, curves[i], kind, i, "density %{y:.3g} at %{x:.3g} σ") for i, kind in enumerate(KINDS)]
    said = described(f"Densities, the normal cut at ±{result.bound:.3g} σ", traces)
    return picture(traces, Axis("weight (σ)", (-5, 5)), Axis("density (1/σ)", (0, 1.08 * top)), said)


def variances(result: SamplingResult) -> go.Figure:
    """Mean square of the draws so far with its standard error, against their number; the expected levels are marked."""
    doubled = (np.log2(result.sizes) % 1 == 0) & (result.sizes >= 128)
    shown = np.flatnonzero(doubled | (result.sizes == result.sizes[-1]))
    sizes, low = result.sizes[shown], float(result.expected.min())
    across = axis("draws n", [sizes, [100.0]], log=True, air=0.03)
    height = Axis("variance (σ²)", (min(0.6, low - 0.1), 1.4))
    traces = [level(1.0, "asked for", across, height, lift=0.05)]
    if low < 0.98:
        traces.append(line(across.ends, [low, low], KINDS[2], 2, "variance %{y:.4g} σ²"))
    traces += [
        dots(sizes * 1.07 ** (i - 1), result.running[i, shown], kind, i,  # side by side
             "variance %{y:.4g} σ² ± %{error_y.array:.2g}", error_y=error_bars(i, result.errors[i, shown]))
        for i, kind in enumerate(KINDS)
    ]
    return picture(traces, across, height, described("Variance by number of draws", traces)).update_xaxes(dtick=1)


def truncation(result: SamplingResult) -> go.Figure:
    """γ, the share of the variance that a cut leaves, against the cut; the cut that is set is a dot."""
    cut = np.geomspace(CUT.at(0), CUT.at(1), 400)
    height = Axis("γ (share of variance)", (-0.03, 1.25))
    here, (measured, error) = np.clip(result.relative_cut, CUT.at(0), CUT.at(1)), result.share
    traces = [
        level(1.0, "nothing cut", CUT, height, "left"),
        upright(2.0, "±2σ", height),
        upright(100.0, "±2 at std 0.02", height, side="left"),
        line(cut, gamma(cut), "γ", 2, "a cut at ±%{x:.3g} standard deviations<br>leaves %{y:.4g} of the variance"),
        dots([here], [measured], "this cut", 2,
             "at ±%{x:.4g} standard deviations<br>%{y:.4g} of the variance is left",
             error_y=error_bars(2, [error]), marker={"size": 10}),
    ]
    return picture(traces, CUT, height, described("Share of the variance that a cut leaves", traces), legend=False)
