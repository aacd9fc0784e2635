"""Statistics by token position: theory against models, under a mask and without, with a sink and
without."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from trial import agrees, both

from explorer import Config, Profile, predict
from explorer.theory.positions import positions
from explorer.vocabulary import STATISTICS

DESIGNS: dict[str, dict[str, Any]] = {
    "all keys": {},
    "causal": {"causal": True},
    "sink": {"sink": "zero"},
    "causal sink": {"causal": True, "sink": "learned"},
    "causal post": {"causal": True, "norm_placement": "post"},
    "causal rotary": {"causal": True, "position": "rotary"},
    "causal peri": {"causal": True, "norm_placement": "peri"},
    "causal, no root d": {"causal": True, "attention_scale": "none"},
    "alibi": {"causal": True, "position": "alibi"},
    "alibi post": {"causal": True, "position": "alibi", "norm_placement": "post"},
}
ALLOWANCE = {
    "second_moment_by_position": 0.03,
    "token_correlation_by_position": 0.02,
    "attention_entropy_by_position": 0.02,
    "attention_received": 0.02,
}
"""What is left out at d = 128: second order in 1/width, and what is between the positions that are
followed."""


@cache
def found(design: str) -> tuple[Profile, Profile]:
    sizes = {
        "n_layers": 4,
        "d_model": 128,
        "n_heads": 4,
        "n_ctx": 32,
        "batch_size": 4,
        "n_seeds": 16,
    }
    return both(Config(**sizes | DESIGNS[design]))


@pytest.mark.parametrize("name", ALLOWANCE)
@pytest.mark.parametrize("design", DESIGNS)
def test_each_token_has_the_predicted_value(design: str, name: str) -> None:
    measured, predicted = found(design)
    values, (expected,) = measured[name], predicted[name]
    assert values.shape[1:] == expected.shape == (4, 32)
    assert name not in predicted.notes
    absolute = STATISTICS[name].bounded
    for layer in (0, -1):
        assert agrees(values[:, layer], expected[layer], ALLOWANCE[name], absolute), values[
            :, layer
        ].mean(0)
        assert not agrees(values[:, layer], 1.25 * expected[layer], ALLOWANCE[name], absolute)


@pytest.mark.parametrize("design", ["causal", "causal sink", "causal peri"])
def test_the_first_token_differs_as_the_mask_has_it(design: str) -> None:
    """A law of equal tokens would be refused: the first is longer, less like the others, and seen
    by all."""
    measured, predicted = found(design)
    names = ["token_correlation_by_position", "attention_received"]
    # a branch of peri adds exactly one to each token
    for name in names + ["second_moment_by_position"] * (design == "causal"):
        flat = np.full(32, predicted[name][0, -1].mean())
        assert not agrees(measured[name][:, -1], flat, ALLOWANCE[name], STATISTICS[name].bounded), (
            name
        )


def test_tokens_average_to_the_statistics_of_the_stack() -> None:
    for config in (Config(causal=True), Config(), Config(causal=True, sink="zero")):
        profile = predict(config)
        for name, site in (("second_moment", "resid_post"), ("attention_entropy", "pattern")):
            whole = profile[name, site].reshape(config.n_layers)
            np.testing.assert_allclose(profile[f"{name}_by_position"][0].mean(-1), whole, rtol=1e-9)
        correlation, whole = (
            profile["token_correlation_by_position"][0],
            profile["token_correlation", "resid_post"][0],
        )
        np.testing.assert_allclose(correlation.mean(-1), whole, rtol=0.03)


@pytest.mark.parametrize("n", [2, 7, 64, 300])
def test_uniform_attention_is_received_in_closed_form(n: int) -> None:
    """Under a mask (1/n) Σ_{i ≥ j} 1/i, without one 1/n."""
    masked, free = positions(n), positions(n, causal=False)
    expected = [sum(1 / i for i in range(j, n + 1)) / n for j in range(1, n + 1)]
    (received,) = masked.received(np.ones((1, len(masked.visible))))
    np.testing.assert_allclose(received, expected, rtol=1e-12)
    np.testing.assert_allclose(free.received(np.ones((1, 1))), np.full((1, n), 1 / n), rtol=1e-12)
    assert sum(expected) == pytest.approx(1)


def test_keys_of_several_lengths_receive_what_no_law_covers() -> None:
    """Without norms the first token is longer under a mask; with logits of little spread that does
    not matter."""
    causal = Config(causal=True, norm_placement="none", n_layers=4)
    profile = predict(causal)
    assert (
        profile.notes["attention_received"]
        == "not covered from layer 2 on: longer keys receive more"
    )
    assert np.isfinite(profile["attention_received"][0, 0]).all()
    assert np.isnan(profile["attention_received"][0, 1:]).all()
    assert (
        "attention_received"
        not in predict(causal.replace(attention_scale="d", init_variance=0.3)).notes
    )
    assert "attention_received" not in predict(causal.replace(causal=False)).notes


def test_logits_that_fall_with_distance_have_no_law_where_their_keys_are_too_many() -> None:
    """Each pair of tokens is followed, up to 64 of them; the weights of a row add up to 1."""
    few, many = (predict(Config(causal=True, position="alibi", n_ctx=n)) for n in (64, 65))
    assert few["attention_received"][0].sum(-1) == pytest.approx(1)
    assert many.notes["attention_received"].startswith(
        "not covered: logits that fall with distance"
    )
    assert np.isnan(many["attention_received"]).all()


def test_slopes_alone_are_received_in_closed_form() -> None:
    """Of equal queries and keys: softmax of −m (t − s) in each head, mean over heads and
    queries."""
    config = Config(causal=True, position="alibi", n_ctx=12, init_variance=1e-3)
    distance = np.subtract.outer(np.arange(12), np.arange(12))
    rows = [
        np.where(distance < 0, 0, np.exp(-slope * np.maximum(distance, 0)))
        for slope in config.design.slopes
    ]
    expected = np.mean([row / row.sum(1, keepdims=True) for row in rows], axis=(0, 1))
    np.testing.assert_allclose(predict(config)["attention_received"][0, 0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "change", [{}, {"value_residual": True}, {"norm_placement": "pre", "init_variance": 0.3}]
)
def test_the_largest_number_does_not_depend_on_the_size_of_the_values(
    change: dict[str, Any],
) -> None:
    """Rows of attention with ALiBi differ in length by what the values have apart, not by what the
    keys have."""
    config = Config(
        n_layers=4,
        d_model=96,
        n_ctx=8,
        causal=True,
        position="alibi",
        norm_placement="keel",
        init_variance=0.04,
        n_seeds=16,
    ).replace(**change)
    measured, predicted = both(config)
    largest, expected = measured["max_abs", "attn_out"].mean(0), predicted["max_abs", "attn_out"][0]
    np.testing.assert_allclose(expected, largest, rtol=0.1)
