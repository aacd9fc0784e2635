"""Back through what a block computed, along one line of tensors: the factors, norms, turns and sums
that lie on it."""

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
    """The ε that a written-out norm adds to the mean of squares by which it divides vectors; None
    of any other divisor.

    Between that mean and the divisor there is a number or less for each vector, whatever root is
    taken of it."""
    epsilon, numbers = 0.0, vectors.tensor.numel()
    for _ in range(16):
        made = node.made_of()
        if not made:
            return None
        if reduces(node):
            return epsilon if node.inputs[-2:][0].tensor.numel() == numbers else None
        if node.op in MATRIX | FUSED | SOFTMAX or (
            node.op not in VIEW and node.tensor.numel() >= numbers
        ):
            return None
        if node.op in SUM and len(made) == 1:
            epsilon += (
                scalar(node, [operand for operand in node.inputs if operand is not made[0]]) or 0.0
            )
        node = made[0]
    return None


def scalar(node: Node, rest: list[Node]) -> float | None:
    """The number that a tensor is multiplied by or added to; None where it is not one number."""
    if rest:
        value = rest[0].tensor
        return (
            float(value)
            if value.numel() == 1 and not rest[0].role and not value.is_complex()
            else None
        )
    number = node.named.get("other")
    return (
        float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None
    )


def alpha(node: Node) -> float:
    """The factor on the second operand of a sum."""
    return float(node.named.get("alpha", 1.0))


def size(tensor: Tensor) -> float:
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
"""Operations that leave most numbers as they are."""
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
"""Operations of which a rotation of pairs of coordinates is made."""


class Step(NamedTuple):
    """One thing that was done to a tensor on its way."""

    kind: Kind
    node: Node
    """The tensor after it."""
    before: Node
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
    """Steps from a tensor back to where it was made, the last one first, and that tensor.

    Args:
        stop: tensors beyond which nobody looks.
        bends: whether to go on through a function of one number.
    """
    steps: list[Step] = []
    while not stop(node):
        step = _step(node, bends)
        if step is None:
            break
        if isinstance(step, Node):
            node = step
            continue
        centers = step.node.op in SUM and step.extra is not None and step.extra.op in REDUCTION
        if step.kind == "norm" or not centers:
            steps.append(step)
        else:  # the mean that a norm written out takes away, its gain perhaps before it divides
            at = max(
                (index for index, earlier in enumerate(steps) if earlier.kind == "norm"),
                default=len(steps),
            )
            if all(earlier.kind in ("norm", "gain", "factor") for earlier in steps[at:]):
                steps[at : at + 1] = [
                    norm._replace(centered=True, before=step.before) for norm in steps[at : at + 1]
                ]
        node = step.before
    return steps, node


def _step(node: Node, bends: bool) -> Step | Node | None:
    """The step that made a tensor, or the tensor of which it is a view; None where no single line
    leads on."""
    made = node.made_of()
    if not made or (node.op in MATRIX and node.op != "dot"):
        return None
    if node.op in NORM:
        epsilon = node.named.get("eps")
        epsilon = torch.finfo(node.tensor.dtype).eps if epsilon is None else epsilon
        return Step(
            "norm",
            node,
            made[0],
            epsilon=epsilon,
            centered="layer" in node.op or "group" in node.op,
        )
    if node.op in PICKED and len({id(operand) for operand in made}) == 1:
        return made[0]
    if node.op in FACTOR or node.op in SUM:
        step = _one_line(node, made)
        if step is not None:
            return step
    if bends and node.op in BENT and len(made) == 1:
        return Step("bend", node, made[0])
    root = _root(made, node.tensor.numel()) if node.op in TURNS else None
    return None if root is None else Step("turn", node, root)


def _one_line(node: Node, made: list[Node]) -> Step | None:
    """The step of a factor or a sum of which one operand goes on, where it is one."""
    if len(made) == 1:
        main, rest = made[0], [operand for operand in node.inputs if operand is not made[0]]
        value = scalar(node, rest)
        if node.op in FACTOR:
            if value is not None:
                return Step(
                    "factor", node, main, 1 / value if "div" in node.op and value else value
                )
            if (
                rest
                and (flat := rest[0].tensor).numel() <= flat.shape[-1]
                and not flat.is_complex()
            ):
                return Step("gain", node, main, size(flat), extra=rest[0])
            return None
        sign = -1.0 if node.op == "rsub" else 1.0
        return Step("add", node, main, sign * alpha(node), extra=rest[0] if rest else None)
    for main, other in (made[:2], made[1::-1]) if len(made) == 2 else ():
        if node.op in FACTOR and (epsilon := divisor(other, main)) is not None:
            return Step("norm", node, main, epsilon=epsilon)
        if (
            node.op in SUM
            and other.inputs[:1] == [main]
            and other.tensor.numel() < main.tensor.numel()
        ):
            return Step("add", node, main, extra=other)  # a mean, or the largest, is taken away
    return None


def inside(node: Node, enter: Callable[[Node], bool]) -> Iterator[Node]:
    """Tensors from which a tensor is computed, nearest first, itself included, through those that
    `enter` accepts."""
    return walk(node, lambda part: part.made_of() if enter(part) else [], nearest=True)


def _root(made: list[Node], numbers: int) -> Node | None:
    """The tensor of so many numbers of which several are made, by turns alone."""

    def above(node: Node) -> list[Node]:
        return list(inside(node, lambda part: part.op in TURNS))

    first, *others = [above(operand) for operand in made]
    if not others:  # complex numbers, multiplied by those of their positions
        return next(
            (
                part
                for product in first
                if product.op in FACTOR and product.tensor.is_complex()
                for part in product.made_of()
            ),
            None,
        )
    sets = [{id(part) for part in other} for other in others]
    return next(
        (
            origin
            for origin in first
            if origin.tensor.numel() * (1 + origin.tensor.is_complex()) == numbers
            and all(id(origin) in ids for ids in sets)
        ),
        None,
    )


# The arguments of a function number by number.


def arguments(end: Node) -> list[Node]:
    """The tensors of which another is a function number by number: of each product before it, or of
    each part of one, the last before it is used twice, or bent."""
    region = [
        part for part in inside(end, lambda part: part.op not in MATRIX) if part.role == "deep"
    ]
    left, operands = [part for part in region if part.op in MATRIX], list[Node]()
    while left:
        node = left.pop(0)
        users = (
            []
            if node is end
            else [user for user in region if any(part is node for part in user.inputs)]
        )
        if users and all(
            user.op in VIEW and user.tensor.numel() < node.tensor.numel() for user in users
        ):
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
        if len(users[0].made_of("deep")) > 1:
            return False
        (node,) = users
        if node.op not in VIEW | FACTOR | SUM:
            return True
    return False


def unscaled(node: Node) -> Node:
    """A tensor before numbers multiplied it."""
    while node.op in FACTOR and _linear(node):
        node = node.made_of()[0]
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
