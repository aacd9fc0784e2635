"""The backward pass's recorder: each layer's gradients become numbers while they are warm, and are let go at once.

Nothing waits for the end of the pass, so a deep model's gradients never stand in memory together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from explorer.model import Layer
from explorer.probes.statistics import no_number, norms_by_seed
from explorer.profile import Array, Key, by_site


class Ended(Exception):  # noqa: N818 - not an error: the rest is known
    """A gradient of which no entry is a number: nor is there any below."""


class Unknown(Exception):  # noqa: N818 - as above
    """A gradient that has numbers came to layers that were left out."""


class Gradients:
    """Hooks on the stream; after the backward pass, `values()` has its statistics.

    Where no entry of the gradient is a number it ends the pass, for nothing below has a number either.

    When the gradient by a layer's input is complete, so are those by its weights: autograd stores a weight's gradient
    before it goes on to anything older.

    Args:
        after_layer: called with the number of layers that are still to come; what it raises ends the pass.
        shared: whether all layers have the same weights; what each gets is then the same, the sum over the layers.
        ends: whether it may end the pass: it raises `Ended`, or `Unknown`.
        seeds: draws that the layers hold side by side.
    """

    def __init__(self, after_layer: Callable[[int], None], shared: bool = False, ends: bool = False, seeds: int = 1
                 ) -> None:
        self.after_layer, self.shared, self.ends, self.seeds, self.n_layers = after_layer, shared, ends, seeds, 0
        self.middles: list[Tensor] = []
        self.by_stream: list[Array] = []
        """`[seed]` each, as the next."""
        self.by_weight: list[list[Array]] = []
        self.names: tuple[str, ...] = ()

    def watch(self, layers: Sequence[Layer], streams: Sequence[Tensor]) -> None:
        """Hooks a run of layers, whose weights must have no gradients yet; the last run of a model comes first.

        Args:
            layers: one above the other.
            streams: what goes into the first, then the middle and the end of each.
        """
        self.n_layers = max(self.n_layers, layers[-1].layer)
        self.names = (*layers[0].weights, *(["mix"] if layers[0].mix else []))
        self.middles = list(streams[1::2])
        for middle in self.middles:
            middle.retain_grad()
        for index, (layer, stream) in enumerate(zip(layers, streams[::2], strict=False)):
            left_out = index > 0 and layer.layer - layers[index - 1].layer > 1
            stream.register_hook(partial(self.below, layer, index, left_out))  # type: ignore[no-untyped-call]
        if not self.by_stream:  # where runs meet, the one above has seen the gradient
            streams[-1].register_hook(self.last)  # type: ignore[no-untyped-call]

    def last(self, gradient: Tensor) -> None:
        """Takes the gradient by the last layer's output."""
        self.by_stream.extend(norms_by_seed([gradient], self.seeds))

    def below(self, layer: Layer, index: int, left_out: bool, gradient: Tensor) -> None:
        """Turns a layer's gradients into norms and drops them, once that by its input is known.

        As a hook it must hold no tensor: see `release`.
        """
        shared = self.shared and layer.layer > 1  # the first layer, which comes last, has the sum over all
        owners = (self.middles[index], *(() if shared else (*layer.weights.values(), *layer.mix)))
        found = [owner.grad for owner in owners if owner.grad is not None]
        if len(found) != len(owners):
            raise RuntimeError(f"layer {layer.layer} has {len(found)} of {len(owners)} gradients in place")
        sizes = list(norms_by_seed([gradient, *found], self.seeds))
        self.by_stream += sizes[1::-1]
        if not shared:
            named = 2 + len(layer.weights)
            self.by_weight.append([*sizes[2:named], *([np.linalg.norm(sizes[named:], axis=0)] if layer.mix else [])])
        for owner in (*owners, *layer.biases.values()):
            owner.grad = None
        self.after_layer(layer.layer - 1)
        if self.ends and layer.layer > 1 and no_number(gradient):
            raise Ended
        if left_out:
            raise Unknown

    def release(self) -> None:
        """Lets go of the stream. Its graph holds these hooks, so holding it would keep both alive for ever."""
        self.middles.clear()

    def values(self) -> list[dict[Key, Array]]:
        """Of each seed: statistic and site to `[layer]`: mean squares relative to the last layer's, and norms."""
        stream = np.full((2 * self.n_layers + 1, self.seeds), math.nan)  # where it ended
        stream[len(stream) - len(self.by_stream):] = self.by_stream[::-1]
        weight = np.full((1 if self.shared else self.n_layers, len(self.names), self.seeds), math.nan)
        weight[len(weight) - len(self.by_weight):] = np.reshape(self.by_weight[::-1], (-1, *weight.shape[1:]))
        weight = np.broadcast_to(weight, (self.n_layers, *weight.shape[1:]))
        with np.errstate(all="ignore"):  # a vanished or exploded gradient is shown as what it is
            relative = (stream / stream[-1]) ** 2
        return [{
            **{("activation_gradient", site): part for site, part in by_site(relative[:, seed]).items()},
            **{("parameter_gradient", name): weight[:, index, seed] for index, name in enumerate(self.names)},
        } for seed in range(self.seeds)]
