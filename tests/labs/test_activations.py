"""Activations: moments by quadrature and sampling, matching variances, versions, the recursion, SELU solved."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from pictures import every, named

from explorer.choices import ConfigError
from explorer.labs.activations import pictures
from explorer.labs.activations.experiment import (
    NAMES,
    Activations,
    ActivationsResult,
    gain,
    moments_at,
    recursion,
    run,
    solve_selu,
    verdict,
)
from explorer.labs.activations.row import ROW
from explorer.measuring import Stopped
from explorer.schemes.activation import ACTIVATIONS
from explorer.theory.gaussian import moments

TABLE = {  # E f, E f², Var f, E f′² under N(0, 1)
    "relu": (0.3989422804, 0.5, 0.3408450569, 0.5),
    "gelu": (0.2820947918, 0.4252214826, 0.3456440110, 0.4558508656),
    "silu": (0.2066209641, 0.3557755198, 0.3130832970, 0.3794823516),
    "elu": (0.1605205723, 0.6449454175, 0.6191785634, 0.6681020012),
    "tanh": (0.0, 0.3942944904, 0.3942944904, 0.4644029024),
    "sigmoid": (0.5, 0.2933790359, 0.0433790359, 0.0448362414),
    "selu": (0.0, 1.0, 1.0, 1.0715749925),
}


@pytest.fixture(scope="module")
def million() -> ActivationsResult:
    return run(Activations(samples=10**6, depth=1, width=16))


@pytest.fixture(scope="module")
def drawn() -> ActivationsResult:
    return run(Activations(depth=5, width=64, samples=4096))


@pytest.mark.parametrize("name", TABLE)
def test_moments_by_quadrature(million: ActivationsResult, name: str) -> None:
    mean, square, variance, slope = TABLE[name]
    found = million.quadrature[NAMES.index(name)]
    np.testing.assert_allclose(found, (mean, square, slope), atol=1e-8)
    assert found[1] - found[0] ** 2 == pytest.approx(variance, abs=1e-8)


def test_gelu_in_closed_form(million: ActivationsResult) -> None:
    expected = 1 / 3 + 1 / (2 * math.pi * math.sqrt(3))
    assert million.quadrature[NAMES.index("gelu"), 1] == pytest.approx(expected, abs=1e-12)


def test_sampling_agrees_with_quadrature(million: ActivationsResult) -> None:
    gap = np.abs(million.sampled - million.quadrature)
    assert (gap <= 4.5 * million.errors + 1e-6).all()
    linear = [ACTIVATIONS[name].degree == 1 for name in NAMES]
    assert million.errors[linear].max() < 2e-3
    # a sample of relu⁴ has the variance ½ E z⁸ − (3/2)²
    assert million.errors[NAMES.index("relu2"), 1] == pytest.approx(math.sqrt((105 / 2 - 9 / 4) / 1e6), rel=0.05)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", ["unit", "centered"])
def test_rescaled_versions_keep_a_unit_second_moment(name: str, version: str) -> None:
    settings = Activations(activation=name, version=version)
    there = moments_at(settings, 1.0)
    assert there.square == pytest.approx(1, abs=1e-9)
    if version == "centered":
        assert there.mean == pytest.approx(0, abs=1e-9)
    assert gain(settings) == pytest.approx(1, abs=1e-9)


def test_sigmoid_is_divided_by_the_root_of_its_second_moment() -> None:
    z = np.random.default_rng(0).standard_normal(10**6)
    assert np.mean((ACTIVATIONS["sigmoid"].value(z) / math.sqrt(0.2933790359)) ** 2) == pytest.approx(1, rel=0.01)


def test_matching_variance_of_relu_is_hes() -> None:
    assert gain(Activations(activation="relu")) == pytest.approx(2)
    assert gain(Activations(activation="relu", rule="he")) == 2
    assert gain(Activations(activation="tanh", rule="lecun", gain=1.5)) == 1.5


@pytest.mark.parametrize("name", NAMES)
def test_the_matched_recursion_stays_at_one(name: str) -> None:
    signal, gradient = recursion(Activations(activation=name, depth=10))
    np.testing.assert_allclose(signal, 1, rtol=1e-6)
    chi = moments(name).slope_square / moments(name).square
    np.testing.assert_allclose(gradient, chi ** np.arange(10, -1, -1), rtol=1e-5)


@pytest.mark.parametrize("settings", [
    Activations(activation="tanh", gain=2.0), Activations(activation="sigmoid", version="centered"),
    Activations(activation="selu"), Activations(activation="elu", version="unit", gain=0.5),
], ids=lambda settings: f"{settings.activation} {settings.version}")
def test_a_wide_mlp_follows_the_recursion(settings: Activations) -> None:
    result = run(settings.replace(width=1024, depth=8))
    np.testing.assert_allclose(result.signal.mean(axis=0), result.expected_signal, rtol=0.1)
    np.testing.assert_allclose(result.gradient.mean(axis=0), result.expected_gradient, rtol=0.25)


def test_the_gap_between_mlp_and_recursion_shrinks_with_width() -> None:
    gaps = []
    for width in (32, 1024):
        settings = Activations(activation="tanh", width=width, depth=8, samples=1024)
        runs = [run(settings.replace(seed=seed)) for seed in range(0, 12, 2)]
        gaps.append(np.abs(np.log([one.signal / one.expected_signal for one in runs])).mean())
    assert gaps[1] < gaps[0] / 3  # √32 = 5.7 in the limit


@pytest.mark.parametrize(("settings", "q", "chi", "slope"), [
    (Activations(activation="relu"), 1.0, 1.0, 1.0),
    (Activations(activation="tanh"), 1.0, 1.1778, None),
    (Activations(activation="identity", gain=0.5), 0.0, 0.5, None),
    (Activations(activation="relu", gain=2.0), math.inf, 2.0, None),
])
def test_fixed_points(settings: Activations, q: float, chi: float, slope: float | None) -> None:
    fixed = run(settings.replace(depth=1, width=16)).fixed
    assert fixed.q == pytest.approx(q)
    assert fixed.chi == pytest.approx(chi, rel=1e-3)
    if slope is not None:
        assert fixed.slope == pytest.approx(slope, abs=1e-6)


def test_the_fixed_point_is_where_the_recursion_ends() -> None:
    settings = Activations(activation="tanh", gain=2.0, depth=100, width=16)
    result = run(settings)
    assert result.fixed.q == pytest.approx(result.expected_signal[-1], rel=1e-9)
    assert result.fixed.slope < 1
    assert gain(settings) * moments_at(settings, result.fixed.q).square == pytest.approx(result.fixed.q, rel=1e-9)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_gelu_and_silu_do_not_hold_their_fixed_point(name: str) -> None:
    result = run(Activations(activation=name, width=1024, depth=16))
    assert result.fixed.slope > 1.05
    assert verdict(result)[0] == "warning"
    assert verdict(result)[1].startswith("q* = 1 is an unstable fixed point")
    g = gain(Activations(activation=name))
    off = [1.1]
    for _ in range(16):
        off.append(g * moments(name, off[-1]).square)
    assert off[-1] > 2  # a tenth more at the input has become more than twice as much


def test_selu_is_solved() -> None:
    found = solve_selu(1.0)
    assert found.scale == pytest.approx(1.0507009874, abs=1e-9)
    assert found.alpha == pytest.approx(1.6732632424, abs=1e-9)


@pytest.mark.parametrize("variance", [0.25, 2.0, 4.0])
def test_selu_for_another_variance_keeps_it(variance: float) -> None:
    scale, alpha = solve_selu(variance)
    z = np.sqrt(variance) * np.random.default_rng(1).standard_normal(10**6)
    y = scale * np.where(z > 0, z, alpha * np.expm1(np.minimum(z, 0)))
    assert y.mean() == pytest.approx(0, abs=5e-3)
    assert y.var() == pytest.approx(variance, rel=5e-3)


def test_an_exploding_mlp_is_reported_and_not_finite() -> None:
    result = run(Activations(gain=4.0, depth=100, width=64))
    assert result.expected_signal[-1] == pytest.approx(4.0**100, rel=1e-9)
    assert not np.isfinite(result.signal[:, -1]).any()
    severity, meaning, evidence = verdict(result)
    assert severity == "bad"
    assert "grows without" in meaning
    assert "not finite" in evidence


@pytest.mark.parametrize(("settings", "severity", "words"), [
    (Activations(), "good", "the gradient keeps its size"),
    (Activations(activation="sigmoid"), "warning", "multiplied by 0.153 a layer: × 0.000546 over 4"),
    (Activations(activation="identity", gain=0.5), "bad", "vanishes"),
    (Activations(version="centered"), "warning", "unstable"),
    (Activations(activation="elu"), "good", "settles at q* = 1, and the gradient keeps its size"),
])
def test_verdicts(settings: Activations, severity: str, words: str) -> None:
    said = verdict(run(settings.replace(depth=4, width=64)))
    assert said[0] == severity
    assert words in said[1]


def test_what_is_kept_is_kept_in_expectation_and_the_draws_decide_the_tone(million: ActivationsResult) -> None:
    """Draws within a factor of two of the recursion are good news; one that is not, or its gradient, warns."""
    severity, meaning, evidence = verdict(million)
    assert severity == "good"
    assert meaning.startswith("In expectation every second moment is kept")
    assert "After 1 layer of width 16" in evidence
    signal, gradient = million.signal.copy(), million.gradient.copy()
    signal[1, -1], gradient[0, 0] = 0.4, 3.0
    for stray, off in ((replace(million, signal=signal), 2.5), (replace(million, gradient=gradient), 3.0)):
        severity, meaning, _ = verdict(stray)
        assert severity == "warning"
        assert meaning.endswith(f"on average only: a draw of this width and depth is off by a factor of {off:g}.")
    assert math.isinf(replace(million, signal=signal * math.nan).off)


def test_only_relu_and_the_identity_keep_every_second_moment() -> None:
    kept_by = {name: run(Activations(activation=name, depth=1, width=16, samples=1024)).keeps_all for name in NAMES}
    assert {name for name, all_kept in kept_by.items() if all_kept} == {"relu", "identity"}


def test_a_narrow_deep_mlp_is_not_called_good() -> None:
    """Its draws end at .05 and .16 where the recursion has 1."""
    result = run(Activations(width=16))
    assert result.off == pytest.approx(1 / result.signal[:, -1].min())
    assert verdict(result)[0] == "warning"


@pytest.mark.parametrize(("choices", "sentence"), [
    ({"version": "swish"}, "version must be one of plain, unit, centered; got 'swish'"),
    ({"depth": 0}, "depth must be a whole number between 1 and 100; got 0"),
    ({"fixed_point": 0}, "fixed_point must be a finite number between 0.25 and 4; got 0"),
])
def test_refusals_in_one_sentence(choices: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Activations(**choices)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("calls", [0, 3, 12])
def test_stop_is_honored(calls: int) -> None:
    answers = iter([False] * calls)
    with pytest.raises(Stopped):
        run(Activations(samples=10**7, seed=5), lambda: next(answers, True))


def test_every_picture_is_whole_and_leaves_out_what_is_not_finite(drawn: ActivationsResult) -> None:
    exploded = run(Activations(depth=100, width=16, gain=4.0, samples=1024))
    every(ROW, drawn, exploded)
    dots = named(pictures.by_layer(exploded), "mean x²")
    assert not np.isfinite(dots.y[-1])
    assert np.isfinite(dots.y[:50]).all()
    assert "q*" not in {trace.name for trace in pictures.length_map(exploded).data}


def test_mlp_dots_and_recursion_lines(drawn: ActivationsResult) -> None:
    figure = pictures.by_layer(drawn)
    np.testing.assert_allclose(named(figure, "mean x², another draw").y, drawn.signal[1], rtol=1e-6)
    np.testing.assert_allclose(named(figure, "mean (∂L/∂x)²").y, drawn.gradient[0], rtol=1e-6)
    np.testing.assert_allclose(named(figure, "mean x², predicted").y, 1)
    settled = run(Activations(activation="tanh", gain=2.0, depth=4, width=16, samples=1024))
    assert named(pictures.by_layer(settled), "q*").y[0] == pytest.approx(settled.fixed.q)



def test_quadrature_bars_carry_all_digits_and_samples_their_errors(drawn: ActivationsResult) -> None:
    figure = pictures.moments(drawn)
    bars, dots = (trace for trace in figure.data if trace.name == "E φ²")
    assert bars.y[NAMES.index("gelu")] == pytest.approx(0.4252214826, abs=1e-10)
    assert bars.marker.symbol == "line-ew"
    np.testing.assert_allclose(dots.y, drawn.sampled[:, 1], rtol=1e-6)
    assert figure.layout.xaxis.ticktext[0] == "<b>relu</b>"



def test_the_map_meets_the_diagonal_at_the_fixed_point() -> None:
    tanh = run(Activations(activation="tanh", gain=2.0, depth=8, width=64, samples=1024))
    figure = pictures.length_map(tanh)
    assert named(figure, "q*").x[0] == pytest.approx(tanh.fixed.q)
    pairs = named(figure, "MLP")
    np.testing.assert_allclose(pairs.y, np.concatenate(tanh.signal[:, 1:]), rtol=1e-6)



def test_selu_is_where_the_two_conditions_cross(drawn: ActivationsResult) -> None:
    figure = pictures.selu(drawn)
    solved, published = named(figure, "solved"), named(figure, "published")
    assert (solved.x[0], solved.y[0]) == (pytest.approx(1.6732632424, abs=1e-9), pytest.approx(1.0507009874, abs=1e-9))
    assert (published.x[0], published.y[0]) == pytest.approx((solved.x[0], solved.y[0]), rel=1e-6)
