"""A tensor of a block, what made it, and what it is: the stream, a branch, or a size by which a norm divides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor, nn

from explorer.probes.operations import BENT, FACTOR, FRESH, FUSED, MATRIX, NORMS, REDUCTION, SOFTMAX, SUM, VIEW

Role = Literal["", "stream", "deep", "reduced"]


class Node:
    """A tensor of the block and what made it."""

    __slots__ = ("bent", "followed", "gradient", "inputs", "matrix", "named", "op", "parameter", "role", "scalars",
                 "tensor")

    def __init__(self, op: str, inputs: list[Node], tensor: Tensor, role: Role = "", scalars: tuple[Any, ...] = (),
                 named: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.op, self.inputs, self.tensor, self.role = op, inputs, tensor, role
        self.scalars = scalars
        """The operation's arguments in turn, those that are named as pairs; None for a tensor, which is an input."""
        self.named = named
        """Arguments of a fused call by name, a Node for each tensor."""
        self.parameter: nn.Parameter | None = None
        """The parameter that this is, or is a view of."""
        self.matrix: frozenset[Node] = frozenset()
        """The products with a parameter that it comes from directly: with none other between."""
        self.gradient: list[Tensor] = []
        """Mean square of the loss's gradient by it, once the backward pass has been there; of streams only."""
        self.followed = False
        self.bent = False
        """Whether it has been through a function of one number since the last product."""

    def inside(self) -> Iterator[Node]:
        """What this is made of since it left the stream, itself included, each node once."""
        seen, left = {id(self)}, [self]
        while left:
            node = left.pop()
            yield node
            for one in node.inputs:
                if one.role == "deep" and id(one) not in seen:
                    seen.add(id(one))
                    left.append(one)


def label(node: Node) -> None:
    """Says what a node is, from what its inputs are."""
    node.role, node.matrix, node.bent = role_of(node.op, node.inputs), frozenset(), False
    if node.role != "deep":
        return
    if node.op in MATRIX and any(one.parameter is not None for one in node.inputs):
        node.matrix = frozenset([node])
    else:
        node.matrix = frozenset().union(*(one.matrix for one in node.inputs))
        node.bent = node.op in BENT or any(one.bent for one in node.inputs)


def role_of(op: str, inputs: list[Node]) -> Role:
    """What a new tensor is, from what it was made of."""
    roles = [one.role for one in inputs]
    if not any(roles) or op in FRESH:
        return ""
    if op in MATRIX or op in FUSED:
        return "deep"
    if op in REDUCTION:
        return "reduced" if "deep" not in roles else "deep"
    if op in NORMS:
        return roles[0]
    if "stream" in roles:
        if op in VIEW or op in SUM or (op in FACTOR and roles.count("stream") == 1 and "deep" not in roles):
            return "stream"
        if op in BENT and "deep" not in roles:
            return "reduced"  # on its way to a mean, most of the time
        return "deep"
    if "deep" in roles:
        return "deep"
    return "reduced"


def is_norm(op: str, inputs: list[Node]) -> bool:
    """Whether an operation on the stream divides it by its own size."""
    return op in NORMS or (op in FACTOR and any(one.role == "reduced" for one in inputs))


def pattern_of(product: Node) -> Node | None:
    """The softmax behind the first factor of a product, where there is one and no other product between."""
    node = product.inputs[0] if product.inputs else None
    while node is not None and node.op not in SOFTMAX:
        plain = node.op in VIEW or node.op in FACTOR or node.op in ("where", "masked_fill", "bernoulli_", "nan_to_num")
        node = next((one for one in node.inputs if one.role), None) if plain else None
    return node


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of nested lists, tuples and mappings, in order."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, Mapping):
        values = tuple(values.values())
    return [tensor for one in values for tensor in tensors_in(one)] if isinstance(values, (list, tuple)) else []
