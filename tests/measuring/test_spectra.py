"""Largest singular values and stable ranks, against torch's singular values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from explorer import Config, Stopped, measure, preset
from explorer.measuring.spectra import of_stack, spectra
from explorer.model import Transformer
from explorer.sites import MATRICES

SMALL = Config(n_layers=2, d_model=64, n_heads=2, n_ctx=8, batch_size=1, n_seeds=2)


def exact(weight: torch.Tensor) -> tuple[float, float]:
    """By all singular values."""
    values = torch.linalg.svdvals(weight.detach().double())
    return float(values[0]), float(values.square().sum() / values[0] ** 2)


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 64), (64, 1), (3, 200), (64, 64), (256, 256), (700, 300), (256, 1024)]
)
def test_random_matrices_of_any_shape(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    matrices = list(torch.randn(3, *shape))
    largest, ranks = spectra(matrices)
    expected = np.array([exact(weight) for weight in matrices]).T
    np.testing.assert_allclose(largest, expected[0], rtol=1e-3)
    np.testing.assert_allclose(ranks, expected[1], rtol=2e-3)
    assert (largest <= expected[0] * (1 + 1e-6)).all(), "the iteration comes from below"


def test_matrices_of_few_directions_tiny_huge_and_half_precision() -> None:
    """No rounding error is taken for a direction: of these the iteration ends early."""
    torch.manual_seed(2)
    twins = torch.randn(40, 2) @ torch.randn(2, 30)
    matrices = [
        torch.ones(8, 9),
        torch.eye(64),
        twins,
        1e-30 * torch.randn(8, 9),
        1e30 * torch.randn(8, 9),
        torch.randn(64, 32).half(),
        torch.diag(torch.tensor([3.0, 2.0, 2.0])),
    ]
    largest, ranks = spectra(matrices)
    np.testing.assert_allclose(
        [largest, ranks], np.array([exact(weight) for weight in matrices]).T, rtol=1e-5
    )
    assert (largest[0], ranks[0]) == pytest.approx((math.sqrt(72), 1), rel=1e-5)
    assert ranks[1] == pytest.approx(64, rel=1e-5)


def test_zeros_and_numbers_that_are_not_finite_are_shown_as_such() -> None:
    broken, endless = torch.randn(8, 8), torch.randn(8, 8)
    broken[0, 0], endless[3, 3] = math.nan, math.inf
    largest, ranks = spectra([torch.zeros(4, 4), broken, endless, torch.eye(4)])
    assert largest[0] == 0
    assert np.isnan([largest[1], largest[2], *ranks[:3]]).all()
    assert largest[3] == pytest.approx(1), "one matrix does not spoil the others"
    assert [len(part) for part in spectra([])] == [0, 0]


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        SMALL.replace(parametrization="ntk", init_variance=4.0),
        SMALL.replace(d_model=512, n_seeds=1, n_heads=8),
        preset("llama3", n_layers=2, d_model=256, n_seeds=1),
        SMALL.replace(distribution="uniform", attention_gate="head"),
        SMALL.replace(layer_weights="copied"),
    ],
    ids=["default", "ntk", "wide", "llama3", "uniform, gate", "copied"],
)
def test_measured_matrices_are_those_that_multiply(config: Config) -> None:
    profile = measure(config, backward=False, spectra=True)
    for seed in range(config.n_seeds):
        for index, layer in enumerate(Transformer(config, seed).layers):
            for name in filter(layer.weights.__contains__, MATRICES):
                matrix = config.design.matrices[name]
                largest, rank = exact(layer.weights[name] * matrix.forward)
                size = largest / math.sqrt(matrix.fan_out / matrix.fan_in)
                assert profile["spectral_norm", name][seed, index] == pytest.approx(
                    size, rel=1e-3
                ), name
                assert profile["stable_rank", name][seed, index] == pytest.approx(rank, rel=2e-3), (
                    name
                )


def test_matrices_that_start_at_zero_have_no_rank() -> None:
    profile = measure(SMALL.replace(residual="fixup"), backward=False, spectra=True)
    assert (profile["spectral_norm", "W_out"] == 0).all()
    assert ("stable_rank", "W_out") not in profile
    assert profile.first_nonfinite is None


def test_they_are_measured_on_request_alone_and_can_be_stopped() -> None:
    assert "spectral_norm" not in measure(SMALL, backward=False)
    asked: list[int] = []
    measure(SMALL, lambda: bool(asked.append(1)), backward=False)
    left = len(asked) + 1

    def stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    with pytest.raises(Stopped):
        measure(SMALL, stop, backward=False, spectra=True)


def test_the_largest_possible_logit_is_reached_by_two_vectors_of_rms_1() -> None:
    """Their own logit, by the model's matrices, and of no other pair."""
    config = SMALL.replace(n_kv_heads=1, parametrization="ntk", init_variance=2.0)
    profile = measure(config, backward=False, spectra=True)
    layer = Transformer(config, config.seed).layers[1]
    scale = [config.design.matrices[name].forward for name in ("W_Q", "W_K")]
    for head in range(2):
        queries = scale[0] * layer.weights["W_Q"].detach().double()[32 * head : 32 * head + 32]
        keys = scale[1] * layer.weights["W_K"].detach().double()
        left, _, right = torch.linalg.svd(queries.T @ keys)
        x, y = 8 * left[:, 0], 8 * right[0]
        assert float(x.square().mean()) == pytest.approx(1)
        logit = float((queries @ x) @ (keys @ y)) / math.sqrt(32)
        assert profile["largest_possible_logit", "attn_scores"][0, 1, head] == pytest.approx(
            logit, rel=1e-5
        )
        values = torch.linalg.svdvals(queries.T @ keys)
        rank = float(values.square().sum() / values[0] ** 2)
        assert profile["logit_rank", "attn_scores"][0, 1, head] == pytest.approx(rank, rel=1e-5)


@pytest.mark.parametrize("width", [16, 200])
def test_stacks_of_small_and_of_large_matrices(width: int) -> None:
    """One that is not finite does not spoil the others."""
    torch.manual_seed(3)
    stack = torch.randn(4, width, width + 8)
    stack[1, 2, 3], stack[2] = math.inf, 0
    for turned in (stack, stack.mT):
        largest, ranks = of_stack(turned)
        for index in (0, 3):
            assert (largest[index], ranks[index]) == pytest.approx(exact(stack[index]), rel=2e-3)
        assert largest[2] == 0
        assert np.isnan([largest[1], ranks[1], ranks[2]]).all()
