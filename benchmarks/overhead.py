"""What measuring costs, in one run: a measured pass over the model's own bare pass, and over a
hand-written one; and what a prediction takes.

The hand-written pass is the default design in plain torch: q, k and v in one product, no taps, no
choices. All three have the threads that `measure` gives a seed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer import Config
from explorer.measuring.observe import Pass
from explorer.measuring.sharing import shares, torch_threads
from explorer.model import Transformer
from explorer.model.batch import Batch, draw
from explorer.theory import predict

SIZES = {
    "(12, 256)": (Config(), 21),
    "(100, 64)": (Config(n_layers=100, d_model=64, n_heads=2, n_ctx=32), 21),
    "(1000, 64)": (Config(n_layers=1000, d_model=64, n_heads=2, n_ctx=32), 7),
}
LIMIT = 1.10
FUSED_LIMITS = {"(12, 256)": 1.05, "(100, 64)": 1.15, "(1000, 64)": 1.15}


def bare(model: Transformer, inputs: Batch) -> None:
    """Forward, loss, and the gradient by every weight: what training does anyway."""
    torch.autograd.grad(model.loss(model(model.embed(inputs)), inputs), list(model.parameters()))


def fuse(model: Transformer) -> list[list[Tensor]]:
    """By layer, copies of the weights: queries, keys and values together, W_O, W_in, W_out."""
    return [
        [
            weight.detach().clone().requires_grad_()
            for weight in (
                torch.cat([layer.attention.W_Q, layer.attention.W_K, layer.attention.W_V]),
                layer.attention.W_O,
                layer.mlp.W_in,
                layer.mlp.W_out,
            )
        ]
        for layer in model.layers
    ]


def handwritten(weights: list[list[Tensor]], inputs: Batch, heads: int) -> Tensor:
    """The default design's loss, and the gradient by every weight."""
    x = inputs.input
    width, root = x.shape[-1:], math.sqrt(x.shape[-1] // heads)
    for packed, out, up, down in weights:
        q, k, v = (
            F.linear(F.layer_norm(x, width), packed)
            .unflatten(-1, (3, heads, -1))
            .permute(2, 0, 3, 1, 4)
        )  # type: ignore[no-untyped-call]
        pattern = ((q / root) @ k.transpose(-2, -1)).softmax(dim=-1)
        x = x + F.linear((pattern @ v).transpose(1, 2).flatten(2), out)
        x = x + F.linear(F.relu(F.linear(F.layer_norm(x, width), up)) * math.sqrt(2), down)
    loss = (F.layer_norm(x, width) * inputs.target).sum()
    torch.autograd.grad(loss, [weight for layer in weights for weight in layer])
    return loss.detach()


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratios(config: Config, rounds: int, limit: float) -> dict[str, dict[str, float]]:
    """Medians of the ratios of neighboring passes, after a warm-up of each."""
    model, inputs = Transformer(config, 0), draw(config, 0)
    weights, one = fuse(model), Pass(config, 0)
    passes: tuple[Callable[[], object], ...] = (
        lambda: handwritten(weights, inputs, config.n_heads),
        lambda: bare(model, inputs),
        lambda: one.observe(model, inputs),
    )
    with torch_threads(shares(config, torch.device("cpu"))[1]):
        times = [[seconds(work) for work in passes] for _ in range(rounds + 2)][2:]
    found = {}
    for index, (name, most) in enumerate(
        (("a hand-written pass", limit), ("its own bare pass", LIMIT))
    ):
        found[name] = {
            "bare_seconds": statistics.median(row[index] for row in times),
            "measured_seconds": statistics.median(row[2] for row in times),
            "ratio": statistics.median(row[2] / row[index] for row in times),
            "limit": most,
        }
    return found


def predicting(config: Config, rounds: int) -> float:
    """Median seconds of the predictions of designs that were not asked for before."""
    designs = [config.replace(init_variance=1 + number / 64) for number in range(rounds + 1)]
    return statistics.median([seconds(partial(predict, design)) for design in designs][1:])


def main() -> dict[str, dict[str, float]]:
    """Layers and width to the cost of measuring there, and to the seconds of a prediction."""
    found: dict[str, dict[str, float]] = {}
    for size, (config, rounds) in SIZES.items():
        for name, figures in ratios(config, rounds, FUSED_LIMITS[size]).items():
            found[f"measuring {size} over {name}"] = figures
        for name, causal in (("predicting", False), ("predicting, with a causal mask", True)):
            found[f"{name} {size}"] = {"seconds": predicting(config.replace(causal=causal), rounds)}
    return found
