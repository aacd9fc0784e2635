"""What measuring costs: a measured pass over a bare forward and backward pass of the same model, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from explorer import Config
from explorer.batch import Batch, draw
from explorer.model import Transformer
from explorer.probe.observe import Pass

SIZES = {
    "(12, 256)": (Config(), 21),
    "(100, 64)": (Config(n_layers=100, d_model=64, n_heads=2, n_ctx=32), 21),
    "(1000, 64)": (Config(n_layers=1000, d_model=64, n_heads=2, n_ctx=32), 7),
}
LIMIT = 1.10


def bare(model: Transformer, inputs: Batch) -> None:
    """Forward, loss, and the gradient by every weight: what training does anyway."""
    torch.autograd.grad(model.loss(model(model.embed(inputs)), inputs), list(model.parameters()))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(config: Config, rounds: int) -> dict[str, float]:
    """Median of the ratios of neighbouring passes, after a warm-up of each."""
    model, inputs = Transformer(config, 0), draw(config, 0)
    one = Pass(config, 0)
    pairs = [
        (seconds(lambda: bare(model, inputs)), seconds(lambda: one.observe(model, inputs))) for _ in range(rounds + 2)
    ][2:]
    return {
        "bare_seconds": statistics.median(pair[0] for pair in pairs),
        "measured_seconds": statistics.median(pair[1] for pair in pairs),
        "ratio": statistics.median(measured / plain for plain, measured in pairs),
        "limit": LIMIT,
    }


def main() -> dict[str, dict[str, float]]:
    """Layers and width to the cost of measuring there."""
    return {f"measuring {name}": ratio(config, rounds) for name, (config, rounds) in SIZES.items()}
