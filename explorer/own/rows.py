"""Attention of any code, row by row: from queries and keys of a fused call, or from the softmax that was written out.

A row's entropy is H = log Σ exp(s) − E[s], so that queries can be read a few at a time, and a fused kernel's saving of
memory is not undone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from explorer.measuring.statistics import Rows
from explorer.own.branches import Anatomy, queries_keys_values
from explorer.own.graph import FUSED, VIEW, Node, pattern_of
from explorer.own.masks import below, hidden, visible
from explorer.own.operations import NORMS

# Which axis of a stream is what: most are `[batch, token, d]`, some put tokens first, or features before pixels.


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
        node = next((operand for operand in node.inputs if operand.role == "stream"), node) if plain else source
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


AT_ONCE = 2**20
"""Logits that are read together."""

Part = tuple[Tensor, Tensor | None]
"""Logits `[batch, head, query, key]` of some queries, and their pattern where it was computed."""


class Heads(NamedTuple):
    """Attention of one block: means over batch and rows, and the first head's pattern in the first sequence."""

    rows: Rows
    pattern: Tensor
    several: bool
    """Whether any row sees more than one key: else there is no spread."""


def read_rows(attention: Node, batch: int) -> Heads | None:
    """Statistics of one attention's rows, as `measuring.statistics` reduces them; None where its rows are not seen.

    Args:
        attention: what it puts out.
        batch: number of sequences, where heads lie within the batch.
    """
    parts = _fused(attention) if attention.op in FUSED else _written_out(attention, batch)
    sums, patterns = [], []
    for scores, pattern in parts:
        total, weights = _sums(scores.detach(), None if pattern is None else pattern.detach())
        sums.append(total)
        patterns.append(weights[0, 0])
    if not sums:
        return None
    variance, normalized, entropy, largest, several, rows = torch.stack(sums).sum(dim=0)
    means = (variance / several, entropy / rows, normalized / several, largest / rows)
    none = patterns[0][None, None, None, :0]
    return Heads(Rows(none, none, *(mean[None, None, :, None] for mean in means)), torch.cat(patterns),
                 bool((several > 0).all()))


def _sums(scores: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sums over batch and rows by head, `[6, head]`: variance, H / ln n, H, the largest weight, and rows of each pair.

    Rows that see no key are left out, those that see one have no spread; one that is not a number is kept as such.
    """
    scores = scores.float()
    highest = scores.amax(dim=-1, keepdim=True)
    shown = visible(scores)
    count = shown.sum(dim=-1)
    shares = scores.masked_fill(~shown, -math.inf).softmax(dim=-1)
    weights = shares if pattern is None else pattern.float()
    below = (highest - scores).where(shown, 0).double()
    variance = below.square().sum(dim=-1) / count - (below.sum(dim=-1) / count).square()
    entropy = (below * shares).sum(dim=-1) - shares.amax(dim=-1).double().log()
    several, some = count > 1, count > 0
    parts = (variance.where(several, 0), (entropy / count.double().log()).where(several, 0), entropy.where(some, 0),
             weights.amax(dim=-1).double().where(some, 0), several.double(), some.double())
    return torch.stack([part.sum(dim=(0, 2)) for part in parts]), weights


def _fused(attention: Node) -> Iterator[Part]:
    """Logits of a fused call, a few queries at a time."""
    q, k = (operand.tensor.detach() for operand in attention.inputs[:2])
    named = attention.named
    mask = named.get("attn_mask") or named.get("attn_bias")
    scale = named.get("scale")
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    if k.shape[1] != q.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    step = max(1, AT_ONCE // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    for start in range(0, q.shape[2], step):
        scores = q[:, :, start:start + step].float() @ k.float().mT * scale
        bias = mask.tensor if isinstance(mask, Node) else None
        yield _hidden(scores, bias, bool(named.get("is_causal")), start), None


def _hidden(scores: Tensor, mask: Tensor | None, causal: bool, start: int) -> Tensor:
    """Logits of queries from `start` on, with the mask of a fused call."""
    n, keys = scores.shape[-2:]
    if mask is not None:
        part = mask.detach()[..., :keys]
        part = part if part.shape[-2] == 1 else part[..., start:start + n, :]
        gone = ~part if part.dtype == torch.bool else below(part)
        scores = scores if part.dtype == torch.bool else scores + part.float()
        scores = scores if gone is None else scores.masked_fill(gone, -math.inf)
    if causal:
        visible = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril(start)
        scores = scores.masked_fill(~visible, -math.inf)
    return scores


def _written_out(attention: Node, batch: int) -> Iterator[Part]:
    """Logits and pattern of a softmax; a sink is a key more than there are values."""
    soft = pattern_of(attention)
    if soft is None or soft.tensor.ndim not in (3, 4, 5):
        return
    keys = attention.inputs[1].tensor.shape[-2]
    logits, weights, mask = soft.inputs[0].tensor, soft.tensor, hidden(soft)
    logits = logits if mask is None else logits.masked_fill(mask, -math.inf)
    if soft.scalars[1] % soft.tensor.ndim != soft.tensor.ndim - 1:  # as the product with the values has its axes
        weights = attention.inputs[0].tensor
        logits = weights.log()
    scores, pattern = (_by_head(tensor, batch)[..., :keys] for tensor in (logits, weights))
    step = max(1, AT_ONCE // max(1, math.prod(scores.shape[:2]) * keys))
    for start in range(0, scores.shape[2], step):
        yield scores[:, :, start:start + step], pattern[:, :, start:start + step]


def _by_head(scores: Tensor, batch: int) -> Tensor:
    """`[batch, head, query, key]` of logits whose heads lie within the batch, or in groups."""
    if scores.ndim == 3:
        whole = scores.shape[0] % batch == 0
        return scores.reshape(batch, -1, *scores.shape[1:]) if whole else scores[:, None]
    return scores.flatten(1, 2) if scores.ndim == 5 else scores
