"""The design of one block, in facts that are compared with those of its siblings and with the schemes' rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from explorer.own.branches import Anatomy, attends
from explorer.own.heads import of_heads
from explorer.own.nodes import SUM, Node
from explorer.own.sublayers import of_sublayers
from explorer.profile import BRANCHES

# The numbers of a block's matrices: shape, mean square, distribution, and the biases beside them.


CORNER = 64
"""Rows and columns by which the rank of a matrix is told."""
SAMPLED = 2**16
"""Entries of a matrix by which the shape of its distribution is told."""


def of_matrices(anatomy: Anatomy) -> Iterator[tuple[tuple[str, str], Any]]:
    """Shape, and fan_in times the mean square, of each matrix; and the mean square of the bias added to its output."""
    for name, pieces in anatomy.matrices.items():
        parts = [piece.of(piece.parameter.detach()) for piece in pieces]
        if not parts:
            continue
        yield (name, "shape"), (parts[0].shape[-1], sum(part.shape[-2] for part in parts))
        yield (name, "variance"), float(torch.stack([part.float().square().mean() for part in parts]).mean())
        yield (name, "identity"), tuple(id(piece.parameter) for piece in pieces)
        flat = parts[0].flatten()[:SAMPLED].double()
        yield (name, "start"), tuple(flat[:8].tolist())
        yield (name, "kurtosis"), float(flat.pow(4).mean() / flat.square().mean().square())
        yield (name, "rank"), _rank(parts[0])
    queries, keys = ([piece.of(piece.parameter.detach()) for piece in anatomy.matrices.get(name, [])]
                     for name in ("W_Q", "W_K"))
    if queries and keys:
        yield ("attn_scores", "tied"), queries[0].shape == keys[0].shape and torch.equal(queries[0], keys[0])
    for name, value in _biases(anatomy):
        yield (name, "bias"), value


def _rank(matrix: Tensor) -> float:
    """Effective rank (Σ s²)² / Σ s⁴ of some of its rows and columns, `[fan_out, fan_in]`: half their number if drawn
    independently; nan of a matrix of zeros, or of a small one.
    """
    first = matrix.reshape(-1, *matrix.shape[-2:])[0]  # of experts that are kept as one tensor
    rows, columns = (torch.linspace(0, size - 1, min(size, CORNER), device=first.device).long() for size in first.shape)
    part = first[rows][:, columns].double()
    gram = part @ part.mT
    total = float(gram.trace())
    return total**2 / float(gram.square().sum()) if total > 0 and min(part.shape) >= CORNER // 4 else math.nan


def _biases(anatomy: Anatomy) -> Iterator[tuple[str, float]]:
    """Mean squares of the vectors that are added to products."""
    owners: dict[int, str] = {id(piece.parameter): name for name, pieces in anatomy.matrices.items()
                              for piece in pieces if len(pieces) == 1}
    for node in anatomy.graph.order:
        vectors = [arg.parameter for arg in node.inputs if arg.parameter is not None and arg.parameter.ndim == 1]
        products = [product for product in (node, *node.inputs) if len(product.matrix) == 1]
        if not vectors or not (node.op == "addmm" or node.op in SUM) or not products:
            continue
        product, = products[0].matrix
        name = next((owners[id(arg.parameter)] for arg in product.inputs if id(arg.parameter) in owners), None)
        if name is not None:
            yield name, float(vectors[0].detach().float().square().mean())


Facts = Mapping[tuple[str, str], Any]
"""Site (attn_out, mlp_out, or layer) and name to a number or a word."""


DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
UNREADABLE = (RuntimeError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)
"""Errors that a block built in no known way may cause; it is said which of its parts is unread, and it is measured all
the same."""


def read_facts(anatomy: Anatomy, block: nn.Module) -> Facts:
    """Everything that a block shows of its design; at ("layer", "unread") pairs of a part that it does not, and why."""
    attending = {id(term.branch) for term in anatomy.sums if any(map(attends, term.branch.inside()))}
    # in evaluation no number is dropped; what a module would drop says how the layer is built
    drops = [float(module.p) for module in block.modules() if isinstance(module, DROPOUTS)]
    facts: dict[tuple[str, str], Any] = {
        ("layer", "width"): anatomy.source.tensor.shape[-1],
        ("layer", "attentions"): len(attending),
        ("layer", "attends"): anatomy.attention is not None,
        ("layer", "branches"): tuple(site for site in BRANCHES if site in anatomy.sites),
        ("layer", "dropout"): max([0.0, *drops, *map(_dropped, anatomy.graph.order)]),
    }
    if any(node.op == "topk" for node in anatomy.graph.order):
        facts["layer", "experts"] = True
    unread = []
    for words, part in (("branches", of_sublayers), ("attention", of_heads), ("matrices", of_matrices)):
        try:
            facts.update(dict(part(anatomy)))
        except UNREADABLE as error:
            unread.append((words, f"{type(error).__name__}: {error}"))
    facts["layer", "unread"] = tuple(unread)
    return facts


def _dropped(node: Node) -> float:
    """Share of the numbers that an operation sets to zero at random."""
    rate = node.named.get("p" if node.op in ("native_dropout", "bernoulli_") else "dropout_p")
    return 0.0 if not isinstance(rate, float) else 1 - rate if node.op == "bernoulli_" else rate
