"""`trace` goes back through what a block computed, from one tensor to the matrix that made it, and
lists the factors, gains, norms, rotations and sums on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from explorer_models.nodes import (
    BENT,
    FACTOR,
    FUSED,
    MATRIX,
    NORM,
    REDUCTION,
    SOFTMAX,
    SUM,
    VIEW,
    Node,
    reduces,
    walk,
)


def divisor(node: Node, vectors: Node) -> float | None:
    """The ε of a norm that is written out, x / √(mean x² + ε); None of any other divisor.

    The way back from the divisor to the mean of squares has at most one number for each vector,
    whatever root is taken of it, and ε is what is added on the way.

    Args:
        node: the divisor, or the factor that is its inverse.
        vectors: the numbers that are divided, `[…, coordinate]`.
    """
    epsilon, numbers = 0.0, vectors.tensor.numel()
    for _ in range(16):
        made = node.made_of()
        if not made:
            return None
        if reduces(node):
            squares = node.inputs[-2:][0]
            return epsilon if squares.tensor.numel() == numbers else None
        if node.op in MATRIX | FUSED | SOFTMAX:
            return None
        if node.op not in VIEW and node.tensor.numel() >= numbers:
            return None
        if node.op in SUM and len(made) == 1:
            rest = [operand for operand in node.inputs if operand is not made[0]]
            epsilon += scalar(node, rest) or 0.0
        node = made[0]
    return None


def scalar(node: Node, rest: list[Node]) -> float | None:
    """The number by which an operation multiplies a tensor, or that it adds; None where it is not
    one number.

    Args:
        rest: the operands beside the tensor; none where the number is no tensor.
    """
    if rest:
        value = rest[0].tensor
        constant = value.numel() == 1 and not rest[0].role and not value.is_complex()
        return float(value) if constant else None
    number = node.named.get("other")
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return float(number)
    return None


def alpha(node: Node) -> float:
    """The factor on the second operand of a sum, `add(x, y, alpha=…)`."""
    return float(node.named.get("alpha", 1.0))


def size(tensor: Tensor) -> float:
    """Root mean square of all numbers."""
    return math.sqrt(float(tensor.detach().float().square().mean()))


Kind = Literal["factor", "gain", "norm", "add", "turn", "bend"]

PICKED = VIEW | {
    "index_select",
    "repeat_interleave",
    "gather",
    "index",
    "_unsafe_index",
    "masked_fill",
    "where",
    "masked_fill_",
    "nan_to_num",
    "bernoulli_",
    "repeat",
    "roll",
}
"""Operations that leave most numbers as they are, and drop, repeat or hide the others."""
TURNS = (
    VIEW
    | FACTOR
    | SUM
    | {
        "neg",
        "stack",
        "view_as_complex",
        "view_as_real",
        "complex",
        "flip",
        "index",
        "slice_scatter",
    }
)
"""Operations of which a rotation of pairs of coordinates, rotary positions, is made."""


class Step(NamedTuple):
    """One operation on the way of a tensor."""

    kind: Kind
    """A number that multiplies it, a vector that does, a norm, a sum, a rotation of pairs of
    coordinates, or a function number by number."""
    node: Node
    """The tensor after it."""
    before: Node
    """The tensor before it."""
    factor: float = 1.0
    """A scalar factor's value, or the root mean square of a gain."""
    epsilon: float = 0.0
    centered: bool = False
    """Whether a norm subtracts the mean."""
    extra: Node | None = None
    """The other operand: a gain, a bias, a mask."""


def trace(
    node: Node, stop: Callable[[Node], bool] = lambda node: False, *, bends: bool = False
) -> tuple[list[Step], Node]:
    """Goes back from a tensor along the line of tensors of which it is made, through factors,
    gains, norms, sums and rotations.

    The way ends where a matrix, or an operation on several tensors, made the tensor. A mean that a
    norm subtracts is a part of the norm's step.

    Args:
        stop: ends the way at the tensors for which it is true.
        bends: whether to go on through a function number by number, such as tanh.
    Returns:
        the steps, the last one of the computation first; and the tensor at which the way ends.
    """
    steps: list[Step] = []
    while not stop(node):
        step = _step(node, bends)
        if step is None:
            break
        if isinstance(step, Node):
            node = step
            continue
        subtracts_mean = (
            step.kind != "norm"
            and step.node.op in SUM
            and step.extra is not None
            and step.extra.op in REDUCTION
        )
        if subtracts_mean:
            _center(steps, step)
        else:
            steps.append(step)
        node = step.before
    return steps, node


def _center(steps: list[Step], mean: Step) -> None:
    """Makes the subtraction of a mean a part of the norm that follows it, perhaps with its gain
    between; where no norm does, the subtraction is left out."""
    norms = [index for index, step in enumerate(steps) if step.kind == "norm"]
    if norms and all(step.kind in ("norm", "gain", "factor") for step in steps[norms[-1] :]):
        steps[norms[-1]] = steps[norms[-1]]._replace(centered=True, before=mean.before)


def _step(node: Node, bends: bool) -> Step | Node | None:
    """The step that made a tensor, or the tensor of which it is a view; None where several tensors
    or a matrix made it."""
    made = node.made_of()
    if not made or (node.op in MATRIX and node.op != "dot"):
        return None
    if node.op in NORM:
        epsilon = node.named.get("eps")
        if epsilon is None:
            epsilon = torch.finfo(node.tensor.dtype).eps
        centered = "layer" in node.op or "group" in node.op
        return Step("norm", node, made[0], epsilon=epsilon, centered=centered)
    if node.op in PICKED and all(operand is made[0] for operand in made):
        return made[0]
    if node.op in FACTOR or node.op in SUM:
        step = _with_constant(node, made[0]) if len(made) == 1 else _with_own_size(node, made)
        if step is not None:
            return step
    if bends and node.op in BENT and len(made) == 1:
        return Step("bend", node, made[0])
    origin = _origin(made, node.tensor.numel()) if node.op in TURNS else None
    return None if origin is None else Step("turn", node, origin)


def _with_constant(node: Node, main: Node) -> Step | None:
    """The step of a factor or a sum whose other operand, if any, is constant; None of a factor that
    is neither one number nor one vector."""
    rest = [operand for operand in node.inputs if operand is not main]
    value = scalar(node, rest)
    if node.op in SUM:
        sign = -1.0 if node.op == "rsub" else 1.0
        return Step("add", node, main, sign * alpha(node), extra=rest[0] if rest else None)
    if value is not None:
        return Step("factor", node, main, 1 / value if "div" in node.op and value else value)
    vector = rest[0].tensor if rest else None
    if vector is not None and vector.numel() <= vector.shape[-1] and not vector.is_complex():
        return Step("gain", node, main, size(vector), extra=rest[0])
    return None


def _with_own_size(node: Node, made: list[Node]) -> Step | None:
    """The step of a factor or a sum of a tensor and its own size, mean or largest number; None
    where the other operand is none of these."""
    if len(made) != 2:
        return None
    for main, other in (made, made[::-1]):
        if node.op in FACTOR and (epsilon := divisor(other, main)) is not None:
            return Step("norm", node, main, epsilon=epsilon)
        reduced = other.inputs[:1] == [main] and other.tensor.numel() < main.tensor.numel()
        if node.op in SUM and reduced:
            return Step("add", node, main, extra=other)
    return None


def inside(node: Node, enter: Callable[[Node], bool]) -> Iterator[Node]:
    """Tensors from which a tensor is computed, nearest first, itself included; those for which
    `enter` is false are given, and what they are made of is not."""
    return walk(node, lambda maker: maker.made_of() if enter(maker) else [], nearest=True)


def _origin(made: list[Node], numbers: int) -> Node | None:
    """The tensor that a rotation turns: the nearest one, of so many numbers, from which all
    operands of the rotation's last operation are made by operations of `TURNS` alone; None
    without one."""

    def sources(node: Node) -> list[Node]:
        return list(inside(node, lambda maker: maker.op in TURNS))

    first, *others = [sources(operand) for operand in made]
    if not others:  # complex numbers, multiplied by those of their positions
        complex_products = (
            node for node in first if node.op in FACTOR and node.tensor.is_complex()
        )
        return next((factor for node in complex_products for factor in node.made_of()), None)
    for origin in first:
        count = origin.tensor.numel() * (1 + origin.tensor.is_complex())
        if count == numbers and all(origin in nodes for nodes in others):
            return origin
    return None


# The arguments of a function number by number.


def arguments(end: Node) -> list[Node]:
    """The arguments of an activation: the tensors z, v of which another, such as φ(z) · v, is a
    function number by number.

    The way goes from each product with a matrix towards `end`, through views, scalar factors and
    biases. It ends before the tensor is used twice or is bent; where a product is split into
    parts, as a fused gate is, each part has its own way.

    Args:
        end: what the next matrix multiplies.
    """
    region = [
        node for node in inside(end, lambda maker: maker.op not in MATRIX) if node.role == "deep"
    ]
    left, operands = [node for node in region if node.op in MATRIX], list[Node]()
    while left:
        node = left.pop(0)
        users = [] if node is end else _users(node, region)
        splits = all(
            user.op in VIEW and user.tensor.numel() < node.tensor.numel() for user in users
        )
        if users and splits:
            left += {_memory(user): user for user in users}.values()
        elif len(users) == 1 and (users[0].op in VIEW or _linear(users[0])):
            left.append(users[0])
        else:
            operands.append(node)
    return operands


def _users(node: Node, region: list[Node]) -> list[Node]:
    """The nodes of a region that have a node as an operand."""
    return [user for user in region if node in user.inputs]


def is_bent(argument: Node, end: Node) -> bool:
    """Whether an argument of an activation goes through a nonlinear function before it meets
    another argument: the gate of a GLU does, its value does not.

    Args:
        argument: one of the `arguments` of `end`.
    """
    region, node = list(inside(end, lambda maker: maker.op not in MATRIX)), argument
    while node is not end:
        users = _users(node, region)
        if len(users) > 1:
            return True
        (node,) = users
        if len(node.made_of("deep")) > 1:
            return False
        if node.op not in VIEW | FACTOR | SUM:
            return True
    return False


def unscaled(node: Node) -> Node:
    """The tensor before scalar factors were applied to it."""
    while node.op in FACTOR and _linear(node):
        node = node.made_of()[0]
    return node


def _memory(node: Node) -> tuple[object, ...]:
    """The memory that a view shows: offset, shape and strides, equal for two views of the same
    numbers."""
    return node.tensor.storage_offset(), node.tensor.shape, node.tensor.stride()


def _linear(node: Node) -> bool:
    """Whether an operation multiplies one tensor by a number, or adds a bias to it."""
    constants = [operand for operand in node.inputs if not operand.role]
    if len(node.inputs) != 1 + len(constants):
        return False
    one_number = not constants or constants[0].tensor.numel() == 1
    return one_number if node.op in FACTOR else node.op in SUM and not one_number
