"""Bytes that autograd keeps of a forward pass, counted on real tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from explorer.config import Config

if TYPE_CHECKING:
    from torch import Tensor


@lru_cache(maxsize=128)
def kept(config: Config) -> int:
    """Bytes of all tensors that autograd keeps of one forward pass, weights not counted."""
    import torch

    from explorer import batch
    from explorer.model import Transformer

    model, inputs = Transformer(config, config.seed), batch.draw(config, config.seed)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.loss(model(model.embed(inputs).detach().requires_grad_()), inputs)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in storages.items() if place not in weights)
