"""Models that are not a plain stack of Transformer layers, written as people write them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

D = 12


def mlp(width: int = D, hidden: int = 24) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class Attention(nn.Module):
    def __init__(self, width: int = D, heads: int = 3) -> None:
        super().__init__()
        self.q, self.kv, self.o = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )
        self.heads = heads

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        k, v = self.kv(x if source is None else source).chunk(2, dim=-1)
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for one in (self.q(x), k, v)
        )
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2))


class PreNorm(nn.Module):
    def __init__(self, first: nn.Module | None = None, second: nn.Module | None = None) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(D), nn.LayerNorm(D)
        self.first, self.second = first or Attention(), second or mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(self.one(x))
        return x + self.second(self.two(x))


class Experts(nn.Module):
    """The best of four experts; the last is never chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, 4)
        self.experts = nn.ModuleList(mlp() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weight, chosen = self.router(flat)[:, :3].softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            places = (chosen == number).nonzero().flatten()
            if len(places):
                out.index_add_(0, places, expert(flat[places]) * weight[places, None])
        return out.view_as(x)


class Shared(nn.Module):
    """One block, again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block = nn.Linear(5, D), PreNorm()

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for _ in range(4):
            x = self.block(x)
        return x


class Vision(nn.Module):
    """A convolutional stem, a class token, blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, D, 3, 2, 1)
        )
        self.token, self.blocks = (
            nn.Parameter(torch.randn(1, 1, D)),
            nn.ModuleList(PreNorm() for _ in range(2)),
        )
        self.head = nn.Linear(D, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


@dataclass
class Answer:
    logits: Tensor
    hidden: list[Tensor]
    name: str = "tied"


class Tied(nn.Module):
    """Embeddings that are also the readout; a dataclass comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(9, D), nn.ModuleList(PreNorm() for _ in range(2))
        self.readout = nn.Linear(D, 9, bias=False)
        self.readout.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Answer:
        x = self.embed(ids)
        kept = [x]
        for block in self.blocks:
            x = block(x)
            kept.append(x)
        return Answer(self.readout(x), kept)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(D, D, batch_first=True) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x)
        return x


class Scan(nn.Module):
    """A state-space mixer: convolution, gates, a scan over the tokens; no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(2 * D, D)
        self.convolution = nn.Conv1d(2 * D, 2 * D, 3, padding=2, groups=2 * D)
        self.step = nn.Linear(2 * D, 2 * D)

    def forward(self, x: Tensor) -> Tensor:
        inner, gate = self.into(self.norm(x)).chunk(2, dim=-1)
        inner = F.silu(self.convolution(inner.mT)[..., : x.shape[1]].mT)
        decay, state, found = torch.sigmoid(self.step(inner)), torch.zeros_like(inner[:, 0]), []
        for token in range(x.shape[1]):
            state = decay[:, token] * state + (1 - decay[:, token]) * inner[:, token]
            found.append(state)
        return x + self.out(torch.stack(found, dim=1) * F.silu(gate))


class Skips(nn.Module):
    """A U: the second half's blocks are given the first half's outputs beside the stream."""

    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.join, self.block = nn.Linear(2 * D, D), PreNorm()

        def forward(self, x: Tensor, skip: Tensor) -> Tensor:
            return self.block(self.join(torch.cat([x, skip], dim=-1)))

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(PreNorm() for _ in range(3))
        self.up = nn.ModuleList(self.Late() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            kept.append(x)
            x = block(x)
        for block in self.up:
            x = block(x, kept.pop())
        return x


class Parallel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.mlp = nn.LayerNorm(D), Attention(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y) + self.mlp(y)


class RMS(nn.Module):
    """Written out, in double precision, with a gain."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(D) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x.double()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.gain


class Sandwich(nn.Module):
    """Norms before and after each branch, and the stream changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMS() for _ in range(4))
        self.attention, self.mlp = Attention(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x += self.norms[1](self.attention(self.norms[0](x)))
        x += self.norms[3](self.mlp(self.norms[2](x)))
        return x


class Dropped(nn.Module):
    """Stochastic depth: a branch is dropped for some sequences, a block now and then for all."""

    class Path(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mlp = nn.LayerNorm(D), mlp()

        def forward(self, x: Tensor) -> Tensor:
            y = self.mlp(self.norm(x))
            return (
                x + y * torch.empty(len(x), 1, 1).bernoulli_(0.5).div_(0.5)
                if self.training
                else x + y
            )

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.Path() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if not self.training or random.random() < 0.5:  # noqa: S311
                x = layer(x)
        return x


class Reader(nn.Module):
    """A decoder's block: its own attention, cross attention, MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))
        self.own, self.cross, self.mlp = Attention(), Attention(), mlp()

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        x = x + self.own(self.norms[0](x))
        x = x + self.cross(self.norms[1](x), source)
        return x + self.mlp(self.norms[2](x))


class Residual(nn.Module):
    """A convolutional block `[batch, channel, height, width]`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(D, D, 3, padding=1),
            nn.BatchNorm2d(D),
            nn.ReLU(),
            nn.Conv2d(D, D, 3, padding=1),
            nn.BatchNorm2d(D),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class Hybrid(nn.Module):
    """One layer in three attends."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PreNorm(Attention() if layer == 2 else nn.Linear(D, D)) for layer in range(3)
        )

    def forward(self, x: Tensor) -> dict[str, Any]:
        for layer in self.layers:
            x = layer(x)
        return {"hidden": {"last": x}, "mask": None}


class Pyramid(nn.Module):
    """Blocks that change the width."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * width))
            for width in (D, 2 * D, 4 * D)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Tensors(nn.Module):
    """No modules within: weights with axes of their own, multiplied by einsum, from either side."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Parameter(torch.randn(3, D, 3, 4) / D**0.5)  # [which, d, head, d_head]
        self.out = nn.Parameter(torch.randn(3, 4, D) / D**0.5)  # [head, d_head, d]
        self.up, self.down = (
            nn.Parameter(torch.randn(24, D) / D**0.5),
            nn.Parameter(torch.randn(24, D) / 24**0.5),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = torch.einsum("btd,ndhe->nbhte", F.layer_norm(x, (D,)), self.qkv)
        y = torch.einsum("bhqk,bhke->bqhe", (q @ k.mT / 2).softmax(-1), v)
        x = x + torch.einsum("bqhe,hed->bqd", y, self.out)
        return x + F.relu(self.up @ F.layer_norm(x, (D,)).mT).mT @ self.down


class Lists(nn.Module):
    """Layers that are lists of parts: the sums are in the loop around them, and no module puts the
    stream out."""

    def __init__(self, post: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(D), Attention(), nn.LayerNorm(D), mlp()]) for _ in range(3)
        )
        self.norm, self.head, self.post = nn.LayerNorm(D), nn.Linear(D, 4), post

    def stream(self, x: Tensor) -> list[Tensor]:
        found = [x]
        for one, attention, two, inner in self.layers:  # type: ignore[misc]
            if self.post:
                x = one(x + attention(x))
                x = two(x + inner(x))
            else:
                x = x + attention(one(x))
                x = x + inner(two(x))
            found.append(x)
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.stream(x)[-1]))


class ClassAttention(nn.Module):
    """A block whose one query is the class token, as the last ones of CaiT and XCiT."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention, self.mlp = Attention(), mlp()

    def forward(self, x: Tensor, token: Tensor) -> Tensor:
        whole = self.one(torch.cat([token, x], dim=1))
        token = token + self.attention(whole[:, :1], whole)
        return token + self.mlp(self.two(token))


class Classified(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PreNorm() for _ in range(3))
        self.token, self.last = (
            nn.Parameter(torch.randn(1, 1, D)),
            nn.ModuleList(ClassAttention() for _ in range(2)),
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        token = self.token.expand(len(x), -1, -1)
        for block in self.last:
            token = block(x, token)
        return token


class TwoStacks(nn.Module):
    """A stack, and before it a shorter one, which a test makes hard to read."""

    def __init__(self, first: nn.Module, grad: bool = True) -> None:
        super().__init__()
        self.first, self.blocks = (
            nn.ModuleList([first, type(first)()]),
            nn.ModuleList(PreNorm() for _ in range(3)),
        )
        self.grad = grad

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.grad):
            y = x
            for block in self.first:
                y = block(y)
        for block in self.blocks:
            x = block(x + y)
        return x


class Labels(PreNorm):
    """Puts out no floating tensor, unless it is asked."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float()).argsort(-1)


class Bottleneck(nn.Module):
    """MobileBERT's layer: attention, and a list of MLPs with norms of their own."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down, self.norm = nn.Linear(D, 24), nn.Linear(24, D), nn.LayerNorm(D)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x + self.down(F.relu(self.up(x))))

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(D)
        self.inner = nn.ModuleList(self.Inner() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.attention(x))
        for part in self.inner:
            x = part(x)
        return x


class Forwarded(nn.Module):
    """Calls its blocks' forward, not its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PreNorm() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block.forward(x)
        return x


class Alternating(nn.Module):
    """Layers of one branch each, lists of norm, branch and residual, as x-transformers has them;
    keys have one head."""

    class OneHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv, self.o = (nn.Linear(D, width, bias=False) for width in (D, 8, D))

        def forward(self, x: Tensor) -> Tensor:
            q, (k, v) = self.q(x).unflatten(-1, (3, 4)).transpose(1, 2), self.kv(x).chunk(2, dim=-1)
            logits = torch.einsum("b h i d, b j d -> b h i j", q, k) / 2
            hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
            pattern = logits.masked_fill(hidden, -torch.finfo(logits.dtype).max).softmax(-1)
            return self.o(
                torch.einsum("b h i j, b j d -> b h i d", pattern, v).transpose(1, 2).flatten(2)
            )

    class Add(nn.Module):
        def forward(self, x: Tensor, residual: Tensor) -> Tensor:
            return x + residual

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [nn.LayerNorm(D), self.OneHead() if index % 2 == 0 else mlp(), self.Add()]
            )
            for index in range(6)
        )

    def forward(self, x: Tensor) -> Tensor:
        for norm, branch, add in self.layers:  # type: ignore[misc]
            x = add(branch(norm(x)), x)
        return x
