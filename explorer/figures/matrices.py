"""Gradient by matrix: which weights of which layer the first step will move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import MARGIN, depth_axis, depth_range, finite_parts, log_range, sheet, value_axis
from explorer.figures.palette import MATRIX_MARKS, Design, designs
from explorer.figures.series import Series, at_site, spread
from explorer.figures.traces import Trace, band, broken, dots, floor, line, reference, rows
from explorer.figures.words import describe, typeset
from explorer.profile import Profile

STATISTIC = "parameter_gradient"
WRITTEN = {matrix: typeset(matrix) for matrix in MATRIX_MARKS} | {"alpha": "α"}
SENTENCE = "In layer %{{x}} the gradient<br>of {} has norm %{{y:.3g}}"
LEGEND = {
    "showlegend": True,
    "legend": {"x": 1.0, "y": 1.0, "itemwidth": 30, "tracegroupgap": 0, "font": {"size": 12}},
    "margin": MARGIN | {"r": 78},
}


def gradient_by_matrix(profiles: Sequence[Profile], whose: Sequence[Design] = (), matrix: str = "") -> go.Figure:
    """Frobenius norm of the loss gradient by each weight matrix of each layer, on a log axis.

    One design: a symbol a matrix, in the design's hue, with a legend. Several: each in its own marks, of one `matrix`,
    or, where none is chosen, of a layer's whole gradient. The dotted level is the geometric mean: flat would lie on it.
    """
    whose = designs(profiles, whose)
    alone = len({design.index for design in whose}) < 2
    named = _matrices(profiles, whose) if alone else [("", row) for row in _one_each(profiles, whose, matrix)]
    series = [row for _, row in named]
    across, height = depth_range(series), log_range(series, *_level(series))
    traces = [reference(level, "flat", across, height, log=True) for level in _level(series)]
    subject = matrix or "all matrices together"
    traces += _by_matrix(named) if alone else rows(series, True, SENTENCE.format(WRITTEN.get(matrix, subject)))
    traces += floor(named, height) + broken(series, across, height, log=True)
    title = f"norm of ∂L/∂{'W' if alone else WRITTEN.get(matrix, 'layer')} (loss/weight)"
    said = f"Gradient norm of {'each matrix' if alone else subject}"
    layout = sheet(depth_axis(across), value_axis(title, height, log=True), describe(said, named))
    layout |= LEGEND if alone else {}
    return go.Figure({"data": traces, "layout": layout})


def _matrices(profiles: Sequence[Profile], whose: Sequence[Design]) -> list[tuple[str, Series]]:
    """Every matrix of every profile (one design's: measured and predicted)."""
    return [(matrix, row) for matrix in MATRIX_MARKS for row in at_site(profiles, STATISTIC, matrix, whose)]


def _one_each(profiles: Sequence[Profile], whose: Sequence[Design], matrix: str) -> list[Series]:
    """One matrix of every design that has it, or all of a layer together."""
    return at_site(profiles, STATISTIC, matrix, whose) if matrix else _totals(profiles, whose)


def _totals(profiles: Sequence[Profile], whose: Sequence[Design]) -> list[Series]:
    """The norm over all matrices of a layer together: √Σ‖∂L/∂W‖², one series a profile that has any."""
    totals = []
    for design, profile in zip(whose, profiles, strict=True):
        held = [matrix for matrix in MATRIX_MARKS if (STATISTIC, matrix) in profile.values]
        if held:
            whole = np.linalg.norm(np.stack([profile[STATISTIC, matrix] for matrix in held]), axis=0)
            totals.append(spread(design, profile, profile.depth(held[0]), whole))
    return totals


def _level(series: Sequence[Series]) -> list[float]:
    """The geometric mean of all that is drawn, as a list of one; empty when nothing is."""
    values = finite_parts(series, log=True)
    return [float(10.0 ** np.log10(values).mean())] if len(values) else []


def _by_matrix(named: Sequence[tuple[str, Series]]) -> list[Trace]:
    """Dots and lines of one design, each matrix with its symbol and dash and one entry of the legend."""
    traces = [trace for _, row in named for trace in band(row, log=True, opacity=0.1)]
    for matrix, row in named:
        sentence = SENTENCE.format(WRITTEN[matrix])
        mark, twin = MATRIX_MARKS[matrix], {"legendgroup": matrix, "name": WRITTEN[matrix]}
        if row.measured:
            traces.append(dots(row, True, sentence, symbol=mark.symbol, **twin))
        else:
            traces.append(line(row, True, sentence, dash=mark.dash, **twin, showlegend=False))
    return traces
