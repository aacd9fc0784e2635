"""The residual lab: sums of moments, the identity path, growth, gradients that do not follow it, exact identities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import must_be_whole, named

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.labs.residual import pictures
from explorer.labs.residual.experiment import (
    BENDS,
    GROWTHS,
    IDENTITY,
    PARAMETERS,
    STARTS,
    TOKENS,
    Residual,
    exact,
    invariants,
    path,
    run,
    verdict,
)
from explorer.labs.residual.row import ROW
from explorer.labs.stacks import Pair, gradient
from explorer.model import Transformer, batch
from explorer.stopping import Stopped
from explorer.theory.depth import identity_path

QUICK = Residual(n_layers=3, width=32, n_seeds=2)


@pytest.fixture(scope="module")
def result():
    return run(Residual(n_seeds=8))


def test_the_identity_path_of_one_wide_stack() -> None:
    """Width 1024: 2^(−l/2) for seven branches, to 3/√d."""
    config = Config(n_layers=7, d_model=1024, n_heads=1, mlp_ratio=1, n_ctx=4, batch_size=1, attention="none",
                    norm_placement="post", norm="rms", n_seeds=1)
    found = path(config, 0)
    np.testing.assert_allclose(found, 2.0 ** (-np.arange(8) / 2), atol=3 / math.sqrt(1024))
    assert found[1:5] == pytest.approx([0.717, 0.504, 0.356, 0.247], abs=0.04)


@pytest.mark.parametrize("alpha", [0.25, 1.0, 2.0])
def test_the_path_follows_its_closed_form_and_not_its_square(alpha: float) -> None:
    """Mean of eight seeds within six standard errors; 2^(−l), the weight of a gradient, would not do."""
    settings = Residual(alpha=alpha, n_layers=6, n_seeds=8)
    found = np.mean([path(settings.design("post", "none"), seed) for seed in range(8)], axis=0)
    expected = identity_path(6, 1.0, alpha)
    error = 6 / math.sqrt(settings.width * TOKENS * 8)
    assert np.abs(found - expected).max() < error
    assert np.abs(found - expected**2).max() > error


def test_the_gradient_does_not_follow_the_path(result) -> None:
    """MLPs only: flat, where the path's weight² falls to 2^−12. With attention: a V, lowest in the middle."""
    flat, bent = (gradient(result.bends[name].measured).mean(0) for name in BENDS)
    assert flat.min() > 0.7
    assert flat.max() < 1.5
    assert bent[0] > 1.5 * bent.min()
    assert bent.min() < 0.1
    assert 0 < bent.argmin() < len(bent) - 6


def test_streams_grow_where_theory_has_them(result) -> None:
    """Post 1, Peri-LN one a branch, and Pre-LN less, for its branches have no unit moment."""
    ends, lines = ({name: pair[part]["second_moment", "resid_post"][:, -1] for name, pair in result.growth.items()}
                   for part in (0, 1))
    assert ends["post"] == pytest.approx(np.ones(8), abs=1e-3)
    assert lines["peri"] == pytest.approx(25, abs=0.01)
    for name in ("pre", "peri"):
        error = ends[name].std() / math.sqrt(7)
        assert abs(ends[name].mean() - lines[name][0]) < 4 * error
    assert ends["pre"].mean() < 0.85 * ends["peri"].mean()


@pytest.mark.parametrize("name", STARTS)
def test_zero_gradients_are_exactly_where_the_design_has_them(result, name: str) -> None:
    start = result.starts[name]
    assert {parameter for parameter, norm in start.norms.items() if norm == 0} == result.settings.zeros(name)
    assert exact(result.settings, name, start) == ""
    assert all(math.isfinite(norm) for norm in start.norms.values())


@pytest.mark.parametrize("name", IDENTITY)
def test_an_identity_is_one_bit_for_bit(result, name: str) -> None:
    config = result.settings.start(name)
    model, inputs = Transformer(config, config.seed), batch.draw(config, config.seed)
    x = model.embed(inputs).requires_grad_()
    output = model(x)
    assert torch.equal(output, x)
    assert result.starts[name].moved == 0
    model.loss(output, inputs).backward()
    assert torch.equal(x.grad, inputs.target)
    np.testing.assert_array_equal(gradient(result.starts[name].measured), 1.0)


def test_what_is_not_as_designed_is_noticed(result) -> None:
    start = result.starts["rezero"]
    assert exact(result.settings, "rezero", start._replace(moved=1e-7)) == "moved by 1e-07"
    assert exact(result.settings, "fixup", start) == "zero gradients of W_O, W_out"
    broken = dict(result.starts) | {"fixup": start}
    severity, meaning, _ = verdict(replace(result, starts=broken))
    assert (severity, meaning) == ("bad", "Not as designed: Fixup.")


def test_what_is_left_of_the_input_is_right_within_three_standard_errors(result) -> None:
    """0.032 beside 0.016 is a draw's error at three seeds and a width of 128; four times as far it would not be."""
    expected, noise = identity_path(12)[-1], result.noise
    for off, severity in ((0.0, "good"), (2.9, "good"), (-2.9, "good"), (3.1, "warning"), (-3.1, "warning")):
        path = np.full_like(result.path, expected + off * noise)
        found = verdict(replace(result, path=path))
        assert found[0] == severity
        assert f"±{3 * noise:.2g} (3 standard errors)" in found[2]


@pytest.mark.parametrize(("width", "n_layers"), [(16, 12), (64, 2), (128, 4)])
def test_the_standard_error_is_that_of_draws(width: int, n_layers: int) -> None:
    """The coefficients' spread over 64 seeds is known to 9 %: never above the bound, and no less than a third of it."""
    settings = Residual(width=width, n_layers=n_layers, n_seeds=1)
    ends = [path(settings.design("post", "none"), seed)[-1] for seed in range(64)]
    error = run(settings).noise
    assert error / 3 < np.std(ends, ddof=1) < 1.2 * error


def test_a_gradient_that_is_not_flat_is_not_called_flat(result) -> None:
    measured, predicted = result.bends["none"]
    values = {key: 0.4 * value for key, value in measured.values.items() if key[0] == "activation_gradient"}
    faded = {**result.bends, "none": Pair(replace(measured, values=values), predicted)}
    severity, meaning, evidence = verdict(replace(result, bends=faded))
    assert severity == "warning"
    assert "is not flat" in meaning
    assert "0.5 or more" in evidence


@pytest.mark.parametrize(
    ("alpha", "severity", "words"),
    [(1.0, "good", "does not fade with it"), (0.0, "warning", "no gradient"), (0.1, "good", "leave most")],
)
def test_verdicts(alpha: float, severity: str, words: str) -> None:
    found = verdict(run(QUICK.replace(alpha=alpha)))
    assert found[0] == severity
    assert words in found[1]
    assert "theory" in found[2]


@pytest.mark.parametrize(
    "choices", [{"alpha": 0.0}, {"alpha": 2.0}, {"n_layers": 2}, {"n_layers": 48}, {"width": 16}, {"n_seeds": 1}]
)
def test_both_ends_give_numbers(choices: dict[str, float]) -> None:
    found = run(QUICK.replace(**choices))
    assert np.isfinite(found.path).all()
    for measured, predicted in (*found.growth.values(), *found.bends.values()):
        assert measured.first_nonfinite is None
        assert np.isfinite(predicted.stream("second_moment")[1]).all()
        assert np.isfinite(gradient(predicted)).all()


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(QUICK, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    for before in (0, 3, 30, 150):
        with pytest.raises(Stopped):
            run(QUICK.replace(n_seeds=1, seed=9000 + before), stop=iter([False] * before + [True] * 9999).__next__)


def test_a_stack_that_is_too_wide_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^width must be a whole number between 16 and 256; got 512$"):
        Residual(width=512)


def test_invariants() -> None:
    found = invariants()
    assert list(found.values())[:4] == pytest.approx([0.7071, 0.5, 0.25, 0.0625], abs=0.02)
    assert list(found.values())[6:] == [0, 0, 0, 6, 6, 4]


# --- pictures -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return run(Residual(n_layers=4, width=64, n_seeds=2))


@pytest.mark.parametrize("choices", [{}, {"n_layers": 48, "width": 16, "n_seeds": 1}, {"alpha": 0.0}])
def test_every_picture_has_titled_axes_words_and_data_that_travel(choices: dict[str, float]) -> None:
    found = run(QUICK.replace(**choices))
    for plot in ROW.plots:
        figure = plot.draw(found)
        must_be_whole(figure)
        assert "nan" not in figure.layout.meta["description"]


def test_the_path_is_drawn_with_its_closed_form_and_its_noise(small) -> None:
    figure = pictures.path(small)
    np.testing.assert_allclose(named(figure, "(1 + α²)<sup>−l/2</sup>").y, 2.0 ** (-np.arange(5) / 2))
    np.testing.assert_allclose(named(figure, "x<sub>l</sub> regressed on x<sub>0</sub>").y, small.path.mean(0),
                               rtol=1e-6)
    assert named(figure, "noise").y[0] == pytest.approx(small.noise)


def test_what_the_path_would_make_of_the_gradient_is_not_where_the_dots_are(small) -> None:
    figure = pictures.gradient(small)
    weight = np.asarray(named(figure, "the path's weight²").y)
    np.testing.assert_allclose(weight, 2.0 ** -np.arange(4, -1, -1.0))
    assert named(figure, "MLPs only").y[0] > 5 * weight[0]
    assert len(named(figure, "with attention, predicted").y) == 9
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.range[0] < np.log10(weight[0]), "the path has its place on the axis"


def test_streams_stand_beside_their_predictions_and_are_named_once(small) -> None:
    figure = pictures.growth(small)
    np.testing.assert_allclose(named(figure, "Peri-LN, predicted").y, 1 + np.arange(9), rtol=1e-3)
    np.testing.assert_allclose(named(figure, "Post-LN").y[1:], 1, rtol=1e-3)
    assert figure.layout.yaxis.type is None
    assert [trace.name for trace in figure.data if trace.showlegend] == list(GROWTHS.values())


def test_the_table_says_zero_where_it_is_so(small) -> None:
    grid, words = pictures.first_gradients(small).data
    text = np.array(words.text).reshape(len(PARAMETERS), len(STARTS))
    column = {name: text[:, index].tolist() for index, name in enumerate(STARTS)}
    assert column["rezero"][:6] == ["0"] * 6
    assert [cell == "0" for cell in column["fixup"]] == [True, True, True, False, True, False, False]
    assert column["fixup"][-1] == column["pre_ln"][-1] == ""
    assert float(column["rezero"][-1]) > 0
    assert list(grid.z[0]) == [1, 1, 1, 0, 0, 0]
