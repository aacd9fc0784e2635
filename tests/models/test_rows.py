"""Attention rows of any code: written out, in one call, in torch's own layers; against weights
computed here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import probe
from explorer_models import attention

BATCH, TOKENS, WIDTH, HEADS = 3, 7, 16, 4
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
CAUSAL = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
PADDED = torch.ones(BATCH, 1, 1, TOKENS, dtype=torch.bool)
PADDED[1, ..., 5:] = False
SLOPES = 0.3 * torch.arange(TOKENS) * torch.tensor([1.0, 2.0, 4.0, 8.0])[:, None, None]
"""ALiBi: a number a key and head."""


def additive(mask: Tensor, number: float) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, number)


class Block(nn.Module):
    """A residual block around a function of queries, keys and values `[batch, head, token,
    d_head]`."""

    def __init__(self, attend: Attend, kv_heads: int = HEADS) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.attend, self.size = attend, size
        self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, kv_heads * size), nn.Linear(WIDTH, kv_heads * size)
        nn.init.normal_(self.q.weight, std=1.0)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        out = self.attend(*(self.split(one(x)) for one in (self.q, self.k, self.v)))
        return x + self.o(out.transpose(1, 2).flatten(2))


def written(
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    cap: float = 0.0,
    sink: float | None = None,
    scale: float | None = None,
) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], dim=1) for one in (k, v))
        scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        scores = cap * torch.tanh(scores / cap) if cap else scores
        scores = scores if bias is None else scores + bias
        scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
        if sink is not None:
            extra = torch.full((*scores.shape[:-1], 1), sink)
            return torch.cat([scores, extra], dim=-1).softmax(dim=-1)[..., :-1] @ v
        return scores.softmax(dim=-1) @ v

    return attend


def fused(**options: Any) -> Attend:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    pattern = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", pattern, v)


def packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads within the batch."""
    one, two, three = (part.flatten(0, 1) for part in (q, k, v))
    out = torch.bmm(torch.bmm(one, two.mT).mul(q.shape[-1] ** -0.5).softmax(-1), three)
    return out.unflatten(0, q.shape[:2])


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads in groups, five axes."""
    q = q.unflatten(1, (k.shape[1], -1))
    return ((q @ k[:, :, None].mT * q.shape[-1] ** -0.5).softmax(-1) @ v[:, :, None]).flatten(1, 2)


def exact(
    block: Block,
    x: Tensor,
    mask: Tensor,
    bias: Tensor | float = 0.0,
    cap: float = 0.0,
    sink: float | None = None,
    scale: float | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """The same statistics row by row, in double precision, from their definitions."""
    with torch.no_grad():
        q, k = block.split(block.q(x)).double(), block.split(block.k(x)).double()
    k = k.repeat_interleave(HEADS // k.shape[1], dim=1)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = (cap * torch.tanh(scores / cap) if cap else scores) + bias
    mask = mask.expand(scores.shape)
    found: dict[str, list[Any]] = {
        name: [[] for _ in range(HEADS)] for name in ("s2", "H", "share", "max")
    }
    for batch in range(BATCH):
        for head in range(HEADS):
            for query in range(TOKENS):
                seen = scores[batch, head, query][mask[batch, head, query]]
                p = seen.softmax(-1)
                kept = (
                    1.0
                    if sink is None
                    else float(seen.exp().sum() / (seen.exp().sum() + math.exp(sink)))
                )
                entropy = float(-(p * p.log()).sum())
                found["H"][head].append(entropy)
                found["max"][head].append(kept * float(p.max()))
                if len(seen) > 1:
                    found["s2"][head].append(float(seen.var(correction=0)))
                    found["share"][head].append(entropy / math.log(len(seen)))
    means = {name: np.array([np.mean(one) for one in part]) for name, part in found.items()}
    return {
        "logit_std": np.sqrt(means["s2"]),
        "attention_entropy": means["H"],
        "attention_entropy_normalized": means["share"],
        "attention_max": means["max"],
    }


EVERY = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool)
WINDOW = CAUSAL & ~CAUSAL.tril(-3)
LEAST = torch.finfo(torch.float32).min
CASES: dict[str, tuple[Attend, dict[str, Any], int]] = {
    "written out": (written(), {"mask": EVERY}, HEADS),
    "causal": (written(CAUSAL), {"mask": CAUSAL}, HEADS),
    "causal, lowest number": (written(bias=additive(CAUSAL, LEAST)), {"mask": CAUSAL}, HEADS),
    "causal, -1e9": (written(bias=additive(CAUSAL, -1e9)), {"mask": CAUSAL}, HEADS),
    "padding, -10000": (written(bias=additive(PADDED, -1e4)), {"mask": PADDED}, HEADS),
    "window": (written(WINDOW), {"mask": WINDOW}, HEADS),
    "alibi": (written(CAUSAL, bias=SLOPES), {"mask": CAUSAL, "bias": SLOPES}, HEADS),
    "cap": (written(CAUSAL, cap=0.5), {"mask": CAUSAL, "cap": 0.5}, HEADS),
    "sink": (written(CAUSAL, sink=0.7), {"mask": CAUSAL, "sink": 0.7}, HEADS),
    "scale": (written(scale=1.0), {"mask": EVERY, "scale": 1.0}, HEADS),
    "groups, repeated": (written(CAUSAL), {"mask": CAUSAL}, 2),
    "groups, five axes": (grouped, {"mask": EVERY}, 2),
    "einsum": (einsum, {"mask": EVERY}, HEADS),
    "heads within the batch": (packed, {"mask": EVERY}, HEADS),
    "fused": (fused(), {"mask": EVERY}, HEADS),
    "fused, causal": (fused(is_causal=True), {"mask": CAUSAL}, HEADS),
    "fused, scale": (fused(scale=1.0, is_causal=True), {"mask": CAUSAL, "scale": 1.0}, HEADS),
    "fused, padding": (fused(attn_mask=PADDED), {"mask": PADDED}, HEADS),
    "fused, window": (fused(attn_mask=WINDOW), {"mask": WINDOW}, HEADS),
    "fused, additive": (
        fused(attn_mask=SLOPES + additive(CAUSAL, LEAST)),
        {"mask": CAUSAL, "bias": SLOPES},
        HEADS,
    ),
    "fused, groups": (fused(enable_gqa=True, is_causal=True), {"mask": CAUSAL}, 1),
}


def stack(*attends: Attend) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*map(Block, attends))


@pytest.mark.parametrize("at_once", [attention.AT_ONCE, 2 * BATCH * HEADS * TOKENS])
def test_rows_follow_from_their_definition(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stack whose layers attend each in another way; also where only two queries are read at a
    time."""
    monkeypatch.setattr(attention, "AT_ONCE", at_once)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(attend, kv_heads) for attend, _, kv_heads in CASES.values()))
    x = torch.randn(BATCH, TOKENS, WIDTH)
    profile = probe(model, x)
    for layer, (name, (_, options, _)) in enumerate(CASES.items()):
        for statistic, values in exact(model[layer], x, **options).items():  # type: ignore[arg-type]
            np.testing.assert_allclose(
                profile[statistic][0, layer], values, rtol=2e-4, err_msg=f"{name}: {statistic}"
            )
        x = model[layer](x)
    assert profile.pattern is not None
    assert profile.pattern.shape == (TOKENS, TOKENS)


class Torch(nn.Module):
    """Around nn.MultiheadAttention."""

    def __init__(self, tokens_first: bool, **options: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=not tokens_first)
        nn.init.normal_(self.attention.in_proj_weight, std=0.6)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, **self.options)[0]


@pytest.mark.parametrize("tokens_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_torchs_own_attention(tokens_first: bool, training: bool) -> None:
    """Heads come out as heads and tokens as tokens, wherever the batch stands; each layer is given
    other options."""
    padded = ~PADDED[:, 0, 0]
    every: list[dict[str, Any]] = [
        {"need_weights": True},
        {"need_weights": False},
        {"need_weights": False, "attn_mask": ~CAUSAL, "is_causal": True},
        {"need_weights": True, "attn_mask": additive(CAUSAL, -math.inf)},
        {"need_weights": False, "key_padding_mask": padded},
        {"need_weights": True, "key_padding_mask": padded},
    ]
    torch.manual_seed(1)
    model = nn.Sequential(*(Torch(tokens_first, **options) for options in every)).train(training)
    first = x = torch.randn(BATCH, TOKENS, WIDTH)
    x = x.transpose(0, 1).contiguous() if tokens_first else x
    profile = probe(model, x)
    for layer, (block, options) in enumerate(zip(model, every, strict=True)):
        y = block.norm(x)  # type: ignore[operator,union-attr]
        given = {**options, "need_weights": True, "average_attn_weights": False}
        given.pop("is_causal", None)
        weights = block.attention(y, y, y, **given)[1].detach()  # type: ignore[operator,union-attr]
        entropy = torch.special.entr(weights).sum(-1).mean(dim=(0, 2))
        np.testing.assert_allclose(
            profile["attention_entropy"][0, layer], entropy, rtol=1e-4, err_msg=str(options)
        )
        np.testing.assert_allclose(
            profile["attention_max"][0, layer], weights.amax(-1).mean(dim=(0, 2)), rtol=1e-4
        )
        x = block(x)
    overlap = float(((first.sum(1) ** 2).sum(-1) - (first**2).sum((1, 2))).mean()) / (
        TOKENS * (TOKENS - 1) * WIDTH
    )
    assert profile["token_correlation", "embed"][0, 0] == pytest.approx(
        overlap / float((first**2).mean()), rel=1e-4
    )


def test_a_number_that_is_not_finite_is_kept() -> None:
    """A logit that overflows shows as such, and is not taken for a masked one."""
    model = stack(written(CAUSAL), written(CAUSAL))
    with torch.no_grad():
        model[1].q.weight.fill_(1e38)  # type: ignore[union-attr]
    profile = probe(model, torch.ones(BATCH, TOKENS, WIDTH) + torch.randn(BATCH, TOKENS, WIDTH))
    assert np.isfinite(profile["logit_std"][0, 0]).all()
    assert not np.isfinite(profile["logit_std"][0, 1]).any()
    assert profile.first_nonfinite is not None
    assert profile.first_nonfinite.layer == 2


def test_one_token_has_no_spread() -> None:
    profile = probe(stack(fused(), fused()), torch.randn(BATCH, 1, WIDTH))
    assert "logit_std" not in profile
    assert "token_correlation" not in profile
    assert np.all(profile["attention_max"] == 1)
    assert profile.first_nonfinite is None


def test_a_softmax_over_something_else_is_no_attention() -> None:
    """Linear attention: features of queries and keys, each with a softmax of its own."""

    def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q.softmax(-1) @ (k.softmax(-2).mT @ v)

    profile = probe(stack(linear, linear), torch.randn(BATCH, TOKENS, WIDTH))
    assert "attention_entropy" not in profile
    assert ("second_moment", "resid_post") in profile
