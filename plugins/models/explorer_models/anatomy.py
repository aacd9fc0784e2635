"""A block's anatomy: where attention is, what is added to the stream, the vocabulary's sites, how
the stream lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from explorer.schemes import placement
from explorer_models.nodes import (
    FACTOR,
    FUSED,
    MATRIX,
    NORMS,
    SUM,
    VIEW,
    Node,
    expanded,
    is_norm,
    label,
    pattern_of,
    walk,
)


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

    def numbers(self) -> Tensor:
        """`[…, fan_out, fan_in]` of the parameter."""
        return self.of(self.parameter.detach())


class Sum(NamedTuple):
    """The stream before and after a branch is added, and the branch; without a residual it is the
    branch alone."""

    before: Node | None
    branch: Node
    after: Node


@dataclass
class Anatomy:
    """One pass through one block."""

    order: list[Node]
    """Every node of the block, in turn, while it is read."""
    source: Node
    output: Node
    attention: Node | None
    """Output of the first attention, before its last matrix."""
    sums: list[Sum]
    softmax: str = "keys"
    """Axis over which the attention's weights sum to 1; any but "keys" is a mistake."""
    sites: dict[str, Node] = field(default_factory=dict)
    matrices: dict[str, list[Piece]] = field(default_factory=dict)
    vectors: dict[str, list[Piece]] = field(default_factory=dict)


def attends(node: Node) -> bool:
    """Whether it is the output of attention: a fused call's, or a pattern times values."""
    if node.op in FUSED:
        return node.tensor.ndim == 4  # not the logarithms of sums, which it puts out beside
    return node.op == "bmm" and node.role == "deep" and pattern_of(node) is not None


def own(attention: Node) -> bool:
    """Whether queries and keys both come from the stream; those of cross attention, or of a softmax
    over other things, do not."""
    if attention.op not in FUSED and not _over_keys(attention):
        return False
    return _from_stream(attention)


def _from_stream(attention: Node) -> bool:
    """Whether queries and keys are both made of the stream."""
    heads = queries_keys_values(attention)
    return heads is not None and all(node.role in ("deep", "stream") for node in heads[:2])


def _over_keys(attention: Node) -> bool:
    """Whether the softmax is over the axis that the product with the values adds up."""
    soft = pattern_of(attention)
    return (
        soft is not None and _axis_in(soft, attention, -1) == soft.named["dim"] % soft.tensor.ndim
    )


def _axis_in(soft: Node, attention: Node, axis: int) -> int | None:
    """Axis of a softmax that became this one of the weights as the product with the values has
    them; None without."""
    node = attention.inputs[0]
    at: int | None = axis % node.tensor.ndim
    while node is not soft and at is not None:
        before = node.made_of()[0]
        at, node = axis_before(node, before, at), before
    return at


SUMS_TO_1 = 1e-2
"""Error of a sum of weights up to which it is 1, in half precision, too."""


def wrong_axis(attention: Node) -> str:
    """Axis over which weights of queries by keys sum to 1 by mistake: queries, heads or sequences;
    empty elsewhere.

    Weights that are divided by their sum over the keys afterwards, as those of slot attention, are
    no mistake."""
    soft = pattern_of(attention)
    if (
        attention.op in FUSED
        or soft is None
        or not _from_stream(attention)
        or _over_keys(attention)
    ):
        return ""
    weights, dim = attention.inputs[0].tensor.detach().float(), soft.named["dim"] % soft.tensor.ndim
    if (
        weights.shape[-1] != weights.shape[-2]
        or soft.tensor.shape[dim] < 2
        or _all_1(weights.sum(dim=-1))
    ):
        return ""
    if not _all_1(soft.tensor.detach().float().sum(dim=dim)):
        return ""
    if _axis_in(soft, attention, -2) == dim:
        return "queries"
    return "heads" if dim else "sequences"


def _all_1(sums: Tensor) -> bool:
    return bool(((sums - 1).abs() < SUMS_TO_1).all())


def axis_before(node: Node, before: Node, axis: int) -> int | None:
    """Where an axis was before an operation that may have turned or joined axes; None where it was
    no axis."""
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
    return next(
        (
            at
            for at in order
            if before.tensor.shape[at] == after[0]
            and math.prod(before.tensor.shape[at:]) == math.prod(after)
        ),
        None,
    )


def queries_keys_values(attention: Node | None) -> tuple[Node, Node, Node] | None:
    """Queries, keys and values of an attention; None without one, and where the product of its
    logits is not seen."""
    if attention is None:
        return None
    if attention.op in FUSED:
        q, k, v = attention.inputs[:3]
        return q, k, v
    node = pattern_of(attention)
    while node is not None and node.op not in MATRIX:
        node = next(iter(node.made_of("deep")), None)
    return (
        None
        if node is None or len(node.inputs) < 2
        else (node.inputs[-2], node.inputs[-1], attention.inputs[1])
    )


def branches_by_site(anatomy: Anatomy, term: Sum) -> list[tuple[str, Node]]:
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
        if (
            not (plain or node.op == "native_dropout")
            or inner[0].tensor.shape != branch.tensor.shape
        ):
            return node, learned
        if plain and _divides(inner[0]):  # then it is the gain of a norm
            return node, learned
        learned += [operand.parameter for operand in node.inputs if operand.parameter is not None]
        node = inner[0]


def _divides(node: Node) -> bool:
    """Whether it is a branch over its own size: a norm that is written out."""
    while node.op in VIEW and node.inputs:
        node = node.inputs[0]
    return node.op in FACTOR and any(
        arg.tensor.ndim and arg.tensor.shape[-1] == 1 for arg in node.made_of()
    )


def read_block(order: list[Node], source: Node, output: Node) -> Anatomy:
    """Branches and sites of a block that has just run, from what it computed in turn."""
    with torch.enable_grad():
        order[:] = [part for node in order for part in expanded(node)]
    attending = [node for node in order if attends(node)]
    attention, softmax = next((node for node in attending if own(node)), None), "keys"
    if attention is None:
        attention, softmax = next(
            ((node, axis) for node in attending if (axis := wrong_axis(node))), (None, "keys")
        )
    anatomy = Anatomy(order, source, output, attention, _sums(order), softmax)
    if output.role != "stream":
        anatomy.sums = _without_residual(anatomy)
    anatomy.sites = dict(_sites(anatomy))
    return anatomy


def _sums(order: Iterable[Node]) -> list[Sum]:
    """Where a branch is added to the stream, in turn."""
    sums = []
    for node in order:
        if node.role == "stream" and node.op in SUM:
            before, branch = node.made_of("stream"), node.made_of("deep")
            if before and branch:
                sums.append(Sum(before[0], branch[-1], node))
    return sums


def _without_residual(anatomy: Anatomy) -> list[Sum]:
    """The sums of a block where a branch replaces the stream: from there on the branch's output is
    the stream."""
    attention, source, output, sums = (
        anatomy.attention,
        anatomy.source,
        anatomy.output,
        anatomy.sums,
    )
    if attention is not None and not any(attention in term.branch.inside() for term in sums):
        stream = _product_after(attention, anatomy)
        # several streams, or code that is not understood
        if stream is None or _reaches(output, source, stream):
            return [Sum(None, output, output)] if parts_of(output, attention) is not None else []
        after = anatomy.order[anatomy.order.index(stream) + 1 :]
        if any(later.op not in VIEW and _reaches(later, stream) for later in after):
            stream.role = "stream"
            for later in after:
                label(later)
            sums = [Sum(None, stream, stream), *_sums(after)]
    return [*sums, Sum(None, output, output)] if output.role == "deep" else sums


def _product_after(attention: Node, anatomy: Anatomy) -> Node | None:
    """Output of the first matrix after attention that has the shape of the stream; None without
    one."""
    return next(
        (
            node
            for node in anatomy.order
            if node.role == "deep"
            and node.matrix
            and node.tensor.shape == anatomy.source.tensor.shape
            and not shares(node, attention)
            and attention in node.inside()
        ),
        None,
    )


def shares(node: Node, other: Node) -> bool:
    """Whether two nodes come from one product."""
    return any(product in other.matrix for product in node.matrix)


def _reaches(node: Node, source: Node, around: Node | None = None) -> bool:
    """Whether a node is made of another one, not counting ways through a third."""
    return any(
        part is source for part in walk(node, lambda part: [] if part is around else part.inputs)
    )


def _sites(anatomy: Anatomy) -> Iterator[tuple[str, Node]]:
    """Sites of the vocabulary to their nodes."""
    ends = [
        _settled(term.after, after.before)
        for term, after in zip(anatomy.sums, anatomy.sums[1:], strict=False)
    ]
    ends.append(anatomy.output)
    for term, end in zip(anatomy.sums, ends, strict=False):
        for site, node in (parts := branches_by_site(anatomy, term)):
            yield site, bare(node)[0]
        if parts[-1][0] == "attn_out":
            yield "resid_mid", end
    yield "resid_post", anatomy.output


def _settled(after: Node, before: Node | None) -> Node:
    """The stream between two sums: the first one's, or its norm where that is what the second one
    adds to."""
    node = before
    while node is not None and node is not after:
        if is_norm(node):
            return node
        node = next(iter(node.made_of("stream")), None)
    return after


# How the stream lies in memory, and what follows the last block.


TURNS = {"transpose", "permute", "t"}


class Layout(NamedTuple):
    """Which axis of a stream is what: most are `[batch, token, d]`."""

    tokens_first: bool = False
    """`[token, batch, d]`."""
    features_second: bool = False
    """`[batch, d, …]`, as convolutions have it."""
    flat: int = 0
    """Sequences in `[batch · token, d]`; 0 if it is one."""

    def arrange(self, x: Tensor) -> Tensor:
        """A stream as `[batch, token, d]`."""
        if self.features_second:
            x = x.movedim(1, -1)
        if self.tokens_first:
            x = x.transpose(0, 1)
        return x.reshape((self.flat or 1) if x.ndim < 3 else x.shape[0], -1, x.shape[-1])


def layout(anatomy: Anatomy) -> Layout:
    """The layout of a block's stream, from what reads it."""
    shape = anatomy.source.tensor.shape
    if len(shape) > 2 and any(
        node.op == "convolution" and _as_it_lies(node.inputs[0], anatomy.source)
        for node in anatomy.order
    ):
        return Layout(features_second=True)
    if anatomy.attention is None:
        return Layout()
    if len(shape) == 2:
        sequences = anatomy.attention.tensor.shape[0]
        whole = anatomy.attention.op in FUSED and shape[0] % sequences == 0
        return Layout(flat=sequences if whole else 0)
    return Layout(tokens_first=len(shape) == 3 and min(shape[:2]) > 1 and _tokens_first(anatomy))


def _as_it_lies(node: Node, source: Node) -> bool:
    """Whether it is the stream, or a norm of it, with its axes in their places."""
    while node is not source:
        if node.role != "stream" or node.op in TURNS or not node.inputs:
            return False
        plain = node.op in VIEW or node.op in NORMS
        node = next(iter(node.made_of("stream")), node) if plain else source
    return True


def _tokens_first(anatomy: Anatomy) -> bool:
    """Whether the first sequence's second query is made of the stream's `[1, 0]`, and not of its
    `[0, 1]`."""
    heads = queries_keys_values(anatomy.attention)
    # a class token alone
    if heads is None or not heads[0].tensor.requires_grad or heads[0].tensor.shape[-2] < 2:
        return False
    with torch.enable_grad():
        query = heads[0].tensor.flatten(0, -3)[0, 1].float().square().sum()
        (gradient,) = torch.autograd.grad(
            query, anatomy.source.tensor, retain_graph=True, allow_unused=True
        )
    if gradient is None:
        return False
    by_place = gradient.abs().amax(dim=-1)
    return bool(by_place[1, 0] > 0) and not bool(by_place[0, 1] > 0)


POINTS = {row.point for row in placement.NORMS.values() if row.point}
"""Functions that stand in a norm's place."""


def ends_with_norm(tail: Sequence[Node]) -> bool:
    """Whether the stream goes through a norm before any matrix, after the last block."""
    for node in tail:
        if (node.role == "stream" and is_norm(node)) or (
            node.op in POINTS and node.inputs[0].role == "stream"
        ):
            return True
        if node.op in MATRIX and node.role:
            return False
    return False
