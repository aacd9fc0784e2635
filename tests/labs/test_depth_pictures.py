"""Pictures of the labs on residuals: their numbers, axes, marks and words."""

from __future__ import annotations

import numpy as np
import pytest
from pictures import must_be_whole, named

from explorer.labs.residual import experiment as residual
from explorer.labs.residual import pictures as residual_figures
from explorer.labs.residual.experiment import IDENTITY, PARAMETERS, STARTS
from explorer.labs.why_residuals import experiment as why_residuals
from explorer.labs.why_residuals import pictures as why_figures

SUM = residual.run(residual.Residual(n_layers=4, width=64, n_seeds=2))
DEEP = residual.run(residual.Residual(n_layers=48, width=16, n_seeds=1))
STILL = residual.run(residual.Residual(n_layers=2, width=16, n_seeds=1, alpha=0.0))
SMALL = why_residuals.run(why_residuals.WhyResiduals(n_layers=8, width=32, n_seeds=3, exponent=0.75))
ROOT = why_residuals.run(why_residuals.WhyResiduals(n_layers=8, width=32, n_seeds=2))
EXPLODED = why_residuals.run(why_residuals.WhyResiduals(n_layers=64, width=16, n_seeds=2, exponent=0.0))

DRAWN = [
    *((draw, result) for result in (SUM, DEEP, STILL) for draw in (
        residual_figures.sums, residual_figures.path, residual_figures.gradient, residual_figures.growth,
        residual_figures.first_gradients, residual_figures.identities)),
    *((draw, result) for result in (SMALL, ROOT, EXPLODED) for draw in (
        why_figures.growths, why_figures.gradients, why_figures.step, why_figures.rates, why_figures.product,
        why_figures.small_enough)),
]


@pytest.mark.parametrize(("draw", "result"), DRAWN, ids=lambda value: getattr(value, "__name__", ""))
def test_every_picture_has_titled_axes_words_and_data_that_travel(draw, result) -> None:  # type: ignore[no-untyped-def]
    figure = draw(result)
    must_be_whole(figure)
    assert "nan" not in figure.layout.meta["description"] or result is EXPLODED


def test_sums_lie_on_the_line_of_their_correlation() -> None:
    figure = residual_figures.sums(SUM)
    line = named(figure, "1 + α² + 2αc, predicted")
    np.testing.assert_allclose(line.y, 2 + 2 * np.asarray(line.x), atol=1e-6)
    assert named(figure, "σ₁² + σ₂²").y[0] == 2
    assert len(named(figure, "branches of a stack").x) == 8


def test_the_path_is_drawn_with_its_closed_form_and_its_noise() -> None:
    figure = residual_figures.path(SUM)
    np.testing.assert_allclose(named(figure, "(1 + α²)<sup>−l/2</sup>, predicted").y, 2.0 ** (-np.arange(5) / 2))
    np.testing.assert_allclose(named(figure, "x<sub>l</sub> regressed on x<sub>0</sub>").y, SUM.path.mean(0), rtol=1e-6)
    assert named(figure, "noise").y[0] == pytest.approx(SUM.noise)


def test_what_the_path_would_make_of_the_gradient_is_not_where_the_dots_are() -> None:
    figure = residual_figures.gradient(SUM)
    weight = np.asarray(named(figure, "the path's weight²").y)
    np.testing.assert_allclose(weight, 2.0 ** -np.arange(4, -1, -1.0))
    assert named(figure, "MLPs only").y[0] > 5 * weight[0]
    assert len(named(figure, "with attention, predicted").y) == 9
    assert figure.layout.yaxis.type == "log"


def test_streams_stand_beside_their_predictions() -> None:
    figure = residual_figures.growth(SUM)
    np.testing.assert_allclose(named(figure, "Peri-LN, predicted").y, 1 + np.arange(9), rtol=1e-3)
    np.testing.assert_allclose(named(figure, "Post-LN").y[1:], 1, rtol=1e-3)
    bars = named(figure, "Peri-LN").error_y
    np.testing.assert_allclose(bars.array, np.ptp(SUM.growth["peri"].measured, axis=0) / 2, atol=1e-5)


def test_the_table_says_zero_where_it_is_so() -> None:
    grid, words = residual_figures.first_gradients(SUM).data
    text = np.array(words.text).reshape(len(PARAMETERS), len(STARTS))
    column = {name: text[:, index].tolist() for index, name in enumerate(STARTS)}
    assert column["rezero"][:6] == ["0"] * 6
    assert [cell == "0" for cell in column["fixup"]] == [True, True, True, False, True, False, False]
    assert column["fixup"][-1] == column["pre_ln"][-1] == ""
    assert float(column["rezero"][-1]) > 0
    assert grid.z[0].tolist() == [1, 1, 1, 0, 0, 0]


def test_identities_are_rings_at_one_and_not_too_many() -> None:
    for result in (SUM, DEEP):
        figure = residual_figures.identities(result)
        for name in IDENTITY:
            trace = named(figure, residual.LABELS[name])
            assert set(np.asarray(trace.y).tolist()) == {1.0}
            assert len(trace.x) <= 13
            assert (trace.x[0], trace.x[-1]) == (0, result.settings.n_layers)
        assert len(named(figure, "Pre-LN").x) == 2 * result.settings.n_layers + 1


def test_three_growths_stand_on_their_formulas() -> None:
    figure = why_figures.growths(SMALL)
    n = np.arange(1, 9)
    squares = n**-1.5
    np.testing.assert_allclose(named(figure, "signal, predicted").y, (1 + squares) ** n, rtol=1e-6)
    np.testing.assert_allclose(named(figure, "gradient of all weights, predicted").y,
                               n * squares * (1 + squares) ** (n - 1), rtol=1e-6)
    np.testing.assert_allclose(named(figure, "signal").y, np.median(SMALL.forward, axis=1), rtol=1e-6)
    assert named(figure, "signal").x.tolist() == [1, 2, 4, 8]


def test_the_chosen_branches_are_drawn_once() -> None:
    """As a rule of its own, or as the one of the three that it is."""
    own = [trace.name for trace in why_figures.gradients(SMALL).data if trace.mode == "markers"]
    assert own == ["no residual", "ε = 1/√N", "ε = 1/N", "ε = N⁻⁰·⁷⁵"]
    assert [trace.name for trace in why_figures.gradients(ROOT).data if trace.mode == "markers"] == own[:3]
    np.testing.assert_allclose(named(why_figures.gradients(ROOT), "no residual, predicted").y, np.arange(1, 9))


def test_a_step_is_drawn_over_its_first_order() -> None:
    figure, settings = why_figures.step(ROOT), ROOT.settings
    expected = settings.learning_rate * 2 * 32 * np.array([settings.rules()["inverse"].gradient(n) for n in (1, 8)])
    np.testing.assert_allclose(np.asarray(named(figure, "ε = 1/N, predicted").y)[[0, -1]], expected, rtol=1e-6)
    np.testing.assert_allclose(named(figure, "ε = 1/N").y, -np.median(ROOT.sweeps["inverse"].change, axis=1), rtol=1e-6)


def test_a_step_that_leads_astray_is_left_out() -> None:
    figure = why_figures.step(EXPLODED)
    assert not np.isfinite(named(figure, "ε = N⁻⁰").y[-1])
    assert np.isfinite(named(figure, "ε = 1/N").y).all()
    assert figure.layout.yaxis.range[1] < 22


def test_ratios_stay_on_the_sheet() -> None:
    for result in (ROOT, EXPLODED):
        figure = why_figures.rates(result)
        ratios = np.concatenate([trace.y for trace in figure.data if trace.mode == "lines+markers"])
        assert ratios.min() >= 0
        assert ratios.max() <= why_figures.STEEPEST
        assert named(figure, "η").x[0] == result.settings.learning_rate
    assert named(why_figures.rates(ROOT), "ε = 1/N").y[0] == pytest.approx(1, abs=1e-3)


def test_products_against_aligned_and_random_growth() -> None:
    figure = why_figures.product(ROOT)
    assert named(figure, "(1 + ε)<sup>N</sup>, aligned").y[-1] == pytest.approx((1 + 8**-0.5) ** 8)
    assert named(figure, "(1 + ε²)<sup>N</sup>").y[-1] == pytest.approx(1.125**8)
    np.testing.assert_allclose(named(figure, "∏(I + εW), drawn").y, ROOT.by_depth.mean(1), rtol=1e-6)


def test_small_enough_has_its_two_marks_and_reaches_what_was_chosen() -> None:
    figure = why_figures.small_enough(EXPLODED)
    assert (named(figure, "1/√N").x[0], named(figure, "1/N").x[0]) == (0.5, 1.0)
    assert min(named(figure, "Σ‖∂L/∂W‖²").x) == 0
    assert min(named(why_figures.small_enough(ROOT), "Σ‖∂L/∂W‖²").x) == 0.25
    assert named(why_figures.small_enough(SMALL), "measured here").x[0] == 0.75
