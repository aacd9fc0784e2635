"""`measure`: builds the model of a config, runs it forward and backward once a seed, and keeps only numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from explorer import batch
from explorer.config import Config
from explorer.model import Transformer, visible
from explorer.probe.record import Recorder
from explorer.probe.statistics import norms
from explorer.profile import MATRICES, STREAM, Array, Key, Profile

Stop = Callable[[], bool]
Progress = Callable[[float], None]

FORWARD_SHARE = 0.35
"""The forward pass's part of the time, for an even progress."""


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The measurement was abandoned because `stop()` said so."""


def measure(config: Config, stop: Stop | None = None, progress: Progress | None = None,
            pattern_of: tuple[int, int] = (1, 0)) -> Profile:
    """Measures one experiment over its seeds: every statistic of the vocabulary, by layer.

    Args:
        config: what to build and run.
        stop: asked before each layer, forward and backward; once it says true, the work is abandoned.
        progress: told the fraction that is done, from 0 to 1, after each layer.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern the profile keeps.
    Raises:
        Stopped: `stop()` said true.
        ValueError: `pattern_of` names no layer or head of the model, or EXPLORER_DEVICE no device.
    """
    layer, head = pattern_of
    if not (1 <= layer <= config.n_layers and 0 <= head < config.n_heads):
        raise ValueError(
            f"pattern_of must be a layer from 1 to {config.n_layers} and a head from 0 to {config.n_heads - 1}; "
            f"got {layer} and {head}"
        )
    start = time.perf_counter()
    seeds = tuple(range(config.seed, config.seed + config.n_seeds))
    passes = [
        Pass(config, seed, pattern_of, stop, _part(progress, index, len(seeds))) for index, seed in enumerate(seeds)
    ]
    values = [one.run() for one in passes]
    return Profile(
        origin="measured",
        values={key: np.stack([value[key] for value in values]) for key in values[0]},
        config=config,
        seeds=seeds,
        pattern=passes[0].pattern,
        pattern_of=pattern_of,
        seconds=time.perf_counter() - start,
    )


def device() -> torch.device:
    """Where measurements run: EXPLORER_DEVICE = auto (a GPU if there is one), cpu or cuda."""
    choice = os.environ.get("EXPLORER_DEVICE", "auto")
    if choice not in ("auto", "cpu", "cuda"):
        raise ValueError(f"EXPLORER_DEVICE must be one of auto, cpu, cuda; got {choice!r}")
    if choice == "cuda" and not torch.cuda.is_available():
        raise ValueError("EXPLORER_DEVICE = cuda needs a GPU that torch can use; there is none")
    return torch.device("cuda" if choice != "cpu" and torch.cuda.is_available() else "cpu")


class Pass:
    """One seed: forward, backward, numbers. Holds nothing of the model once `run` has returned."""

    def __init__(self, config: Config, seed: int, pattern_of: tuple[int, int], stop: Stop | None,
                 progress: Progress) -> None:
        self.config, self.seed, self.pattern_of = config, seed, pattern_of
        self.stop, self.progress = stop, progress
        self.pattern: Array | None = None

    def check(self) -> None:
        """Raises Stopped if the work is no longer wanted."""
        if self.stop is not None and self.stop():
            raise Stopped

    def run(self) -> dict[Key, Array]:
        """Builds the seed's model and batch, and observes them."""
        self.check()
        target = device()
        model = Transformer(self.config, self.seed, self.check).to(target)
        return self.observe(model, batch.draw(self.config, self.seed).to(target))

    def observe(self, model: Transformer, inputs: batch.Batch) -> dict[Key, Array]:
        """Statistic and site to `[layer]` or `[layer, head]`, from one pass forward and backward."""
        mask = visible(self.config.n_ctx, inputs.input.device) if self.config.causal else None
        recorder = Recorder(self.config, mask, self.pattern_of, self.after_forward)
        x = model.embed(inputs)
        loss = model.loss(model(x if x.requires_grad else x.detach().requires_grad_(), recorder), inputs)
        gradients = self.backward(model, loss, recorder.streams)
        self.pattern = None if recorder.pattern is None else recorder.pattern.double().cpu().numpy()
        return {**recorder.values(), **gradients}

    def after_forward(self, layer: int) -> None:
        self.progress(FORWARD_SHARE * layer / self.config.n_layers)
        self.check()

    def backward(self, model: Transformer, loss: Tensor, streams: list[Tensor]) -> dict[Key, Array]:
        """Gradients by the stream and by the weights, reduced to their norms."""
        for index, stream in enumerate(streams[::2]):
            stream.register_hook(self.after_backward(index))  # type: ignore[no-untyped-call]
        names = [*MATRICES, *(("alpha",) if model.layers[0].alpha is not None else ())]
        weights = [_weight(layer, name) for name in names for layer in model.layers]
        found = torch.autograd.grad(loss, [*streams, *weights])
        sizes = norms(list(found)).cpu().numpy()
        stream_size, weight_size = sizes[: len(streams)], sizes[len(streams) :].reshape(len(names), -1)
        with np.errstate(all="ignore"):  # a vanished or exploded gradient is shown as what it is
            relative = (stream_size / stream_size[-1]) ** 2
        parts = {"embed": relative[:1], "resid_mid": relative[1::2], "resid_post": relative[2::2]}
        return {
            **{("activation_gradient", site): parts[site] for site in STREAM},
            **{("parameter_gradient", name): weight_size[row] for row, name in enumerate(names)},
        }

    def after_backward(self, layer: int) -> Callable[[Tensor], None]:
        """A hook for the gradient by the stream behind a layer: progress, and the way out."""

        def hook(_: Tensor) -> None:
            done = 1 - layer / self.config.n_layers
            self.progress(FORWARD_SHARE + (1 - FORWARD_SHARE) * done)
            self.check()

        return hook


def _weight(layer: torch.nn.Module, name: str) -> Tensor:
    owner = layer if name == "alpha" else layer.mlp if name in ("W_in", "W_out") else layer.attention
    weight: Tensor = getattr(owner, name)
    return weight


def _part(progress: Progress | None, index: int, count: int) -> Progress:
    """The progress of one pass out of several, or nothing where nobody listens."""
    if progress is None:
        return lambda _: None
    return lambda fraction: progress((index + fraction) / count)
