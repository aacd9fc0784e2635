"""The lab on small branches: growth both ways, the gradient of all weights, one step, and products of matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import must_be_whole, named

from explorer.choices import ConfigError
from explorer.labs.why_residuals import pictures
from explorer.labs.why_residuals.experiment import (
    EXPONENTS,
    WhyResiduals,
    invariants,
    products,
    run,
    slope,
    verdict,
)
from explorer.labs.why_residuals.row import ROW
from explorer.measuring.update import update_size
from explorer.stopping import Stopped
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
        assert slope(settings.depths, np.median(gradients[key], axis=1)) == pytest.approx(expected, abs=0.2), key
        formula = np.array([settings.rules()[key].gradient(n) for n in settings.depths])
        assert slope(settings.depths, formula) == pytest.approx(expected, abs=0.1), key


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
    assert result.rule.label == "ε = 1/√N"
    np.testing.assert_allclose(result.step.change, result.step.first_order, rtol=0.01)
    assert result.ratios("none")[0] == pytest.approx(1, abs=0.02)
    assert abs(result.ratios("none")[-1] - 1) > 0.5
    assert result.ratios("inverse")[-1] == pytest.approx(1, abs=0.1)


def test_the_gradient_of_the_profile_is_the_steps(result) -> None:
    """Measured in float32, and taken as a step in float64."""
    for key, steps in result.steps.items():
        np.testing.assert_allclose(result.weights(key)[-1] * 2 * result.settings.width, steps[0].gradient, rtol=1e-4)


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
    from explorer.model import noise

    grown = products(8, [(2, 0.5), (1, 0.5)], seed=5)
    w = noise.stack(5, "why residuals, W", 2, (8, 8)).double().numpy() / math.sqrt(8)
    x = noise.stack(5, "why residuals, x", 1, (8, grown.shape[1]))[0].double().numpy()
    two = x + w[0] @ x / math.sqrt(2)
    two = two + w[1] @ two / math.sqrt(2)
    np.testing.assert_allclose(grown[0], (two**2).sum(0) / (x**2).sum(0), rtol=1e-5)
    np.testing.assert_allclose(grown[1], ((x + w[0] @ x) ** 2).sum(0) / (x**2).sum(0), rtol=1e-5)


def test_products_over_the_exponent(result) -> None:
    n = result.settings.n_layers
    for a, draws in zip(EXPONENTS, result.products, strict=True):
        assert abs(draws.mean() - random_growth(n**-a, n)) < 6 * draws.std() / math.sqrt(draws.size), a


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
    assert all(np.isfinite(found.weights(key)).all() for key in found.stacks)
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


def test_invariants() -> None:
    found = [round(value, 1) for value in invariants().values()]
    assert found == [0.9, 0.1, -1.1, 1878.3, 2.7, 2.8, 1.0, 1.0]


# --- pictures -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own():
    return run(WhyResiduals(n_layers=8, width=32, n_seeds=3, exponent=0.75))


@pytest.fixture(scope="module")
def root():
    return run(WhyResiduals(n_layers=8, width=32, n_seeds=2))


@pytest.fixture(scope="module")
def exploded():
    return run(WhyResiduals(n_layers=64, width=16, n_seeds=2, exponent=0.0))


@pytest.mark.parametrize("plot", ROW.plots, ids=lambda plot: plot.name)
def test_every_picture_has_titled_axes_words_and_data_that_travel(plot, own, root, exploded) -> None:
    for found in (own, root, exploded):
        figure = plot.draw(found)
        must_be_whole(figure)
        assert "nan" not in figure.layout.meta["description"] or found is exploded


def test_three_growths_stand_on_their_formulas(own) -> None:
    figure = pictures.growths(own)
    n = np.arange(1, 9)
    squares = n**-1.5
    np.testing.assert_allclose(named(figure, "signal, predicted").y, (1 + squares) ** n, rtol=1e-6)
    np.testing.assert_allclose(named(figure, "gradient of all weights, predicted").y,
                               n * squares * (1 + squares) ** (n - 1), rtol=1e-6)
    np.testing.assert_allclose(named(figure, "signal").y, np.median(own.forward, axis=1), rtol=1e-6)
    assert named(figure, "signal").x.tolist() == [1, 2, 4, 8]
    assert named(figure, "gradient, predicted").line.dash == "dash", "it lies on the signal's"


def test_the_chosen_branches_are_drawn_once(own, root) -> None:
    """As a rule of its own, or as the one of the three that it is."""
    names = [trace.name for trace in pictures.gradients(own).data if trace.mode == "markers"]
    assert names == ["no residual", "ε = 1/√N", "ε = 1/N", "ε = N⁻⁰·⁷⁵"]
    assert [trace.name for trace in pictures.gradients(root).data if trace.mode == "markers"] == names[:3]
    np.testing.assert_allclose(named(pictures.gradients(root), "no residual, predicted").y, np.arange(1, 9))


def test_ratios_stay_on_the_sheet(root, exploded) -> None:
    for found in (root, exploded):
        figure = pictures.rates(found)
        ratios = np.concatenate([trace.y for trace in figure.data if trace.mode == "lines+markers"])
        assert ratios.min() >= 0
        assert ratios.max() <= pictures.STEEPEST
        assert named(figure, "η").x[0] == found.settings.learning_rate
    assert named(pictures.rates(root), "ε = 1/N").y[0] == pytest.approx(1, abs=1e-3)


def test_growth_against_the_exponent_has_its_two_marks_and_reaches_what_was_chosen(own, root, exploded) -> None:
    figure = pictures.small_enough(exploded)
    assert (named(figure, "1/√N").x[0], named(figure, "1/N").x[0]) == (0.5, 1.0)
    assert min(named(figure, "Σ‖∂L/∂W‖²").x) == 0
    assert min(named(pictures.small_enough(root), "Σ‖∂L/∂W‖²").x) == 0.25
    assert named(pictures.small_enough(own), "measured here").x[0] == 0.75
    aligned, random = (named(pictures.small_enough(root), name) for name in (
        "(1 + ε)<sup>N</sup>, aligned", "(1 + ε²)<sup>N</sup>"))
    assert aligned.y[0] == pytest.approx((1 + 8**-0.25) ** 8)
    assert random.y[0] == pytest.approx((1 + 8**-0.5) ** 8)
    np.testing.assert_allclose(named(pictures.small_enough(root), "∏(I + εW), drawn").y, root.products.mean(1),
                               rtol=1e-6)
