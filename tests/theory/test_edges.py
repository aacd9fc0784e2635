"""Largest singular values at initialization: where the spectra of random matrices end, against
draws and models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from trial import agrees

from explorer import Config, measure, predict, preset
from explorer.schemes.scale import SCALE_RULES
from explorer.theory.laws import TRACY_WIDOM, largest_square

SHAPES = [(1, 64), (8, 64), (64, 16), (64, 64), (64, 256), (128, 128)]
DRAWS = 400
FAR = 0.2
"""Up to here a single largest singular value of width 128, or the rank, is from its law; layers
differ by ×3.5."""


def largest(matrices: torch.Tensor) -> np.ndarray:
    """`[draw, 1]`, squared."""
    return torch.linalg.matrix_norm(matrices.double(), 2).square().numpy()[:, None]


@pytest.mark.parametrize("shape", SHAPES)
def test_one_matrix(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    squares, law = largest(torch.randn(DRAWS, *shape)), np.array([largest_square(*shape)])
    assert agrees(squares, law, 0.005), (squares.mean(), law)
    assert not agrees(squares, 1.06 * law, 0.005)
    assert largest_square(*shape) == pytest.approx(largest_square(*shape[::-1])), (
        "a matrix and its transpose"
    )


@pytest.mark.parametrize("shape", [(16, 64), (64, 64), (64, 32), (32, 128)])
def test_the_product_of_two(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, DRAWS, *shape)
    squares, law = largest(a.mT @ b), np.array([largest_square(*shape, factors=2)])
    assert agrees(squares, law, 0.01), (squares.mean(), law)
    assert not agrees(squares, 1.1 * law, 0.01)


def test_ends_in_closed_form() -> None:
    """Ma's (2012) mean for one matrix, and 27/4 of the product of two square ones."""
    m, n = 300, 80
    high, low = math.sqrt(m - 0.5), math.sqrt(n - 0.5)
    scale = (high + low) * (1 / high + 1 / low) ** (1 / 3)
    assert largest_square(m, n) == pytest.approx((high + low) ** 2 + TRACY_WIDOM * scale, rel=1e-12)
    n = 10**9
    assert largest_square(n, n) / n == pytest.approx(4, rel=1e-4)
    assert largest_square(n, n, factors=2) / n**2 == pytest.approx(27 / 4, rel=1e-4)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"distribution": "uniform"},
        {"distribution": "truncated_normal"},
        {"parametrization": "ntk"},
        {"residual": "deepnorm", "norm_placement": "post"},
        {"scale_rule": "xavier", "attention_gate": "coordinate"},
    ],
    ids=str,
)
def test_models(choices: dict[str, str]) -> None:
    """All matrices of all layers are independent draws: of each as many as layers × seeds."""
    config = Config(
        n_layers=12, d_model=128, n_heads=2, n_ctx=4, batch_size=1, n_seeds=2, **choices
    )
    holds(config)


@pytest.mark.parametrize(
    "choices",
    [
        *({"scale_rule": name} for name in SCALE_RULES),
        {"scale_rule": "mitchell", "mlp": "gated", "mlp_variance": 0.3},
        {"scale_rule": "torchtitan", "residual": "t_fixup"},
        {"scale_rule": "mitchell", "attention": "none"},
        {"scale_rule": "mitchell", "residual": "deepnorm", "norm_placement": "post"},
        {"residual": "scaled_init"},
    ],
    ids=str,
)
def test_every_scale_rule_in_every_layer(choices: dict[str, Any]) -> None:
    config = Config(
        n_layers=12, d_model=128, n_heads=2, n_ctx=4, batch_size=1, n_seeds=2, **choices
    )
    holds(config)
    rule = SCALE_RULES[config.scale_rule].last or (lambda layer: 1.0)
    law = predict(config, backward=False, spectra=True)["spectral_norm", "W_out"][0]
    assert law / law[0] == pytest.approx(
        [math.sqrt(rule(layer) / rule(1)) for layer in range(1, 13)]
    )


@pytest.mark.parametrize("name", ["llama3", "gpt2", "gemma2", "t_fixup"])
def test_named_designs(name: str) -> None:
    holds(
        preset(
            name,
            n_layers=12,
            d_model=128,
            n_heads=4,
            n_kv_heads=4,
            n_ctx=4,
            batch_size=1,
            n_seeds=2,
        )
    )


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"n_kv_heads": 2},
        {"attention_scale": "none"},
        {"parametrization": "ntk"},
        {"n_heads": 8},
        {"distribution": "uniform"},
        {"position": "rotary", "init_variance": 3.0},
    ],
    ids=str,
)
def test_the_largest_possible_logit_and_the_stable_rank_of_a_head(
    choices: dict[str, object],
) -> None:
    """Within 1.5 %, and the rank, whose law has the square, 3 %: a head has 16 or 32 directions,
    the law many."""
    config = Config(
        **{
            "n_layers": 12,
            "d_model": 128,
            "n_heads": 4,
            "n_ctx": 4,
            "batch_size": 1,
            "n_seeds": 2,
            **choices,
        }
    )
    profiles = [function(config, backward=False, spectra=True) for function in (measure, predict)]
    for name, close in (("largest_possible_logit", 0.015), ("logit_rank", 0.03)):
        measured, predicted = (profile[name, "attn_scores"] for profile in profiles)
        assert measured.shape == (2, 12, config.n_heads)
        assert predicted.shape == (1, 12, 1)
        assert agrees(measured.reshape(-1, 1), predicted[0, 0], close), (
            name,
            measured.mean(),
            predicted[0, 0],
        )
        assert not agrees(measured.reshape(-1, 1), 1.1 * predicted[0, 0], close), name


@pytest.mark.parametrize("choices", [{"qk_norm": True}, {"attention": "none"}], ids=str)
def test_there_is_none_where_a_norm_gives_queries_their_length_or_there_are_none(
    choices: dict[str, object],
) -> None:
    config = Config(n_layers=1, d_model=16, n_heads=2, n_ctx=4, batch_size=1, n_seeds=1, **choices)
    for function in (measure, predict):
        profile = function(config, backward=False, spectra=True)
        assert "largest_possible_logit" not in profile
        assert "logit_rank" not in profile


def holds(config: Config) -> None:
    """The allowance is what Ma's correction and other distributions than the normal leave out at
    this width."""
    measured, predicted = (
        function(config, backward=False, spectra=True) for function in (measure, predict)
    )
    for name, matrix in config.design.matrices.items():
        assert matrix.variance > 0
        for statistic in ("spectral_norm", "stable_rank"):
            # of each layer to its own law
            ratios = measured[statistic, name] / predicted[statistic, name]
            draws, law = ratios.reshape(-1, 1), np.ones(1)
            assert np.abs(ratios - 1).max() < FAR, (statistic, name, ratios)
            assert agrees(draws, law, 0.01), (statistic, name, draws.mean())
            assert not agrees(draws, 1.05 * law, 0.01), (statistic, name)


def test_zeros_have_no_rank_and_are_predicted_as_zeros() -> None:
    predicted = predict(Config(residual="fixup"), backward=False, spectra=True)
    assert (predicted["spectral_norm", "W_O"] == 0).all()
    assert ("stable_rank", "W_O") not in predicted
    assert ("spectral_norm", "W_Q") not in predict(Config())
