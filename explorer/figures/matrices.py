"""Gradient by matrix: which weights of which layer the first step will move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from explorer.figures.axes import LEAST, MARGIN, TOP, axis, depth_axis, drawable, picture
from explorer.figures.gaps import broken, floor
from explorer.figures.palette import MATRIX_MARKS, Design, designs
from explorer.figures.plain import Picture, Plain
from explorer.figures.series import Series, band, by_depth, describe, measured, predicted, rows, spread
from explorer.figures.traces import Trace, level
from explorer.figures.words import typeset
from explorer.profile import VOCABULARY, Profile

STATISTIC = "parameter_gradient"
WRITTEN = {matrix: typeset(matrix) for matrix in MATRIX_MARKS} | {"alpha": "α", "mix": "mix"}
SENTENCE = "In layer %{{x}} the gradient<br>of {} has norm %{{y:.3g}}"
LEGEND: dict[str, Any] = {
    "showlegend": True,
    "legend": {"x": 1.0, "y": 1.0, "itemwidth": 30, "tracegroupgap": 0, "font": {"size": 12}},
    "margin": MARGIN | {"r": 78},
}


@Picture
def gradient_by_matrix(profiles: Sequence[Profile], whose: Sequence[Design] = (), matrix: str = "") -> Plain:
    """Frobenius norm of the loss gradient by each weight matrix of each layer, on a log axis.

    One design: marks and a hue a matrix, with a legend. Several: each in its own marks, of one `matrix`,
    or, where none is chosen, of a layer's whole gradient. The dotted level is the geometric mean: flat would lie on it.
    """
    whose = designs(profiles, whose)
    alone = len({design.index for design in whose}) < 2
    if alone:
        named = [(name, row) for name in MATRIX_MARKS for row in by_depth(profiles, STATISTIC, name, whose)]
    else:
        named = [("", row) for row in (by_depth(profiles, STATISTIC, matrix, whose) if matrix
                                       else _totals(profiles, whose))]
    series = [row for _, row in named]
    title = f"norm of ∂L/∂{'W' if alone else WRITTEN.get(matrix, 'layer')} (loss/weight)"
    across = depth_axis(*(row.depth for row in series))
    height = axis(title, [part for row in series for part in row.drawn_values], log=True, least=LEAST, top=TOP)
    traces = [level(value, "flat", across, height, "left") for value in _level(series)]
    subject = matrix or "all matrices together"
    traces += _by_matrix(named) if alone else rows(series, True, SENTENCE.format(WRITTEN.get(matrix, subject)))
    traces += floor(named, height) + broken(series, across, height)
    said = f"Gradient norm of {'each matrix' if alone else subject}"
    figure = picture.plain(traces, across, height, describe(said, named), legend=False)
    return _with_legend(figure) if alone else figure


@Picture
def weights_by_matrix(statistic: str, profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> Plain:
    """A statistic of the weights themselves, each matrix of each layer with its symbol, and the vocabulary's marks."""
    row, whose = VOCABULARY[statistic], designs(profiles, whose)
    named = [(name, line) for name in MATRIX_MARKS for line in by_depth(profiles, statistic, name, whose)]
    across = depth_axis(*(line.depth for _, line in named))
    held = [part for _, line in named for part in line.drawn_values]
    height = axis(f"{row.symbol} ({row.unit})", [list(row.marks), *held], log=row.log,
                  least=LEAST if row.log else 0.0, top=TOP)
    sentence = f"In layer %{{{{x}}}} the {row.label.lower()}<br>of {{}} is %{{{{y:.3g}}}}"
    traces = [level(value, words, across, height, "left") for value, words in row.marks.items()]
    traces += _by_matrix(named, row.log, sentence)
    traces += (floor(named, height) if row.log else []) + broken([line for _, line in named], across, height)
    return _with_legend(picture.plain(traces, across, height, describe(row.label, named), legend=False))


def _with_legend(figure: Plain) -> Plain:
    """The figure with the names of the matrices beside it."""
    return {**figure, "layout": figure["layout"] | LEGEND}


def _totals(profiles: Sequence[Profile], whose: Sequence[Design]) -> list[Series]:
    """The norm over all matrices of a layer together: √Σ‖∂L/∂W‖², one series a profile that has any."""
    totals = []
    for design, profile in zip(whose, profiles, strict=True):
        held = [matrix for matrix in MATRIX_MARKS if (STATISTIC, matrix) in profile.values]
        if held:
            whole = np.linalg.norm([profile[STATISTIC, matrix] for matrix in held], axis=0)
            totals.append(spread(VOCABULARY[STATISTIC], design, profile, profile.depth(held[0]), whole))
    return totals


def _level(series: Sequence[Series]) -> list[float]:
    """The geometric mean of all that is drawn, as a list of one; empty when nothing is."""
    values = np.concatenate([np.empty(0), *(part[drawable(part, True)] for row in series for part in row.drawn_values)])
    return [float(10.0 ** np.log10(values).mean())] if len(values) else []


def _by_matrix(named: Sequence[tuple[str, Series]], log: bool = True, words: str = SENTENCE) -> list[Trace]:
    """Dots and lines, each matrix with its symbol and dash and one entry of the legend; of one design, its hue."""
    if len({row.design.index for _, row in named}) < 2:
        named = [(name, replace(row, design=replace(row.design, index=MATRIX_MARKS[name].hue))) for name, row in named]
    traces = [trace for _, row in named for trace in band(row, log)]
    for matrix, row in named:
        mark, twin = MATRIX_MARKS[matrix], {"legendgroup": matrix, "name": WRITTEN[matrix]}
        sentence = words.format(WRITTEN[matrix])
        if row.measured:
            traces.append(measured(row, log, sentence, symbol=mark.symbol, **twin))
        else:
            traces.append(predicted(row, log, sentence, dash=mark.dash, **twin, showlegend=False))
    return traces
