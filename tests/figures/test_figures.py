"""The table of figures: who draws them all finds a title, a caption and a function in each row."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pytest
from handmade import measured, predicted

from explorer.figures import FIGURES
from explorer.profile import Profile


def test_the_rows_are_the_figures_of_the_page():
    assert list(FIGURES) == [
        "second_moment",
        "gradient_by_layer",
        "attention_entropy",
        "token_correlation",
        "gradient_by_matrix",
        "attention_pattern",
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_a_row_draws_its_figure_and_says_how_to_read_it(name):
    row = FIGURES[name]
    figure = row.draw([measured(), predicted()])
    assert isinstance(figure, go.Figure)
    assert row.title
    assert row.caption.endswith(".")
    assert len(row.caption) <= 80
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert axis.title.text.endswith(")"), "a unit in brackets"
    assert len(figure.layout.meta["description"]) > 10


@pytest.mark.parametrize("name", FIGURES)
def test_a_profile_without_the_statistic_draws_nothing(name):
    figure = FIGURES[name].draw([Profile("measured", {}, seeds=(0,))])
    assert all(trace.mode == "lines+text" for trace in figure.data)


def test_the_pattern_is_that_of_the_first_profile_that_kept_one():
    kept = measured(pattern=np.array([[1.0, 0.0], [0.5, 0.5]]), pattern_of=(2, 1))
    figure = FIGURES["attention_pattern"].draw([predicted(), kept])
    assert figure.layout.title.text == "layer 2, head 2"
