"""Operands of an operation that are no tensors of the block's own: numbers, gains, and what a norm divides by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from explorer.own.graph import FUSED, MATRIX, SUM, VIEW, Node
from explorer.own.nodes import reduces
from explorer.own.operations import SOFTMAX


def divisor(node: Node, vectors: Node) -> float | None:
    """The ε that a written-out norm adds to the mean of squares by which it divides vectors; None of any other divisor.

    Between that mean and the divisor there is a number or less for each vector, whatever root is taken of it.
    """
    epsilon, numbers = 0.0, vectors.tensor.numel()
    for _ in range(16):
        made = [operand for operand in node.inputs if operand.role]
        if not made:
            return None
        if reduces(node):
            return epsilon if node.inputs[-2:][0].tensor.numel() == numbers else None
        if node.op in MATRIX | FUSED | SOFTMAX or (node.op not in VIEW and node.tensor.numel() >= numbers):
            return None
        if node.op in SUM and len(made) == 1:
            epsilon += scalar(node, [operand for operand in node.inputs if operand is not made[0]]) or 0.0
        node = made[0]
    return None


def scalar(node: Node, rest: list[Node]) -> float | None:
    """The number that a tensor is multiplied by or added to; None where it is not one number."""
    if rest:
        value = rest[0].tensor
        return float(value) if value.numel() == 1 and not rest[0].role and not value.is_complex() else None
    numbers = (value for value in node.scalars if isinstance(value, (int, float)) and not isinstance(value, bool))
    return next(map(float, numbers), None)


def alpha(node: Node) -> float:
    """The factor on the second operand of a sum."""
    return float(next((value[1] for value in node.scalars if isinstance(value, tuple) and value[0] == "alpha"), 1.0))


def last_number(node: Node) -> float:
    """ε of a norm in one call."""
    numbers = [value for value in _values(node.scalars) if isinstance(value, float)]
    return numbers[-1] if numbers else torch.finfo(node.tensor.dtype).eps


def _values(scalars: tuple[Any, ...]) -> Iterator[Any]:
    for value in scalars:
        yield value[1] if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) else value


def size(tensor: Tensor) -> float:
    return math.sqrt(float(tensor.detach().float().square().mean()))
