"""The attention sublayer of the model, written out, scores and pattern shown to a tap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from explorer.design import Design
from explorer.model.functions import beside, linear, norm, norms, plus, product, times
from explorer.model.taps import Tap

# Positions for the model: queries and keys turned by theirs, and logits that fall with distance.


@lru_cache(maxsize=8)
def column(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers as a column, `[number, 1]`."""
    return torch.tensor(values, device=device)[:, None]


@lru_cache(maxsize=8)
def distances(slopes: tuple[float, ...], n: int, device: torch.device) -> Tensor:
    """ALiBi: each head's slope times the tokens from a key to a query, `[head, query, key]`."""
    position = torch.arange(n, device=device, dtype=torch.float32)
    return column(slopes, device)[..., None] * (position[:, None] - position)


def rotate(x: Tensor, angles: tuple[float, ...]) -> Tensor:
    """Rotary positions: `[..., token, d_head]` whose first coordinates turn by position · angle, in
    pairs of coordinate i and i + the number of angles. The rest stays."""
    half = len(angles)
    cos, sin = turns(x.shape[-2], angles, x.device)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


@lru_cache(maxsize=8)
def turns(n: int, angles: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position times each angle, `[token, angle]`."""
    # in float64: in float32 a late position's angle would lose digits
    positions = torch.arange(n, dtype=torch.float64)
    turned = torch.outer(positions, torch.tensor(angles, dtype=torch.float64))
    return turned.cos().float().to(device), turned.sin().float().to(device)


Carried = tuple[Tensor, ...]
"""Tensors that attention passes to the next layer. First, with value residuals, the first layer's
values; then, if logits are inherited, the sum of the scores so far, or of the queries and of the
keys."""
SMALL = 2**16
"""W_Q, W_K and W_V of at most so many numbers together are multiplied in one product. For it they
are copied side by side in each pass, and autograd keeps the copy: wide layers would need more
memory and save no time."""


class Attention(nn.Module):
    """Multi-head self-attention, of which a tap sees scores and pattern.

    Args:
        layer: from 1.
        weights: of this layer, by name; of several seeds with an axis of seeds in front.
    """

    def __init__(self, design: Design, layer: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.design, self.config, self.layer = design, design.settings, layer
        self.multiplier = {name: matrix.forward for name, matrix in design.matrices.items()}
        self.W_Q, self.W_K, self.W_V, self.W_O = (
            nn.Parameter(weights[name]) for name in ("W_Q", "W_K", "W_V", "W_O")
        )
        self.W_G = nn.Parameter(weights["W_G"]) if design.gates else None
        self.b_Q, self.b_K, self.b_V, self.b_O, self.b_G = (
            nn.Parameter(weights[name]) if name in weights else None
            for name in ("b_Q", "b_K", "b_V", "b_O", "b_G")
        )
        self.sink: Tensor | None
        """`[head]`, the logit of the sink."""
        if design.sink.std:
            self.sink = nn.Parameter(weights["sink"])
        else:
            logit = design.sink.logit
            fixed = None if logit is None else torch.full((self.config.n_heads,), logit)
            self.register_buffer("sink", fixed, persistent=False)
        self.norm, self.normed = norm(design), norms(design, 2 * layer - 2)
        self.counts = self.config.n_heads, self.config.kv_heads, self.config.kv_heads
        """Heads of queries, keys and values."""
        self.sharp = set(design.row_factors) != {1.0}
        """Whether the rows of logits have factors."""
        self.together = sum(self.counts) * self.config.d_head * self.config.d_model <= SMALL

    def forward(self, x: Tensor, tap: Tap, carried: Carried) -> tuple[Tensor, Carried]:
        """`[batch, token, d_model]` to the same, and what the next layer's attention inherits."""
        scale = self.multiplier
        q, k, v = self.heads(x)  # [batch, head, query or key, d_head]
        q, k, v = times(q, scale["W_Q"]), times(k, scale["W_K"]), times(v, scale["W_V"])
        q, k, v = self.shifted(q, self.b_Q), self.shifted(k, self.b_K), self.shifted(v, self.b_V)
        first: Carried = ()
        if self.config.value_residual:  # the first layer mixes its values with themselves
            first, carried = carried[:1] or (v,), carried[1:]
            v = (first[0] + v) / 2
        v = self.normed("heads", v)
        if self.design.normalizes_heads:
            q, k = self.unit(q), self.unit(k)
        if self.config.qk_norm:
            q = q * self.config.qk_gain
        if angles := self.design.angles:
            q, k = rotate(q, angles), rotate(k, angles)
        scores, carried = self.scores(q, k, carried)  # [batch, head, query, key]
        tap("attn_scores", self.layer, scores)
        if self.config.causal:
            scores = scores.masked_fill(~visible(scores.shape[-1], scores.device), -math.inf)
        pattern = self.pattern(scores)  # [batch, head, query, key]
        tap("pattern", self.layer, pattern)
        # [batch, query, head · d_head]
        mixed = (pattern @ self.expand(v)).transpose(1, 2).flatten(2)
        if self.W_G is not None:
            # [batch, query, gate], a gate for each head or for each number
            gate = plus(linear(x, self.W_G, scale["W_G"]), self.b_G).sigmoid()
            mixed = (mixed.reshape(*gate.shape, -1) * gate[..., None]).flatten(2)
        mixed = self.normed("read", mixed)
        return plus(linear(mixed, self.W_O, scale["W_O"]), self.b_O), (*first, *carried)

    def scores(self, q: Tensor, k: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        """Attention logits `[batch, head, query, key]`, with the logits that they inherit from the
        layers below, and what the layer above inherits."""
        cap, slopes = self.config.logit_cap, self.design.slopes
        if self.design.inherits == "qk":
            if carried:
                q, k = q + carried[0], k + carried[1]
            carried = q, k
        if self.sharp:
            q = q * column(self.design.row_factors, q.device)
        scores = (q / self.design.divisor) @ self.expand(k).transpose(-2, -1)
        if self.design.inherits == "scores":
            scores = scores + carried[0] if carried else scores
            carried = (scores,)
        if cap:
            scores = cap * torch.tanh(scores / cap)
        if slopes:
            scores = scores - distances(slopes, scores.shape[-1], scores.device)
        return scores, carried

    def unit(self, x: Tensor) -> Tensor:
        """The QK-norm of queries or keys, `[batch, head, token, d_head]` to the same: of each head,
        or of all heads of a token at once."""
        if not self.design.joins:
            return self.norm(x)
        by_token = x.transpose(1, 2)  # [batch, token, head, d_head]
        return self.norm(by_token.flatten(2)).view_as(by_token).transpose(1, 2)

    def pattern(self, scores: Tensor) -> Tensor:
        """The softmax of the logits, less the weight that goes to a sink, `[batch, head, query,
        key]`."""
        if self.sink is None:
            return scores.softmax(dim=-1)
        sink = self.sink if self.sink.ndim == 1 else beside(scores, self.sink)
        sink = sink[..., None, None].expand(*scores.shape[:-1], 1)  # one more key in each row
        return torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]

    def heads(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values before any multiplier, `[batch, head, token, d_head]` each."""
        weights = self.W_Q, self.W_K, self.W_V
        if not self.together:
            return [self.split(product(x, weight)) for weight in weights]
        heads = self.split(product(x, torch.cat(weights, dim=-2)))
        return torch.split_with_sizes(heads, self.counts, dim=1)

    def shifted(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """`[batch, head, token, d_head]` plus its bias `[head · d_head]`, where there is one; each
        seed's with its own."""
        if bias is None:
            return x
        bias = bias if bias.ndim == 1 else beside(x, bias)
        return x + bias.view(*bias.shape[:-1], -1, 1, self.config.d_head)

    def split(self, x: Tensor) -> Tensor:
        """`[batch, token, head · d_head]` to `[batch, head, token, d_head]`."""
        return x.view(*x.shape[:-1], -1, self.config.d_head).transpose(1, 2)

    def expand(self, x: Tensor) -> Tensor:
        """Keys or values of all heads, `[batch, head, token, d_head]`: each head of keys is
        repeated for the group of query heads that share it."""
        groups = self.config.n_heads // self.config.kv_heads
        return x if groups == 1 else x.repeat_interleave(groups, dim=1)


def visible(n: int, device: torch.device) -> Tensor:
    """Whether a query sees a key under a causal mask, `[query, key]`."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()
