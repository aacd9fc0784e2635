"""The matrices of the vocabulary in what a block computes, what else a layer learns, and the
numbers of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor, nn

from explorer.measuring.spectra import spectra as spectra_of
from explorer.vocabulary import Array, Key
from explorer_models.anatomy import (
    Anatomy,
    Fact,
    Piece,
    bare,
    branches_by_site,
    queries_keys_values,
    shares,
)
from explorer_models.nodes import MATRIX, SUM, Node, pattern_of, products
from explorer_models.trace import arguments, is_bent


def matrices(anatomy: Anatomy) -> Iterator[tuple[str, list[Piece]]]:
    """The matrices of the vocabulary that a block applies, each with the parameters, or rows of
    them, that it is made of."""
    attention, width = anatomy.attention, anatomy.source.tensor.shape[-1]
    if (heads := queries_keys_values(attention)) is not None:
        for name, node in zip(("W_Q", "W_K", "W_V"), heads, strict=True):
            packed = sum(shares(node, head) for head in heads) > 1
            yield name, _pieces(node.matrix, node if packed else None)
    for added in anatomy.sums:
        for site, node in branches_by_site(anatomy, added):
            last = [part for part in node.matrix if part.tensor.shape[-1] == width]
            yield ("W_O" if site == "attn_out" else "W_out"), _pieces(last)
            before = [part for product in last for part in product.made_of("deep")]
            if site == "mlp_out":
                yield from _inner(before)
            elif attention is not None:
                gate = [part for part in products(before) if part not in attention.matrix]
                if gate:
                    yield "W_G", _pieces(gate)


@torch.enable_grad()
def by_head(anatomy: Anatomy, batch: int) -> tuple[Tensor, Tensor]:
    """The rows of W_Q and of W_K that make each head's queries and keys, `[head, d_head, d]`.

    Heads may be interleaved, packed with the values, or share their keys: the gradient of a head
    by the product's outputs shows which rows it uses.

    Args:
        batch: number of sequences, where heads lie within the batch.
    Raises:
        ValueError: a head's queries or keys are not `d_head` rows of one matrix.
    """
    operands = (queries_keys_values(anatomy.attention) or ())[:2]
    wholes = [
        part if part.ndim == 4 else part.reshape(batch, -1, *part.shape[1:])
        for part in (node.tensor for node in operands)
    ]
    count = max((whole.shape[1] for whole in wholes), default=0)
    made: list[list[Tensor]] = [[], []]
    for head in range(count):
        for node, whole, parts in zip(operands, wholes, made, strict=True):
            own = Node("select", [node], whole[:, head * whole.shape[1] // count])
            parts += [piece.numbers() for piece in _pieces(node.matrix, own)]
    shapes = {part.shape for parts in made for part in parts}
    one_each = all(len(parts) == count for parts in made) and len(shapes) == 1
    d_head = operands[0].tensor.shape[-1] if operands else 0
    if not one_each or shapes.pop()[:-1] != (d_head,):
        raise ValueError("a head's queries and keys are not rows of one matrix each")
    return torch.stack(made[0]), torch.stack(made[1])


def vectors(anatomy: Anatomy) -> Iterator[tuple[str, list[Piece]]]:
    """Learned vectors beside the matrices: `alpha`, multipliers of the branches, and `sink`, logits
    of an attention sink."""
    branches = [node for term in anatomy.sums for _, node in branches_by_site(anatomy, term)]
    # branches may share a multiplier, which counts once
    multipliers = {id(weight): weight for branch in branches for weight in bare(branch)[1]}
    yield "alpha", [Piece(weight, False) for weight in multipliers.values()]
    softmax = None if anatomy.attention is None else pattern_of(anatomy.attention)
    joined = [node.parameter for node in _joined_logits(softmax)]
    yield "sink", [Piece(weight, False) for weight in joined if weight is not None]


def _joined_logits(node: Node | None) -> list[Node]:
    """The tensors that were joined to the logits of a softmax, such as those of a sink; empty
    where none were."""
    while node is not None and node.op != "cat":
        node = next((operand for operand in node.made_of() if operand.op not in MATRIX), None)
    return node.inputs if node is not None else []


def _inner(hidden: list[Node]) -> Iterator[tuple[str, list[Piece]]]:
    """The matrices before an MLP's last: W_in, and in a gated MLP W_gate, whose output alone is
    bent.

    Args:
        hidden: what the last matrices multiply.
    """
    gates: list[Piece] = []
    values: list[Piece] = []
    for end in hidden:
        parts = arguments(end)
        bent = [is_bent(part, end) for part in parts]
        if len(parts) == 2 and sum(bent) == 1:
            gate, value = parts if bent[0] else parts[::-1]
            packed = shares(gate, value)
            gates += _pieces(gate.matrix, gate if packed else None)
            values += _pieces(value.matrix, value if packed else None)
    if values:
        yield "W_gate", gates
        yield "W_in", values
    else:
        yield "W_in", _pieces(products(hidden))


def _pieces(made: Iterable[Node], part: Node | None = None) -> list[Piece]:
    """The parameters of some products.

    Args:
        made: the products.
        part: a tensor made of them, where several such share one matrix: then only the rows that
            reach it are given.
    """
    pieces: list[Piece] = []
    for product in made:
        operand = next(
            (arg for arg in product.inputs if arg.parameter is not None and arg.parameter.ndim > 1),
            None,
        )
        if operand is None or operand.parameter is None:
            continue
        rows = None if part is None else _rows(product, part)
        if joined := _joined(operand):
            pieces += _parts(joined, _turned(operand), rows)
        elif product.op == "convolution":
            pieces.append(Piece(operand.parameter, False, rows, kernel=True))
        elif sorted(operand.parameter.shape[-2:]) == sorted(operand.tensor.shape[-2:]):
            # W x where most write x Wᵀ
            first = len(product.inputs) == 2 and operand is product.inputs[0]
            pieces.append(
                Piece(operand.parameter, _turned(operand) != first, None if first else rows)
            )
        elif operand is product.inputs[-1] and (order := _order(operand.parameter, operand.tensor)):
            pieces.append(
                Piece(operand.parameter, True, rows, order=order, shape=tuple(operand.tensor.shape))
            )
    return pieces


def _joined(operand: Node) -> list[Node]:
    """The parameters that are joined, one below the other, to the matrix of a product; empty
    where it is one parameter."""
    node = operand
    while node.op != "cat" and node.inputs:
        node = node.inputs[0]
    return node.inputs if node.op == "cat" else []


def _parts(joined: list[Node], turned: bool, rows: tuple[int, ...] | None) -> Iterator[Piece]:
    """The pieces of a joined matrix: each parameter that has some of the chosen rows.

    Args:
        joined: its nodes, from top to bottom.
        turned: whether they are kept as `[fan_in, fan_out]`.
        rows: of the joined matrix; None for all.
    """
    start = 0
    for node in joined:
        count = len(node.tensor)
        chosen = tuple(row - start for row in rows or () if start <= row < start + count)
        start += count
        if node.parameter is None or (rows is not None and not chosen):
            continue
        yield Piece(
            node.parameter, turned, None if rows is None or len(chosen) == count else chosen
        )


def _order(parameter: nn.Parameter, matrix: Tensor) -> tuple[int, ...]:
    """The order of a parameter's axes in which its numbers are the matrix of a product; empty
    without one. A parameter with an axis of its own for the heads, for example, has such an
    order."""
    if parameter.numel() != matrix.numel() or parameter.ndim > 4:
        return ()
    numbers = parameter.detach().to(matrix.dtype)
    for order in permutations(range(parameter.ndim)):
        if torch.equal(numbers.permute(order).reshape(matrix.shape), matrix):
            return order
    return ()


def _turned(operand: Node) -> bool:
    """Whether a parameter is kept as `[fan_in, fan_out]`: then no transposition, or two, lie
    between it and the product."""
    turns, node = 0, operand
    while node.inputs:
        turns += node.op in ("t", "transpose", "permute", "mT")
        node = node.inputs[0]
    return turns % 2 == 0


def _rows(product: Node, part: Node) -> tuple[int, ...] | None:
    """The outputs of a product that a tensor depends on: those by which it has a gradient. None for
    all, and where no gradient is known."""
    made = product.tensor
    if not made.requires_grad or not part.tensor.requires_grad:
        return None
    with torch.enable_grad():
        numbers = torch.Generator().manual_seed(0)  # equal ones would vanish behind a norm
        direction = torch.randn(part.tensor.shape, generator=numbers).to(made.device)
        value = (part.tensor.float() * direction).sum()
        (gradient,) = torch.autograd.grad(value, made, retain_graph=True, allow_unused=True)
    if gradient is None:
        return None
    gradient = gradient.detach()
    if product.op == "convolution":
        gradient = gradient.movedim(1, -1)
    # nan where the numbers are: it reaches them, too
    used = (gradient.flatten(0, -2) != 0).any(dim=0)
    return None if bool(used.all()) else tuple(used.nonzero().flatten().tolist())


# What a model's weights are, before anything passes them: their sizes, and how alike those of two
# layers are.


SPECTRA = ("spectral_norm", "stable_rank")
SAMPLED = 4096
"""Entries of a matrix by which it is compared with other layers'."""


def weight_values(
    matrices: Mapping[str, Sequence[Sequence[Piece]]], spectra: bool = False
) -> Iterator[tuple[Key, Array]]:
    """Variances of the weights, and the likeness of different layers' weights, `[1, layer]`.

    The variance is fan_in times the mean square, the likeness the largest cosine with another
    layer.

    Args:
        matrices: name of the vocabulary to the pieces of each layer.
        spectra: whether spectral norms and stable ranks are wanted, too.
    """
    for name, layers in matrices.items():
        yield ("weight_variance", name), np.array([[_variance(pieces) for pieces in layers]])
        there = [bool(pieces) for pieces in layers]
        if sum(there) > 1:
            likeness = np.full((1, len(layers)), np.nan)
            likeness[0, there] = _likeness([pieces[0] for pieces in layers if pieces])
            yield ("weight_likeness", name), likeness
        if spectra:
            values = np.array([_spectrum(pieces) for pieces in layers]).T
            yield from (
                ((row, name), row_values[None])
                for row, row_values in zip(SPECTRA, values, strict=True)
            )


def _spectrum(pieces: Sequence[Piece]) -> tuple[float, float]:
    """Spectral norm over √(fan_out / fan_in), and stable rank; of several matrices, such as
    experts, those of the one with the largest norm."""
    parts = [weights for piece in pieces for weights in piece.numbers()[None].flatten(0, -3)]
    largest, ranks = spectra_of(parts)
    sizes = [
        size * (weights.shape[1] / weights.shape[0]) ** 0.5
        for size, weights in zip(largest, parts, strict=True)
    ]
    return max(zip(sizes, ranks, strict=True), default=(np.nan, np.nan))


def _variance(pieces: Sequence[Piece]) -> float:
    """fan_in times the mean square, a mean over all pieces; nan without pieces."""
    every = [piece.numbers().float() for piece in pieces]
    return (
        sum(float(weights.square().mean()) * weights.shape[-1] for weights in every) / len(every)
        if every
        else np.nan
    )


def _likeness(pieces: Sequence[Piece]) -> Array:
    """Largest cosine of each layer's matrix with another layer's, `[layer]`; 1 where they share
    one."""
    flat = [piece.numbers().flatten() for piece in pieces]
    size = min(len(weights) for weights in flat)
    chosen = torch.linspace(
        0, size - 1, min(size, SAMPLED), dtype=torch.float64, device=flat[0].device
    ).long()
    sample = torch.stack([weights[chosen].double() for weights in flat])
    unit = sample / torch.linalg.vector_norm(sample, dim=1, keepdim=True)
    cosines = (unit @ unit.T).fill_diagonal_(-torch.inf)
    unknown = cosines.isnan()  # beside a matrix of zeros, or one that is not finite
    largest = cosines.masked_fill(unknown, -torch.inf).amax(dim=1)
    likeness: Array = largest.masked_fill(largest == -torch.inf, torch.nan).cpu().numpy()
    return likeness


# Facts of a block's matrices: shape, mean square, distribution, and the biases beside them.


CORNER = 64
"""Rows and columns of a matrix by which its rank is estimated."""
SHAPED = 2**16
"""Entries of a matrix by which its distribution is recognized."""


def of_matrices(anatomy: Anatomy) -> Iterator[Fact]:
    """Facts of each matrix: shape, mean square, kurtosis, rank, and the mean square of its bias;
    and whether queries and keys have one matrix."""
    for name, pieces in anatomy.matrices.items():
        parts = [piece.numbers() for piece in pieces]
        if not parts:
            continue
        yield (name, "shape"), (parts[0].shape[-1], sum(matrix.shape[-2] for matrix in parts))
        yield (
            (name, "variance"),
            float(torch.stack([matrix.float().square().mean() for matrix in parts]).mean()),
        )
        yield (name, "identity"), tuple(id(piece.parameter) for piece in pieces)
        flat = parts[0].flatten()[:SHAPED].double()
        yield (name, "start"), tuple(flat[:8].tolist())
        if bool(flat.any()) and bool(flat.isfinite().all()):
            yield (name, "kurtosis"), float(flat.pow(4).mean() / flat.square().mean().square())
        if _drawn(parts[0]):
            yield (name, "rank"), _rank(parts[0])
    queries, keys = (
        [piece.numbers() for piece in anatomy.matrices.get(name, [])] for name in ("W_Q", "W_K")
    )
    if queries and keys:
        first, second = anatomy.matrices["W_Q"][0], anatomy.matrices["W_K"][0]
        if first.parameter is second.parameter and first.rows == second.rows:
            yield ("attn_scores", "tied"), True
        elif _drawn(queries[0]) or _drawn(
            keys[0]
        ):  # matrices of zeros, or of a few numbers, may be equal all the same
            yield (
                ("attn_scores", "tied"),
                queries[0].shape == keys[0].shape and torch.equal(queries[0], keys[0]),
            )
    for name, value in _biases(anatomy):
        yield (name, "bias"), value


def _drawn(matrix: Tensor) -> bool:
    """Whether a matrix has more than two different numbers. Constants and identities have not,
    and are equal without being shared."""
    sample = matrix.flatten()[:SAMPLED]
    return bool(sample.isfinite().all()) and len(torch.unique(sample)) > 2


def _rank(matrix: Tensor) -> float:
    """Effective rank (Σ s²)² / Σ s⁴, with singular values s, of a sample of a matrix `[fan_out,
    fan_in]`: `CORNER` rows and columns. Independent entries have half of `CORNER`; nan of a
    matrix of zeros, and of a small one."""
    first = matrix.reshape(-1, *matrix.shape[-2:])[0]  # of experts that are kept as one tensor
    rows, columns = (
        torch.linspace(0, size - 1, min(size, CORNER), device=first.device).long()
        for size in first.shape
    )
    sample = first[rows][:, columns].double()
    gram = sample @ sample.mT
    total = float(gram.trace())
    return (
        total**2 / float(gram.square().sum())
        if total > 0 and min(sample.shape) >= CORNER // 4
        else math.nan
    )


def _biases(anatomy: Anatomy) -> Iterator[tuple[str, float]]:
    """Mean square of the bias of each matrix that has one."""
    owners: dict[int, str] = {
        id(piece.parameter): name
        for name, pieces in anatomy.matrices.items()
        for piece in pieces
        if len(pieces) == 1
    }
    for node in anatomy.order:
        vectors = [
            arg.parameter
            for arg in node.inputs
            if arg.parameter is not None and arg.parameter.ndim == 1
        ]
        products = [product for product in (node, *node.inputs) if len(product.matrix) == 1]
        if not vectors or not (node.op == "addmm" or node.op in SUM) or not products:
            continue
        (product,) = products[0].matrix
        name = next(
            (owners[id(arg.parameter)] for arg in product.inputs if id(arg.parameter) in owners),
            None,
        )
        if name is not None:
            yield name, float(vectors[0].detach().float().square().mean())
