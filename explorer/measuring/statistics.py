"""From tensors to numbers: what the reductions of `profile.STATISTICS` read of a stack of layers.

Reductions run on the tensor's own device, in float32, and once more in float64 where squares left
float32's range: what is reported as infinite is so itself. Nothing is masked: a value that is not
finite comes out as such."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from explorer.vocabulary import Array

Vectors: TypeAlias = Tensor
"""Numbers `[layer, batch, token, d]`."""
Weights: TypeAlias = Tensor
"""Numbers `[layer, batch, head, query, key]`."""
Mask: TypeAlias = Tensor
"""Booleans `[query, key]`: whether the query sees the key."""
PerLayer: TypeAlias = Tensor
"""A number for each layer, `[layer]`."""
PerRow: TypeAlias = Tensor
"""A number for each row of the attention, `[layer, batch, head, row]`."""

LEAST, MOST = 1e-15, 1e15
"""Between these a norm summed in float32 is right: its squares neither overflowed nor sank below
the normal numbers."""


@dataclass(frozen=True)
class Signal:
    """A few layers of one site, or of several, one after the other: the argument of
    `Statistic.reduce`.

    Each property passes the tensor once, along its last axis where it can: a sum over other axes
    takes five times as long, and so does a product by `einsum` that has no matrix in it."""

    x: Vectors
    lengths: Tensor
    """The Euclidean norm of each token, `[layer, batch, token]`, float64."""

    @classmethod
    def of(cls, x: Vectors) -> Signal:
        """The signal of stacked tensors, with the norms of their tokens."""
        return cls(x, _norm(x, (3,)))

    def part(self, start: int, stop: int) -> Signal:
        """The signal of the layers from `start` to before `stop`."""
        return Signal(self.x[start:stop], self.lengths[start:stop])

    @cached_property
    def q(self) -> PerLayer:
        """The second moment, float64."""
        return self.lengths.square().mean(dim=(1, 2)) / self.x.shape[3]

    @property
    def largest(self) -> PerLayer:
        """The largest |x|; from both ends of x, which takes less time than to store |x|."""
        flat = self.x.flatten(1)
        return torch.maximum(flat.amax(dim=1), -flat.amin(dim=1))

    @property
    def overlap(self) -> PerLayer:
        """Mean of x_t · x_t' / d over pairs of different tokens of a sequence.

        From the sum over tokens: ‖Σ x_t‖² holds each pair twice and each token once.
        """
        n = self.x.shape[2]
        # ‖Σ_t x_t‖² / d, mean over the batch
        total = second_moment(self.x.sum(dim=2, keepdim=True))
        return (total - n * self.q) / (n * (n - 1))

    @cached_property
    def factor(self) -> PerLayer:
        """A factor for each layer, by which its squares stay in float32's range: 1 where they do so
        anyway, else it makes the second moment 1; float64."""
        inside = (self.q > LEAST) & (self.q < MOST)
        largest = torch.finfo(torch.float32).max  # of zeros it would be infinite
        return self.q.rsqrt().clamp(max=largest).where(~inside, 1)

    @cached_property
    def scaled(self) -> Vectors:
        """The signal times its factor."""
        if bool((self.factor == 1).all()):
            return self.x
        return self.x * self.factor.to(self.x.dtype)[:, None, None, None]

    @property
    def by_token(self) -> Tensor:
        """Second moment of the token at each position, `[layer, token]`, float64."""
        return self.lengths.square().mean(dim=1) / self.x.shape[3]

    @property
    def correlation_by_token(self) -> Tensor:
        """Σ p_tt' over the other tokens t', over Σ √(q_t q_t'), `[layer, token]`: the overlaps p
        and second moments q are means over the batch."""
        total = self.scaled.sum(dim=2)  # [layer, batch, d]
        # a row times a matrix: a matrix times a column takes up to 14 times as long
        products = (total[:, :, None] @ self.scaled.mT).squeeze(2)  # [layer, batch, token]
        square = self.by_token * self.factor.square()[:, None]  # q_t of the scaled signal
        overlap = products.double().mean(dim=1) / self.x.shape[3] - square  # without t' = t
        size = square.sqrt()
        others = size.sum(dim=1, keepdim=True) - size  # Σ √q_t' over the other tokens
        return overlap / (size * others)

    @cached_property
    def features(self) -> Tensor:
        """Mean of x² over a sequence's tokens by coordinate, relative to its mean over all
        coordinates, `[layer, batch, d]`."""
        square = self.scaled.square().mean(dim=2)
        return square / square.mean(dim=-1, keepdim=True)

    @property
    def largest_feature(self) -> PerLayer:
        """Largest over median root mean square of the coordinates, mean over the batch."""
        square = self.features
        ratio = square.amax(dim=-1) / square.median(dim=-1).values  # [layer, batch]
        return ratio.sqrt().mean(dim=1)


class Rows(NamedTuple):
    """A few layers' attention, row by row: the argument of `Statistic.reduce` at its sites.

    Rows that see one key have neither a spread nor an ln 1 to divide by: `variance` and
    `normalized` leave them out."""

    scores: Weights
    pattern: Weights
    variance: PerRow
    """Variance of the logits over visible keys, float64."""
    entropy: PerRow
    """Entropy of the keys' shares of the weight that a row keeps, in nats."""
    normalized: PerRow
    """Over ln(visible keys)."""
    largest: PerRow
    """The largest weight."""
    by_query: Tensor
    """The entropy of each query's row, mean over batch and heads, `[layer, query]`."""
    received: Tensor
    """The weight of each key, mean over batch, heads and queries, `[layer, key]`."""

    def part(self, start: int, stop: int) -> Rows:
        """The rows of the layers from `start` to before `stop`."""
        return Rows(*(part[start:stop] for part in self))

    @classmethod
    def of(cls, scores: Weights, pattern: Weights, mask: Mask | None, sinks: bool = False) -> Rows:
        """The rows of stacked layers.

        All statistics come from b_k = s_j − s_k, by how much each logit lies below its row's
        largest, s_j. The variance is mean b² − (mean b)², where nothing cancels as it would in the
        logits themselves. And since log p_k = log p_j − b_k, the entropy is H = Σ p_k b_k − log
        p_j: one logarithm a row where −Σ p log p takes one a weight.

        Args:
            mask: None where every query sees every key.
            sinks: whether rows lose weight to a sink; p is then each key's share of the rest.
        """
        largest = pattern.amax(dim=-1)  # [layer, batch, head, query]
        visible = scores if mask is None else scores.where(mask, -math.inf)
        shares = visible.softmax(dim=-1) if sinks else pattern
        largest_share = shares.amax(dim=-1) if sinks else largest
        below = visible.amax(dim=-1, keepdim=True) - scores  # b
        del visible  # as large as the pattern
        several: Tensor | slice  # rows that see more than one key
        if mask is None:
            keys = torch.full((pattern.shape[-1],), pattern.shape[-1], device=pattern.device)
            several = slice(None)
        else:
            below = below.where(mask, 0)
            keys = mask.sum(dim=-1)  # [query], those that a row sees
            several = keys > 1
        square = _norm(below, (-1,), least=0).square() / keys  # a row of equal logits is a true 0
        variance = square - (below.sum(dim=-1) / keys).double().square()
        entropy = below.mul_(shares).sum(dim=-1) - largest_share.log()  # in place: b is not needed
        return cls(
            scores=scores,
            pattern=pattern,
            variance=variance[..., several],
            entropy=entropy,
            normalized=entropy[..., several] / keys[several].log(),
            largest=largest,
            by_query=entropy.mean(dim=(1, 2)),
            received=pattern.mean(dim=(1, 2, 3)),
        )


def second_moment(x: Vectors) -> PerLayer:
    """Mean of x² over batch, token and coordinate."""
    return _norm(x.flatten(1), (1,)).square() / x[0].numel()


def no_number(x: Tensor) -> bool:
    """Whether every entry is nan; false for a tensor on another device than the CPU, where the
    answer would have to be waited for."""
    if x.device.type != "cpu":
        return False
    # the first entry alone settles most cases
    return math.isnan(x[(0,) * x.ndim].item()) and bool(x.isnan().all())


def norms_by_seed(tensors: list[Tensor], seeds: int) -> Array:
    """Frobenius norms, `[tensor, seed]`, of tensors whose first axis has as many equal parts as
    there are seeds."""
    parts = tensors if seeds == 1 else [part for tensor in tensors for part in tensor.chunk(seeds)]
    return np.reshape(norms(parts), (-1, seeds))


def norms(tensors: list[Tensor]) -> list[float]:
    """Frobenius norm of each tensor, in one call for all; once more in float64 where squares left
    float32's range."""
    lengths: list[float] = torch.stack(torch._foreach_norm(tensors)).tolist()
    for index, length in enumerate(lengths):
        if not LEAST <= length <= MOST:
            exact = torch.linalg.vector_norm(tensors[index], dtype=torch.float64)
            lengths[index] = float(exact)
    return lengths


def _norm(x: Tensor, dim: tuple[int, ...], least: float = LEAST) -> Tensor:
    """Euclidean norm along some axes, float64; computed in float64, too, where one in float32 is
    below `least` or above `MOST`."""
    lengths: Tensor = torch.linalg.vector_norm(x, dim=dim).double()
    if bool(((lengths >= least) & (lengths <= MOST)).all()):
        return lengths
    exact: Tensor = torch.linalg.vector_norm(x, dim=dim, dtype=torch.float64)
    return exact
