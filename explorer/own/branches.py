"""A block's branches: where attention is, what is added to the stream, and what each sum takes in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from explorer.own.graph import Graph
from explorer.own.nodes import FACTOR, FUSED, MATRIX, SUM, VIEW, Node, pattern_of


class Piece(NamedTuple):
    """A matrix of the vocabulary: a parameter, or some of its rows."""

    parameter: nn.Parameter
    transposed: bool
    """Whether it is kept as `[fan_in, fan_out]`."""
    rows: tuple[int, ...] | None = None
    """Which of the outputs; None for all."""
    kernel: bool = False
    """Whether it is a convolution's, `[fan_out, channel, …]`."""
    order: tuple[int, ...] = ()
    """Order of the axes in which it is one matrix, where its axes are heads and the like."""
    shape: tuple[int, ...] = ()
    """Shape of that matrix, `[…, fan_in, fan_out]`."""

    def of(self, tensor: Tensor) -> Tensor:
        """`[…, fan_out, fan_in]` of the parameter, or of its gradient."""
        if self.order:
            tensor = tensor.permute(self.order).reshape(self.shape)
        tensor = tensor.flatten(1) if self.kernel else tensor
        whole = tensor.mT if self.transposed else tensor
        return whole if self.rows is None else whole[..., list(self.rows), :]


class Sum(NamedTuple):
    """The stream before and after a branch is added, and the branch; without a residual it is the branch alone."""

    before: Node | None
    branch: Node
    after: Node


@dataclass
class Anatomy:
    """One pass through one block."""

    graph: Graph
    source: Node
    output: Node
    sums: list[Sum]
    attention: Node | None
    """Output of the first attention, before its last matrix."""
    sites: dict[str, Node] = field(default_factory=dict)
    matrices: dict[str, list[Piece]] = field(default_factory=dict)
    vectors: dict[str, list[nn.Parameter]] = field(default_factory=dict)


def attends(node: Node) -> bool:
    """Whether it is the output of attention: a fused call's, or a pattern times values."""
    if node.op in FUSED:
        return node.tensor.ndim == 4  # not the logarithms of sums, which it puts out beside
    return node.op == "bmm" and node.role == "deep" and pattern_of(node) is not None


def own(attention: Node) -> bool:
    """Whether queries and keys both come from the stream; those of cross attention, or of a softmax over other things,
    do not.
    """
    heads = queries_keys_values(attention)
    if attention.op not in FUSED and not _over_keys(attention):
        return False
    return heads is not None and all(node.role in ("deep", "stream") for node in heads[:2])


def _over_keys(attention: Node) -> bool:
    """Whether the softmax is over the axis that the product with the values adds up."""
    soft, node = pattern_of(attention), attention.inputs[0]
    axis: int | None = node.tensor.ndim - 1
    while node is not soft and axis is not None:
        before = node.made_of()[0]
        axis, node = axis_before(node, before, axis), before
    return soft is not None and axis is not None and axis == soft.named["dim"] % soft.tensor.ndim


def axis_before(node: Node, before: Node, axis: int) -> int | None:
    """Where an axis was before an operation that may have turned or joined axes; None where it was no axis."""
    order = list(range(before.tensor.ndim))
    if node.op == "permute":
        return int(node.named["dims"][axis]) % len(order)
    if node.op in ("transpose", "t"):
        first, second = node.named.get("dim0", 0), node.named.get("dim1", -1)
        order[first], order[second] = order[second], order[first]
        return order[axis]
    if len(order) == node.tensor.ndim and "view" not in node.op and "reshape" not in node.op:
        return axis
    after = node.tensor.shape[axis:]
    return next((at for at in order if before.tensor.shape[at] == after[0]
                 and math.prod(before.tensor.shape[at:]) == math.prod(after)), None)


def queries_keys_values(attention: Node) -> tuple[Node, Node, Node] | None:
    """Queries, keys and values of an attention; None where the product that makes its logits is not seen."""
    if attention.op in FUSED:
        q, k, v = attention.inputs[:3]
        return q, k, v
    node = pattern_of(attention)
    while node is not None and node.op not in MATRIX:
        node = next(iter(node.made_of("deep")), None)
    return None if node is None or len(node.inputs) < 2 else (node.inputs[-2], node.inputs[-1], attention.inputs[1])


def kinds(anatomy: Anatomy, term: Sum) -> list[tuple[str, Node]]:
    """A sum's branches and their sites: two, where one sum takes in both.

    Where nothing attends, the first of two branches stands in attention's place.
    """
    attention, branch = anatomy.attention, term.branch
    if attention is None or attention not in branch.inside():
        first = attention is None and len(anatomy.sums) > 1 and term is anatomy.sums[0]
        return [("attn_out" if first else "mlp_out", branch)]
    parts = parts_of(branch, attention) or (branch,)
    return list(zip(("attn_out", "mlp_out"), parts, strict=False))


def parts_of(branch: Node, attention: Node) -> tuple[Node, Node] | None:
    """Attention's and the MLP's terms of a branch that is the sum of both."""
    node = branch
    while node.op in VIEW or node.op in FACTOR:
        inner = node.made_of("deep")
        if len(inner) != 1:
            return None
        node = inner[0]
    terms = [operand for operand in node.made_of("deep") if operand.matrix]
    if node.op not in SUM or len(terms) != 2:
        return None
    with_it = [attention in term.inside() for term in terms]
    return (terms[with_it.index(True)], terms[with_it.index(False)]) if sum(with_it) == 1 else None


def bare(branch: Node) -> tuple[Node, list[nn.Parameter]]:
    """A branch's term before multipliers and dropout, and the multipliers that are learned."""
    node = branch
    learned: list[nn.Parameter] = []
    while True:
        inner = node.made_of("deep")
        plain = node.op in FACTOR and len(inner) == 1 and node.made_of() == inner
        if not (plain or node.op == "native_dropout") or inner[0].tensor.shape != branch.tensor.shape:
            return node, learned
        if plain and _divides(inner[0]):  # then it is the gain of a norm
            return node, learned
        learned += [operand.parameter for operand in node.inputs if operand.parameter is not None]
        node = inner[0]


def _divides(node: Node) -> bool:
    """Whether it is a branch over its own size: a norm that is written out."""
    while node.op in VIEW and node.inputs:
        node = node.inputs[0]
    return node.op in FACTOR and any(arg.tensor.ndim and arg.tensor.shape[-1] == 1 for arg in node.made_of())
