"""Operands of an operation that are no tensors of the block's own: numbers, gains, and what a norm divides by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from explorer.probes.graph import BENT, FACTOR, REDUCTION, SUM, VIEW, Node

ROOTS = BENT | VIEW | {"rsqrt", "sqrt", "reciprocal", "maximum", "neg", "clamp_min_"}
"""On the way from a mean of squares to what a norm divides by."""


def divisor(node: Node) -> tuple[Node, float] | None:
    """The mean of squares that a norm written out divides by, and what is added to it."""
    epsilon = 0.0
    for _ in range(12):
        if node.op in REDUCTION and node.inputs:
            return node, epsilon
        made = [one for one in node.inputs if one.role]
        if node.op in SUM and len(made) == 1:
            epsilon += scalar(node, [one for one in node.inputs if one is not made[0]]) or 0.0
        elif not (node.op in ROOTS or node.op in FACTOR) or not made:
            return None
        node = made[0]
    return None


def scalar(node: Node, rest: list[Node]) -> float | None:
    """The number that a tensor is multiplied by or added to; None where it is not one number."""
    if rest:
        value = rest[0].tensor
        return float(value) if value.numel() == 1 and not rest[0].role and not value.is_complex() else None
    numbers = (one for one in node.scalars if isinstance(one, (int, float)) and not isinstance(one, bool))
    return next(map(float, numbers), None)


def alpha(node: Node) -> float:
    """The factor on the second operand of a sum."""
    return float(next((one[1] for one in node.scalars if isinstance(one, tuple) and one[0] == "alpha"), 1.0))


def last_number(node: Node) -> float:
    """ε of a norm in one call."""
    numbers = [one for one in _values(node.scalars) if isinstance(one, float)]
    return numbers[-1] if numbers else torch.finfo(node.tensor.dtype).eps


def _values(scalars: tuple[Any, ...]) -> Iterator[Any]:
    for one in scalars:
        yield one[1] if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) else one


def size(tensor: Tensor) -> float:
    return math.sqrt(float(tensor.detach().float().square().mean()))
