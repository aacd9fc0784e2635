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

from explorer.profile import Array

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
    """A few layers of one site, or of several: what `Statistic.reduce` reads of them.

    Each property passes the tensor once, along its last axis where it can: a sum over other axes
    takes five times as long, and so does a product by `einsum` that has no matrix in it."""

    x: Vectors
    lengths: Tensor
    """The Euclidean norm of each token, `[layer, batch, token]`, float64."""

    @classmethod
    def of(cls, x: Vectors) -> Signal:
        """The signal of tensors that are stacked."""
        return cls(x, _norm(x, (3,)))

    def part(self, start: int, stop: int) -> Signal:
        """The signal of some of the layers."""
        return Signal(self.x[start:stop], self.lengths[start:stop])

    @cached_property
    def q(self) -> PerLayer:
        """The second moment, float64."""
        return self.lengths.square().mean(dim=(1, 2)) / self.x.shape[3]

    @property
    def largest(self) -> PerLayer:
        """The largest |x|: both ends are sought, which takes less time than to write |x| down."""
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
        anyway, float64."""
        inside = (self.q > LEAST) & (self.q < MOST)
        return self.q.rsqrt().clamp(max=torch.finfo(torch.float32).max).where(~inside, 1)

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
        products = (self.scaled @ total[..., None]).squeeze(-1)  # [layer, batch, token]
        square = self.by_token * self.factor.square()[:, None]
        overlap = products.double().mean(dim=1) / self.x.shape[3] - square
        size = square.sqrt()
        return overlap / (size * (size.sum(dim=1, keepdim=True) - size))

    @cached_property
    def features(self) -> Tensor:
        """Mean of x² over a sequence's tokens by coordinate, relative to all coordinates' mean,
        `[layer, batch, d]`."""
        square = self.scaled.square().mean(dim=2)
        return square / square.mean(dim=-1, keepdim=True)

    @property
    def largest_feature(self) -> PerLayer:
        """Largest over median of the features' roots, mean over the batch."""
        square = self.features
        return (square.amax(dim=-1) / square.median(dim=-1).values).sqrt().mean(dim=1)


class Rows(NamedTuple):
    """A few layers' attention, row by row: what `Statistic.reduce` reads of it.

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
        """The rows of some of the layers."""
        return Rows(*(part[start:stop] for part in self))

    @classmethod
    def of(cls, scores: Weights, pattern: Weights, mask: Mask | None, sinks: bool = False) -> Rows:
        """The rows of stacked layers.

        All from how far each logit lies below its row's largest, b_k = s_j − s_k. The variance is
        mean b² − (mean b)², where nothing cancels as it would in the logits themselves. And since
        log p_k = log p_j − b_k, the entropy is H = Σ p_k b_k − log p_j: one logarithm a row where
        −Σ p log p takes one a weight.

        Args:
            sinks: whether rows lose weight to a sink; p is then each key's share of the rest.
        """
        largest = pattern.amax(dim=-1)  # [layer, batch, head, query]
        if mask is None:
            below = scores.amax(dim=-1, keepdim=True) - scores
            keys = torch.full((pattern.shape[-1],), pattern.shape[-1], device=pattern.device)
        else:
            below = (scores.where(mask, -math.inf).amax(dim=-1, keepdim=True) - scores).where(
                mask, 0
            )
            keys = mask.sum(dim=-1)
        several = keys > 1 if mask is not None else slice(None)
        square = _norm(below, (-1,), least=0).square() / keys  # a row of equal logits is a true 0
        variance = square - (below.sum(dim=-1) / keys).double().square()
        shares = pattern
        if sinks:
            shares = (scores if mask is None else scores.where(mask, -math.inf)).softmax(dim=-1)
        nats = below.mul_(shares).sum(dim=-1) - (shares.amax(dim=-1) if sinks else largest).log()
        normalized = nats[..., several] / keys[several].log()
        by_query, received = nats.mean(dim=(1, 2)), pattern.mean(dim=(1, 2, 3))
        return cls(
            scores, pattern, variance[..., several], nats, normalized, largest, by_query, received
        )


def second_moment(x: Vectors) -> PerLayer:
    """Mean of x² over batch, token and coordinate."""
    return _norm(x.flatten(1), (1,)).square() / x[0].numel()


def no_number(x: Tensor) -> bool:
    """Whether every entry is nan. Of a tensor on another device, where one would wait for the
    answer, not known."""
    return x.device.type == "cpu" and math.isnan(x[(0,) * x.ndim].item()) and bool(x.isnan().all())


def norms_by_seed(tensors: list[Tensor], seeds: int) -> Array:
    """Frobenius norms, `[tensor, seed]`, of tensors whose first axis has as many equal parts as
    there are seeds."""
    parts = tensors if seeds == 1 else [part for tensor in tensors for part in tensor.chunk(seeds)]
    return np.reshape(norms(parts), (-1, seeds))


def norms(tensors: list[Tensor]) -> list[float]:
    """Frobenius norm of each tensor, in one call for all."""
    lengths: list[float] = torch.stack(torch._foreach_norm(tensors)).tolist()
    if min(lengths) >= LEAST and max(lengths) <= MOST:
        return lengths
    return [
        size
        if LEAST <= size <= MOST
        else float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
        for size, tensor in zip(lengths, tensors, strict=True)
    ]


def _norm(x: Tensor, dim: tuple[int, ...], least: float = LEAST) -> Tensor:
    """Euclidean norm along some axes, float64."""
    lengths: Tensor = torch.linalg.vector_norm(x, dim=dim).double()
    if bool(((lengths >= least) & (lengths <= MOST)).all()):
        return lengths
    exact: Tensor = torch.linalg.vector_norm(x, dim=dim, dtype=torch.float64)
    return exact
