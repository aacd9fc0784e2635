"""Readings of one training step, taken from its own passes by taps that do not alter it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from explorer.measuring.observe import both
from explorer.measuring.record import Recorder
from explorer.measuring.statistics import norms
from explorer.model import Layer, Transformer
from explorer.model.attention import visible
from explorer.model.batch import Batch
from explorer.profile import BRANCHES, MATRICES, Array, Key, by_site


class Instruments:
    """One step's reading. Use `tap` in the forward pass, then the methods in their order; `found` has the numbers.

    Args:
        model: the contender's.
    """

    def __init__(self, model: Transformer) -> None:
        config = model.config
        self.model = model
        self.layers: list[Layer] = list(model.layers)  # type: ignore[arg-type]
        self.names = tuple(name for name in self.layers[0].weights if name in MATRICES)
        mask = visible(config.n_ctx, device_of(model)) if config.causal else None
        self.recorder = Recorder(config, mask, (1, 0), lambda _: None)
        self.streams: list[Tensor] = []
        self.tap = both(self.recorder, self.streams)
        self.before: list[Tensor] = []
        self.found: dict[Key, Array] = {("alpha", site): values for site, values in self.alphas().items()}

    def forward_is_done(self) -> None:
        """Before the backward pass: what the taps saw, and the weights as they are."""
        self.found |= self.recorder.values()[0]
        for stream in self.streams:
            stream.retain_grad()
        self.before = [weight.detach().clone() for weight in self.matrices()]

    def backward_is_done(self) -> None:
        """Before the optimizer's step: the gradients by the stream and by the weights."""
        sizes = np.array(norms([stream.grad for stream in self.streams if stream.grad is not None]))
        self.found |= {("stream_gradient", site): part for site, part in by_site(sizes).items()}
        self.streams.clear()  # so that their graph is freed
        for name in self.layers[0].weights:
            gradients = [layer.weights[name].grad for layer in self.layers]
            known = [gradient for gradient in gradients if gradient is not None]
            if known:  # an α that is not learned has none
                self.found["parameter_gradient", name] = np.array(norms(known))

    @torch.no_grad()
    def step_is_done(self) -> None:
        """After the optimizer's step: the change of each matrix over its size."""
        weights = self.matrices()
        moved = np.array(norms(list(torch._foreach_sub(weights, self.before))))
        with np.errstate(divide="ignore", invalid="ignore"):  # Fixup's last matrices begin at zero
            ratio = (moved / np.array(norms(self.before))).reshape(len(self.layers), len(self.names))
        self.found |= {("update_ratio", name): ratio[:, index] for index, name in enumerate(self.names)}

    def matrices(self) -> list[Tensor]:
        """Every matrix of every layer, a layer's side by side."""
        return [layer.weights[name] for layer in self.layers for name in self.names]

    @torch.no_grad()
    def alphas(self) -> dict[str, Array]:
        """α of each branch by layer, `[layer]`: their mean where a branch has one for every coordinate."""
        learned = [layer.alpha for layer in self.layers if layer.alpha is not None]
        if not learned:
            return {}
        # [], [branch] or [branch, coordinate] to [branch]
        by_branch = [alpha.reshape(min(alpha.numel(), 2), -1).mean(-1).expand(2) for alpha in learned]
        return dict(zip(BRANCHES, torch.stack(by_branch, dim=1).double().cpu().numpy(), strict=True))


@torch.no_grad()
def loss_of(model: Transformer, batch: Batch) -> float:
    """The loss on a batch, of a bare pass."""
    return float(model.loss(model(model.embed(batch)), batch))


def device_of(model: Transformer) -> torch.device:
    """Device of a model's weights."""
    return next(model.parameters()).device
