"""Predictions of the steps that a dragged slider comes to next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from explorer.app.explore import ahead
from explorer.app.explore.ahead import FASTEST, STEPS, Ahead
from explorer.app.widgets.slider_steps import slider_steps
from explorer.config import Config
from explorer.profile import Profile
from explorer.theory import predict
from explorer.theory.predict import predict_all

VALUES = slider_steps(Config.specs()["init_variance"])
SMALL = Config(n_layers=2, d_model=32, n_heads=2, n_ctx=8)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of designs that were predicted at once."""
    counts: list[int] = []

    def counting(configs: Sequence[Config]) -> Iterator[tuple[int, Profile]]:
        counts.append(len(configs))
        return predict_all(configs)

    monkeypatch.setattr(ahead, "predict_all", counting)
    return counts


def drag(indices: Sequence[int], base: Config = SMALL) -> None:
    """Predicts the designs of some steps of the init variance."""
    predictions = Ahead()
    for index in indices:
        predictions(base.replace(init_variance=VALUES[index]))


@pytest.mark.parametrize("direction", [1, -1])
def test_a_dragged_slider_has_its_next_steps_predicted_at_once(
    counts: list[int], direction: int
) -> None:
    drag([100 + direction * step for step in range(STEPS + 2)])
    assert counts == [1, 1, STEPS]


def test_the_end_of_a_slider_is_the_end(counts: list[int]) -> None:
    drag([len(VALUES) - 5, len(VALUES) - 4, len(VALUES) - 3])
    assert counts == [1, 1, 3]


def test_leaps_and_numbers_of_ones_own_are_predicted_alone(counts: list[int]) -> None:
    drag(range(20, 140, FASTEST + 1))
    predictions = Ahead()
    for value in (1.001, 1.002, 1.003):
        predictions(SMALL.replace(init_variance=value))
    assert set(counts) == {1}


def test_designs_that_no_others_join_are_predicted_alone(counts: list[int]) -> None:
    drag([100, 101, 102, 103], SMALL.replace(logit_cap=3.0))
    assert set(counts) == {1}


def test_the_numbers_are_those_of_a_prediction_alone() -> None:
    predictions = Ahead()
    for index in (100, 101, 102, 103):
        config = SMALL.replace(init_variance=VALUES[index])
        profile, alone = predictions(config), predict(config)
        assert profile.config == config
        assert profile.values.keys() == alone.values.keys()
        for key, values in alone.values.items():
            np.testing.assert_allclose(profile.values[key], values, rtol=1e-9)
