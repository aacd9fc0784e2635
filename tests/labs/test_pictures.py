"""Pictures of the first three labs: their numbers, axes, marks and words."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import pytest
from pictures import must_be_whole

from explorer.figures.words import typeset
from explorer.labs.activations import experiment as activations
from explorer.labs.activations import pictures as activations_figures
from explorer.labs.sampling import experiment as sampling
from explorer.labs.sampling import pictures as sampling_figures
from explorer.labs.second_moment import experiment as second_moment
from explorer.labs.second_moment import pictures as second_moment_figures

SAMPLING = sampling.run(sampling.Sampling(draws=10**5))
SECOND = second_moment.run(second_moment.SecondMoment(n=64, m=256, depth=3, draws=2))
ACTIVATIONS = activations.run(activations.Activations(depth=5, width=64, samples=4096))
EXPLODED = activations.run(activations.Activations(depth=100, width=16, gain=4.0, samples=1024))

DRAWN = [
    *((draw, SAMPLING) for draw in (
        sampling_figures.densities, sampling_figures.variances, sampling_figures.tails, sampling_figures.truncation)),
    *((draw, SECOND) for draw in (
        second_moment_figures.both_ways, second_moment_figures.input_mean, second_moment_figures.signal,
        second_moment_figures.gradient)),
    *((draw, result) for result in (ACTIVATIONS, EXPLODED) for draw in (
        activations_figures.shape, activations_figures.moments, activations_figures.signal,
        activations_figures.gradient, activations_figures.length_map, activations_figures.selu)),
]


def named(figure: go.Figure, name: str, mode: str = "markers") -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.name == name and trace.mode == mode]


def one(figure: go.Figure, name: str, mode: str = "markers") -> go.Scatter:
    (trace,) = named(figure, name, mode)
    return trace


@pytest.mark.parametrize(("draw", "result"), DRAWN, ids=lambda value: getattr(value, "__name__", ""))
def test_every_picture_has_titled_axes_words_and_data_that_travel(draw, result) -> None:  # type: ignore[no-untyped-def]
    figure = draw(result)
    must_be_whole(figure)
    assert "nan" not in figure.layout.meta["description"] or result is EXPLODED


def test_histograms_are_densities() -> None:
    figure = sampling_figures.densities(SAMPLING)
    for name in sampling.KINDS:
        bars = one(figure, name, "lines")
        assert np.sum(bars.y) * (bars.x[1] - bars.x[0]) == pytest.approx(1, abs=1e-4)
        assert bars.fill == "tozeroy"
    curve = one(figure, "uniform, predicted", "lines")
    assert max(curve.y) == pytest.approx(0.5 / math.sqrt(3))


def test_running_variances_carry_their_standard_errors() -> None:
    figure = sampling_figures.variances(SAMPLING)
    dots = one(figure, "normal")
    assert dots.y[-1] == pytest.approx(SAMPLING.variance[0])
    assert dots.error_y.array[-1] == pytest.approx(math.sqrt(2 / 1e5), rel=0.05)
    assert not named(figure, "truncated, predicted", "lines")
    cut = sampling_figures.variances(sampling.run(sampling.Sampling(draws=4096, corrected=False)))
    np.testing.assert_allclose(one(cut, "truncated, predicted", "lines").y, 0.7737413035)
    assert cut.layout.yaxis.range[0] < 0.7


def test_tails_are_shares_beyond_and_empty_ones_are_not_drawn() -> None:
    figure = sampling_figures.tails(SAMPLING)
    dots = one(figure, "normal")
    np.testing.assert_allclose(dots.x[:6], np.arange(6) / 5, atol=1e-6)
    assert dots.y[0] == 1
    assert dots.y[10] == pytest.approx(0.0455, rel=0.05)
    uniform = one(figure, "uniform")
    assert np.isnan(np.asarray(uniform.y)[np.asarray(uniform.x) > math.sqrt(3)]).all()
    assert figure.layout.yaxis.type == "log"


def test_the_cut_that_is_set_lies_on_gamma() -> None:
    figure = sampling_figures.truncation(SAMPLING)
    dot = one(figure, "this cut")
    assert dot.x[0] == pytest.approx(2)
    assert dot.y[0] == pytest.approx(0.7737, rel=0.02)
    trap = sampling_figures.truncation(sampling.run(sampling.Sampling(draws=2**14, bounds="absolute")))
    assert one(trap, "this cut").x[0] == pytest.approx(100)
    assert one(trap, "this cut").y[0] == pytest.approx(1, rel=0.05)
    far = sampling.run(sampling.Sampling(draws=2048, bounds="absolute", std=0.005, cut=6))
    assert one(sampling_figures.truncation(far), "this cut").x[0] == pytest.approx(10**2.7)  # at the axis' end


def test_every_rule_lies_on_the_line_and_none_at_the_goal() -> None:
    figure = second_moment_figures.both_ways(SECOND)
    for rule, (forward, backward) in zip(second_moment.RULES, [(1, 4), (0.25, 1), (0.4, 1.6)], strict=True):
        dot = one(figure, typeset(rule.name))
        assert dot.x[0] == pytest.approx(forward, rel=0.15)
        assert dot.y[0] == pytest.approx(backward, rel=0.15)
    line = one(figure, "any variance", "lines")
    np.testing.assert_allclose(np.divide(line.y, line.x), 4)
    assert figure.layout.xaxis.range[0] < 0 < figure.layout.xaxis.range[1]  # 1 is in sight on both axes
    assert figure.layout.yaxis.range[0] < 0 < figure.layout.yaxis.range[1]


def test_the_wrong_formula_is_drawn_beside_the_flat_dots() -> None:
    figure = second_moment_figures.input_mean(SECOND)
    wrong = one(figure, "if only Var x counted", "lines")
    assert max(wrong.y) == pytest.approx(1)
    assert wrong.y[0] == pytest.approx(1 / (1 + 4.4**2))
    for kind, name in enumerate(("input x", "input |x|")):
        np.testing.assert_allclose(one(figure, name).y, SECOND.sweep[kind].mean(axis=0), rtol=1e-6)


def test_stacks_show_dots_on_the_lines_of_the_factors() -> None:
    for draw, way in ((second_moment_figures.signal, 0), (second_moment_figures.gradient, 1)):
        figure = draw(SECOND)
        for rule in second_moment.RULES:
            expected = SECOND.expected(rule)[way]
            np.testing.assert_allclose(one(figure, f"{typeset(rule.name)}, predicted", "lines").y, expected, rtol=1e-6)
            assert len(one(figure, typeset(rule.name)).y) == 4


def test_the_version_that_is_applied_is_drawn() -> None:
    centered = activations.run(activations.Activations(
        activation="sigmoid", version="centered", depth=1, width=16, samples=1024))
    figure = activations_figures.shape(centered)
    value = one(figure, "φ", "lines")
    middle = np.asarray(value.x) == 0
    assert np.asarray(value.y)[middle] == pytest.approx(0, abs=1e-7)
    assert max(one(figure, "φ′", "lines").y) == pytest.approx(0.25 / math.sqrt(0.0433790359), rel=1e-6)


def test_quadrature_bars_carry_all_digits_and_samples_their_errors() -> None:
    figure = activations_figures.moments(ACTIVATIONS)
    bars, dots = named(figure, "E φ²")
    assert bars.y[activations.NAMES.index("gelu")] == pytest.approx(0.4252214826, abs=1e-10)
    assert bars.marker.symbol == "line-ew"
    np.testing.assert_allclose(dots.y, ACTIVATIONS.sampled[:, 1], rtol=1e-6)
    assert figure.layout.xaxis.ticktext[0] == "<b>relu</b>"


def test_mlp_dots_and_recursion_line() -> None:
    figure = activations_figures.signal(ACTIVATIONS)
    np.testing.assert_allclose(one(figure, "draw 2").y, ACTIVATIONS.signal[1], rtol=1e-6)
    np.testing.assert_allclose(one(figure, "recursion, predicted", "lines").y, 1)
    assert one(figure, "q*", "lines+text").y[0] == pytest.approx(1)


def test_what_is_not_finite_is_left_out_of_the_picture() -> None:
    dots = one(activations_figures.signal(EXPLODED), "draw 1")
    assert not np.isfinite(dots.y[-1])
    assert np.isfinite(dots.y[:50]).all()
    assert not named(activations_figures.length_map(EXPLODED), "q*")


def test_the_map_meets_the_diagonal_at_the_fixed_point() -> None:
    tanh = activations.run(activations.Activations(activation="tanh", gain=2.0, depth=8, width=64, samples=1024))
    figure = activations_figures.length_map(tanh)
    assert one(figure, "q*").x[0] == pytest.approx(tanh.fixed.q)
    pairs = one(figure, "MLP")
    np.testing.assert_allclose(pairs.y, np.concatenate(tanh.signal[:, 1:]), rtol=1e-6)


def test_selu_is_where_the_two_conditions_cross() -> None:
    figure = activations_figures.selu(ACTIVATIONS)
    solved, published = one(figure, "solved"), one(figure, "published")
    assert (solved.x[0], solved.y[0]) == (pytest.approx(1.6732632424, abs=1e-9), pytest.approx(1.0507009874, abs=1e-9))
    assert (published.x[0], published.y[0]) == pytest.approx((solved.x[0], solved.y[0]), rel=1e-6)
