"""What an MLP computes between its matrices: the row of activations and of MLPs that its own numbers obey."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.probes.graph import FACTOR, MATRIX, SUM, VIEW, Node
from explorer.probes.trace import inside, trace
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
    steps, end = trace(hidden)
    norms = sum(step.kind == "norm" for step in steps)
    factor = 1.0
    for step in steps:
        factor *= step.factor if step.kind == "factor" else 1.0
    deep = [one for one in end.inputs if one.role == "deep"]
    factors = [_argument(one) for one in deep] if end.op in FACTOR and len(deep) == 2 else []
    pair = [one for one in factors if one is not None]
    if len(pair) == 2 and not _same(*pair) and not _same(*pair[::-1]):
        found = min((one for order in (pair, pair[::-1]) if (one := _best(order[0], order[1], end)) is not None),
                    key=lambda one: one.misfit, default=None)
    else:  # x σ(x), too, is a function of one number
        found = _best(_argument(end), None, end)
    return None if found is None else found._replace(factor=found.factor * factor, norms=norms)


def _same(one: Node, other: Node) -> bool:
    """Whether a tensor is another one, or a number times it."""
    while other is not one and other.op in VIEW | FACTOR and len(
            made := [part for part in other.inputs if part.role]) == 1:
        other = made[0]
    return one is other


def _argument(end: Node) -> Node | None:
    """The tensor of which another is a function number by number: the last before it is used twice, or bent."""
    region = [one for one in inside(end, lambda one: one.op not in MATRIX) if one.role == "deep"]
    products = [one for one in region if one.op in MATRIX]
    if len(products) != 1:
        return None
    node = products[0]
    while node is not end:
        users = [one for one in region if any(part is node for part in one.inputs)]
        if len(users) != 1 or not (users[0].op in VIEW or _linear(users[0])):
            break
        node = users[0]
    return node


def _linear(node: Node) -> bool:
    """Whether a number multiplies a tensor, or a bias is added to it."""
    rest = [one for one in node.inputs if not one.role]
    if len(node.inputs) != 1 + len(rest):
        return False
    one = not rest or rest[0].tensor.numel() == 1
    return one if node.op in FACTOR else node.op in SUM and not one


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
