"""Where a block has the sites and the matrices of the vocabulary, read off the graph of what it computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from explorer.probes.branches import Anatomy, Piece, Sum, attends, bare, kinds, own, parts_of, queries_keys_values
from explorer.probes.graph import NORM, SUM, VIEW, Graph, Node, is_norm, label
from explorer.probes.matrices import matrices, vectors
from explorer.probes.nodes import as_product

__all__ = ["Anatomy", "Piece", "Sum", "attends", "queries_keys_values", "read"]


def read(graph: Graph, output: Node) -> Anatomy:
    """Sites and matrices of the block that a graph has just recorded."""
    with torch.enable_grad():
        graph.order = [part for node in graph.order for part in _written_out(node)]
    attention = next((node for node in graph.order if attends(node) and own(node)), None)
    sums = _sums(graph.order)
    if output.role != "stream":
        sums = _without_residual(graph, output, attention, sums)
    found = Anatomy(graph, graph.source, output, sums, attention)
    found.sites = dict(_sites(found))
    found.matrices = dict(matrices(found))
    found.vectors = dict(vectors(found))
    return found


def _written_out(node: Node) -> Iterator[Node]:
    """A node, after the product that it is a view of where that is written out; autograd knows the tensors by now."""
    for part in as_product(node):
        label(part)
        yield part
    yield node


def _sums(order: Iterable[Node]) -> list[Sum]:
    """Where a branch is added to the stream, in turn."""
    found = []
    for node in order:
        if node.role == "stream" and node.op in SUM:
            before, branch = ([one for one in node.inputs if one.role == role] for role in ("stream", "deep"))
            if before and branch:
                found.append(Sum(before[0], branch[-1], node))
    return found


def _without_residual(graph: Graph, output: Node, attention: Node | None, sums: list[Sum]) -> list[Sum]:
    """The same where a branch replaces the stream: from there on its output is the stream."""
    if attention is not None and not any(attention in one.branch.inside() for one in sums):
        found = _product_after(attention, graph)
        if found is None or _reaches(output, graph.source, found):  # several streams, or code that is not understood
            return [Sum(None, output, output)] if parts_of(output, attention) is not None else []
        after = graph.order[graph.order.index(found) + 1:]
        if any(one.op not in VIEW and _reaches(one, found) for one in after):
            found.role = "stream"
            for one in after:
                label(one)
            sums = [Sum(None, found, found), *_sums(after)]
    return [*sums, Sum(None, output, output)] if output.role == "deep" else sums


def _product_after(attention: Node, graph: Graph) -> Node | None:
    """What the first matrix after attention makes, in the shape of the stream."""
    return next((node for node in graph.order if node.role == "deep" and node.matrix
                 and node.tensor.shape == graph.source.tensor.shape and not attention.matrix & node.matrix
                 and attention in node.inside()), None)


def _reaches(node: Node, source: Node, around: Node | None = None) -> bool:
    """Whether a node is made of another one, not counting ways through a third."""
    seen, left = {id(around)}, [node]
    while left:
        one = left.pop()
        if one is source:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            left += one.inputs
    return False


def _sites(found: Anatomy) -> Iterator[tuple[str, Node]]:
    """Sites of the vocabulary to their nodes."""
    ends = [_settled(one.after, following.before) for one, following in zip(found.sums, found.sums[1:], strict=False)]
    ends.append(found.output)
    for one, end in zip(found.sums, ends, strict=False):
        for site, node in (parts := list(kinds(found, one))):
            yield site, bare(node)[0]
        if parts[-1][0] == "attn_out":
            yield "resid_mid", end
    yield "resid_post", found.output


def _settled(after: Node, before: Node | None) -> Node:
    """The stream between two sums: the first one's, or its norm where that is what the second one adds to."""
    node = before
    while node is not None and node is not after:
        if is_norm(node.op, node.inputs) or node.op in NORM:
            return node
        node = next((one for one in node.inputs if one.role == "stream"), None)
    return after
