"""Pictures of the labs on normalization, parametrization and attention scale: their numbers, axes, marks and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import must_be_whole, named

from explorer.labs.attention_scale import experiment as attention_scale
from explorer.labs.attention_scale import pictures as attention_figures
from explorer.labs.normalization import experiment as normalization
from explorer.labs.normalization import pictures as norm_figures
from explorer.labs.parametrization import experiment as parametrization
from explorer.labs.parametrization import pictures as training_figures
from explorer.labs.parametrization.network import BASE

NORMS = normalization.run(normalization.Normalization(batch_size=4, n_tokens=8, n_features=32))
LOST = normalization.run(normalization.Normalization(batch_size=1, n_tokens=1, scale=1e-4, zero_vector=True))
TRAINED = parametrization.run(parametrization.Parametrization(widest="64", steps=2, batch_size=16, learning_rate=0.02))
DIVERGED = parametrization.run(parametrization.Parametrization(widest="64", steps=30, batch_size=4, optimizer="sgd"))
ROWS = attention_scale.run(attention_scale.AttentionScale(d_head=16, n_keys=16, n_layers=3, draws=20_000))
NARROW = attention_scale.run(attention_scale.AttentionScale(d_head=2, n_keys=2, n_layers=1, draws=1000))

DRAWN = [
    *((draw, result) for result in (NORMS, LOST) for draw in (
        norm_figures.sharing, norm_figures.by_token, norm_figures.by_feature, norm_figures.offset,
        norm_figures.epsilon, norm_figures.cost)),
    *((draw, result) for result in (TRAINED, DIVERGED) for draw in (
        training_figures.functions, training_figures.first_weights, training_figures.first_output,
        training_figures.best_rate, training_figures.transferred, training_figures.sweep("standard"),
        training_figures.sweep("ntk"), training_figures.sweep("mup"))),
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


def test_who_is_averaged_together() -> None:
    """Of 48 entries a token norm shares 6, BatchNorm all 8 tokens of a feature, InstanceNorm the 4 of one sequence."""
    maps = norm_figures.sharing(NORMS).data
    assert [int((one.z > 0).sum()) for one in maps] == [6, 6, 8, 4]
    assert all((one.z == 2).sum() == 1 for one in maps)
    assert {one.z.shape for one in maps} == {(8, 6)}


def test_tokens_and_features_one_by_one() -> None:
    tokens, features = norm_figures.by_token(NORMS), norm_figures.by_feature(NORMS)
    np.testing.assert_allclose(named(tokens, "Layer").y, 1, atol=1e-3)
    np.testing.assert_allclose(named(features, "Batch").y, 1, atol=1e-3)
    assert len(named(tokens, "RMS").x) == 32
    assert np.all(np.diff(named(tokens, "input").y) >= 0)
    assert tokens.layout.yaxis.type == "log"


def test_the_dot_of_the_offset_lies_on_its_line() -> None:
    figure = norm_figures.offset(NORMS)
    line, dot = named(figure, "RMSNorm, predicted"), named(figure, "RMS")
    assert dot.x.tolist() == [3]
    assert dot.y[0] == pytest.approx(np.interp(3, line.x, line.y), abs=0.01)
    assert not np.any(named(figure, "LayerNorm, predicted").y)


def test_costs_are_bars_with_quartiles_over_x_plus_x() -> None:
    bars = named(norm_figures.cost(NORMS), "time")
    np.testing.assert_allclose(bars.y, [NORMS.cost[name][1] for name in NORMS.cost], rtol=1e-6)
    assert min(bars.error_y.array) >= 0
    assert norm_figures.cost(NORMS).layout.yaxis.range[0] == 0


def test_the_first_step_has_adams_formula_as_its_lines() -> None:
    figure = training_figures.first_weights(TRAINED)
    widths = named(figure, "NTK").x
    np.testing.assert_allclose(named(figure, "standard, predicted").y, 0.02 * np.sqrt(widths), rtol=1e-5)
    np.testing.assert_allclose(named(figure, "NTK, predicted").y, 0.02, rtol=1e-5)
    np.testing.assert_allclose(named(figure, "μP, predicted").y, 0.02 * BASE / np.sqrt(widths), rtol=1e-5)
    np.testing.assert_allclose(named(figure, "standard").y, TRAINED.step["standard"].weights, rtol=1e-6)


def test_a_sweep_has_a_curve_a_width_and_a_ring_on_each_best() -> None:
    figure = training_figures.sweep("mup")(TRAINED)
    assert [trace.name for trace in figure.data if trace.mode == "lines+markers"] == ["m = 32", "m = 64"]
    ring = named(figure, "best")
    np.testing.assert_allclose(ring.x, TRAINED.best("mup"))
    np.testing.assert_allclose(ring.y, TRAINED.losses["mup"].min(1), rtol=1e-6)


def test_what_diverged_is_drawn_at_the_ceiling() -> None:
    assert not np.isfinite(DIVERGED.losses["standard"]).all()
    top = max(np.max(trace.y) for trace in training_figures.sweep("standard")(DIVERGED).data)
    assert top == pytest.approx(training_figures.BEYOND * DIVERGED.untrained)
    assert 10 ** training_figures.sweep("standard")(DIVERGED).layout.yaxis.range[1] > top


def test_functions_lie_on_their_lines() -> None:
    figure = training_figures.functions(TRAINED)
    np.testing.assert_allclose(named(figure, "NTK").y, named(figure, "NTK").x, atol=1e-6)
    np.testing.assert_allclose(named(figure, "μP").y, named(figure, "NTK").x / math.sqrt(2), atol=1e-6)


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
