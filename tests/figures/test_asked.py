"""Charts of a question: axes without a design, and afterwards the guess beside what was
measured."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.layers import WITHHELD, asked, with_guess, withheld
from explorer.vocabulary import STATISTICS


def test_axes_hold_the_extent_the_layers_and_the_marks_alone() -> None:
    row = STATISTICS["activation_gradient"]
    fig = asked(row, 24, (-3.0, 3.0))
    low, high = fig.layout.yaxis.range
    assert fig.layout.yaxis.type == "log"
    assert low < -3.0 < 3.0 < high
    assert fig.layout.xaxis.range[1] > 24
    assert [trace.name for trace in fig.data] == list(row.marks.values())
    assert WITHHELD in fig.layout.meta["description"]


def test_a_chart_that_would_give_it_away_is_a_sentence() -> None:
    fig = withheld()
    assert not fig.data
    assert fig.layout.annotations[0].text == WITHHELD


def test_a_guess_lies_on_the_figure_whose_axis_holds_it() -> None:
    fig = go.Figure(
        layout={
            "yaxis": {"type": "log", "range": (0.0, 1.0)},
            "meta": {"description": "A picture."},
        }
    )
    fig = with_guess(fig, [1, 6, 12], [1e-3, 1.0, 5.0])
    (trace,) = fig.data
    np.testing.assert_allclose(trace.y, [1e-3, 1.0, 5.0], rtol=1e-6)
    assert fig.layout.yaxis.range[0] < -3.0
    assert fig.layout.yaxis.range[1] == 1.0
    assert fig.layout.meta["description"].startswith(
        "A picture. your guess: 0.001 at depth 1, 5 at depth 12"
    )
