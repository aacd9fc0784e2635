"""Agreement: the distance of two profiles, and the words for it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer import Config, measure, predict
from explorer.agreement import agreement
from explorer.profile import Profile


def stream(q: list[float], statistic: str = "second_moment", **notes: str) -> Profile:
    """A profile of three layers with one statistic after each."""
    values = {(statistic, "resid_post"): np.array([q]), ("second_moment", "mlp_out"): np.full((1, 3), 7.0)}
    return Profile("predicted", values, notes=notes)


@pytest.mark.parametrize(
    ("measured", "words", "tone"),
    [
        ([1.0, 2.0, 3.0], "within 0.1 % of theory", "good"),
        ([1.02, 2.0, 3.0], "within 2 % of theory", "good"),
        ([1.0, 2.0, 3.24], "within 8 % of theory", "warn"),
        ([1.0, 2.6, 3.0], "30 % off theory at layer 2", "warn"),
        ([1.0, 2.0, 1.0], "a factor of 3 off theory at layer 3", "warn"),
        ([1.0, 2.0, 3e9], "a factor of over 100 off theory at layer 3", "warn"),
        ([1.0, math.inf, 3.0], "not finite where theory is", "warn"),
        ([1.0, math.nan, 3.0], "not finite where theory is", "warn"),
    ],
)
def test_words_for_a_ratio(measured: list[float], words: str, tone: str) -> None:
    found = agreement(stream(measured), stream([1.0, 2.0, 3.0]), "second_moment")
    assert (found.words, found.tone) == (words, tone)


@pytest.mark.parametrize(
    ("measured", "words"),
    [([0.9, 0.9, 0.912], "within 0.012 of theory"), ([0.9, 0.7, 0.9], "0.2 off theory at layer 2")],
)
def test_words_for_a_difference(measured: list[float], words: str) -> None:
    pair = (stream(measured, "token_correlation"), stream([0.9, 0.9, 0.9], "token_correlation"))
    assert agreement(*pair, "token_correlation").words == words


def test_a_line_among_the_seeds_is_no_disagreement() -> None:
    wide = Profile("measured", {("second_moment", "resid_post"): np.array([[1.0, 1.0, 3.0], [1.0, 4.0, 3.1]])})
    found = agreement(wide, stream([1.0, 2.0, 3.0]), "second_moment")
    assert (found.words, found.tone) == ("theory within the seeds' spread (25 %)", "good")
    missed = agreement(wide, stream([1.0, 5.0, 3.0]), "second_moment")
    assert (missed.words, missed.tone) == ("a factor of 2 off theory at layer 2", "warn")


def test_the_input_is_called_the_input() -> None:
    one, two = (Profile("measured", {("second_moment", "embed"): np.array([[q]])}) for q in (1.0, 2.0))
    found = agreement(two, one, "second_moment")
    assert found.words == "a factor of 2 off theory at the input"


def test_where_the_theory_ends_is_said() -> None:
    nan = math.nan
    half = stream([1.0, nan, nan], second_moment="not covered from layer 2 on: logits run away")
    assert agreement(stream([1.0, 9.0, 9.0]), half, "second_moment").words == "within 0.1 % of theory up to layer 1"
    top = stream([nan, nan, 3.0], second_moment="not covered before layer 3: logits run away")
    assert agreement(stream([1.0, 2.0, 3.0]), top, "second_moment").words == "within 0.1 % of theory from layer 3 on"
    lost = stream([nan] * 3, second_moment="not covered: logits run away")
    none = agreement(stream([1.0, 9.0, 9.0]), lost, "second_moment")
    assert (none.words, none.tone) == ("theory does not cover this: logits run away", "")
    assert math.isnan(none.worst)


def test_what_is_fixed_by_definition_is_no_agreement() -> None:
    """The gradient is measured against the last layer, and a norm on the sum sets what stands after it."""
    nan, good = math.nan, [0.3, 0.5, 1.0]
    lost = stream([nan, nan, 1.0], "activation_gradient", activation_gradient="not covered before layer 3: too far")
    found = agreement(stream(good, "activation_gradient"), lost, "activation_gradient")
    assert (found.words, found.tone) == ("theory does not cover this before layer 3", "")
    half = stream([nan, 0.5, 1.0], "activation_gradient", activation_gradient="not covered before layer 2: too far")
    assert agreement(stream(good, "activation_gradient"), half, "activation_gradient").words == (
        "within 0.1 % of theory from layer 2 on"
    )
    post = replace(stream([1.0, 1.0, 1.0]), config=Config(n_layers=3, norm_placement="post"))
    fixed = agreement(post, post, "second_moment")
    assert (fixed.words, fixed.tone) == ("fixed by definition: theory has nothing to predict", "")
    away = agreement(stream([1.0, 1.0, 2.0]), post, "second_moment")
    assert (away.words, away.tone) == ("a factor of 2 off theory at layer 3", "warn"), "a disagreement there is one"


@pytest.mark.parametrize("choices", [{"init_variance": 1000.0}, {"attention_scale": "none", "init_variance": 300.0}])
def test_no_green_badge_where_the_theory_has_but_the_last_layer(choices: dict[str, Any]) -> None:
    config = Config(d_model=64, n_heads=1, n_layers=6, n_seeds=1, **choices)
    found = agreement(measure(config), predict(config), "activation_gradient")
    assert (found.tone, "does not cover" in found.words) == ("", True)


def test_both_zero_is_agreement_and_the_mean_over_seeds_is_compared() -> None:
    zero = Profile("measured", {("parameter_gradient", "W_Q"): np.zeros((2, 3))})
    assert agreement(zero, zero, "parameter_gradient").worst == 0
    seeds = Profile("measured", {("second_moment", "resid_post"): np.array([[0.5, 1, 2], [1.5, 3, 4.0]])})
    assert agreement(seeds, stream([1.0, 2.0, 3.0]), "second_moment").worst == 0
