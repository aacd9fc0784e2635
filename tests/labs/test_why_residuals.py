"""The lab on small branches: growth both ways, the gradient of all weights, one step, and products of matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.choices import ConfigError
from explorer.labs.why_residuals.experiment import (
    EXPONENTS,
    WhyResiduals,
    invariants,
    products,
    run,
    slope,
    verdict,
)
from explorer.probe.observe import Stopped
from explorer.probe.update import update_size
from explorer.theory import predict
from explorer.theory.depth import aligned_growth, random_growth

QUICK = WhyResiduals(n_layers=4, width=32, n_seeds=2)


@pytest.fixture(scope="module")
def result():
    return run(WhyResiduals(width=64, n_layers=16, n_seeds=8, learning_rate=1e-5))


@pytest.fixture(scope="module")
def wide():
    """Gradients of all weights, `[depth, seed]`, by rule, at a width of 256."""
    settings = WhyResiduals(width=256, n_layers=32, n_seeds=8)
    return settings, {
        key: np.stack([update_size(rule.design(settings, n), 1e-9).gradient for n in settings.depths])
        for key, rule in settings.rules().items()
    }


def test_gradients_of_all_weights_grow_as_n_stay_or_fall(wide) -> None:
    """Σ‖g‖² as N^1, about N^0.1 and N^−1 between 4 and 32 layers; medians, to .2, as the closed form has it too."""
    settings, gradients = wide
    for key, expected in {"none": 1.0, "root": 0.11, "inverse": -1.06}.items():
        assert slope(settings, gradients[key]) == pytest.approx(expected, abs=0.2), key
        formula = np.array([[settings.rules()[key].gradient(n)] for n in settings.depths])
        assert slope(settings, formula) == pytest.approx(expected, abs=0.1), key


def test_the_closed_form_is_the_mean_and_a_wrong_one_is_rejected(wide) -> None:
    """Each depth within four standard errors of 2d Nε²(1+ε²)^(N−1); with ε for ε² it is many times off."""
    settings, gradients = wide
    for key in ("root", "inverse"):
        rule = settings.rules()[key]
        for n, draws in zip(settings.depths, gradients[key] / (2 * settings.width), strict=True):
            error = draws.std() / math.sqrt(len(draws) - 1)
            assert abs(draws.mean() - rule.gradient(n)) < 4 * error, (key, n)
            if n >= 8:
                assert abs(draws.mean() - rule.gradient(n) / rule.epsilon(n)) > 20 * error, (key, n)


@pytest.mark.parametrize("exponent", [0.25, 0.5, 1.0])
def test_the_recursions_of_the_theory_give_the_same(exponent: float) -> None:
    settings = WhyResiduals(exponent=exponent)
    rule = settings.rules()[settings.chosen]
    for n in (1, 8, 32):
        profile = predict(rule.design(settings, n))
        predicted = sum((profile["parameter_gradient", name] ** 2).sum() for name in ("W_in", "W_out"))
        assert predicted / (2 * settings.width) == pytest.approx(rule.gradient(n), rel=0.01)


def test_signal_and_gradient_grow_alike_and_as_expected(result) -> None:
    """Both (1 + ε²)^N: the mean of eight seeds within four standard errors."""
    for found in (result.forward, result.backward):
        for n, draws in zip(result.settings.depths, found, strict=True):
            assert abs(draws.mean() - result.rule.growth(n)) < 4 * draws.std() / math.sqrt(7)


def test_a_small_step_keeps_to_its_first_order(result) -> None:
    for key in ("root", "inverse"):
        sweep = result.sweeps[key]
        np.testing.assert_allclose(sweep.change, sweep.first_order, rtol=0.01)
    first, *_, last = np.median(result.ratio["none"], axis=1)
    assert first == pytest.approx(1, abs=0.02)
    assert abs(last - 1) > 0.5
    assert np.median(result.ratio["inverse"], axis=1)[-1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("exponent", "expected"), [(0.5, 2.697), (1.0, 1.0157)])
def test_products_of_random_matrices(exponent: float, expected: float) -> None:
    """d = 256, N = 64: in the mean (1 + ε²)^N to 10 %; aligned branches would have made 1.88e3 of the first."""
    assert random_growth(64**-exponent, 64) == pytest.approx(expected, rel=1e-3)
    grown = products(256, [(64, exponent)], seed=3)
    assert grown.mean() == pytest.approx(expected, rel=0.1)
    assert grown.std() < 0.4
    assert aligned_growth(64**-0.5, 64) == pytest.approx(1.88e3, rel=0.005)


def test_a_product_by_hand() -> None:
    """Two layers of what the noise holds, multiplied out."""
    from explorer import noise

    grown = products(8, [(2, 0.5), (1, 0.5)], seed=5)
    w = noise.stack(5, "why residuals, W", 2, (8, 8)).double().numpy() / math.sqrt(8)
    x = noise.stack(5, "why residuals, x", 1, (8, grown.shape[1]))[0].double().numpy()
    two = x + w[0] @ x / math.sqrt(2)
    two = two + w[1] @ two / math.sqrt(2)
    np.testing.assert_allclose(grown[0], (two**2).sum(0) / (x**2).sum(0), rtol=1e-5)
    np.testing.assert_allclose(grown[1], ((x + w[0] @ x) ** 2).sum(0) / (x**2).sum(0), rtol=1e-5)


def test_products_over_depth_and_exponent(result) -> None:
    n = result.settings.n_layers
    for a, draws in zip(EXPONENTS, result.by_exponent, strict=True):
        assert abs(draws.mean() - random_growth(n**-a, n)) < 6 * draws.std() / math.sqrt(draws.size), a
    np.testing.assert_allclose(result.by_depth[-1], result.by_exponent[EXPONENTS.tolist().index(0.5)])


@pytest.mark.parametrize(
    ("choices", "severity", "words"),
    [({}, "good", "Small enough"), ({"exponent": 0.0}, "bad", "explode with depth"),
     ({"exponent": 0.4}, "warning", "still grow"), ({"exponent": 1.0}, "warning", "Smaller than needed"),
     ({"learning_rate": 1.0}, "warning", "step is too long")],
)
def test_verdicts(choices: dict[str, float], severity: str, words: str) -> None:
    found = verdict(run(QUICK.replace(n_layers=16, **choices)))
    assert found[0] == severity
    assert words in found[1]
    assert "theory" in found[2]


def test_what_is_chosen_is_compared_once() -> None:
    assert list(WhyResiduals().rules()) == ["none", "root", "inverse"]
    assert WhyResiduals(exponent=1.0).chosen == "inverse"
    own = WhyResiduals(exponent=0.25)
    assert own.rules()[own.chosen].label == "ε = N⁻⁰·²⁵"
    assert own.rules()[own.chosen].epsilon(16) == pytest.approx(0.5)
    assert WhyResiduals(n_layers=12).depths == [1, 2, 4, 8, 12]


@pytest.mark.parametrize(
    "choices", [{"exponent": 0.0, "n_layers": 64}, {"exponent": 1.5}, {"n_layers": 2}, {"width": 16},
                {"learning_rate": 1e-6}, {"learning_rate": 1.0}, {"n_seeds": 1}]
)
def test_both_ends_give_numbers(choices: dict[str, float]) -> None:
    found = run(QUICK.replace(**choices))
    assert np.isfinite(found.forward).all()
    assert np.isfinite(found.backward).all()
    assert all(np.isfinite(sweep.gradient).all() for sweep in found.sweeps.values())
    assert verdict(found)[1].endswith(".")


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(QUICK, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    for before in (0, 10, 60, 150):
        with pytest.raises(Stopped):
            run(QUICK.replace(n_seeds=1, seed=before + 100), stop=iter([False] * before + [True] * 9999).__next__)


def test_a_branch_too_small_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^exponent must be a finite number between 0 and 1.5; got 2$"):
        WhyResiduals(exponent=2)


def test_a_step_is_taken_once_whatever_the_exponent() -> None:
    settings = QUICK.replace(seed=77)
    first = run(settings)
    asked = 0

    def count() -> bool:
        nonlocal asked
        asked += 1
        return False

    again = run(settings.replace(exponent=1.0), stop=count)
    np.testing.assert_array_equal(again.sweeps["none"].change, first.sweeps["none"].change)
    second, asked = asked, 0
    run(settings.replace(seed=78), stop=count)
    assert asked > 1.5 * second, "the three rules' steps were taken anew"


def test_invariants() -> None:
    found = [round(value, 1) for value in invariants().values()]
    assert found == [0.9, 0.1, -1.1, 1878.3, 2.7, 2.8, 1.0, 1.0]
