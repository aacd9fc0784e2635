"""One step of plain gradient descent: the change of the loss, beside its first order.

The model is drawn as always, in float32, and then calculated in float64. A small step changes a loss of order one by
less than float32 can tell from rounding; in float64 a change down to about 1e-13 is seen for what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from explorer.config import Config
from explorer.measuring.results import Update
from explorer.measuring.sharing import device, shares, torch_threads
from explorer.model import Transformer, batch
from explorer.stopping import Stop, Stopped


def update_size(config: Config, learning_rate: float, stop: Stop = lambda: False) -> Update:
    """Takes one step in a fresh model of each seed, and measures the change of the loss.

    Args:
        config: what to build.
        learning_rate: η, above 0.
        stop: asked before each layer, forward and backward.
    Raises:
        Stopped: `stop()` said true.
        ValueError: the learning rate is not a finite number above 0.
    """
    return update_sizes(config, [learning_rate], stop)[0]


def update_sizes(config: Config, learning_rates: Sequence[float], stop: Stop = lambda: False) -> list[Update]:
    """`update_size` for several learning rates from the same start: one gradient, and a forward pass for each."""
    for rate in learning_rates:
        if not (np.isfinite(rate) and rate > 0):
            raise ValueError(f"learning_rate must be a finite number above 0; got {rate}")
    target = device()
    workers, threads = shares(config, target)
    with torch_threads(threads), ThreadPoolExecutor(workers, "explorer-update") as pool:
        seeds = range(config.seed, config.seed + config.n_seeds)
        rows = pool.map(lambda seed: _steps(config, seed, learning_rates, stop, target), seeds)
        losses = np.array(list(rows))  # [seed, loss, ‖∇L‖², one change a rate]
    return [
        Update(rate, losses[:, 0], losses[:, 2 + index], -rate * losses[:, 1])
        for index, rate in enumerate(learning_rates)
    ]


def _steps(config: Config, seed: int, rates: Sequence[float], stop: Stop, target: torch.device) -> list[float]:
    """Numbers of one seed: the loss, ‖∇L‖², and the loss's change by each rate's step."""

    def check(*_: object) -> None:
        if stop():
            raise Stopped

    def tap(site: str, _: int, tensor: Tensor) -> None:
        check()
        if tensor.requires_grad and site == "resid_post":
            tensor.register_hook(check)  # type: ignore[no-untyped-call]

    model = Transformer(config, seed, check).double().to(target)
    numbers = (part.double() if part.is_floating_point() else part for part in batch.draw(config, seed))
    inputs = batch.Batch(*numbers).to(target)
    loss = model.loss(model(model.embed(inputs), tap), inputs)
    loss.backward()  # type: ignore[no-untyped-call]
    pairs = [(weight.detach(), weight.grad) for weight in model.parameters() if weight.grad is not None]
    weights, gradients = [weight for weight, _ in pairs], [gradient for _, gradient in pairs]
    square = float(torch.stack(torch._foreach_norm(gradients)).square().sum())
    changes, taken = [], 0.0
    with torch.no_grad():
        for rate in rates:
            torch._foreach_add_(weights, gradients, alpha=taken - rate)  # from where the last step led
            taken = rate
            changes.append(float(model.loss(model(model.embed(inputs), tap), inputs) - loss))
    return [float(loss.detach()), square, *changes]
