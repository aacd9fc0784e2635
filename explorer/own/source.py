"""The input of a model's first block, and what becomes of the last one's output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from explorer.measuring.statistics import Signal
from explorer.own.graph import MATRIX, NORM, Node, is_norm
from explorer.schemes.placement import NORMS

SURE = 4.0
"""Standard errors of the overlap of independent tokens beyond which a correlation is one."""
POINTS = {row.point for row in NORMS.values() if row.point}
"""Functions that stand in a norm's place."""
LEARNED = (0.2, 0.8)
"""Share of the second moment that tokens at one place of different sequences have in common, where each place has a
vector of its own: half of it, where both tables are drawn alike."""


class Source(NamedTuple):
    """Statistics of a stack's input, and whether a norm follows the last block."""

    second_moment: float
    correlation: float
    placed: float | None
    """Overlap of tokens at one place of different sequences beyond that of any; None with a single sequence."""
    tokens: int
    batch: int
    final: bool | None = None

    def fields(self, known: Mapping[str, Any], unread: list[str]) -> dict[str, Any]:
        """Fields of a config that describe the input; `known` has the width and positions."""
        fields: dict[str, Any] = {"n_ctx": max(2, self.tokens), "batch_size": self.batch,
                                  "input_second_moment": min(max(self.second_moment, 1e-8), 1e8)}
        correlation, learned = self.correlation, False
        if known.get("position", "none") == "none":
            if self.placed is None:
                unread.append("whether positions are added to the embeddings: it takes two sequences to see")
            elif LEARNED[0] < self.placed < LEARNED[1]:
                fields["position"], learned = "learned", True
                correlation *= 2  # of the tokens before their half of the second moment
        pairs = self.batch * self.tokens * (self.tokens - 1) / 2
        error = 1 / math.sqrt(max(1.0, pairs) * known["d_model"])
        if correlation > SURE * error * (1 + learned):
            fields |= {"input": "correlated", "input_correlation": min(max(correlation, 0.0), 1.0)}
        return fields


def read_source(stream: Tensor) -> Source:
    """From the first block's input, `[batch, token, d]`."""
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
    return Source(q, correlation, placed, tokens, batch)


def ends_with_norm(tail: Sequence[Node]) -> bool:
    """Whether the stream goes through a norm before any matrix, after the last block."""
    for node in tail:
        if node.role == "stream" and (node.op in NORM or is_norm(node.op, node.inputs)):
            return True
        if node.op in POINTS and node.inputs[0].role == "stream":
            return True
        if node.op in MATRIX and node.role:
            return False
    return False
