"""The backward pass's recorder: each layer's gradients become numbers while they are warm, and are let go at once.

Nothing waits for the end of the pass, so a deep model's gradients never stand in memory together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from explorer.model import Layer, Transformer
from explorer.probe.statistics import norms
from explorer.profile import STREAM, Array, Key


class Gradients:
    """Hooks on the stream of one pass; after `loss.backward()`, `values()` has the backward statistics.

    When the gradient by a layer's input is complete, so are those by its weights: autograd stores a weight's gradient
    before it goes on to anything older.

    Args:
        model: its weights must have no gradients yet.
        streams: the tapped stream, from the input to the output: `embed`, then `resid_mid` and `resid_post` by layer.
        after_layer: called with the number of layers that are still to come; what it raises ends the pass.
    """

    def __init__(self, model: Transformer, streams: list[Tensor], after_layer: Callable[[int], None]) -> None:
        self.layers: list[Layer] = list(model.layers)  # type: ignore[arg-type]
        self.after_layer = after_layer
        self.middles = streams[1::2]
        self.by_stream: list[float] = []
        self.by_weight: list[list[float]] = []
        for middle in self.middles:
            middle.retain_grad()
        for below, stream in enumerate(streams[::2]):
            stream.register_hook(self.hook(below))  # type: ignore[no-untyped-call]

    def hook(self, below: int) -> Callable[[Tensor], None]:
        """What happens when the gradient by the stream behind so many layers is known."""

        def known(gradient: Tensor) -> None:
            if below == len(self.layers):
                self.by_stream += norms([gradient])
            else:
                self.reduce(self.layers[below], self.middles[below], gradient)
                self.after_layer(below)

        return known

    def reduce(self, layer: Layer, middle: Tensor, gradient: Tensor) -> None:
        """Turns a layer's gradients, by its weights, its middle and its input, into norms, and drops them."""
        owners = (middle, *layer.weights.values())
        found = [owner.grad for owner in owners if owner.grad is not None]
        if len(found) != len(owners):
            raise RuntimeError(f"layer {layer.layer} has {len(found)} of {len(owners)} gradients in place")
        sizes = norms([gradient, *found])
        self.by_stream += sizes[1::-1]
        self.by_weight.append(sizes[2:])
        for owner in owners:
            owner.grad = None

    def release(self) -> None:
        """Lets go of the stream. Its graph holds these hooks, so holding it would keep both alive for ever."""
        self.middles.clear()

    def values(self) -> dict[Key, Array]:
        """Statistic and site to `[layer]`: mean squares relative to the last layer's, and Frobenius norms."""
        stream, weight = np.array(self.by_stream[::-1]), np.array(self.by_weight[::-1])
        with np.errstate(all="ignore"):  # a vanished or exploded gradient is shown as what it is
            relative = (stream / stream[-1]) ** 2
        parts = dict(zip(STREAM, (relative[:1], relative[1::2], relative[2::2]), strict=True))
        return {
            **{("activation_gradient", site): part for site, part in parts.items()},
            **{("parameter_gradient", name): weight[:, index] for index, name in enumerate(self.layers[0].weights)},
        }
