"""Values at the end of a stack: of which layer, and where the largest is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.ends import ENDS, Ending, endings
from explorer.profile import Profile


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("matrix", ["W_Q", "W_in"])
def test_the_largest_gradient_is_said_with_its_matrix_and_its_layer(
    matrix: str, layer: int
) -> None:
    """Layers count from 1."""
    values = {("parameter_gradient", name): np.ones((2, 3)) for name in ("W_Q", "W_K", "W_in")}
    values["parameter_gradient", matrix][:, layer - 1] = 5.0
    end = endings(Profile("measured", values, seeds=(0, 1)))["parameter_gradient"]
    assert (end.middle, end.where) == (pytest.approx(5.0), f"{matrix}, layer {layer}")


def test_the_gradient_is_the_input_s_and_other_statistics_are_the_last_layer_s() -> None:
    ramp = np.array([[3.0, 5.0, 7.0]])
    values = {
        ("activation_gradient", "embed"): np.array([[11.0]]),
        ("activation_gradient", "resid_post"): ramp,
        ("second_moment", "embed"): np.array([[13.0]]),
        ("second_moment", "resid_post"): ramp,
        ("logit_std", "attn_scores"): ramp[..., None],
    }
    found = endings(Profile("predicted", values))
    assert set(found) <= set(ENDS)
    assert {name: end.middle for name, end in found.items()} == {
        "activation_gradient": 11.0,
        "second_moment": 7.0,
        "logit_std": 7.0,
    }


def test_the_end_of_a_profile_is_its_last_layer_over_the_seeds() -> None:
    """By hand: q doubles a layer, and seeds stand at half of it, at it, and at twice it."""
    growth = np.array([0.5, 1.0, 2.0])[:, None] * 2.0 ** np.arange(1, 5)
    entropy = np.tile([0.2, 1.0], (3, 4, 1))  # of two heads
    measured = Profile(
        "measured",
        {
            ("second_moment", "resid_post"): growth,
            ("attention_entropy_normalized", "pattern"): entropy,
        },
        seeds=(0, 1, 2),
    )
    found = endings(measured)
    assert found["second_moment"] == Ending(
        16.0, 8.0, 32.0, 3, error=pytest.approx(16 * math.log(2) / 3**0.5)
    )
    assert found["attention_entropy_normalized"] == Ending(0.6, 0.2, 1.0, 3, error=0.0)
    predicted = Profile("predicted", {("second_moment", "resid_post"): growth[1:2]})
    assert endings(predicted)["second_moment"] == Ending(16.0, 16.0, 16.0, 0)


def test_what_stops_being_finite_stays_so() -> None:
    values = {("second_moment", "resid_post"): np.array([[1.0, np.inf], [1.0, 2.0]])}
    found = endings(Profile("measured", values, seeds=(0, 1)))
    assert found["second_moment"].middle == np.inf
