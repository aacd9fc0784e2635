"""A block's anatomy: where attention is, what is added to the stream, the vocabulary's sites, how
the stream lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from explorer.schemes import placement
from explorer.sites import BRANCHES
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

Fact = tuple[tuple[str, str], Any]
"""Site (or "layer") and name of a property of a block, and its value; see `facts`."""


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
    """One residual addition: the stream before it, the branch, and the stream after it. Without a
    residual the branch is the stream after it, and there is none before."""

    before: Node | None
    branch: Node
    after: Node


@dataclass
class Anatomy:
    """The parts of one block in one pass: attention, residual additions, sites, matrices."""

    order: list[Node]
    """Every node of the block, in the order of its computation; empty once its numbers are
    gone."""
    source: Node
    """The stream as it goes into the block."""
    output: Node
    attention: Node | None
    """Output of the first attention, before its last matrix."""
    sums: list[Sum]
    """The residual additions, in order."""
    softmax: str = "keys"
    """Axis over which the attention's weights sum to 1; any but "keys" is a mistake."""
    sites: dict[str, Node] = field(default_factory=dict)
    matrices: dict[str, list[Piece]] = field(default_factory=dict)
    vectors: dict[str, list[Piece]] = field(default_factory=dict)

    @property
    def names(self) -> dict[int, str]:
        """Name of the matrix to which a parameter belongs, by the parameter's id."""
        return {
            id(piece.parameter): name for name, pieces in self.matrices.items() for piece in pieces
        }


def attends(node: Node) -> bool:
    """Whether a node is the output of an attention: a fused call's, or a product of a softmax's
    weights with values."""
    if node.op in FUSED:
        return node.tensor.ndim == 4  # a fused call puts out the log-sums of its rows, too
    return node.op == "bmm" and node.role == "deep" and pattern_of(node) is not None


def is_self_attention(attention: Node) -> bool:
    """Whether queries and keys of an attention both come from the stream, and its softmax is over
    the keys; false of cross attention."""
    over_keys = attention.op in FUSED or _over_keys(attention)
    return over_keys and _from_stream(attention)


def _from_stream(attention: Node) -> bool:
    """Whether queries and keys of an attention are both made of the block's input: their roles
    are "stream", the input itself, or "deep", what matrices have made of it."""
    heads = queries_keys_values(attention)
    return heads is not None and all(node.role in ("deep", "stream") for node in heads[:2])


def _over_keys(attention: Node) -> bool:
    """Whether the softmax is over the keys: the axis that the product with the values sums up."""
    soft = pattern_of(attention)
    if soft is None:
        return False
    return bool(_axis_in(soft, attention, -1) == soft.named["dim"] % soft.tensor.ndim)


def _axis_in(soft: Node, attention: Node, axis: int) -> int | None:
    """Number that an axis of the attention weights had in the softmax; None where it was none.

    Args:
        axis: of the weights as the product with the values has them, from the end.
    """
    return axis_at(soft, attention.inputs[0], axis)


def axis_at(source: Node, node: Node, axis: int) -> int | None:
    """Number that an axis of a tensor had in an earlier tensor of which it is made; None where it
    was none, or the way between was lost.

    Args:
        axis: of the tensor, may be counted from the end.
    """
    number: int | None = axis % node.tensor.ndim
    while node is not source and number is not None:
        made = node.made_of()
        number = axis_before(node, made[0], number) if made else None
        node = made[0] if made else node
    return number


SUMS_TO_1 = 1e-2
"""Error of a sum of weights up to which it is 1, in half precision, too."""


def wrong_axis(attention: Node) -> str:
    """Axis over which attention weights sum to 1 by mistake: "queries", "heads" or "sequences";
    empty where there is no mistake.

    Weights that are divided by their sum over the keys afterwards, as those of slot attention, are
    no mistake."""
    soft = pattern_of(attention)
    if attention.op in FUSED or soft is None:
        return ""
    if not _from_stream(attention) or _over_keys(attention):
        return ""
    weights, dim = attention.inputs[0].tensor.detach().float(), soft.named["dim"] % soft.tensor.ndim
    if weights.shape[-1] != weights.shape[-2] or soft.tensor.shape[dim] < 2:
        return ""
    sums_to_1 = _all_1(soft.tensor.detach().float().sum(dim=dim))
    if not sums_to_1 or _all_1(weights.sum(dim=-1)):
        return ""
    if _axis_in(soft, attention, -2) == dim:
        return "queries"
    return "heads" if dim else "sequences"


def _all_1(sums: Tensor) -> bool:
    """Whether all sums of weights are 1."""
    return bool(((sums - 1).abs() < SUMS_TO_1).all())


def axis_before(node: Node, before: Node, axis: int) -> int | None:
    """Number of an axis before an operation that may have turned or joined axes; None where two
    axes were joined to it.

    Args:
        node: the tensor after the operation.
        before: the tensor before it.
        axis: of the tensor after, from 0.
    """
    order = list(range(before.tensor.ndim))
    if node.op == "permute":
        return int(node.named["dims"][axis]) % len(order)
    if node.op in ("transpose", "t"):
        first, second = node.named.get("dim0", 0), node.named.get("dim1", -1)
        order[first], order[second] = order[second], order[first]
        return order[axis]
    if len(order) == node.tensor.ndim and "view" not in node.op and "reshape" not in node.op:
        return axis
    # an axis is the same where it and all after it have the same sizes
    size, rest = node.tensor.shape[axis], math.prod(node.tensor.shape[axis:])
    shape = before.tensor.shape
    return next(
        (old for old in order if shape[old] == size and math.prod(shape[old:]) == rest), None
    )


def queries_keys_values(attention: Node | None) -> tuple[Node, Node, Node] | None:
    """Queries, keys and values of an attention; None of None, and where the product of queries and
    keys is not found."""
    if attention is None:
        return None
    if attention.op in FUSED:
        queries, keys, values = attention.inputs[:3]
        return queries, keys, values
    node = pattern_of(attention)
    while node is not None and node.op not in MATRIX:
        node = next(iter(node.made_of("deep")), None)
    if node is None or len(node.inputs) < 2:
        return None
    return node.inputs[-2], node.inputs[-1], attention.inputs[1]


def branches_by_site(anatomy: Anatomy, term: Sum) -> list[tuple[str, Node]]:
    """The branches of a residual addition, each with its site. There are two where one addition has
    both attention and MLP.

    Where no branch attends, the first of a block's two branches takes the site of attention.
    """
    attention, branch = anatomy.attention, term.branch
    if attention is None:
        first = len(anatomy.sums) > 1 and term is anatomy.sums[0]
        return [("attn_out" if first else "mlp_out", branch)]
    if attention not in branch.inside():
        return [("mlp_out", branch)]
    terms = terms_of(branch, attention) or (branch,)
    return list(zip(BRANCHES, terms, strict=False))


def terms_of(branch: Node, attention: Node) -> tuple[Node, Node] | None:
    """The terms of attention and of the MLP in a branch that is the sum of both; None of any other
    branch."""
    node = branch
    while node.op in VIEW or node.op in FACTOR:
        inner = node.made_of("deep")
        if len(inner) != 1:
            return None
        node = inner[0]
    terms = [operand for operand in node.made_of("deep") if operand.matrix]
    if node.op not in SUM or len(terms) != 2:
        return None
    first, second = (attention in term.inside() for term in terms)
    if first == second:
        return None
    return (terms[0], terms[1]) if first else (terms[1], terms[0])


def bare(branch: Node) -> tuple[Node, list[nn.Parameter]]:
    """A branch before multipliers and dropout, and the learned multipliers among them."""
    node = branch
    learned: list[nn.Parameter] = []
    while True:
        inner = node.made_of("deep")
        multiplies = node.op in FACTOR and len(inner) == 1 and node.made_of() == inner
        if not multiplies and node.op != "native_dropout":
            return node, learned
        if inner[0].tensor.shape != branch.tensor.shape:
            return node, learned
        if multiplies and _divides(inner[0]):  # then the factor is the gain of a norm
            return node, learned
        learned += [operand.parameter for operand in node.inputs if operand.parameter is not None]
        node = inner[0]


def _divides(node: Node) -> bool:
    """Whether a tensor is a branch over its own size: a norm that is written out.

    The size is one number for each token: the operand whose last axis, of the coordinates, is 1."""
    while node.op in VIEW and node.inputs:
        node = node.inputs[0]
    return node.op in FACTOR and any(
        arg.tensor.ndim and arg.tensor.shape[-1] == 1 for arg in node.made_of()
    )


def read_block(order: list[Node], source: Node, output: Node) -> Anatomy:
    """Finds branches and sites of a block that has just run.

    Args:
        order: every node of the block, in the order of its computation; a product that is written
            as a sum is replaced by its nodes.
        source: the block's input.
        output: the block's output.
    """
    with torch.enable_grad():
        order[:] = [new for node in order for new in expanded(node)]
    attending = [node for node in order if attends(node)]
    attention, softmax = next((node for node in attending if is_self_attention(node)), None), "keys"
    if attention is None:
        wrong = ((node, axis) for node in attending if (axis := wrong_axis(node)))
        attention, softmax = next(wrong, (None, "keys"))
    anatomy = Anatomy(order, source, output, attention, _sums(order), softmax)
    if output.role != "stream":
        anatomy.sums = _without_residual(anatomy)
    anatomy.sites = dict(_sites(anatomy))
    return anatomy


def _sums(order: Iterable[Node]) -> list[Sum]:
    """The residual additions of a block, in order: sums of the stream and a branch.

    A role "stream" is of the residual stream, "deep" of what matrices have made of it. A sum is of
    two tensors, so that there is one of each; the choice of the first and the last is for calls
    that have more."""
    sums = []
    for node in order:
        if node.role == "stream" and node.op in SUM:
            streams, branches = node.made_of("stream"), node.made_of("deep")
            if streams and branches:
                sums.append(Sum(streams[0], branches[-1], node))
    return sums


def _without_residual(anatomy: Anatomy) -> list[Sum]:
    """The residual additions of a block in which a branch replaces the stream, as in ablations
    without a residual: after such a branch, its output is the stream."""
    attention, output, sums = anatomy.attention, anatomy.output, anatomy.sums
    if attention is not None and not any(attention in term.branch.inside() for term in sums):
        stream = _product_after(attention, anatomy)
        # several streams, or code that is not understood
        if stream is None or _reaches(output, anatomy.source, stream):
            return [Sum(None, output, output)] if terms_of(output, attention) else []
        after = anatomy.order[anatomy.order.index(stream) + 1 :]
        if any(later.op not in VIEW and _reaches(later, stream) for later in after):
            stream.role = "stream"
            for later in after:
                label(later)
            sums = [Sum(None, stream, stream), *_sums(after)]
    return [*sums, Sum(None, output, output)] if output.role == "deep" else sums


def _product_after(attention: Node, anatomy: Anatomy) -> Node | None:
    """Output of the first matrix after attention that has the stream's shape; None without one."""
    shape = anatomy.source.tensor.shape
    return next(
        (
            node
            for node in anatomy.order
            if node.matrix
            and node.tensor.shape == shape
            and not shares(node, attention)
            and attention in node.inside()
        ),
        None,
    )


def shares(node: Node, other: Node) -> bool:
    """Whether two tensors are computed from one product, as queries and keys of a packed matrix."""
    return any(product in other.matrix for product in node.matrix)


def _reaches(node: Node, source: Node, around: Node | None = None) -> bool:
    """Whether a node is computed from another one.

    Args:
        around: a third node; a way through it does not count.
    """
    return source in walk(node, lambda maker: [] if maker is around else maker.inputs)


def _sites(anatomy: Anatomy) -> Iterator[tuple[str, Node]]:
    """The sites of the vocabulary that a block has, each with its node."""
    ends = [_settled(term.after, following.before) for term, following in pairwise(anatomy.sums)]
    ends.append(anatomy.output)
    for term, end in zip(anatomy.sums, ends, strict=False):
        branches = branches_by_site(anatomy, term)
        for site, node in branches:
            yield site, bare(node)[0]
        if branches[-1][0] == "attn_out":
            yield "resid_mid", end
    yield "resid_post", anatomy.output


def _settled(after: Node, before: Node | None) -> Node:
    """The stream between two residual additions: the first one's sum, or the norm of it, where the
    second addition adds to that norm."""
    node = before
    while node is not None and node is not after:
        if is_norm(node):
            return node
        node = next(iter(node.made_of("stream")), None)
    return after


# How the stream lies in memory, and what follows the last block.


TURNS = {"transpose", "permute", "t"}


class Layout(NamedTuple):
    """The axes of a stream's tensor: most are `[batch, token, d]`."""

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
    """The layout of a block's stream, from the operations that read it."""
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
    """Whether a tensor is the stream, or a norm of it, with the axes in the stream's order."""
    while node is not source:
        if node.role != "stream" or node.op in TURNS or not node.inputs:
            return False
        plain = node.op in VIEW or node.op in NORMS
        node = next(iter(node.made_of("stream")), node) if plain else source
    return True


def _tokens_first(anatomy: Anatomy) -> bool:
    """Whether the stream is `[token, batch, d]`: then the first sequence's second query depends on
    the stream's `[1, 0]`, and not on its `[0, 1]`. The gradient shows which."""
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
    by_token = gradient.abs().amax(dim=-1)
    return bool(by_token[1, 0] > 0) and not bool(by_token[0, 1] > 0)


POINTS = {row.point for row in placement.NORMS.values() if row.point}
"""Operators of the functions that may stand in a norm's place, such as tanh."""


def ends_with_norm(tail: Sequence[Node]) -> bool:
    """Whether the stream passes a norm before any matrix, after the last block.

    Args:
        tail: nodes computed after the last block, in order.
    """
    for node in tail:
        if (node.role == "stream" and is_norm(node)) or (
            node.op in POINTS and node.inputs[0].role == "stream"
        ):
            return True
        if node.op in MATRIX and node.role:
            return False
    return False
