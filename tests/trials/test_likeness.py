"""What is said of a design from the trials: of which designs, from what evidence, and how many are counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.config import Config, preset
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.trials import NEAREST, SIZES, Evidence, as_trained, chance, evidence, likeness, predicted, trials, within

FINE = Evidence(gradient=0.5, difference=1.0, entropy=0.9, pointwise=0.0)


@pytest.mark.parametrize("width", [16, 256, 2048])
def test_width_input_and_loss_do_not_matter_for_the_trials_have_their_own(width: int) -> None:
    small = as_trained(Config(d_model=width, n_ctx=128, n_kv_heads=2, seed=7, n_layers=24))
    assert small is not None
    assert {field: getattr(small, field) for field in SIZES} == dict(SIZES)
    assert (small.input, small.loss, small.causal, small.seed) == ("text", "next_token", True, 0)
    assert (small.n_layers, small.n_kv_heads) == (24, 1)


@pytest.mark.parametrize("choice", [{"n_layers": 100}, {"n_layers": 1}, {"init_variance": 100.0}, {"alpha": 0.0},
                                    {"attention_variance": 2.0}, {"rope_base": 1e6, "position": "rotary"}])
def test_nothing_is_said_of_designs_beyond_the_trials(choice: dict[str, object]) -> None:
    assert as_trained(Config(**choice)) is None


def test_every_trial_is_within_the_trials() -> None:
    assert all(within(field, value) for one in trials() for field, value in one.design.items())
    assert not within("n_layers", 1 + max(one.design.get("n_layers", 12) for one in trials()))


@pytest.mark.parametrize("worse", [{"gradient": 300.0}, {"difference": 0.1}, {"entropy": 0.1}, {"pointwise": 1.0}])
def test_each_number_counts_against_a_design(worse: dict[str, float]) -> None:
    assert chance(FINE._replace(**worse)) < chance(FINE) - 0.1


def test_forty_trials_are_counted_and_they_are_those_of_the_nearest_chance() -> None:
    every = sorted(trials(), key=lambda one: chance(one.evidence))
    worst = likeness(Evidence(1e9, 1e-6, 0.0, 1.0))
    assert worst == (sum(one.trained for one in every[:NEAREST]), NEAREST)
    assert worst.trained < likeness(FINE).trained
    assert "none trained" in str(worst._replace(trained=0))
    assert str(worst._replace(trained=3)) == "Of 40 random designs like this 3 trained."


@pytest.mark.parametrize("config", [Config(), preset("post_ln"), preset("deepnorm"), Config(init_variance=4.0)])
def test_theory_has_the_evidence_of_an_untrained_model(config: Config) -> None:
    small = as_trained(config)
    assert small is not None
    expected, shown = predicted(small), evidence(measure(small))
    assert expected is not None
    assert math.log10(expected.gradient) == pytest.approx(math.log10(shown.gradient), abs=0.2)  # of four draws
    assert expected[1:] == pytest.approx(shown[1:], abs=0.1)


def test_where_theory_lacks_a_gradient_a_model_is_measured() -> None:
    small = as_trained(preset("mhc"))
    assert small is not None
    assert predicted(small) is None


def test_evidence_is_what_the_profile_shows() -> None:
    small = as_trained(Config(n_layers=2))
    assert small is not None
    profile = measure(small)
    matrices = ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")
    squares = sum(profile["parameter_gradient", name] ** 2 for name in matrices).sum(axis=1)  # [seed]
    shown = evidence(profile)
    assert shown.gradient == pytest.approx(math.sqrt(squares.mean()), rel=1e-12)
    assert shown.entropy == profile["attention_entropy_normalized"].mean(axis=(0, 2)).min()
    assert 0 < shown.difference <= 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_evidence_is_finite_whatever_the_profile_is(value: float) -> None:
    bad = np.full((2, 3), value)
    shown = evidence(Profile("measured", {
        ("second_moment", "resid_post"): bad, ("token_correlation", "resid_post"): bad,
        ("parameter_gradient", "W_V"): bad, ("attention_entropy_normalized", "pattern"): bad[..., None]}))
    assert np.isfinite(shown).all()
    assert shown.gradient == 1e9
    assert chance(shown) < 0.1


def test_functions_in_the_norms_place_are_seen_where_there_are_norms() -> None:
    for placement, expected in (("pre", 1.0), ("none", 0.0)):
        config = as_trained(Config(n_layers=2, norm="dyt", norm_placement=placement))
        assert config is not None
        assert evidence(Profile("measured", {}, config)).pointwise == expected
