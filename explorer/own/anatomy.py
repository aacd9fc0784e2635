"""Finds the sites and the matrices of the vocabulary in the graph of a block's computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor, nn

from explorer.own.branches import Anatomy, Piece, Sum, attends, bare, kinds, own, parts_of, queries_keys_values
from explorer.own.graph import Graph
from explorer.own.nodes import FUSED, MATRIX, SUM, VIEW, Node, as_product, is_norm, label, pattern_of, products, walk
from explorer.own.sublayers import arguments, is_bent
from explorer.profile import Array, Key

# The matrices of the vocabulary, and what else a layer learns, by what its branches were made with.


def matrices(anatomy: Anatomy) -> Iterator[tuple[str, list[Piece]]]:
    """Matrices of the vocabulary to where their numbers are."""
    attention, width = anatomy.attention, anatomy.source.tensor.shape[-1]
    heads = queries_keys_values(attention) if attention is not None else None
    if heads is not None:
        for name, node in zip(("W_Q", "W_K", "W_V"), heads, strict=True):
            packed = sum(_share(node, head) for head in heads) > 1
            yield name, _pieces(node.matrix, node if packed else None)
    for added in anatomy.sums:
        for site, node in kinds(anatomy, added):
            last = [part for part in node.matrix if part.tensor.shape[-1] == width]
            yield ("W_O" if site == "attn_out" else "W_out"), _pieces(last)
            before = [part for product in last for part in product.made_of("deep")]
            if site == "mlp_out":
                yield from _inner(before)
            elif attention is not None:
                gate = [part for part in products(before) if part not in attention.matrix]
                if gate:
                    yield "W_G", _pieces(gate)


def vectors(anatomy: Anatomy) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """Learned parameters beside the matrices: multipliers of the branches, and the logits of a sink."""
    alpha = {id(w): w for part in anatomy.sums for _, node in kinds(anatomy, part) for w in bare(node)[1]}
    yield "alpha", list(alpha.values())
    soft = None if anatomy.attention is None or anatomy.attention.op in FUSED else pattern_of(anatomy.attention)
    joined = [] if soft is None else _joined_logits(soft)
    yield "sink", [part.parameter for part in joined if part.parameter is not None]


def _joined_logits(soft: Node) -> list[Node]:
    """The parts of a softmax's logits that were joined, behind sums, shifts and views; none where none were."""
    node: Node | None = soft
    while node is not None and node.op != "cat":
        node = next((operand for operand in node.made_of() if operand.op not in MATRIX), None)
    return node.inputs if node is not None else []


def _inner(hidden: list[Node]) -> Iterator[tuple[str, list[Piece]]]:
    """The matrices before an MLP's last: W_in, and W_gate where the bent half of a product is another's."""
    for end in hidden:
        parts = arguments(end)
        bent = [is_bent(part, end) for part in parts]
        if len(parts) == 2 and sum(bent) == 1:
            gate, value = parts if bent[0] else parts[::-1]
            packed = _share(gate, value)
            yield "W_gate", _pieces(gate.matrix, gate if packed else None)
            yield "W_in", _pieces(value.matrix, value if packed else None)
            return
    yield "W_in", _pieces(products(hidden))


def _share(node: Node, other: Node) -> bool:
    """Whether two nodes come from one product."""
    return any(product in other.matrix for product in node.matrix)


def _pieces(made: Iterable[Node], part: Node | None = None) -> list[Piece]:
    """The parameters of products; only the rows that reach a part, where several parts share one."""
    pieces: list[Piece] = []
    for product in made:
        operand = next((arg for arg in product.inputs if arg.parameter is not None and arg.parameter.ndim > 1), None)
        if operand is None or operand.parameter is None:
            continue
        rows = None if part is None else _rows(product, part)
        if joined := _joined(operand):
            pieces += _parts(joined, _turned(operand), rows)
        elif product.op == "convolution":
            pieces.append(Piece(operand.parameter, False, rows, kernel=True))
        elif sorted(operand.parameter.shape[-2:]) == sorted(operand.tensor.shape[-2:]):
            first = len(product.inputs) == 2 and operand is product.inputs[0]  # W x where most write x Wᵀ
            pieces.append(Piece(operand.parameter, _turned(operand) != first, None if first else rows))
        elif operand is product.inputs[-1] and (order := _order(operand.parameter, operand.tensor)):
            pieces.append(Piece(operand.parameter, True, rows, order=order, shape=tuple(operand.tensor.shape)))
    return pieces


def _joined(operand: Node) -> list[Node]:
    """The parameters that stand one below the other in what is multiplied."""
    node = operand
    while node.op != "cat" and node.inputs:
        node = node.inputs[0]
    return node.inputs if node.op == "cat" else []


def _parts(joined: list[Node], turned: bool, rows: tuple[int, ...] | None) -> Iterator[Piece]:
    """Pieces of one concatenated matrix: each parameter with outputs among the rows, and which of its own they are."""
    start = 0
    for node in joined:
        count = len(node.tensor)
        own = None if rows is None else tuple(row - start for row in rows if start <= row < start + count)
        start += count
        if node.parameter is not None and own != ():
            yield Piece(node.parameter, turned, None if own is None or len(own) == count else own)


def _order(parameter: nn.Parameter, matrix: Tensor) -> tuple[int, ...]:
    """The order of a parameter's axes in which its numbers are a matrix's; none where there is no such order."""
    if parameter.numel() != matrix.numel() or parameter.ndim > 4:
        return ()
    own = parameter.detach().to(matrix.dtype)
    orders = permutations(range(parameter.ndim))
    return next((order for order in orders if torch.equal(own.permute(order).reshape(matrix.shape), matrix)), ())


def _turned(operand: Node) -> bool:
    """Whether a parameter is multiplied as it is kept: a Linear's is turned first."""
    turns, node = 0, operand
    while node.inputs:
        turns += node.op in ("t", "transpose", "permute", "mT")
        node = node.inputs[0]
    return turns % 2 == 0


def _rows(product: Node, part: Node) -> tuple[int, ...] | None:
    """Outputs of a product that reach a tensor made of it: those by which it has a gradient."""
    made = product.tensor if product.tensor.requires_grad else None
    if made is None or not part.tensor.requires_grad:
        return None
    with torch.enable_grad():
        numbers = torch.Generator().manual_seed(0)  # equal ones would vanish behind a norm
        whole = (part.tensor.float() * torch.randn(part.tensor.shape, generator=numbers).to(made.device)).sum()
        gradient, = torch.autograd.grad(whole, made, retain_graph=True, allow_unused=True)
    if gradient is None:
        return None
    gradient = gradient.detach().movedim(1, -1) if product.op == "convolution" else gradient.detach()
    used = gradient.flatten(0, -2).abs().amax(dim=0) > 0
    return None if bool(used.all()) else tuple(used.nonzero().flatten().tolist())


# What a model's weights are, before anything passes them: their sizes, and how alike those of two layers are.


SAMPLED = 4096
"""Entries of a matrix by which it is compared with the others."""


def weight_values(matrices: Mapping[str, Sequence[Sequence[Piece]]]) -> Iterator[tuple[Key, Array]]:
    """Mean squares of the weights times their fan_in, and how alike those of different layers are, `[1, layer]`.

    Args:
        matrices: name of the vocabulary to the pieces of each layer.
    """
    for name, layers in matrices.items():
        yield ("weight_variance", name), np.array([[_variance(pieces) for pieces in layers]])
        there = [bool(pieces) for pieces in layers]
        if sum(there) > 1:
            likeness = np.full((1, len(layers)), np.nan)
            likeness[0, there] = _likeness([pieces[0] for pieces in layers if pieces])
            yield ("weight_likeness", name), likeness


def _variance(pieces: Sequence[Piece]) -> float:
    """fan_in times the mean square, over all pieces."""
    parts = [piece.of(piece.parameter.detach()).float() for piece in pieces]
    return sum(float(part.square().mean()) * part.shape[-1] for part in parts) / len(parts) if parts else np.nan


def _likeness(pieces: Sequence[Piece]) -> Array:
    """Largest cosine of each with another, `[layer]`; that of a matrix that all layers share is 1."""
    flat = [piece.of(piece.parameter.detach()).flatten() for piece in pieces]
    size = min(len(weights) for weights in flat)
    chosen = torch.linspace(0, size - 1, min(size, SAMPLED), dtype=torch.float64, device=flat[0].device).long()
    sample = torch.stack([weights[chosen].double() for weights in flat])
    unit = sample / torch.linalg.vector_norm(sample, dim=1, keepdim=True)
    cosines = (unit @ unit.T).fill_diagonal_(-torch.inf)
    largest: Array = cosines.amax(dim=1).cpu().numpy()
    return largest


def read_block(graph: Graph, output: Node) -> Anatomy:
    """Sites and matrices of the block that a graph has just recorded."""
    with torch.enable_grad():
        graph.order = [part for node in graph.order for part in _written_out(node)]
    attention = next((node for node in graph.order if attends(node) and own(node)), None)
    sums = _sums(graph.order)
    if output.role != "stream":
        sums = _without_residual(graph, output, attention, sums)
    anatomy = Anatomy(graph, graph.source, output, sums, attention)
    anatomy.sites = dict(_sites(anatomy))
    anatomy.matrices = dict(matrices(anatomy))
    anatomy.vectors = dict(vectors(anatomy))
    return anatomy


def _written_out(node: Node) -> Iterator[Node]:
    """A node, after the product that it is a view of where that is written out; autograd knows the tensors by now."""
    for part in as_product(node):
        label(part)
        yield part
    yield node


def _sums(order: Iterable[Node]) -> list[Sum]:
    """Where a branch is added to the stream, in turn."""
    sums = []
    for node in order:
        if node.role == "stream" and node.op in SUM:
            before, branch = node.made_of("stream"), node.made_of("deep")
            if before and branch:
                sums.append(Sum(before[0], branch[-1], node))
    return sums


def _without_residual(graph: Graph, output: Node, attention: Node | None, sums: list[Sum]) -> list[Sum]:
    """The sums of a block where a branch replaces the stream: from there on the branch's output is the stream."""
    if attention is not None and not any(attention in term.branch.inside() for term in sums):
        stream = _product_after(attention, graph)
        if stream is None or _reaches(output, graph.source, stream):  # several streams, or code that is not understood
            return [Sum(None, output, output)] if parts_of(output, attention) is not None else []
        after = graph.order[graph.order.index(stream) + 1:]
        if any(later.op not in VIEW and _reaches(later, stream) for later in after):
            stream.role = "stream"
            for later in after:
                label(later)
            sums = [Sum(None, stream, stream), *_sums(after)]
    return [*sums, Sum(None, output, output)] if output.role == "deep" else sums


def _product_after(attention: Node, graph: Graph) -> Node | None:
    """Output of the first matrix after attention that has the shape of the stream; None without one."""
    return next((node for node in graph.order if node.role == "deep" and node.matrix
                 and node.tensor.shape == graph.source.tensor.shape and not _share(node, attention)
                 and attention in node.inside()), None)


def _reaches(node: Node, source: Node, around: Node | None = None) -> bool:
    """Whether a node is made of another one, not counting ways through a third."""
    return any(part is source for part in walk(node, lambda part: [] if part is around else part.inputs))


def _sites(anatomy: Anatomy) -> Iterator[tuple[str, Node]]:
    """Sites of the vocabulary to their nodes."""
    ends = [_settled(term.after, after.before) for term, after in zip(anatomy.sums, anatomy.sums[1:], strict=False)]
    ends.append(anatomy.output)
    for term, end in zip(anatomy.sums, ends, strict=False):
        for site, node in (parts := kinds(anatomy, term)):
            yield site, bare(node)[0]
        if parts[-1][0] == "attn_out":
            yield "resid_mid", end
    yield "resid_post", anatomy.output


def _settled(after: Node, before: Node | None) -> Node:
    """The stream between two sums: the first one's, or its norm where that is what the second one adds to."""
    node = before
    while node is not None and node is not after:
        if is_norm(node):
            return node
        node = next(iter(node.made_of("stream")), None)
    return after
