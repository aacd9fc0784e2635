"""Which axis of a stream is what: most are `[batch, token, d]`, some put tokens first, or features before pixels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from explorer.probes.branches import Anatomy, queries_keys_values
from explorer.probes.graph import FUSED, VIEW, Node
from explorer.probes.operations import NORMS

TURNS = {"transpose", "permute", "t"}


class Layout(NamedTuple):
    """How a stream lies in memory."""

    tokens_first: bool = False
    """`[token, batch, d]`."""
    features_second: bool = False
    """`[batch, d, …]`, as convolutions have it."""
    flat: int = 0
    """Sequences in `[batch · token, d]`; 0 if it is one."""

    def arrange(self, x: Tensor) -> Tensor:
        """A stream as `[batch, token, d]`."""
        if self.features_second:
            x = x.movedim(1, -1)
        if self.tokens_first:
            x = x.transpose(0, 1)
        if x.ndim < 3:
            return x.reshape(self.flat or 1, -1, x.shape[-1])
        return x.reshape(x.shape[0], -1, x.shape[-1])


def layout(found: Anatomy) -> Layout:
    """The layout of a block's stream, from what reads it."""
    shape = found.source.tensor.shape
    if len(shape) > 2 and any(node.op == "convolution" and _as_it_lies(node.inputs[0], found.source)
                              for node in found.graph.order):
        return Layout(features_second=True)
    if found.attention is None:
        return Layout()
    if len(shape) == 2:
        sequences = found.attention.tensor.shape[0]
        whole = found.attention.op in FUSED and shape[0] % sequences == 0
        return Layout(flat=sequences if whole else 0)
    return Layout(tokens_first=len(shape) == 3 and min(shape[:2]) > 1 and _tokens_first(found))


def _as_it_lies(node: Node, source: Node) -> bool:
    """Whether it is the stream, or a norm of it, with its axes in their places."""
    while node is not source:
        if node.role != "stream" or node.op in TURNS or not node.inputs:
            return False
        plain = node.op in VIEW or node.op in NORMS
        node = next((one for one in node.inputs if one.role == "stream"), node) if plain else source
    return True


def _tokens_first(found: Anatomy) -> bool:
    """Whether the first sequence's second query is made of the stream's `[1, 0]`, and not of its `[0, 1]`."""
    heads = None if found.attention is None else queries_keys_values(found.attention)
    if heads is None or not heads[0].tensor.requires_grad or heads[0].tensor.shape[-2] < 2:  # a class token alone
        return False
    with torch.enable_grad():
        query = heads[0].tensor.flatten(0, -3)[0, 1].float().square().sum()
        gradient, = torch.autograd.grad(query, found.source.tensor, retain_graph=True, allow_unused=True)
    if gradient is None:
        return False
    by_place = gradient.abs().amax(dim=-1)
    return bool(by_place[1, 0] > 0) and not bool(by_place[0, 1] > 0)
