"""Pictures of the labs on normalization, parametrization and attention scale: their numbers, axes, marks and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import must_be_whole, named

from explorer.labs.attention_scale import experiment as attention_scale
from explorer.labs.attention_scale import pictures as attention_figures

ROWS = attention_scale.run(attention_scale.AttentionScale(d_head=16, n_keys=16, n_layers=3, draws=20_000))
NARROW = attention_scale.run(attention_scale.AttentionScale(d_head=2, n_keys=2, n_layers=1, draws=1000))

DRAWN = [
    *((draw, result) for result in (ROWS, NARROW) for draw in (
        attention_figures.histogram, attention_figures.second_moment, attention_figures.entropy,
        attention_figures.largest, attention_figures.jacobian, attention_figures.growth,
        attention_figures.depth_entropy, attention_figures.depth_gradient)),
]


@pytest.mark.parametrize(("draw", "result"), DRAWN, ids=lambda value: getattr(value, "__name__", ""))
def test_every_picture_has_titled_axes_words_and_data_that_travel(draw, result) -> None:  # type: ignore[no-untyped-def]
    figure = draw(result)
    must_be_whole(figure)
    assert "nan" not in figure.layout.meta["description"]


def test_the_histogram_is_a_density_with_its_marks() -> None:
    figure = attention_figures.histogram(ROWS)
    bars = named(figure, "drawn")
    assert np.sum(bars.y) * bars.width == pytest.approx(1, abs=0.01)
    assert max(named(figure, "N(0, d)").y) == pytest.approx(1 / math.sqrt(2 * math.pi * 16), rel=0.01)
    assert named(figure, "3√d").x[0] == 12


def test_the_marks_of_the_temperature() -> None:
    figure = attention_figures.entropy(ROWS)
    assert named(figure, "with √d").x[0] == 1
    assert named(figure, "without").x[0] == 4
    assert named(figure, "σ<sub>c</sub> = √(2 ln n)").x[0] == pytest.approx(math.sqrt(2 * math.log(16)))
    assert np.all(np.diff(named(figure, "softmax, predicted").y) < 0)
    np.testing.assert_allclose(named(figure, "rows drawn").y, ROWS.sampled.entropy, rtol=1e-6)


def test_equal_cures_are_drawn_ring_around_dot() -> None:
    figure = attention_figures.growth(ROWS)
    np.testing.assert_allclose(named(figure, "T5 init").y, named(figure, "÷ √d").y, rtol=1e-6)
    assert named(figure, "T5 init").marker.symbol == "circle-open"
    assert np.ptp(named(figure, "QK-norm").y) < 1e-6


def test_the_stack_is_drawn_by_layer_and_by_site() -> None:
    assert named(attention_figures.depth_entropy(ROWS), "undivided").x.tolist() == [1, 2, 3]
    gradient = attention_figures.depth_gradient(ROWS)
    assert named(gradient, "undivided").x.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert named(gradient, "undivided, predicted").y[-1] == pytest.approx(1)
    assert gradient.layout.yaxis.type == "log"
