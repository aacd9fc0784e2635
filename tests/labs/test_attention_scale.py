"""The attention scale lab: the numbers of Gaussian logits, the cures' equality, and gradients apart from entropy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import every, named

from explorer.choices import ConfigError
from explorer.labs.attention_scale import pictures
from explorer.labs.attention_scale.experiment import (
    CURES,
    DIMENSIONS,
    GROWTHS,
    SIGMAS,
    AttentionScale,
    heads,
    invariants,
    logits,
    products,
    run,
    softmax_rows,
    verdict,
)
from explorer.labs.attention_scale.row import ROW
from explorer.labs.stacks import gradient
from explorer.stopping import Stopped

SETTINGS = AttentionScale()
QUICK = AttentionScale(d_head=8, n_keys=8, n_layers=2, draws=1000)


@pytest.fixture(scope="module")
def result():
    return run(SETTINGS)


@pytest.mark.parametrize("d", [1, 4, 64])
def test_the_second_moment_and_kurtosis_of_a_product(d: int) -> None:
    """E(q·k)² = d, kurtosis 3 (1 + 2/d); within four standard errors of 400,000 draws."""
    z = products(d, 400_000, np.random.default_rng(0)) / math.sqrt(d)
    error = (z**2).std() / math.sqrt(len(z))
    assert (z**2).mean() == pytest.approx(1, abs=4 * error)
    assert error < 0.006
    error = (z**4).std() / math.sqrt(len(z))
    assert (z**4).mean() == pytest.approx(3 * (1 + 2 / d), abs=4 * error)


def test_the_second_moment_of_a_product_is_the_width(result) -> None:
    """Within four standard errors of 8,000 products, and of as many as are drawn for the head that is set."""
    np.testing.assert_allclose(result.moments / DIMENSIONS, 1, atol=4 * math.sqrt(8 / 8000))
    assert result.second_moment == pytest.approx(1, abs=4 * math.sqrt(2.1 / SETTINGS.draws))


@pytest.mark.parametrize(
    ("n", "sigma", "entropy", "largest"),
    [(16, 1 / 8, 0.997, 0.078), (16, 1.0, 0.850, 0.247), (16, 8.0, 0.147, 0.845),
     (64, 1 / 8, 0.998, 0.021), (64, 1.0, 0.886, 0.108), (64, 8.0, 0.138, 0.794),
     (256, 1 / 8, 0.999, 0.0055), (256, 1.0, 0.911, 0.043), (256, 8.0, 0.133, 0.750)],
)
def test_the_table_of_softmax_rows(n: int, sigma: float, entropy: float, largest: float) -> None:
    """Known cells of entropy and largest weight, from 20,000 rows, to .005."""
    z = np.random.default_rng(1).standard_normal((20_000, n))
    found = softmax_rows(sigma * z)
    assert found[0] == pytest.approx(entropy, abs=0.005)
    assert found[1] == pytest.approx(largest, abs=0.005)


def test_the_jacobian_by_automatic_differentiation() -> None:
    scores = np.random.default_rng(2).standard_normal((3, 5)) * 2
    rows = [torch.func.jacrev(lambda row: torch.softmax(row, -1))(torch.from_numpy(row)) for row in scores]
    squares = [float(row.square().sum()) for row in rows]
    assert softmax_rows(scores)[2:] == (pytest.approx(np.mean(squares)), pytest.approx(np.median(squares)))


def test_theory_goes_through_the_sampled_rows(result) -> None:
    """Every sixth point of the line stands where a dot does: within .015, 2048 rows of 64 keys that share keys."""
    np.testing.assert_allclose(result.expected.entropy[::6], result.sampled.entropy, atol=0.015)
    np.testing.assert_allclose(result.expected.largest[::6], result.sampled.largest, atol=0.02)
    np.testing.assert_allclose(result.expected.jacobian[::6], result.sampled.jacobian, rtol=0.2)


def test_the_mean_jacobian_rises_while_the_typical_one_dies(result) -> None:
    at = {sigma: int(np.argmin(np.abs(SIGMAS - sigma))) for sigma in (1.0, 8.0, 32.0)}
    mean, median = result.sampled.jacobian, result.sampled.typical
    assert mean[at[1.0]] == pytest.approx(0.034, abs=0.004)
    assert mean[at[8.0]] == pytest.approx(0.073, abs=0.006)
    assert median[at[32.0]] < 1e-6 < mean[at[32.0]]


@pytest.mark.parametrize("d", [4, 64, 96])
def test_t5_and_the_division_are_the_same_cure(d: int) -> None:
    q, k = heads(AttentionScale(d_head=d))
    np.testing.assert_allclose(logits("t5", 3 * q, 3 * k), logits("sqrt_d", 3 * q, 3 * k), atol=1e-12)


def test_only_qk_norm_holds_when_the_weights_grow(result) -> None:
    held = result.grown["qk_norm"]
    np.testing.assert_allclose(held, held[0], atol=1e-12)
    assert result.grown["sqrt_d"][0] == pytest.approx(0.886, abs=0.01)
    assert result.grown["sqrt_d"][-1] < 0.05
    np.testing.assert_allclose(result.grown["t5"], result.grown["sqrt_d"], atol=1e-9)
    for cure in CURES:
        np.testing.assert_allclose(result.grown_expected[cure][::8], result.grown[cure], atol=0.02)
    assert len(GROWTHS) == len(held)


def first_layer(result, cure: str) -> float:
    """Mean entropy of the first layer's rows, over ln n."""
    return float(result.stacks[cure].measured["attention_entropy_normalized", "pattern"][:, 0].mean())


def test_entropy_collapses_and_gradients_explode_without_the_division(result) -> None:
    assert first_layer(result, "sqrt_d") == pytest.approx(0.886, abs=0.02)
    assert first_layer(result, "none") == pytest.approx(0.140, abs=0.04)
    assert result.start("none")[0].mean() > 100 * result.start("sqrt_d")[0].mean()
    severity, meaning, _ = verdict(result)
    assert severity == "warning"
    assert "attention freezes; the gradient² grows × 2," in meaning


def test_the_undivided_line_is_where_its_dots_are(result) -> None:
    """The mean of the eight draws, within three of its standard errors; two draws alone came to half of the line."""
    draws, _ = result.start("none")
    assert len(draws) == result.settings.n_seeds == 8
    assert result.explained
    assert 2 / 3 < result.overshoot < 3 / 2
    assert "within 3 standard errors" in verdict(result)[2]
    assert 0.3 < np.std(draws, ddof=1) / draws.mean() < 2, "one draw is easily twice another"


def test_a_line_beyond_its_dots_is_said_to_be(result) -> None:
    pair = result.stacks["none"]
    values = {
        key: pair.predicted[key] / 2 * np.linspace(0.99, 1.01, 8)[:, None] if key[0] == "activation_gradient" else one
        for key, one in pair.measured.values.items()
    }
    stacks = {**result.stacks, "none": pair._replace(measured=replace(pair.measured, values=values))}
    beyond = replace(result, stacks=stacks)
    assert not beyond.explained
    assert "theory is 2 × the draws' mean, beyond 3 standard errors" in verdict(beyond)[2]


def test_the_cured_stacks_are_where_theory_has_them(result) -> None:
    for cure in ("sqrt_d", "t5", "qk_norm"):
        measured, predicted = result.stacks[cure]
        entropies = [one["attention_entropy_normalized", "pattern"].mean((0, 2)) for one in (measured, predicted)]
        np.testing.assert_allclose(*entropies, atol=0.02)
        np.testing.assert_allclose(gradient(measured).mean(0), gradient(predicted)[0], rtol=0.25)
    t5, divided = (gradient(result.stacks[cure].measured) for cure in ("t5", "sqrt_d"))
    np.testing.assert_allclose(t5, divided, rtol=1e-3)


def test_a_narrow_head_needs_no_cure() -> None:
    narrow = run(QUICK.replace(d_head=2))
    assert narrow.settings.freezing == pytest.approx(math.sqrt(2 * math.log(8)))
    assert verdict(narrow)[0] == "good"


@pytest.mark.parametrize(
    "choices", [{"d_head": 2}, {"d_head": 256, "n_layers": 1}, {"n_keys": 2}, {"n_keys": 512, "n_layers": 1}]
)
def test_both_ends_give_finite_numbers(choices: dict[str, int]) -> None:
    found = run(QUICK.replace(**choices))
    assert np.isfinite([found.sampled.entropy, found.sampled.jacobian]).all()
    assert all(pair.measured.first_nonfinite is None for pair in found.stacks.values())
    assert all(np.isfinite(one).all() for one in found.grown_expected.values())


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(QUICK, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    for before in (0, 4, 20, 40):
        with pytest.raises(Stopped):
            run(QUICK.replace(seed=1 + before), stop=iter([False] * before + [True] * 999).__next__)


def test_a_head_of_no_width_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^d_head must be a whole number between 2 and 256; got 0$"):
        AttentionScale(d_head=0)


def test_invariants() -> None:
    found = [round(value, 2) for value in invariants().values()]
    assert found == [1.01, 3.09, 0.89, 0.14, 0.11, 0.80, 0]


@pytest.fixture(scope="module")
def drawn():
    return run(AttentionScale(d_head=16, n_keys=16, n_layers=3, draws=20_000))


def test_every_picture_is_whole(drawn) -> None:
    every(ROW, drawn, run(AttentionScale(d_head=2, n_keys=2, n_layers=1, draws=1000)))


def test_the_marks_of_the_temperature(drawn) -> None:
    figure = pictures.entropy(drawn)
    assert named(figure, "with √d").x[0] == 1
    assert named(figure, "without").x[0] == 4
    assert named(figure, "σ<sub>c</sub> =<br>√(2 ln n)").x[0] == pytest.approx(math.sqrt(2 * math.log(16)))
    assert np.all(np.diff(named(figure, "softmax, predicted").y) < 0)
    np.testing.assert_allclose(named(figure, "rows drawn").y, drawn.sampled.entropy, rtol=1e-6)


def test_equal_cures_are_drawn_ring_around_dot(drawn) -> None:
    figure = pictures.growth(drawn)
    np.testing.assert_allclose(named(figure, "T5 init").y, named(figure, "÷ √d").y, rtol=1e-6)
    assert named(figure, "T5 init").marker.symbol == "circle-open"
    assert np.ptp(named(figure, "QK-norm").y) < 1e-6


def test_the_stack_is_drawn_by_site(drawn) -> None:
    figure = pictures.gradient(drawn)
    assert named(figure, "undivided").x.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert named(figure, "undivided, predicted").y[-1] == pytest.approx(1)
    assert figure.layout.yaxis.type == "log"
