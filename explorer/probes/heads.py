"""What one attention does with its queries and keys: divisor, cap, norms, positions, mask and sink."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explorer.probes.branches import Anatomy, queries_keys_values
from explorer.probes.graph import FUSED, MATRIX, Node, pattern_of
from explorer.probes.masks import seen
from explorer.probes.operands import alpha
from explorer.probes.rotary import Turn, read_turn
from explorer.probes.trace import Step, trace


class Heads(NamedTuple):
    """One attention."""

    d_head: int
    n_heads: int
    divisor: float
    cap: float
    normed: tuple[str, ...]
    """Of q, k and v: over a head, over all of them, or not at all."""
    epsilon: float
    centered: bool
    gain: float
    """Root mean square of normalized queries times that of the keys."""
    mask: str
    """None, causal, or another."""
    position: str
    """None, rotary, alibi, or another."""
    turn: Turn | None
    sink: str
    mixes_values: bool
    inherits: str


def read_heads(found: Anatomy) -> Heads | None:
    """The facts of a block's first attention; None where its logits are not seen."""
    attention = found.attention
    parts = queries_keys_values(attention) if attention is not None else None
    if attention is None or parts is None:
        return None
    q, k, _ = parts
    lines = [trace(one)[0] for one in (q, k.inputs[0] if _turned(k) else k, parts[2])]
    norms = [[step for step in line if step.kind == "norm"] for line in lines]
    d_head = q.tensor.shape[-1]
    logits, factor, cap, after = _logits(attention, d_head)
    scaled = [math.prod(step.factor for step in _after_norm(line) if step.kind == "factor") for line in lines[:2]]
    factor *= math.prod(scaled)
    inherits = "qk" if any(_carried(step) for step in lines[0]) else "scores" if any(
        _carried(step) and step.extra is not None and _varies(step.extra.tensor) for step in after) else "none"
    position, mask = seen(attention, q, k, logits, after, cap)
    if inherits == "scores":
        position = "none"  # what is added is no bias
    turn = next((read_turn(step) for step in lines[0] if step.kind == "turn"), None)
    if turn is not None:
        position = "rotary" if turn.fits else "another"
    norm = norms[0][0] if norms[0] else None
    sizes = [float(one.tensor.detach().float().square().mean()) ** 0.5 for one in (q, k)]
    gain = math.prod(size / abs(by or 1.0) for size, by in zip(sizes, scaled, strict=True)) if norm else 1.0
    return Heads(
        d_head, _count(found, d_head), 1 / factor if factor else math.inf, cap,
        tuple(_over(steps, d_head) for steps in norms), norm.epsilon if norm else 0.0, bool(norm and norm.centered),
        gain, mask, position, turn, _sink(attention),
        any(_carried(step) for step in lines[2]), inherits,
    )


def of_heads(found: Anatomy) -> Iterator[tuple[tuple[str, str], Any]]:
    """Facts of the first attention."""
    heads = read_heads(found)
    yield from () if heads is None else ((("attn_scores", name), value) for name, value in heads._asdict().items())


def _turned(node: Node) -> bool:
    return node.op in ("transpose", "t") and len(node.inputs) == 1


def _after_norm(line: list[Step]) -> list[Step]:
    """Steps that no norm undoes."""
    kept = []
    for step in line:
        if step.kind == "norm":
            break
        kept.append(step)
    return kept


def _logits(attention: Node, d_head: int) -> tuple[Node | None, float, float, list[Step]]:
    """The product of queries and keys, the factor on it until the softmax, the soft cap, and the steps between."""
    if attention.op in FUSED:
        scale = attention.named.get("scale")
        return None, d_head**-0.5 if scale is None else float(scale), 0.0, []
    soft = pattern_of(attention)
    if soft is None:
        return None, 1.0, 0.0, []
    if soft.scalars[1] % soft.tensor.ndim != soft.tensor.ndim - 1:
        raise ValueError("the softmax is not over the last axis of the logits")
    steps, product = trace(soft.inputs[0], lambda node: node.op in MATRIX, bends=True)
    factors = [step for step in steps if step.kind in ("factor", "bend")]
    factor = math.prod(step.factor for step in factors)
    if product.op == "baddbmm":
        factor *= alpha(product)
    bends = [index for index, step in enumerate(factors) if step.kind == "bend" and step.node.op == "tanh"]
    cap = math.prod(step.factor for step in factors[:bends[0]]) if bends else 0.0
    return product, factor, cap, steps


def _over(norms: list[Step], d_head: int) -> str:
    if not norms:
        return ""
    return "head" if norms[0].before.tensor.shape[-1] == d_head else "all"


def _count(found: Anatomy, d_head: int) -> int:
    """Number of heads, from what the last matrix reads."""
    pieces = found.matrices.get("W_O", [])
    return sum(one.of(one.parameter).shape[-1] for one in pieces[:1]) // d_head


def _carried(step: Step) -> bool:
    """Whether what is added comes from another block: no parameter, and as large as what it is added to."""
    other = step.extra
    return (step.kind == "add" and other is not None and other.op == "leaf" and other.parameter is None
            and other.tensor.numel() == step.node.tensor.numel())


def _varies(tensor: Tensor) -> bool:
    """Whether it is another for another sequence: no bias by position is."""
    return tensor.shape[0] > 1 and not torch.equal(tensor[0], tensor[1])


def _sink(attention: Node) -> str:
    """Whether the softmax has one key more than there are values, and whether its logit is learned."""
    soft = pattern_of(attention) if attention.op not in FUSED else None
    if soft is None or soft.inputs[0].tensor.shape[-1] != attention.inputs[1].tensor.shape[-2] + 1:
        return "none"
    left, learned = [soft.inputs[0]], False
    for _ in range(40):
        if not left:
            break
        node = left.pop()
        learned |= node.parameter is not None
        left += [one for one in node.inputs if node.op not in MATRIX]
    return "learned" if learned else "zero"
