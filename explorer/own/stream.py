"""The stream of a stack of blocks: how it lies in memory, what goes into the first block, what follows the last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explorer.measuring.statistics import Signal
from explorer.own import text
from explorer.own.branches import Anatomy, queries_keys_values
from explorer.own.nodes import FUSED, MATRIX, NORMS, VIEW, Node, is_norm
from explorer.schemes.placement import NORMS as SCHEMES

TURNS = {"transpose", "permute", "t"}


class Layout(NamedTuple):
    """Which axis of a stream is what: most are `[batch, token, d]`."""

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
        return x.reshape((self.flat or 1) if x.ndim < 3 else x.shape[0], -1, x.shape[-1])


def layout(anatomy: Anatomy) -> Layout:
    """The layout of a block's stream, from what reads it."""
    shape = anatomy.source.tensor.shape
    if len(shape) > 2 and any(node.op == "convolution" and _as_it_lies(node.inputs[0], anatomy.source)
                              for node in anatomy.graph.order):
        return Layout(features_second=True)
    if anatomy.attention is None:
        return Layout()
    if len(shape) == 2:
        sequences = anatomy.attention.tensor.shape[0]
        whole = anatomy.attention.op in FUSED and shape[0] % sequences == 0
        return Layout(flat=sequences if whole else 0)
    return Layout(tokens_first=len(shape) == 3 and min(shape[:2]) > 1 and _tokens_first(anatomy))


def _as_it_lies(node: Node, source: Node) -> bool:
    """Whether it is the stream, or a norm of it, with its axes in their places."""
    while node is not source:
        if node.role != "stream" or node.op in TURNS or not node.inputs:
            return False
        plain = node.op in VIEW or node.op in NORMS
        node = next(iter(node.made_of("stream")), node) if plain else source
    return True


def _tokens_first(anatomy: Anatomy) -> bool:
    """Whether the first sequence's second query is made of the stream's `[1, 0]`, and not of its `[0, 1]`."""
    heads = None if anatomy.attention is None else queries_keys_values(anatomy.attention)
    if heads is None or not heads[0].tensor.requires_grad or heads[0].tensor.shape[-2] < 2:  # a class token alone
        return False
    with torch.enable_grad():
        query = heads[0].tensor.flatten(0, -3)[0, 1].float().square().sum()
        gradient, = torch.autograd.grad(query, anatomy.source.tensor, retain_graph=True, allow_unused=True)
    if gradient is None:
        return False
    by_place = gradient.abs().amax(dim=-1)
    return bool(by_place[1, 0] > 0) and not bool(by_place[0, 1] > 0)


SURE = 4.0
"""Standard errors of the overlap of independent tokens beyond which a correlation is one."""
LEARNED = (0.2, 0.8)
"""Share of the second moment that tokens at one place of different sequences have in common, where each place has a
vector of its own: half of it, where both tables are drawn alike."""


class Source(NamedTuple):
    """Statistics of a stack's input."""

    second_moment: float
    correlation: float
    placed: float | None
    """Overlap of tokens at one place of different sequences beyond that of any; None with a single sequence."""
    tokens: int
    batch: int

    @classmethod
    def of(cls, stream: Tensor) -> Source:
        """The statistics of the first block's input, `[batch, token, d]`."""
        x = stream.detach().float()
        signal = Signal.of(x[None])
        q, batch, tokens = float(signal.q), x.shape[0], x.shape[1]
        correlation = float(signal.overlap) / q if tokens > 1 and q else 0.0
        placed = None
        if batch > 1 and tokens > 1 and q:
            across = Signal.of(x.transpose(0, 1)[None])
            total = x.double().sum(dim=(0, 1)).square().mean()
            within = float(signal.overlap) * batch * tokens * (tokens - 1)
            same = float(across.overlap) * tokens * batch * (batch - 1)
            apart = (float(total) - within - same - q * batch * tokens) / (batch * tokens * (batch - 1) * (tokens - 1))
            placed = (float(across.overlap) - apart) / q
        return cls(q, correlation, placed, tokens, batch)

    def fields(self, known: Mapping[str, Any], unread: list[str]) -> dict[str, Any]:
        """Fields of a config that describe the input; `known` has the width and positions."""
        fields: dict[str, Any] = {"n_ctx": max(2, self.tokens), "batch_size": self.batch,
                                  "input_second_moment": min(max(self.second_moment, 1e-8), 1e8)}
        correlation, learned = self.correlation, False
        if known.get("position", "none") == "none":
            if self.placed is None:
                unread.append(text("unread", "positions"))
            elif LEARNED[0] < self.placed < LEARNED[1]:
                fields["position"], learned = "learned", True
                correlation *= 2  # of the tokens before their half of the second moment
        pairs = self.batch * self.tokens * (self.tokens - 1) / 2
        error = 1 / math.sqrt(max(1.0, pairs) * known["d_model"])
        if correlation > SURE * error * (1 + learned):
            fields |= {"input": "correlated", "input_correlation": min(max(correlation, 0.0), 1.0)}
        return fields


POINTS = {row.point for row in SCHEMES.values() if row.point}
"""Functions that stand in a norm's place."""


def ends_with_norm(tail: Sequence[Node]) -> bool:
    """Whether the stream goes through a norm before any matrix, after the last block."""
    for node in tail:
        if (node.role == "stream" and is_norm(node)) or (node.op in POINTS and node.inputs[0].role == "stream"):
            return True
        if node.op in MATRIX and node.role:
            return False
    return False
