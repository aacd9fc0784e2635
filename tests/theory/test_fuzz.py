"""The seeded fuzz of the benchmarks: random designs, and that a prediction that is off is told from
one by chance."""

import numpy as np
import pytest

from benchmarks.fuzz import designs, factors, judged, off
from explorer import Config, Profile
from explorer.theory import predict


def test_random_designs_are_right_or_say_so() -> None:
    """The first of the fuzz's designs of another seed than its default; shallow ones, for time."""
    checked = [config.replace(n_layers=min(config.n_layers, 3)) for config in designs(7, 15)]
    assert len(set(checked)) == 15
    for config in checked:
        assert judged(config)[1] == [], config


def test_the_same_seed_draws_the_same_designs() -> None:
    assert list(designs(3, 10)) == list(designs(3, 10)) != list(designs(4, 10))


def test_texts_are_drawn_from_one_character_to_many() -> None:
    sentences = {config.sentence for config in designs(0, 60)}
    assert len(sentences) > 40
    assert Config().sentence not in sentences
    assert min(len(set(sentence)) for sentence in sentences) == 1
    assert max(len(set(sentence)) for sentence in sentences) >= 7
    assert {len(character.encode()) for sentence in sentences for character in sentence} == {
        1,
        2,
        3,
        4,
    }
    assert any(config.input == "sentence" for config in designs(0, 60))


def test_a_prediction_that_is_off_is_found_and_a_noted_one_is_not() -> None:
    theory = predict(Config(n_layers=2))
    found = Profile(
        "measured",
        {key: np.repeat(value, 8, 0) for key, value in theory.values.items()},
        seeds=range(8),
    )
    assert off(theory, found) == []
    values = {
        **theory.values,
        ("second_moment", "attn_out"): 1.6 * theory["second_moment", "attn_out"],
    }
    wrong = Profile("predicted", values)
    (one,) = off(wrong, found)
    assert (one.statistic, one.site) == ("second_moment", "attn_out")
    assert one.factor == pytest.approx(1.6)
    assert off(Profile("predicted", values, notes={"second_moment": "rough"}), found) == []


def test_chance_is_given_two_standard_errors_and_no_more() -> None:
    draws = np.array([[1.0], [3.0]] * 4)  # mean 2, standard error .378
    near, far = 2 + 2 * draws.std(0, ddof=1)[0] / 8**0.5, 6.0
    assert factors(draws, np.array([near])) == pytest.approx(1.0)
    assert factors(draws, np.array([far])) == pytest.approx(far / near)
    # measured is not finite, predicted is
    assert factors(np.full((8, 1), np.nan), np.array([1.0])) == np.inf
    assert factors(draws, np.array([np.nan])) == 1.0  # withdrawn
