"""The matrices of the vocabulary, and what else a layer learns, by what its branches were made with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import torch
from torch import Tensor, nn

from explorer.probes.bends import arguments, is_bent
from explorer.probes.branches import Anatomy, Piece, bare, kinds, queries_keys_values
from explorer.probes.graph import FUSED, MATRIX, Node, pattern_of


def matrices(found: Anatomy) -> Iterator[tuple[str, list[Piece]]]:
    """Matrices of the vocabulary to where their numbers are."""
    attention, width = found.attention, found.source.tensor.shape[-1]
    heads = queries_keys_values(attention) if attention is not None else None
    if heads is not None:
        for name, node in zip(("W_Q", "W_K", "W_V"), heads, strict=True):
            shared = [one.matrix for one in heads]
            packed = sum(bool(node.matrix & other) for other in shared) > 1
            yield name, _pieces(node.matrix, node if packed else None)
    for one in found.sums:
        for site, node in kinds(found, one):
            last = frozenset(part for part in node.matrix if part.tensor.shape[-1] == width)
            yield ("W_O" if site == "attn_out" else "W_out"), _pieces(last)
            before = [part for product in last for part in product.inputs if part.role == "deep"]
            if site == "mlp_out":
                yield from _inner(before)
            elif attention is not None:
                gate = frozenset().union(*(part.matrix for part in before)) - attention.matrix
                if gate:
                    yield "W_G", _pieces(gate)


def vectors(found: Anatomy) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """What else is learned: multipliers of the branches, and the logits of a sink."""
    alpha = {id(one): one for part in found.sums for _, node in kinds(found, part) for one in bare(node)[1]}
    yield "alpha", list(alpha.values())
    soft = None if found.attention is None or found.attention.op in FUSED else pattern_of(found.attention)
    joined = [] if soft is None else _before(soft, "cat").inputs
    yield "sink", [one.parameter for one in joined if one.parameter is not None]


def _before(node: Node, op: str) -> Node:
    """The nearest node of an operation behind sums, shifts and views, or the last before them."""
    while node.op != op and (inner := next((one for one in node.inputs if one.role), None)) is not None:
        if inner.op in MATRIX:
            break
        node = inner
    return node


def _inner(hidden: list[Node]) -> Iterator[tuple[str, list[Piece]]]:
    """The matrices before an MLP's last: W_in, and W_gate where the bent half of a product is another's."""
    for end in hidden:
        parts = arguments(end)
        bent = [is_bent(one, end) for one in parts]
        if len(parts) == 2 and sum(bent) == 1:
            gate, value = parts if bent[0] else parts[::-1]
            packed = bool(gate.matrix & value.matrix)
            yield "W_gate", _pieces(gate.matrix, gate if packed else None)
            yield "W_in", _pieces(value.matrix, value if packed else None)
            return
    yield "W_in", _pieces(frozenset().union(*(node.matrix for node in hidden)))


def _pieces(products: frozenset[Node], part: Node | None = None) -> list[Piece]:
    """The parameters of products; only the rows that reach a part, where several parts share one."""
    found: list[Piece] = []
    for product in products:
        operand = next((one for one in product.inputs if one.parameter is not None and one.parameter.ndim > 1), None)
        if operand is None or operand.parameter is None:
            continue
        rows = None if part is None else _rows(product, part)
        if joined := _joined(operand):
            found += _parts(joined, _turned(operand), rows)
        elif product.op == "convolution":
            found.append(Piece(operand.parameter, False, rows, kernel=True))
        elif sorted(operand.parameter.shape[-2:]) == sorted(operand.tensor.shape[-2:]):
            first = len(product.inputs) == 2 and operand is product.inputs[0]  # W x where most write x Wᵀ
            found.append(Piece(operand.parameter, _turned(operand) != first, None if first else rows))
        elif operand is product.inputs[-1] and (order := _order(operand.parameter, operand.tensor)):
            found.append(Piece(operand.parameter, True, rows, order=order, shape=tuple(operand.tensor.shape)))
    return sorted(found, key=lambda piece: id(piece.parameter))


def _joined(operand: Node) -> list[Node]:
    """The parameters that stand one below the other in what is multiplied."""
    node = operand
    while node.op != "cat" and node.inputs:
        node = node.inputs[0]
    return node.inputs if node.op == "cat" else []


def _parts(joined: list[Node], turned: bool, rows: tuple[int, ...] | None) -> Iterator[Piece]:
    """Those of joined parameters whose outputs are among the rows, and which of theirs those are."""
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
