"""Pictures of the labs that train: their numbers, axes, marks and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import must_be_whole, named

from explorer.labs import trained_pictures as common
from explorer.labs.alpha_schedule import experiment as alpha_schedule
from explorer.labs.alpha_schedule import pictures as alpha_figures
from explorer.labs.alpha_schedule.experiment import NAMES
from explorer.labs.trained import Trained
from explorer.labs.warmup import experiment as warmup
from explorer.labs.warmup import pictures as warmup_figures
from explorer.labs.warmup.experiment import FIELD, Who

WARM = warmup.run(warmup.Warmup(n_layers=2, steps=20, warmup=10))
RAMP = alpha_schedule.run(alpha_schedule.AlphaSchedule(n_layers=2, steps=20, ramp=10))
BARE = alpha_schedule.run(alpha_schedule.AlphaSchedule(n_layers=14, steps=20, ramp=1, norm_placement="none", rate=10.0))
SLOW = warmup.run(warmup.Warmup(n_layers=2, steps=20, warmup=1000, optimizer="sgd"))
FIRST = FIELD[0].name


def fallen(step: int) -> warmup.WarmupResult:
    """The first contender falls out before a step."""
    curve = WARM.trained.curves[FIRST]
    loss = np.append(curve.loss[: step + 1], math.nan)
    out = curve._replace(made=step, retired="the training loss is nan", loss=loss, steps=curve.steps[: step + 1])
    return warmup.WarmupResult(WARM.settings, Trained(dict(WARM.trained.curves) | {FIRST: out}, WARM.trained.levels))


OUT = fallen(5)
WARMUPS = [getattr(warmup_figures, name) for name in ("losses", "before", "warm", "ends", "ratio", "correlation")]
ALPHAS = [getattr(alpha_figures, name) for name in ("losses", "alphas", "learned", "before", "ends", "weights")]
DRAWN = [
    *((draw, result) for result in (WARM, SLOW) for draw in WARMUPS),
    *((draw, result) for result in (RAMP, BARE) for draw in ALPHAS),
]


@pytest.mark.parametrize(("draw", "result"), DRAWN, ids=lambda value: getattr(value, "__name__", ""))
def test_every_picture_has_titled_axes_words_and_data_that_travel(draw, result) -> None:  # type: ignore[no-untyped-def]
    figure = draw(result)
    must_be_whole(figure)


def test_losses_end_behind_the_last_step_and_stand_between_their_levels() -> None:
    figure = warmup_figures.losses(WARM)
    trace = named(figure, "Post, none")
    curve = WARM.trained.curves[FIRST]
    np.testing.assert_allclose(trace.y, curve.loss, rtol=1e-6)
    assert trace.x.tolist() == list(range(21))
    assert named(figure, "unigram").y[0] == WARM.trained.levels.unigram
    assert named(figure, "bigram").y[0] == WARM.trained.levels.bigram
    low, high = figure.layout.yaxis.range
    assert low < WARM.trained.levels.bigram
    assert high == WARM.trained.levels.unigram + common.ABOVE
    assert f"Post-LN, no warm-up: {curve.final:.3g}" in figure.layout.meta["description"]


def test_who_falls_out_is_marked_with_the_step() -> None:
    figure = warmup_figures.losses(OUT)
    mark = named(figure, "Post, none, out")
    assert (mark.x[0], mark.text[0]) == (5, "out at step 5")
    assert "the training loss is nan" in mark.hovertemplate
    assert "Post-LN, no warm-up: out at step 5" in figure.layout.meta["description"]
    assert not [trace for trace in warmup_figures.losses(WARM).data if trace.name.endswith("out")]


def test_a_design_keeps_its_hue_and_a_warm_up_its_dash() -> None:
    for draw in WARMUPS[:1] + WARMUPS[2:]:
        lines = [trace for trace in draw(WARM).data if trace.mode == "lines+markers"]
        assert [trace.name for trace in lines] == [look.name for look in warmup_figures.SIX.values()]
        assert len({trace.line.color for trace in lines[:3]}) == len({trace.line.color for trace in lines[3:]}) == 1
        assert lines[0].line.color != lines[3].line.color
        assert [trace.line.dash for trace in lines] == ["dot", "dash", "solid"] * 2


def test_gradients_are_of_their_steps() -> None:
    """As drawn, of two designs; at the step where the warm-up ends; and at the last reading."""
    curve = WARM.trained.curves[Who("pre", "long").name]
    first = warmup_figures.before(WARM)
    assert [trace.name for trace in first.data] == ["Post-LN", "Pre-LN"]
    np.testing.assert_allclose(named(first, "Pre-LN").y, curve.weights[0], rtol=1e-6)
    np.testing.assert_allclose(named(warmup_figures.warm(WARM), "Pre, long").y, curve.weights[10], rtol=1e-6)
    np.testing.assert_allclose(named(warmup_figures.ends(WARM), "Pre, long").y, curve.weights[19], rtol=1e-6)
    assert named(warmup_figures.ends(WARM), "Pre, long").x.tolist() == [1, 2]
    never = SLOW.trained.curves[Who("pre", "long").name]
    np.testing.assert_allclose(named(warmup_figures.warm(SLOW), "Pre, long").y, never.weights[-1], rtol=1e-6)


def test_courses_show_ratio_and_correlation() -> None:
    curve = WARM.trained.curves[FIRST]
    ratio = warmup_figures.ratio(WARM)
    np.testing.assert_allclose(named(ratio, "Post, none").y, curve.weights[:, 0] / curve.weights[:, 1], rtol=1e-6)
    assert ratio.layout.yaxis.type == "log"
    assert named(ratio, "even").y[0] == 1
    shown = named(warmup_figures.correlation(WARM), "Post, none").y
    np.testing.assert_allclose(shown, curve.correlation[:, -1], rtol=1e-6)


def test_a_gradient_that_is_lost_stays_on_the_sheet() -> None:
    lost = WARM.trained.curves[FIRST]._replace(weights=np.array([[1e-30, 1.0]]), steps=np.zeros(1))
    trained = Trained(dict(WARM.trained.curves) | {FIRST: lost}, WARM.trained.levels)
    figure = warmup_figures.ratio(warmup.WarmupResult(WARM.settings, trained))
    assert named(figure, "Post, none").y[0] == pytest.approx(common.LOWEST)


def test_alphas_are_means_and_the_learned_ones_a_map() -> None:
    figure = alpha_figures.alphas(RAMP)
    np.testing.assert_allclose(named(figure, "ramp").y, np.minimum(1, np.arange(1, 21) / 10), rtol=1e-6)
    curve = RAMP.trained.curves[NAMES["learned"]]
    (heat,) = alpha_figures.learned(RAMP).data
    np.testing.assert_allclose(heat.z, curve.alpha.T, rtol=1e-6)
    assert heat.x.tolist() == list(range(20))
    assert (heat.zmin, heat.y0, heat.dy) == (0, 1, 1)
    assert heat.zmax == pytest.approx(curve.alpha.max())


def test_gradients_by_the_stream_are_relative_to_the_last_layers() -> None:
    for figure, reading in ((alpha_figures.before(RAMP), 0), (alpha_figures.ends(RAMP), -1)):
        for name, look in alpha_figures.FOUR.items():
            trace, stream = named(figure, look.name), RAMP.trained.curves[name].stream[reading]
            np.testing.assert_allclose(trace.y, stream / stream[-1], rtol=1e-6)
            assert trace.x.tolist() == [0, 1, 2]


def test_weights_without_a_gradient_are_no_dots() -> None:
    """At α = 0 the matrices have none, and zero has no place on a logarithmic axis."""
    curves = {name: curve._replace(weights=curve.weights[:1]) for name, curve in RAMP.trained.curves.items()}
    start = alpha_schedule.AlphaScheduleResult(RAMP.settings, Trained(curves, RAMP.trained.levels))
    figure = alpha_figures.weights(start)
    assert np.isnan(named(figure, "learned").y).all()
    assert np.isfinite(named(figure, "α = 1").y).all()


def test_no_norms_at_all_run_off_the_sheet_and_leave_its_scale_alone() -> None:
    figure = alpha_figures.losses(BARE)
    assert figure.layout.yaxis.range[1] == BARE.trained.levels.unigram + common.ABOVE
    assert "nan" not in alpha_figures.learned(RAMP).layout.meta["description"]
