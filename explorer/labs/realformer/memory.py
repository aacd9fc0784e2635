"""Bytes that autograd keeps of a forward pass, counted on real tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from explorer.config import Config
from explorer.profile import Array

if TYPE_CHECKING:
    from torch import Tensor

LENGTHS = (16, 32, 64, 128, 256, 512)
"""Tokens for which memory is counted."""
MLP_RATIO = 1


class Memory(NamedTuple):
    """Bytes that one more layer makes autograd keep, weights not counted: counted on real tensors, and from shapes."""

    counted: Mapping[str, Array]
    """Form to `[length]`, over `LENGTHS`."""
    stream: Array
    """The stream, n · d numbers."""
    scores: Array
    """One score tensor, H · n² numbers."""

    @property
    def fused(self) -> Array:
        """A layer whose scores and pattern are never kept: ten streams. Two numbers a norm and token are left out."""
        return (8 + 2 * MLP_RATIO) * self.stream

    @property
    def written_out(self) -> Array:
        """A layer that keeps the pattern, too, as large as the scores: the way back through the softmax needs it."""
        return self.fused + self.scores


@lru_cache(maxsize=128)
def saved_bytes(config: Config) -> int:
    """Bytes of all tensors that autograd keeps of one forward pass, weights not counted."""
    import torch

    from explorer.model import Layer, Transformer, batch

    model, inputs = Transformer(config, config.seed), batch.draw(config, config.seed)
    for layer in model.layers:
        if isinstance(layer, Layer) and layer.attention:
            layer.attention.together = False  # as one product, queries would be kept with the keys and values
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.loss(model(model.embed(inputs).detach().requires_grad_()), inputs)
    return sum(tensor.untyped_storage().nbytes() for pointer, tensor in storages.items() if pointer not in weights)
