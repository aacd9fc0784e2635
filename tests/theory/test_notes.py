"""Where the theory is less right than elsewhere, and by how much; and where it is withdrawn.

The notes' own numbers are in `test_rough`.
"""

import math
from typing import Any

import numpy as np
import pytest
from trial import Array, both, by_layer

from explorer import Config, Profile, predict
from explorer.theory.coverage import ALIKE, RUNAWAY

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 64,
    "n_heads": 2,
    "n_ctx": 16,
    "batch_size": 2,
    "n_seeds": 48,
}
GRADIENTS = (
    ("activation_gradient", "embed"),
    ("parameter_gradient", "W_Q"),
    ("parameter_gradient", "W_O"),
)
SHARING = 0.3
"""Relative error of the largest coordinate where sequences share biases."""
TEXT_SURE, SURE_ALONG = 0.7, 0.25
"""Relative errors of ‖∂L/∂W‖ and of the gradient's square where a tied readout knows the tokens."""
ROUGH = 2.0
"""Largest factor between a rough square and the mean of the measured, two standard
errors aside."""


def config(**changes: Any) -> Config:
    return Config(**{**SMALL, **changes})


def within(profiles: tuple[Profile, Profile], key: tuple[str, str], factor: float) -> bool:
    """Whether the predicted is within a factor of the mean, after two standard errors."""
    found, expected = by_layer(*profiles, *key)
    mean, margin = found.mean(0), 2 * found.std(0, ddof=1) / math.sqrt(len(found))
    return bool(
        ((expected <= factor * (mean + margin)) & (expected * factor >= mean - margin)).all()
    )


def scatter(profiles: tuple[Profile, Profile], statistic: str, site: str) -> Array:
    """Standard deviation over draws, over the mean, by layer."""
    found, _ = by_layer(*profiles, statistic, site)
    relative: Array = found.std(0, ddof=1) / found.mean(0)
    return relative


def test_narrow_models_are_off_by_more_than_wide_ones_and_not_by_much() -> None:
    for width in (8, 16):
        narrow = both(config(d_model=width, n_seeds=64))
        assert all(within(narrow, key, ROUGH) for key in GRADIENTS)
    first = ("activation_gradient", "resid_mid")
    assert not within(both(config(d_model=8, n_seeds=64)), first, 1.02)
    wide = both(config())
    assert all(within(wide, key, 1.02) for key in (first, GRADIENTS[0]))


def test_the_largest_coordinate_of_a_narrow_branch_is_rough_and_of_a_wide_one_right() -> None:
    key = ("max_abs", "attn_out")
    narrow, wide = (
        both(config(d_model=width, attention_scale="none", n_seeds=64)) for width in (8, 128)
    )
    assert within(narrow, key, ROUGH)
    assert within(wide, key, 1.05)


def test_rows_of_logits_that_reach_their_cap_spoil_the_query_and_key_matrices_only() -> None:
    profiles = both(
        config(
            n_layers=1,
            d_model=192,
            n_ctx=33,
            scale_rule="bert",
            attention_scale="d",
            logit_cap=0.01,
            input="correlated",
            input_correlation=0.95,
            n_seeds=16,
        )
    )
    for matrix in ("W_Q", "W_K"):
        assert within(profiles, ("parameter_gradient", matrix), ROUGH**2)
        assert not within(profiles, ("parameter_gradient", matrix), 1.2)
    assert within(profiles, ("parameter_gradient", "W_O"), 1.1)


def test_logits_that_reach_their_cap_are_rough_within_a_factor() -> None:
    profiles = both(config(attention_scale="none", logit_cap=3.0))
    keys = [
        *GRADIENTS,
        ("second_moment", "attn_out"),
        ("attention_entropy", "pattern"),
        ("attention_max", "pattern"),
    ]
    assert all(within(profiles, key, ROUGH) for key in keys)
    assert not within(profiles, ("attention_entropy", "pattern"), 1.05)


def test_alike_tokens_told_apart_by_turns_are_rough_within_a_factor() -> None:
    same = {
        "position": "rotary",
        "input": "correlated",
        "input_correlation": 0.97,
        "n_ctx": 64,
        "d_model": 128,
    }
    far, near = (
        both(config(**same, init_variance=3.0)),
        both(config(**same, init_variance=0.5, n_layers=1)),
    )
    query = ("parameter_gradient", "W_Q")
    assert within(far, query, ROUGH)
    assert within(near, query, 1.2)
    error = [
        abs(found.mean(0) - expected).max()
        for found, expected in (by_layer(*both, "attention_max", "pattern") for both in (near, far))
    ]
    assert error[0] < 0.01 < error[1] < 0.12


def test_few_logits_below_a_cap_are_in_few_draws() -> None:
    few = both(config(n_heads=1, n_ctx=8, attention_scale="none", logit_cap=0.01))
    many = both(config(attention_scale="none", logit_cap=3.0))
    query = ("parameter_gradient", "W_Q")
    assert scatter(few, *query).min() > 2 > 4 * scatter(many, *query).max()
    assert within(few, query, ROUGH**2)


def test_a_tied_readout_that_knows_the_tokens_is_rough_as_measured() -> None:
    measured, predicted = both(
        config(
            residual="inverse_sqrt_depth",
            position="rotary",
            input="text",
            loss="next_token",
            readout="tied_scaled",
            d_model=128,
            batch_size=8,
        )
    )
    weights = dict.fromkeys(("W_O", "W_Q", "W_out"), (1 - TEXT_SURE) ** -2)
    for site, share in {"embed": 1 + SURE_ALONG, **weights}.items():
        statistic = "activation_gradient" if site == "embed" else "parameter_gradient"
        assert within((measured, predicted), (statistic, site), share), site
    assert not within((measured, predicted), ("parameter_gradient", "W_O"), 1.5)


def test_the_largest_coordinate_is_rough_where_sequences_share_biases() -> None:
    big = {"biases": "all", "bias_variance": 100.0, "d_model": 128}
    many, alone = both(config(**big, batch_size=16)), both(config(**big, batch_size=1))
    key = ("max_abs", "attn_out")
    assert within(many, key, 1 + SHARING)
    assert not within(many, key, 1.1)
    assert within(alone, key, 1.1)


def test_few_near_ties_carry_the_gradient_and_many_are_near_their_mean() -> None:
    far = {"init_variance": 40.0, "n_heads": 1}
    few, many = (
        both(config(**far, n_ctx=8, batch_size=1)),
        both(config(**far, n_ctx=128, batch_size=8, n_seeds=16)),
    )
    share = [
        np.median(found) / found.mean()
        for found in (by_layer(*one, *GRADIENTS[0])[0] for one in (few, many))
    ]
    assert share[0] < 0.4 < 0.6 < share[1]


def test_gradients_by_the_queries_of_almost_equal_tokens_scatter_and_keep_their_mean() -> None:
    profiles = both(config(input="correlated", input_correlation=0.999, n_seeds=64))
    assert (
        scatter(profiles, "parameter_gradient", "W_Q")
        > 1.3 * scatter(profiles, "parameter_gradient", "W_O")
    ).all()
    assert within(profiles, ("parameter_gradient", "W_Q"), 1.5)


def test_tokens_are_alike_where_the_note_says_so() -> None:
    measured, predicted = both(
        config(n_layers=5, d_model=256, n_heads=4, n_ctx=64, residual="absent", n_seeds=2)
    )
    first = int(np.flatnonzero(np.isnan(predicted["logit_std", "attn_scores"].ravel()))[0])
    assert f"from layer {first + 1} on" in predicted.notes["logit_std"]
    own = 1 - measured["token_correlation", "resid_post"]
    assert (own[:, first - 1] < ALIKE).all()
    assert (own[:, first - 2] > ALIKE).all()


def test_logits_that_run_away_leave_a_gradient_to_single_draws() -> None:
    measured, predicted = both(config(n_layers=6, n_seeds=24, norm_placement="none"))
    gradient = predicted["activation_gradient", "resid_post"][0]
    last = int(np.isnan(gradient).sum())
    assert f"before layer {last + 1}" in predicted.notes["activation_gradient"]
    assert measured["logit_std", "attn_scores"].mean((0, 2))[last] > RUNAWAY
    found = measured["activation_gradient", "resid_post"][:, 0]
    assert found.max() > 0.5 * found.sum()


def test_a_signal_is_not_finite_where_it_is_said_to_leave_the_range() -> None:
    measured, predicted = both(
        config(n_layers=8, n_seeds=2, norm_placement="none", init_variance=1000.0)
    )
    covered = int(np.isfinite(predicted["second_moment", "resid_post"]).sum())
    assert f"from layer {covered + 1} on" in predicted.notes["second_moment"]
    assert measured.first_nonfinite is not None
    assert measured.first_nonfinite.layer == covered + 1
    assert np.isfinite(measured["second_moment", "resid_post"][:, :covered]).all()


def test_gradients_are_nothing_where_they_are_said_to_leave_the_range() -> None:
    measured, predicted = both(
        config(
            n_layers=20,
            n_seeds=2,
            norm_placement="none",
            residual="absent",
            init_variance=0.005,
            attention="none",
            activation="sigmoid",
        )
    )
    lost = np.isnan(predicted["activation_gradient", "resid_post"][0])
    smallest = float(np.finfo(np.float32).smallest_subnormal)
    assert "float32" in predicted.notes["activation_gradient"]
    assert 0 < lost.sum() < len(lost)
    assert (measured["activation_gradient", "resid_post"][:, lost] < smallest).all()


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"qk_norm": True},
        {"norm_placement": "hybrid"},
        {"qk_norm": True, "qk_gain": 1.2, "n_heads": 16},
        {"qk_norm": True, "qk_gain": 4.0, "residual_attention": "scores"},
        {"norm_placement": "post", "residual": "deepnorm"},
        {"norm_placement": "hybrid", "residual": "deepnorm_encoder"},
    ],
)
def test_what_was_measured_to_be_right_is_not_blamed(choices: dict[str, Any]) -> None:
    notes = predict(Config(**choices)).notes
    assert not {"second_moment", "token_correlation", "attention_entropy_normalized"} & notes.keys()
    assert "activation_gradient" not in notes
