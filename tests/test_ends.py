"""Values at the end of a stack: of which layer, and where the largest is."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import measured, predicted, stream

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
    """By hand: q doubles a layer, and seeds stand at half of it, at it, and half above it."""
    found = endings(measured(4))
    assert found["second_moment"] == Ending(16.0, 8.0, 24.0, 3, error=8 / 3**0.5)
    assert found["activation_gradient"].middle == pytest.approx(1.0)
    assert found["attention_entropy_normalized"] == Ending(0.6, 0.2, 1.0, 3, error=0.0)
    assert found["token_correlation"].middle == 1.0
    assert found["parameter_gradient"].middle == pytest.approx(1e5, rel=1e-12)
    assert found["parameter_gradient"].where == "W_out, layer 1"
    assert endings(predicted(4))["second_moment"] == Ending(16.0, 16.0, 16.0, 0)


def test_what_stops_being_finite_stays_so() -> None:
    growth = stream("second_moment", np.array([1, 1, 1, 1, np.inf]))
    assert endings(measured(2, values=growth))["second_moment"].middle == np.inf
