"""One seed's pass: builds the model, runs it forward and backward, and keeps nothing but numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from explorer import batch
from explorer.config import Config
from explorer.model import Transformer, visible
from explorer.probe.gradients import Gradients
from explorer.probe.record import Recorder
from explorer.profile import Array, Key

Stop = Callable[[], bool]
Progress = Callable[[float], None]

FORWARD_SHARE = 0.35
"""The forward pass's part of the time, for an even progress."""


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The measurement was abandoned because `stop()` said so."""


class Pass:
    """A seed's measurement; holds nothing of the model once `run` or `observe` has returned.

    Args:
        config: what to build.
        seed: which draw.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern is kept.
        stop: asked before each layer, forward and backward.
        progress: told the fraction that is done.
    """

    def __init__(self, config: Config, seed: int, pattern_of: tuple[int, int] = (1, 0),
                 stop: Stop = lambda: False, progress: Progress = lambda _: None) -> None:
        self.config, self.seed, self.pattern_of = config, seed, pattern_of
        self.stop, self.progress = stop, progress
        self.pattern: Array | None = None

    def run(self, device: torch.device) -> dict[Key, Array]:
        """Builds the seed's model and batch on a device, and observes them."""
        self.check()
        model = Transformer(self.config, self.seed, self.check).to(device)
        return self.observe(model, batch.draw(self.config, self.seed).to(device))

    def observe(self, model: Transformer, inputs: batch.Batch) -> dict[Key, Array]:
        """Statistic and site to `[layer]` or `[layer, head]`, from one pass forward and backward.

        The model's own gradients are left as they were found: none.
        """
        mask = visible(self.config.n_ctx, inputs.input.device) if self.config.causal else None
        recorder = Recorder(self.config, mask, self.pattern_of, self.after_forward)
        x = model.embed(inputs).detach().requires_grad_()
        # The view gives the input a place in autograd's order behind the first layer's weights; a leaf has none.
        loss = model.loss(model(x.view_as(x), recorder), inputs)
        gradients = Gradients(model, recorder.streams, self.after_backward)
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        except BaseException:
            model.zero_grad()  # what was stopped half-way; a whole pass has dropped each gradient itself
            raise
        finally:
            gradients.release()
        if model.W_U is not None:
            model.W_U.grad = None
        self.pattern = None if recorder.pattern is None else recorder.pattern.double().cpu().numpy()
        return {**recorder.values(), **gradients.values()}

    def check(self) -> None:
        """Raises Stopped if the work is no longer wanted."""
        if self.stop():
            raise Stopped

    def after_forward(self, layer: int) -> None:
        self.progress(FORWARD_SHARE * layer / self.config.n_layers)
        self.check()

    def after_backward(self, left: int) -> None:
        self.progress(FORWARD_SHARE + (1 - FORWARD_SHARE) * (1 - left / self.config.n_layers))
        self.check()
