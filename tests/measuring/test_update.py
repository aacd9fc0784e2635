"""update_size(): a step that is really taken, against its first order; told apart from rounding; stopped when told."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from explorer import Config, Stopped
from explorer.measuring.update import update_size, update_sizes
from explorer.model import Transformer, batch
from explorer.theory import predict

SMALL = Config(n_layers=3, d_model=32, n_heads=4, n_ctx=8, batch_size=2, n_seeds=3)
TEXT = SMALL.replace(input="text", loss="next_token", causal=True)


@pytest.mark.parametrize("config", [SMALL, SMALL.replace(norm_placement="post", residual="rezero"), TEXT])
def test_the_ratio_goes_to_one_with_the_step(config: Config) -> None:
    """The deviation is of order η: at a tenth of the step there is about a tenth of it left."""
    coarse, fine, finest = update_sizes(config, [1e-5, 1e-6, 1e-9])
    assert np.all(coarse.ratio != 1)
    np.testing.assert_allclose(finest.ratio, 1, atol=1e-5)
    np.testing.assert_allclose(fine.ratio - 1, (coarse.ratio - 1) / 10, atol=0.05 * np.abs(fine.ratio - 1).max())


def test_a_large_step_departs_from_its_first_order() -> None:
    update = update_size(SMALL.replace(norm_placement="none"), 1.0)
    assert np.all(np.abs(update.ratio - 1) > 0.5)


def test_it_is_one_step_of_torchs_own_sgd() -> None:
    """In double precision: the same losses, from the same weights, on the same batch."""
    update = update_size(TEXT, 0.05)
    for index, seed in enumerate((0, 1, 2)):
        model, inputs = Transformer(TEXT, seed).double(), batch.draw(TEXT, seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for _ in range(2):
            loss = model.loss(model(model.embed(inputs)), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert update.loss[index] == pytest.approx(losses[0], rel=1e-12)
        assert update.change[index] == pytest.approx(losses[1] - losses[0], rel=1e-9)


def test_several_rates_start_from_the_same_weights() -> None:
    together = update_sizes(SMALL, [1e-2, 1e-5, 1e-3])
    for one in together:
        np.testing.assert_allclose(one.change, update_size(SMALL, one.learning_rate).change, rtol=1e-6)


def test_a_change_below_single_precision_is_seen() -> None:
    """At η = 1e-11 the loss moves by less than a tenth of the step between two float32 numbers of its size."""
    update = update_size(SMALL, 1e-11)
    assert np.all(np.abs(update.change) < 0.1 * np.finfo(np.float32).eps * np.abs(update.loss))
    np.testing.assert_allclose(update.change, update.first_order, rtol=1e-4)


def test_numbers_agree_with_each_other() -> None:
    update = update_size(SMALL, 1e-3)
    np.testing.assert_allclose(update.gradient, -update.first_order / 1e-3)
    assert update.loss.shape == update.change.shape == (3,)


@pytest.mark.parametrize("n_layers", [2, 8])
def test_the_gradient_is_where_theory_has_it(n_layers: int) -> None:
    """Σ‖∂L/∂W‖² of an MLP stack, mean of 16 seeds within four standard errors, which are below 10 %."""
    config = Config(n_layers=n_layers, d_model=128, n_heads=1, n_ctx=4, batch_size=1, attention="none", mlp_ratio=1,
                    norm_placement="none", residual="constant", alpha=n_layers**-0.5, n_seeds=16)
    found = update_size(config, 1e-6).gradient
    error = found.std() / math.sqrt(len(found))
    assert error < 0.1 * found.mean()
    profile = predict(config)
    expected = sum((profile["parameter_gradient", name] ** 2).sum() for name in ("W_in", "W_out"))
    assert abs(found.mean() - expected) < 4 * error


def test_it_stops_forward_and_backward() -> None:
    one = SMALL.replace(n_seeds=1)
    asked = 0

    def count() -> bool:
        nonlocal asked
        asked += 1
        return False

    update_size(one, 1e-3, count)
    for limit in range(asked):
        with pytest.raises(Stopped):
            update_size(one, 1e-3, iter([False] * limit + [True] * 999).__next__)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_takes_no_step_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"learning_rate must be a finite number above 0; got {rate}"):
        update_size(SMALL, rate)


def test_no_gradient_has_no_ratio() -> None:
    """α = 0 that is not learned: nothing moves, and nothing is divided by it."""
    update = update_size(SMALL.replace(alpha=0.0, norm_placement="none"), 1.0)
    assert not np.any(update.change)
    assert np.all(np.isnan(update.ratio))
