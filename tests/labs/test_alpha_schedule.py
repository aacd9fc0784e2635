"""The lab on α in training: each schedule's α step by step, identities at the start, words, and stopping."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import must_be_whole, named
from trainings import invented

from explorer.labs.alpha_schedule import pictures
from explorer.labs.alpha_schedule.experiment import NAMES, AlphaSchedule, last_alphas, run, verdict
from explorer.labs.alpha_schedule.row import ROW
from explorer.labs.trained import Trained, alphas
from explorer.profile import Array
from explorer.stopping import Stopped
from explorer.training.history import History

QUICK = AlphaSchedule(n_layers=2, steps=20, ramp=10)


@pytest.fixture(scope="module")
def result() -> Trained[AlphaSchedule]:
    return run(QUICK)


def of(result: Trained[AlphaSchedule], schedule: str) -> History:
    return result.histories[NAMES[schedule]]


def alpha(result: Trained[AlphaSchedule], schedule: str) -> Array:
    return alphas(of(result, schedule))[1]


def ended(settings: AlphaSchedule = AlphaSchedule(), **finals: float) -> Trained[AlphaSchedule]:  # noqa: B008 - frozen
    """A result with losses of our own; the others trained well."""
    return invented(settings, {name: finals.get(schedule, 2.7) for schedule, name in NAMES.items()})


def test_each_alpha_goes_as_its_schedule_says(result: Trained[AlphaSchedule]) -> None:
    """Readings at every step: learned ones begin at 0; the ramp at its first step, and stays at 1."""
    ramp = np.minimum(1, np.arange(1, 21) / 10)
    np.testing.assert_allclose(alpha(result, "ramp"), np.stack([ramp, ramp], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(alpha(result, "fixed"), 1.0)
    for schedule in ("learned", "own_rate"):
        assert not alpha(result, schedule)[0].any()
        assert (alpha(result, schedule)[1:] > 0).all()


def test_adams_first_step_moves_alpha_by_its_own_learning_rate(result: Trained[AlphaSchedule]) -> None:
    """Adam's first step has the size of the learning rate, whatever the gradient."""
    np.testing.assert_allclose(alpha(result, "learned")[1], 3e-3, rtol=1e-3)
    np.testing.assert_allclose(alpha(result, "own_rate")[1], 3e-2, rtol=1e-3)


def test_where_alpha_is_zero_the_matrices_have_no_gradient_at_first(result: Trained[AlphaSchedule]) -> None:
    for schedule in ("learned", "own_rate"):
        assert not of(result, schedule).layer_gradient()[1][0].any()
        assert (of(result, schedule).layer_gradient()[1][1:] > 0).all()
    assert (of(result, "ramp").layer_gradient()[1][0] > 0).all()


def test_without_norms_the_start_is_the_identity_and_its_gradient_flat() -> None:
    found = run(QUICK.replace(norm_placement="none"))
    ends = {schedule: [float(of(found, schedule).series("stream_gradient", site)[1][0, -1])
                       for site in ("embed", "resid_post")] for schedule in ("learned", "fixed")}
    assert ends["learned"][0] == pytest.approx(ends["learned"][1], rel=1e-6)
    assert ends["fixed"][0] > 1.5 * ends["fixed"][1]


def test_a_stack_that_starts_at_one_stalls_after_norms_and_a_learned_alpha_does_not() -> None:
    """The claim, on a seed that is not the notebook's."""
    found = run(AlphaSchedule(seed=11, n_layers=6, steps=100, ramp=100))
    assert not found.trains(NAMES["fixed"])
    assert found.trains(NAMES["learned"])
    assert found.trains(NAMES["own_rate"])
    assert last_alphas(found).max() < 0.5
    learned, _, ramp, fixed = (found.final(name) for name in NAMES.values())
    assert learned < ramp < fixed


@pytest.mark.parametrize(
    ("finals", "severity", "words"),
    [
        ({"fixed": 3.4}, "good", "α = 1 from the start, Post-LN, does not train; none does better than the ramp"),
        ({"fixed": math.nan}, "good", "does not train; none does better"),
        ({}, "good", "α = 1 from the start, Post-LN, trains; none does better"),
        ({"learned": 2.61}, "good", "none does better"),
        ({"learned": 2.59}, "warning", "is second of four here"),
        ({"learned": 2.5, "own_rate": 2.4, "fixed": 3.4}, "warning", "does not train; the ramp to 1, best"),
        ({"learned": 2.5, "own_rate": 2.4, "fixed": 3.4}, "warning", "is third of four here"),
        ({"learned": 2.5, "own_rate": 2.4, "fixed": 2.3}, "warning", "trains; the ramp to 1, best in the essay"),
        ({"learned": 2.5, "own_rate": 2.4, "fixed": 2.3}, "warning", "is last of four here"),
        ({"ramp": 3.4, "fixed": 3.4}, "warning", "too steep"),
        ({"learned": 3.4}, "warning", "Not even a learned α trains"),
    ],
)
def test_verdicts(finals: dict[str, float], severity: str, words: str) -> None:
    found = verdict(ended(**finals))
    assert found[0] == severity
    assert words in found[1]
    assert "end between 0.1 and 0.1." in found[2]


def test_the_evidence_is_in_the_order_of_the_losses() -> None:
    """Who fell out comes last."""
    said = verdict(ended(learned=2.6, own_rate=math.nan, ramp=2.8, fixed=2.5))[2]
    places = [said.index(f"{NAMES[name]}: {loss}") for name, loss in (
        ("fixed", 2.5), ("learned", 2.6), ("ramp", 2.8), ("own_rate", "out at step 300"))]
    assert places == sorted(places)


def test_a_ramp_that_does_not_end_is_named() -> None:
    assert "does not reach 1" in verdict(ended(AlphaSchedule(ramp=1000)))[1]


@pytest.mark.parametrize("choices", [
    {"norm_placement": "none", "n_layers": 12}, {"norm_placement": "pre"}, {"ramp": 1}, {"ramp": 2000},
    {"alpha_rate": 0.01}, {"alpha_rate": 100.0}, {"rate": 10.0}, {"rate": 0.1},
])
def test_both_ends_come_to_an_end(choices: dict[str, float]) -> None:
    found = run(QUICK.replace(**choices))
    for end in found.ends.values():
        assert end.reason or (end.steps == 20 and math.isfinite(end.final_loss))
    assert verdict(found)[0] in ("good", "warning")
    for plot in ROW.plots:
        must_be_whole(plot.draw(found))


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(QUICK, progress=told.append)
    assert told[-1] == 1
    with pytest.raises(Stopped):
        run(QUICK, stop=iter([False] * 9 + [True] * 9999).__next__)


# --- pictures -------------------------------------------------------------------------------------------------


def test_alphas_are_means_and_the_learned_ones_a_map(result: Trained[AlphaSchedule]) -> None:
    figure = pictures.means(result)
    np.testing.assert_allclose(named(figure, "ramp").y, np.minimum(1, np.arange(1, 21) / 10), rtol=1e-6)
    (heat,) = pictures.by_layer(result).data
    np.testing.assert_allclose(heat.z, alpha(result, "learned").T, rtol=1e-6)
    assert heat.x.tolist() == list(range(20))
    assert heat.y.tolist() == [1, 2]
    assert heat.zmax < 0.5, "of its own alone: the ramp's would leave it dark"


def test_no_norms_at_all_run_off_the_sheet_and_leave_its_scale_alone() -> None:
    bare = run(QUICK.replace(n_layers=14, ramp=1, norm_placement="none", rate=10.0))
    figure = pictures.losses(bare)
    assert max(bare.final(name) for name in NAMES.values()) > 1e6
    assert figure.layout.yaxis.range[1] < 2 * bare.levels.unigram
