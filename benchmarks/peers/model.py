"""The model that all rows observe: the default design as plain torch modules, so that hooks see all
three statistics.

The softmax is a module, and attention is not fused: in a fused kernel only one row, `ex.probe`,
could see the pattern."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from explorer import Config
from explorer.model import Transformer, batch

Values = dict[str, list[float]]
"""Statistic to its value by layer."""


def values(
    moments: Sequence[Tensor], entropies: Sequence[Tensor], gradients: Sequence[Tensor]
) -> Values:
    """Numbers of a pass, one a layer: the gradients as they came, the last layer's first."""
    by_layer = {
        "second_moment": moments,
        "attention_entropy": entropies,
        "activation_gradient": gradients[::-1],
    }
    return {name: torch.stack(list(numbers)).tolist() for name, numbers in by_layer.items()}


SIZES = {
    "4 × 128": Config(n_layers=4, d_model=128),
    "100 × 64": Config(n_layers=100, d_model=64, n_heads=2, n_ctx=32),
    "12 × 256": Config(),
}
"""Layers × width."""


class Attention(nn.Module):
    """softmax(q·k / √d_head) v, all tokens visible."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.softmax = nn.Softmax(dim=-1)

    def split(self, x: Tensor) -> Tensor:
        """`[batch, token, head · d_head]` to `[batch, head, token, d_head]`."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def pattern(self, x: Tensor) -> Tensor:
        """`[batch, token, d_model]` to `[batch, head, query, key]`."""
        q, k = self.split(self.q(x)), self.split(self.k(x))
        return self.softmax(q / math.sqrt(q.shape[-1]) @ k.transpose(-2, -1))

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, token, d_model]` to the same."""
        return self.out((self.pattern(x) @ self.split(self.v(x))).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and an MLP, each read through a norm and added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False),
            nn.ReLU(),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, token, d_model]` to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Plain(nn.Module):
    """The stack and its last norm."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, token, d_model]` to the same."""
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Subject(NamedTuple):
    """What a row observes."""

    config: Config
    model: Plain
    inputs: Tensor
    """`[batch, token, d_model]`."""
    target: Tensor
    """The random direction in which the output is differentiated, of the output's shape."""

    def loss(self, output: Tensor) -> Tensor:
        """The output's projection on the target, a scalar."""
        return (output * self.target).sum()


def subject(config: Config, seed: int = 0) -> Subject:
    """The plain model with the weights of `explorer.model.Transformer` of a config of the default
    design."""
    model, drawn = Plain(config.n_layers, config.d_model, config.n_heads), batch.draw(config, seed)
    with torch.no_grad():
        for block, layer in zip(model.blocks, Transformer(config, seed).layers, strict=True):
            attention, (up, _, down) = block.attention, block.mlp
            linears = {
                "W_Q": attention.q,
                "W_K": attention.k,
                "W_V": attention.v,
                "W_O": attention.out,
                "W_in": up,
                "W_out": down,
            }
            for name, linear in linears.items():
                linear.weight.copy_(layer.weights[name])
            down.weight.mul_(math.sqrt(2))  # what gives the ReLU a unit second moment
    return Subject(config, model, drawn.input, drawn.target)


def reference(one: Subject) -> Values:
    """The three statistics in float64, from the definitions, without hooks."""
    model, x = one.model.double(), one.inputs.double()
    streams, entropies = [], []
    for block in model.blocks:
        pattern = block.attention.pattern(block.norm1(x))
        entropies.append(-(pattern * pattern.log()).sum(dim=-1).mean())
        x = block(x)
        x.retain_grad()
        streams.append(x)
    one.loss(model.norm(x)).backward()
    return {
        "second_moment": [x.square().mean().item() for x in streams],
        "attention_entropy": [entropy.item() for entropy in entropies],
        "activation_gradient": [
            x.grad.square().mean().item() for x in streams if x.grad is not None
        ],
    }
