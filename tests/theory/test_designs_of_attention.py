"""Designs of attention against measurement: positions, divisors, grouped heads, gates, sinks and
caps."""

from typing import Any

import numpy as np
import pytest
from trial import ALIBI, ALIKE, GATED, ROTARY, SIZES, agrees, both, by_layer, holds_everywhere

from explorer import Config, measure
from explorer.theory import predict

LLAMA: dict[str, Any] = {
    **GATED,
    **ROTARY,
    "activation": "silu",
    "activation_rescaled": False,
    "norm": "rms",
    "causal": True,
    "n_heads": 8,
    "n_kv_heads": 2,
}
DESIGNS: dict[str, dict[str, Any]] = {
    "rotary": {**ROTARY, "norm": "rms"},
    "rotary, causal": {**ROTARY, "causal": True},
    "rotary, alike tokens": {**ROTARY, **ALIKE},
    "rotary, alike tokens, causal": {**ROTARY, **ALIKE, "causal": True},
    "rotary, fast": {**ROTARY, **ALIKE, "rope_base": 10.0},
    "a quarter rotary, causal": {
        **ROTARY,
        "rope_fraction": 0.25,
        "input": "correlated",
        "n_ctx": 24,
        "causal": True,
    },
    "rotary, post": {**ROTARY, **ALIKE, "norm_placement": "post"},
    "rotary, RealFormer": {**ROTARY, **ALIKE, "residual_attention": "scores"},
    "rotary, RealFormer, causal": {
        **ROTARY,
        **ALIKE,
        "residual_attention": "scores",
        "causal": True,
    },
    "rotary, queries and keys added up": {**ROTARY, **ALIKE, "residual_attention": "qk"},
    "rotary, queries and keys added up, causal": {
        **ROTARY,
        **ALIKE,
        "residual_attention": "qk",
        "causal": True,
    },
    "rotary, soft cap": {**ROTARY, **ALIKE, "logit_cap": 2.0},
    "rotary, soft cap, causal": {**ROTARY, **ALIKE, "logit_cap": 2.0, "causal": True},
    "rotary, text": {**ROTARY, "input": "text"},
    "rotary, next token": {**ROTARY, "input": "text", "loss": "next_token"},
    "rotary, QK-norm, SwiGLU": {
        **ROTARY,
        **GATED,
        "activation": "silu",
        "qk_norm": True,
        "norm": "rms",
    },
    "ALiBi": {**ALIBI, "norm": "rms"},
    "ALiBi, alike tokens": {**ALIBI, **ALIKE, "n_heads": 8},
    "ALiBi, loud, post": {**ALIBI, "norm_placement": "post", "init_variance": 1.5, "n_layers": 2},
    "ALiBi, RealFormer": {**ALIBI, "residual_attention": "scores", "n_layers": 3},
    "ALiBi, value residual, QK-norm": {**ALIBI, "value_residual": True, "qk_norm": True},
    "ALiBi, text, six heads": {**ALIBI, "input": "text", "d_model": 192, "n_heads": 6},
    "SSMax": {"attention_scale": "ssmax"},
    "SSMax, causal": {"attention_scale": "ssmax", "causal": True},
    "SSMax, RealFormer, causal": {
        "attention_scale": "ssmax",
        "residual_attention": "scores",
        "causal": True,
        "norm_placement": "post",
        "ssmax_scale": 0.2,
    },
    "SSMax, queries and keys added up, causal": {
        "attention_scale": "ssmax",
        "residual_attention": "qk",
        "causal": True,
        "ssmax_scale": 0.2,
    },
    "QK-norm over all heads": {"qk_norm": True, "qk_norm_over": "all", "norm": "rms", "n_heads": 8},
    "QK-norm over all heads, causal": {
        "qk_norm": True,
        "qk_norm_over": "all",
        "causal": True,
        "init_variance": 4.0,
    },
    "QK-norm, RealFormer": {
        "qk_norm": True,
        "qk_gain": 3.0,
        "residual_attention": "scores",
        "n_layers": 3,
    },
    "QK-norm, queries and keys added up, causal": {
        "qk_norm": True,
        "qk_gain": 3.0,
        "residual_attention": "qk",
        "causal": True,
        "n_layers": 3,
    },
    "QK-norm, gain": {"qk_norm": True, "qk_gain": 0.5},
    "QK-norm, causal": {"qk_norm": True, "causal": True},
    "value residual": {"value_residual": True},
    "value residual, causal": {"value_residual": True, "causal": True},
    "value residual, alike tokens": {"value_residual": True, "input": "correlated"},
    "value residual, peri, causal": {
        "value_residual": True,
        "input": "correlated",
        "norm_placement": "peri",
        "causal": True,
    },
    "value residual, post": {"value_residual": True, "norm_placement": "post"},
    "value residual, RealFormer, causal": {
        "value_residual": True,
        "residual_attention": "scores",
        "causal": True,
    },
    "value residual, text": {"value_residual": True, "input": "text", "loss": "next_token"},
    "value residual, text, causal": {
        "value_residual": True,
        "input": "text",
        "loss": "next_token",
        "causal": True,
    },
    "learned positions": {"position": "learned", "input": "correlated"},
    "grouped heads": {"n_heads": 8, "n_kv_heads": 2},
    "one key-value head, causal": {"n_kv_heads": 1, "causal": True},
    "wide heads": {"head_size": 96, "n_heads": 8, "n_kv_heads": 4, "scale_rule": "torch_default"},
    "gates by head": {"attention_gate": "head"},
    "gates by coordinate": {"attention_gate": "coordinate", "init_variance": 4.0},
    "gates, causal post": {
        "attention_gate": "coordinate",
        "norm_placement": "post",
        "causal": True,
    },
    "gates, RealFormer, causal": {
        "attention_gate": "head",
        "residual_attention": "scores",
        "causal": True,
    },
    "sink, few keys": {"sink": "zero", "n_ctx": 4},
    "sink, causal": {"sink": "learned", "causal": True},
    "sink, causal post, gates": {
        "sink": "zero",
        "causal": True,
        "norm_placement": "post",
        "attention_gate": "head",
    },
    "sink, correlated, causal, few keys": {
        "sink": "zero",
        "causal": True,
        "input": "correlated",
        "n_ctx": 8,
    },
    "Llama": {**LLAMA},
    "Llama, unmasked, alike tokens": {**LLAMA, **ALIKE, "causal": False},
    "Qwen 3": {**LLAMA, "qk_norm": True},
    "gpt-oss": {**LLAMA, **ALIKE, "sink": "learned", "logit_cap": 5.0},
    "gates on HybridNorm's heads": {
        **LLAMA,
        "norm_placement": "hybrid",
        "attention_gate": "coordinate",
    },
    "gates, rotary, queries and keys added up": {
        **ROTARY,
        **ALIKE,
        "attention_gate": "head",
        "residual_attention": "qk",
    },
}


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design(name: str) -> None:
    holds_everywhere(DESIGNS[name])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["scores", "qk"])
@pytest.mark.parametrize(
    "choices",
    [
        {"qk_norm": True},
        {"qk_norm": True, "qk_gain": 3.0, "n_heads": 16},
        {"qk_norm": True, "qk_norm_over": "all"},
        {"qk_norm": True, "logit_cap": 5.0},
        {"qk_norm": True, "sink": "zero"},
        {"qk_norm": True, "norm": "rms", **ROTARY},
        {"norm_placement": "hybrid", "qk_norm": True},
        {"attention_scale": "none"},
        {"bias_variance": 0.5, "qk_norm": True},
    ],
)
def test_the_first_layer_inherits_nothing(choices: dict[str, Any], kind: str, causal: bool) -> None:
    own, inherited = (
        predict(Config(**{**SIZES, **choices}, causal=causal, residual_attention=residual))
        for residual in ("none", kind)
    )
    for key, values in own.values.items():
        if key[0] not in ("activation_gradient", "parameter_gradient"):
            assert inherited[key][:, 0] == pytest.approx(values[:, 0], rel=1e-9, nan_ok=True), key


BOUNDED: dict[str, dict[str, Any]] = {
    "small soft cap": {"logit_cap": 0.1, "attention_scale": "none", "n_ctx": 16},
    "small soft cap, alike tokens": {
        "logit_cap": 0.1,
        "attention_scale": "none",
        "input": "correlated",
    },
    "small soft cap, causal": {
        "logit_cap": 0.1,
        "attention_scale": "none",
        "causal": True,
        "n_seeds": 12,
    },
    "QK-norm, heads of 8, without √d": {
        "qk_norm": True,
        "attention_scale": "none",
        "n_heads": 32,
        "n_layers": 1,
    },
}
"""Logits that are not normal, but bounded: normal ones of the same Σp² stand for them, whose
largest weight and entropy are not quite the same."""
LOOSE = {"attention_max": 0.01, "attention_entropy_normalized": 0.07, "activation_gradient": 0.1}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_logits(name: str) -> None:
    holds_everywhere(BOUNDED[name], LOOSE)


ONE_LAYER: dict[str, tuple[dict[str, Any], str, str]] = {
    "rotary, logits": ({**ROTARY, "input": "correlated"}, "logit_std", "attn_scores"),
    "rotary, logits, causal": (
        {**ROTARY, "input": "correlated", "causal": True},
        "logit_std",
        "attn_scores",
    ),
    "ALiBi, entropy": ({**ALIBI, "n_heads": 8}, "attention_entropy", "pattern"),
    "ALiBi, values": ({**ALIBI, "n_heads": 8}, "second_moment", "attn_out"),
    "SSMax, causal": ({"attention_scale": "ssmax", "causal": True}, "logit_std", "attn_scores"),
    "value residual": ({"value_residual": True, "n_layers": 3}, "parameter_gradient", "W_V"),
    "value residual, causal": (
        {"value_residual": True, "n_layers": 3, "causal": True},
        "parameter_gradient",
        "W_V",
    ),
}


@pytest.mark.parametrize("name", ONE_LAYER)
def test_laws_of_positions_and_values_refuse_four_per_cent(name: str) -> None:
    choices, statistic, site = ONE_LAYER[name]
    config = Config(
        **{
            **SIZES,
            "n_layers": 1,
            "batch_size": 8,
            "residual": "inverse_sqrt_depth",
            "n_seeds": 16,
            **choices,
        }
    )
    found, expected = by_layer(*both(config), statistic, site)
    wrong = 1.04**2 if statistic == "parameter_gradient" else 1.04
    assert agrees(found, expected, 0.01)
    assert not agrees(found, wrong * expected, 0.01)
    assert not agrees(found, expected / wrong, 0.01)


@pytest.mark.parametrize("causal", [False, True])
def test_turns_let_the_gradient_see_what_keys_share(causal: bool) -> None:
    """Of tokens that are alike, the query path sees 1 − c̄ρ and not 1 − ρ: W_Q's squared gradient
    several times."""
    config = Config(
        **{
            **SIZES,
            "n_layers": 1,
            "input": "correlated",
            "input_correlation": 0.9,
            "init_variance": 0.5,
            "causal": causal,
            "n_seeds": 32,
        }
    )
    ratio = [
        (read(config.replace(position="rotary"))["parameter_gradient", "W_Q"] ** 2).mean()
        / (read(config)["parameter_gradient", "W_Q"] ** 2).mean()
        for read in (measure, predict)
    ]
    assert ratio[0] == pytest.approx(ratio[1], rel=0.15)
    assert ratio[1] > 2.5


@pytest.mark.parametrize("causal", [False, True])
def test_a_tiny_cap_makes_attention_uniform_forward_and_its_few_slopes_carry_the_gradient(
    causal: bool,
) -> None:
    config = Config(
        n_layers=1,
        d_model=128,
        n_heads=4,
        n_ctx=32,
        attention_scale="none",
        logit_cap=0.01,
        causal=causal,
        n_seeds=64,
    )
    measured, predicted = both(config)
    even = np.mean(1 / np.arange(1, 33)) if causal else 1 / 32
    assert predicted["second_moment", "attn_out"][0, 0] == pytest.approx(even, rel=0.02)
    alone = predict(config.replace(n_heads=1, n_ctx=8, n_layers=2))
    assert alone["second_moment", "attn_out"][0, 0] == pytest.approx(
        np.mean(1 / np.arange(1, 9)) if causal else 1 / 8, rel=0.02
    )
    assert "uncapped logits" in alone.notes["parameter_gradient"]
    found, expected = by_layer(measured, predicted, "parameter_gradient", "W_Q")
    assert agrees(found, expected, 0.2)
    assert not agrees(found, 0.2 * expected, 0.2)


@pytest.mark.parametrize("causal", [False, True])
def test_a_head_of_one_coordinate_is_nothing_after_a_norm_that_centers(causal: bool) -> None:
    measured, predicted = both(
        Config(n_layers=2, d_model=32, n_heads=32, n_ctx=8, norm_placement="hybrid", causal=causal)
    )
    for profile in (measured, predicted):
        assert not profile["second_moment", "attn_out"].any()
        assert not profile["parameter_gradient", "W_V"].any()
    found, expected = by_layer(measured, predicted, "second_moment", "resid_post")
    assert agrees(found, expected, 0.1)


def test_gradients_of_keys_that_share_much_add_up_where_a_sink_takes_weight() -> None:
    """A row's gradient by the shared part of the values has one sign, so that its keys' shared part
    does not cancel."""
    config = Config(
        n_layers=1,
        d_model=64,
        head_size=48,
        n_ctx=24,
        init_variance=0.0016,
        biases="all",
        bias_variance=6.4,
        attention_scale="none",
        sink="zero",
        n_seeds=48,
    )
    measured, predicted = both(config)
    for matrix in ("W_Q", "W_K"):
        found, expected = by_layer(measured, predicted, "parameter_gradient", matrix)
        assert agrees(found, expected, 0.1), (matrix, found.mean(0), expected)
