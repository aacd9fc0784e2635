"""Pictures of the labs on norm placement and RealFormer: their numbers, axes, marks and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import must_be_whole, named

from explorer.figures.palette import HUES
from explorer.labs.norm_placement import experiment as norm_placement
from explorer.labs.norm_placement import pictures as placement_figures
from explorer.labs.norm_placement.experiment import DESIGNS, lemma
from explorer.labs.realformer import experiment as realformer
from explorer.labs.realformer import pictures as realformer_figures
from explorer.labs.realformer.experiment import FORMS, LENGTHS
from explorer.labs.stack_pictures import MOST_DOTS

PLACED = norm_placement.run(norm_placement.NormPlacement(n_layers=4, width=64, n_ctx=16, n_seeds=2))
PLACED_DEEP = norm_placement.run(norm_placement.NormPlacement(n_layers=48, width=32, n_ctx=8, n_seeds=1))
FORMED = realformer.run(realformer.RealFormer(n_layers=4, width=64, n_heads=2, n_ctx=16, n_seeds=2))
FORMED_DEEP = realformer.run(realformer.RealFormer(n_layers=48, width=32, n_heads=2, n_ctx=8, n_seeds=1))
SHALLOW = realformer.run(realformer.RealFormer(n_layers=2, width=32, n_heads=2, n_ctx=8, n_seeds=1, init_variance=8))

DRAWN = [
    *((getattr(placement_figures, name), result) for result in (PLACED, PLACED_DEEP) for name in (
        "theorem", "last", "stream", "bends", "gradients", "weights", "moments", "correlations")),
    *((getattr(realformer_figures, name), result) for result in (FORMED, FORMED_DEEP, SHALLOW) for name in (
        "independent", "spread", "entropy", "similarity", "gradients", "weights", "closer", "memory")),
]


@pytest.mark.parametrize(("draw", "result"), DRAWN, ids=lambda value: getattr(value, "__name__", ""))
def test_every_picture_has_titled_axes_words_and_data_that_travel(draw, result) -> None:  # type: ignore[no-untyped-def]
    figure = draw(result)
    must_be_whole(figure)
    assert any(np.isfinite(np.asarray(trace.y, float)).any() for trace in figure.data if "markers" in trace.mode)


def test_the_theorem_is_drawn_with_its_slope() -> None:
    figure = placement_figures.theorem(PLACED)
    root = named(figure, "1/√L")
    np.testing.assert_allclose(np.asarray(root.y) * np.sqrt(root.x), root.y[0], rtol=1e-6)
    assert root.y[-1] == pytest.approx(PLACED.theorem["pre"].predicted[-1])
    np.testing.assert_allclose(named(figure, "Pre-LN").y, PLACED.theorem["pre"].typical, rtol=1e-6)
    assert named(figure, "Post-LN").x.tolist() == [1, 2, 4]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_the_stream_stands_in_its_band_on_the_recursion() -> None:
    figure = placement_figures.stream(PLACED)
    edge = named(figure, "Lemma 2")
    assert edge.fill == "toself"
    assert np.asarray(edge.y).tolist() == [1, 1.5, 2, 2.5, 3, 7, 5.5, 4, 2.5, 1]
    np.testing.assert_allclose(named(figure, "recursion").y, lemma(4, 16), rtol=1e-6)
    np.testing.assert_allclose(named(figure, "Pre-LN").y, PLACED.stream.measured.mean(0)[::2], rtol=1e-6)


@pytest.mark.parametrize("name", ["gradients", "weights", "moments", "correlations"])
def test_a_design_keeps_its_hue_and_has_dots_and_a_line(name: str) -> None:
    figure, lines = getattr(placement_figures, name)(PLACED), getattr(PLACED, name)
    for index, (key, words) in enumerate(DESIGNS.items()):
        dots, line = named(figure, words), named(figure, f"{words}, predicted")
        assert (dots.marker.color, line.line.color) == (HUES[index], HUES[index])
        np.testing.assert_allclose(dots.y, lines[key].measured.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(line.y, lines[key].predicted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(dots.error_y.array) + dots.y, lines[key].measured.max(0), rtol=1e-5,
                                   atol=1e-6)


def test_what_bends_post_ln_is_told_apart() -> None:
    figure = placement_figures.bends(PLACED)
    np.testing.assert_allclose(named(figure, "softmax").y, named(placement_figures.gradients(PLACED), "Post-LN").y)
    assert named(figure, "softmax").marker.color == HUES[0]
    assert len({named(figure, words).marker.color for words in norm_placement.BENDS.values()}) == 3
    assert named(figure, "flat").y[0] == 1


def test_many_layers_have_fewer_dots_and_whole_lines() -> None:
    figure = placement_figures.gradients(PLACED_DEEP)
    assert len(named(figure, "Pre-LN").x) <= MOST_DOTS
    assert len(named(figure, "Pre-LN, predicted").x) == 97


def test_logits_stand_beside_what_they_would_be() -> None:
    figure = realformer_figures.independent(FORMED)
    np.testing.assert_allclose(named(figure, "RealFormer, predicted").y, np.sqrt(np.arange(1, 5)), rtol=1e-6)
    np.testing.assert_allclose(named(figure, "ΣQ·ΣK, predicted").y, np.arange(1, 5))
    figure = realformer_figures.spread(FORMED)
    ideal = named(figure, "RealFormer, layers independent, predicted")
    np.testing.assert_allclose(np.asarray(ideal.y) / ideal.y[0], np.sqrt(np.arange(1, 5)), rtol=1e-6)
    assert ideal.line.dash == "dot"
    assert ideal.y[-1] > named(figure, "RealFormer").y[-1]
    assert ideal.line.color == named(figure, "RealFormer").marker.color


def test_post_ln_s_vanishing_logits_do_not_take_the_axis() -> None:
    assert FORMED_DEEP.spread["none"].measured.min() < 1e-5
    low, high = realformer_figures.spread(FORMED_DEEP).layout.yaxis.range
    assert high - low < 5


def test_patterns_are_drawn_with_a_random_pair_s() -> None:
    figure = realformer_figures.similarity(FORMED)
    for form, words in FORMS.items():
        np.testing.assert_allclose(named(figure, words).y, FORMED.similarity[form].measured.mean(0), rtol=1e-6)
        hollow = named(figure, f"{words}, another head")
        np.testing.assert_allclose(hollow.y, FORMED.similarity[form].random.mean(0), rtol=1e-6)
        assert hollow.marker.symbol == "circle-open"
        assert hollow.x.tolist() == [2, 3, 4]


def test_a_seed_is_a_dot_beside_the_diagonal() -> None:
    figure = realformer_figures.closer(FORMED)
    stream, weights = named(figure, "stream, γ"), named(figure, "weights, ‖∂L/∂W‖²")
    np.testing.assert_allclose(stream.x, FORMED.gradients["none"].apart, rtol=1e-6)
    np.testing.assert_allclose(stream.y, FORMED.gradients["scores"].apart, rtol=1e-6)
    np.testing.assert_allclose(weights.y, FORMED.weights["scores"].apart ** 2, rtol=1e-6)
    equal = named(figure, "equal")
    assert equal.x == equal.y
    below = sum(y < x for x, y in zip(stream.x, stream.y, strict=True))
    assert f"closer in {below} of 2 seeds" in figure.layout.meta["description"]


def test_memory_is_counted_on_its_lines() -> None:
    figure = realformer_figures.memory(FORMED)
    n = np.array(LENGTHS)
    np.testing.assert_allclose(named(figure, "stream").y, 4 * 64 * n / 1024)
    np.testing.assert_allclose(named(figure, "score tensor").y, 4 * 2 * n**2 / 1024)
    np.testing.assert_array_equal(named(figure, "Post-LN").y, named(figure, "RealFormer").y)
    np.testing.assert_allclose(named(figure, "RealFormer").y, named(figure, "written out").y, rtol=0.01)
    assert named(figure, "n = d/H").x[0] == 32
    assert math.isclose(named(figure, "stream").y[1], named(figure, "score tensor").y[1])
    assert "n = d/H" in {trace.name for trace in realformer_figures.memory(SHALLOW).data}
