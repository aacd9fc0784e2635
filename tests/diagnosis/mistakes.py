"""A small Transformer that knows nothing of this package, the mistakes that one can make in it, and
its profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from explorer.measuring.statistics import Rows, Signal, second_moment
from explorer.profile import Profile
from explorer.sites import MATRICES, ROWS
from explorer.vocabulary import STATISTICS, Array, Key


class Block(nn.Module):
    """One layer, whose attributes say what is done; a mistake changes one of them."""

    def __init__(
        self, width: int, heads: int, *, post: bool = False, std: float | None = None
    ) -> None:
        super().__init__()
        self.heads, self.post = heads, post
        self.divided = self.normed = self.attention_added = self.mlp_added = self.summed = True
        for name, fan_in, fan_out in (
            *((name, width, width) for name in ("W_Q", "W_K", "W_V", "W_O")),
            ("W_in", width, 4 * width),
            ("W_out", 4 * width, width),
        ):
            linear = nn.Linear(fan_in, fan_out, bias=False)
            nn.init.normal_(linear.weight, std=std or fan_in**-0.5)
            self.add_module(name, linear)

    def attend(self, x: Tensor, seen: dict[str, Tensor]) -> Tensor:
        q, k, v = (
            self.get_submodule(name)(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("W_Q", "W_K", "W_V")
        )
        scores = q @ k.transpose(-2, -1) / (math.sqrt(q.shape[-1]) if self.divided else 1.0)
        seen["attn_scores"], seen["pattern"] = scores, scores.softmax(dim=-1)
        return self.get_submodule("W_O")((seen["pattern"] @ v).transpose(1, 2).flatten(2))

    def mlp(self, x: Tensor) -> Tensor:
        return self.get_submodule("W_out")(F.gelu(self.get_submodule("W_in")(x)))

    def forward(self, x: Tensor, seen: dict[str, Tensor]) -> Tensor:
        norm = nn.LayerNorm(x.shape[-1])
        read = norm if self.normed and not self.post else nn.Identity()
        last = norm if self.post and self.summed else nn.Identity()
        seen["attn_out"] = self.attend(read(x), seen)
        x = seen["resid_mid"] = last(x * self.attention_added + seen["attn_out"])
        seen["mlp_out"] = self.mlp(read(x))
        seen["resid_post"] = (
            norm(x * self.mlp_added + seen["mlp_out"])
            if self.post
            else x * self.mlp_added + seen["mlp_out"]
        )
        return seen["resid_post"]


def model(
    n_layers: int = 12, width: int = 64, heads: int = 4, seed: int = 0, **choices: Any
) -> nn.ModuleList:
    """Healthy blocks."""
    torch.manual_seed(seed)
    return nn.ModuleList(Block(width, heads, **choices) for _ in range(n_layers))


def profiled(blocks: nn.ModuleList, tokens: int = 32, size: float = 1.0, **parts: Any) -> Profile:
    """What a probe would see of it: signal, gradients of the stream, weights."""
    width = blocks[0].W_Q.in_features
    x = (size * torch.randn(2, tokens, width)).requires_grad_()
    sites: list[dict[str, Tensor]] = []
    y = x
    for block in blocks:
        sites.append({})
        y = block(y, sites[-1])
    out = F.layer_norm(y, (width,))
    stream = [x, *(tensor for seen in sites for tensor in (seen["resid_mid"], seen["resid_post"]))]
    gradient = second_moment(
        torch.stack(torch.autograd.grad((out * torch.randn_like(out)).sum(), stream))
    )
    gamma = (gradient / gradient[-1]).numpy()[None]
    values: dict[Key, Array] = {
        ("activation_gradient", site): part
        for site, part in (
            ("embed", gamma[:, :1]),
            ("resid_mid", gamma[:, 1::2]),
            ("resid_post", gamma[:, 2::2]),
        )
    }
    with torch.no_grad():
        stacks = {
            "embed": x[None],
            **{site: torch.stack([seen[site] for seen in sites]) for site in sites[0]},
        }
        rows = Rows.of(stacks["attn_scores"], stacks["pattern"], None)
        signals = {
            site: Signal.of(stack)
            for site, stack in stacks.items()
            if site not in ("attn_scores", "pattern")
        }
        for row in STATISTICS.values():
            # there is no readout
            for site in filter(stacks.__contains__, row.sites if row.reduce else ()):
                values[row.name, site] = (
                    row.reduce(rows if site in ROWS else signals[site])[None].double().numpy()
                )
    values |= weighed(
        [
            {name: block.get_submodule(name).weight for name in MATRICES if hasattr(block, name)}
            for block in blocks
        ]
    )
    shapes = {
        name: (linear.in_features, linear.out_features)
        for name, linear in blocks[0].named_children()
    }
    return replace(
        Profile(
            "measured",
            values,
            model="Blocks",
            seeds=(0,),
            shapes=shapes,
            layers=tuple(f"h.{layer}" for layer in range(len(blocks))),
        ),
        **parts,
    )


def weighed(layers: Sequence[dict[str, Tensor]]) -> dict[Key, Array]:
    """Weight statistics of matrices `[fan_out, fan_in]`, layer by layer."""
    found: dict[Key, Array] = {}
    for name in layers[0]:
        stack = torch.stack([layer[name].detach().double() for layer in layers])
        found["weight_variance", name] = (stack.shape[2] * stack.square().mean(dim=(1, 2))).numpy()[
            None
        ]
        unit = F.normalize(stack.flatten(1)[:, :4096], dim=1)
        cosine = (unit @ unit.T).fill_diagonal_(-1.0)
        found["weight_likeness", name] = cosine.amax(dim=1).numpy()[None]
    return {key: np.asarray(value) for key, value in found.items()}
