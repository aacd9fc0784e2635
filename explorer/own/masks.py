"""Which keys a query sees, and what its position adds to the logits: read off the first sequence's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from explorer.config import Config
from explorer.own.nodes import FUSED, MATRIX, Node, pattern_of
from explorer.own.trace import Step, trace

LOOKED_AT = 128
"""Tokens of the first sequence in whose logits masks and biases are looked for."""
GAP = 50.0
"""Between what a mask adds to logits and what it leaves: e^−50 of a weight is nothing in float32."""
HIDDEN = 5e3
"""A logit that far below the row's largest is hidden: masks add −1e4 or less, and ALiBi no less than −n."""


def visible(scores: Tensor) -> Tensor:
    """Whether a query sees a key, by its logits `[…, query, key]`; where one is not a number, all are seen."""
    highest = scores.amax(dim=-1, keepdim=True)
    return (scores > torch.finfo(torch.float32).min / 4) & (scores >= highest - HIDDEN) | highest.isnan()


def below(bias: Tensor) -> Tensor | None:
    """Which entries of what is added to logits hide a key: those that a gap parts from the others, as Swin's −100 by
    any other bias; None where there is no such gap. Biases by position fall in steps of one at most.
    """
    bias = bias.detach().float().clamp(min=-1e9)
    if not bias.numel() or float(bias.amin()) > -GAP:
        return None
    low = bias <= -GAP  # two clusters on either side, most of the time: then nothing needs to be sorted
    if not bool(low.all()) and float(bias[~low].amin() - bias[low].amax()) >= GAP:
        return low
    values = bias.flatten().sort().values
    gaps = values.diff()
    return bias <= values[int(gaps.argmax())] if len(gaps) and float(gaps.max()) >= GAP else None


def masked(scores: Tensor, mask: Tensor | None, causal: bool, start: int = 0) -> Tensor:
    """Logits `[…, query, key]` of queries from `start` on with the mask of a fused call: −∞ where it hides a key."""
    n, keys = scores.shape[-2:]
    if mask is not None:
        part = mask.detach()[..., :keys]
        part = part if part.shape[-2] == 1 else part[..., start:start + n, :]
        gone = ~part if part.dtype == torch.bool else below(part)
        scores = scores if part.dtype == torch.bool else scores + part.float()
        scores = scores if gone is None else scores.masked_fill(gone, -math.inf)
    if causal:
        earlier = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril(start)
        scores = scores.masked_fill(~earlier, -math.inf)
    return scores


def hidden(soft: Node) -> Tensor | None:
    """Keys that a mask hides that was added to the logits of a softmax, in their shape; None where none was."""
    mask: Tensor | None = None
    scores = soft.inputs[0].tensor
    for step in trace(soft.inputs[0], lambda node: node.op in MATRIX, bends=True)[0]:
        bias = step.extra if step.kind == "add" and step.node.tensor.numel() == scores.numel() else None
        if bias is not None and not bias.role and (part := below(bias.tensor)) is not None:
            part = part.expand(step.node.tensor.shape).reshape(scores.shape)
            mask = part if mask is None else mask | part
    return mask


def masking(attention: Node, q: Node, k: Node, product: Node | None, after: list[Step], cap: float) -> tuple[str, str]:
    """Bias by position and mask, from the logits of the first sequence."""
    if attention.op in FUSED:
        return _of_fused(attention, min(q.tensor.shape[-2], LOOKED_AT), min(k.tensor.shape[-2], LOOKED_AT))
    soft = pattern_of(attention)
    if soft is None or product is None:
        return "another", "another"
    keys = attention.inputs[1].tensor.shape[-2]
    mask = hidden(soft)
    logits = soft.inputs[0].tensor
    scores = (logits if mask is None else logits.masked_fill(mask, -math.inf))[..., :keys]
    first = _first(scores, scores.shape[-3])
    # the product with its axes in their places; what was done to it before it had them is done to it there
    placed = [(index, step.before.tensor[..., :keys]) for index, step in reversed([*enumerate(after)])]
    index, plain = next(((index, tensor) for index, tensor in [*placed, (-1, scores)] if tensor.shape == scores.shape))
    if any(step.kind not in ("factor", "gain") for step in after[index + 1:]):
        raise ValueError("the logits are bent or added to before their axes are in their places")
    if product.op == "baddbmm" and not product.inputs[0].role:
        bias = product.inputs[0].tensor.expand_as(product.tensor)
        plain = plain - bias.reshape(plain.shape).to(plain)
    scaled = _first(plain, first.shape[0])
    factor = math.prod(step.factor for step in after[:index + 1] if step.kind == "factor")
    scaled = torch.tanh(scaled * factor / cap) * cap if cap else scaled * factor
    return _named(first - scaled, first)


def _first(scores: Tensor, heads: int) -> Tensor:
    """`[head, query, key]` of the first sequence's first tokens."""
    flat = scores.detach().reshape(-1, *scores.shape[-2:])[:heads]
    return flat[:, :LOOKED_AT, :LOOKED_AT].float()


def _of_fused(attention: Node, n: int, keys: int) -> tuple[str, str]:
    """Bias by position and mask of a fused call, which adds to logits what it adds to zeros."""
    node, mask = attention.named.get("attn_mask") or attention.named.get("attn_bias"), None
    if isinstance(node, Node):
        heads = node.tensor.shape[-3] if node.tensor.ndim > 2 else 1
        mask = node.tensor.detach().reshape(-1, *node.tensor.shape[-2:])[:heads].cpu()
    bias = masked(torch.zeros(1 if mask is None else len(mask), n, keys), mask, bool(attention.named["is_causal"]))
    return _named(bias, bias)


def _named(bias: Tensor, scores: Tensor) -> tuple[str, str]:
    """Position and mask from `[head, query, key]`: what is added to the logits, and the logits themselves."""
    shown = visible(scores)
    n, keys = scores.shape[-2:]
    lower = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril()
    mask = "none" if bool(shown.all()) else "causal" if bool((shown == lower).all()) else "another"
    left = (bias - bias[..., :1]).where(shown & shown[..., :1], 0)
    if float(left.abs().max()) <= 1e-3 * max(1.0, float(scores.where(shown, 0).abs().max())):
        return "none", mask
    heads = bias.shape[0]
    if heads <= 64:
        fall = torch.tensor(Config(n_heads=heads, head_size=8, position="alibi", causal=True).design.slopes)
        line = fall[:, None, None].to(left) * torch.arange(keys, device=left.device)
        line = line.where(shown & shown[..., :1], 0)
        if float((left - line).abs().max()) <= 0.02 * float(line.abs().max()):
            return "alibi", mask
    return "another", mask
