"""Recognizes the function between an MLP's matrices: the row of activations and of MLPs that its numbers obey."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.own.nodes import FACTOR, MATRIX, SUM, VIEW, Node, whole
from explorer.own.trace import inside, trace
from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.mlp import MLPS

SAMPLED = 2**13
"""Numbers of which a function is judged."""
FITS = 1e-3
"""Share of the output's mean square up to which a function describes it: what bfloat16 rounds away is 1e-5."""


class Bend(NamedTuple):
    """The function of an MLP."""

    mlp: str
    activation: str
    factor: float
    """On the activation."""
    misfit: float
    """Mean square of what the function leaves unexplained, as a share of the output's."""
    norms: int
    """Between the function and the last matrix."""


def read_bend(hidden: Node) -> Bend | None:
    """The function that makes what an MLP's last matrix reads; None where it is not one of one or two products."""
    norms = [step for step in trace(hidden)[0] if step.kind == "norm"]
    end = whole(norms[-1].before if norms else hidden)
    parts = arguments(end)
    orders: list[tuple[Node, Node | None]] = [(part, None) for part in parts[:1]]
    if len(parts) == 2:
        orders = [(parts[0], parts[1]), (parts[1], parts[0])]
    elif len(parts) > 2:
        return None
    # what is multiplied by a number may be an argument before it or after
    tried = [_best(form, value, end) for bent, value in orders for form in (bent, unscaled(bent))]
    best = min((bend for bend in tried if bend is not None), key=lambda bend: bend.misfit, default=None)
    return None if best is None else best._replace(norms=len(norms))


def arguments(end: Node) -> list[Node]:
    """The tensors of which another is a function number by number: of each product before it, or of each part of one,
    the last before it is used twice, or bent.
    """
    region = [part for part in inside(end, lambda part: part.op not in MATRIX) if part.role == "deep"]
    left, operands = [part for part in region if part.op in MATRIX], list[Node]()
    while left:
        node = left.pop(0)
        users = [] if node is end else [user for user in region if any(part is node for part in user.inputs)]
        if users and all(user.op in VIEW and user.tensor.numel() < node.tensor.numel() for user in users):
            left += {_place(user): user for user in users}.values()
        elif len(users) == 1 and (users[0].op in VIEW or _linear(users[0])):
            left.append(users[0])
        else:
            operands.append(node)
    return operands


def is_bent(argument: Node, end: Node) -> bool:
    """Whether an argument goes through a function of its own before it meets another."""
    region, node = list(inside(end, lambda part: part.op not in MATRIX)), argument
    while node is not end:
        users = [user for user in region if any(part is node for part in user.inputs)]
        if len(users) > 1:
            return True
        if sum(operand.role == "deep" for operand in users[0].inputs) > 1:
            return False
        node, = users
        if node.op not in VIEW | FACTOR | SUM:
            return True
    return False


def unscaled(node: Node) -> Node:
    """A tensor before numbers multiplied it."""
    while node.op in FACTOR and _linear(node):
        node = next(operand for operand in node.inputs if operand.role)
    return node


def _place(node: Node) -> tuple[object, ...]:
    """Where a view lies in memory."""
    return node.tensor.storage_offset(), node.tensor.shape, node.tensor.stride()


def _linear(node: Node) -> bool:
    """Whether a number multiplies a tensor, or a bias is added to it."""
    rest = [operand for operand in node.inputs if not operand.role]
    if len(node.inputs) != 1 + len(rest):
        return False
    scalar = not rest or rest[0].tensor.numel() == 1
    return scalar if node.op in FACTOR else node.op in SUM and not scalar


def _best(before: Node | None, value: Node | None, end: Node) -> Bend | None:
    """The rows that come nearest to the output."""
    size = end.tensor.numel()
    if before is None or before.tensor.numel() != size or (value is not None and value.tensor.numel() != size):
        return None
    z, out = _sample(before.tensor), _sample(end.tensor)
    v = None if value is None else _sample(value.tensor)
    best: Bend | None = None
    for kind, row in MLPS.items():
        if row.gated != (v is not None):
            continue
        for name, bend in ACTIVATIONS.items():
            made = bend.torch(F, z) * (1.0 if v is None else v + row.shift)
            norm = float(made.square().sum())
            factor = float((made * out).sum()) / norm if norm else 0.0
            misfit = float((out - factor * made).square().sum() / out.square().sum().clamp(min=1e-300))
            if best is None or misfit < best.misfit:
                best = Bend(kind, name, factor, misfit, 0)
    return best


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten()
    step = max(1, len(flat) // SAMPLED)
    return flat[::step].to(torch.float64)
