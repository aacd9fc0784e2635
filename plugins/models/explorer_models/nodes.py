"""`Node`: a tensor that a block computed, with the operation and the operands that made it. Its
role says whether it is the residual stream, a branch, or a size by which a norm divides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

MATRIX = {
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "matmul",
    "convolution",
    "linear",
    "_grouped_mm",
    "_scaled_mm",
    "mv",
    "dot",
}
FUSED = {
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_attention_math_for_mps",
}
"""Attention in one call."""
SOFTMAX = {"_softmax", "_safe_softmax"}
NORM = {"native_layer_norm", "_fused_rms_norm", "native_group_norm", "rms_norm"}
BATCH_NORM = {
    "native_batch_norm",
    "cudnn_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_no_update",
    "batch_norm",
}
NORMS = NORM | BATCH_NORM
REDUCTION = {"mean", "sum", "var", "var_mean", "std", "linalg_vector_norm", "norm", "amax", "amin"}
"""Operations that make one number of many along some axes."""
VIEW = {
    "view",
    "_unsafe_view",
    "reshape",
    "t",
    "transpose",
    "permute",
    "expand",
    "unsqueeze",
    "squeeze",
    "slice",
    "alias",
    "select",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "clone",
    "_to_copy",
    "detach",
    "contiguous",
    "roll",
    "native_dropout",
    "lift_fresh",
    "copy_",
    "constant_pad_nd",
    "as_strided",
    "to",
    "cat",
    "_reshape_alias",
}
"""Operations that change no number, or only drop some."""
FRESH = {
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "bernoulli",
    "new_zeros",
    "new_empty",
    "new_ones",
    "new_full",
    "argmax",
    "argsort",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
}
"""Operations that take no more than a shape, or an order, from what they are given."""
SUM = {"add", "add_", "sub", "sub_", "rsub", "addcmul", "addcmul_"}
FACTOR = {"mul", "mul_", "div", "div_"}
BENT = {
    "relu",
    "relu_",
    "gelu",
    "silu",
    "silu_",
    "sigmoid",
    "tanh",
    "elu",
    "leaky_relu",
    "pow",
    "erf",
    "hardswish",
    "mish",
    "softplus",
    "threshold",
    "clamp",
    "clamp_min",
    "square",
    "abs",
    "hardtanh",
    "sin",
    "exp",
    "log_sigmoid_forward",
}
"""Functions of one number."""


Role = Literal["", "stream", "deep", "reduced"]
"""Constant; the residual stream; computed by a matrix since the stream was read; a mean or a size.
See `recording`."""
PLACES = (torch.bool, torch.int32, torch.int64)
"""Types of masks and of indices, such as those by which a router sorts tokens: they carry no
signal."""


@dataclass(eq=False, slots=True)
class Node:
    """A tensor that a block computed, the operation that made it, and its operands."""

    op: str
    """Name of torch's operator, such as "addmm"; "input" of the block's input, "leaf" of a tensor
    that no operation of the block made."""
    inputs: list[Node]
    """The operands, in the order of the operator's arguments."""
    tensor: Tensor
    role: Role = ""
    """Whether it belongs to the residual stream, see `recording`; empty of a constant."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """The operation's arguments by name, a Node for a tensor."""
    parameter: nn.Parameter | None = None
    """The parameter that this is, or is a view of."""
    matrix: tuple[Node, ...] = ()
    """The nearest products with a parameter from which it is computed, each once: no further
    product with a parameter lies between."""
    gradient: list[Tensor] = field(default_factory=list)
    """Mean square of the loss's gradient by it, once the backward pass has been there; of
    streams only."""
    followed: bool = False
    """Whether a hook keeps its gradient."""

    def made_of(self, *roles: Role) -> list[Node]:
        """The operands that have one of these roles; without arguments all operands but
        constants."""
        return [
            operand
            for operand in self.inputs
            if operand.role and (not roles or operand.role in roles)
        ]

    def inside(self) -> Iterator[Node]:
        """This node and all from which it is computed since the stream was last read, each once:
        the nodes of a branch."""
        return walk(self, lambda node: node.made_of("deep"))


def walk(
    node: Node, onward: Callable[[Node], Iterable[Node]], nearest: bool = False
) -> Iterator[Node]:
    """A node and all that can be reached from it, each once.

    Args:
        onward: gives the neighbors of a node, such as its operands.
        nearest: whether to search breadth first, so that the nearest nodes come first.
    """
    left, visited = [node], {id(node)}
    while left:
        node = left.pop(0 if nearest else -1)
        yield node
        for neighbor in onward(node):
            if id(neighbor) not in visited:
                visited.add(id(neighbor))
                left.append(neighbor)


def as_softmax(node: Node) -> Node:
    """Renames a softmax that is written out, as exp s / Σ exp s or exp log_softmax s, to the one
    operation `_softmax`; any other node is returned as it is."""
    if node.op in FACTOR and "div" in node.op and len(node.inputs) == 2:
        exponentials, total = node.inputs
        while total.op in VIEW and len(total.inputs) == 1:
            total = total.inputs[0]
        is_sum = total.op == "sum" and total.inputs == [exponentials]
        axes: Sequence[int] = total.named.get("dim") or ()
        if is_sum and exponentials.op in ("exp", "exp_") and len(axes) == 1:
            node.op, node.inputs, node.named = "_softmax", exponentials.inputs[:1], {"dim": axes[0]}
    elif node.op == "exp" and node.inputs and node.inputs[0].op == "_log_softmax":
        logarithm = node.inputs[0]
        node.op, node.inputs, node.named = "_softmax", logarithm.inputs[:1], logarithm.named
    return node


def expanded(node: Node) -> list[Node]:
    """Recognizes a product of matrices that is written as a sum of products, such as logits
    Σ_d q_td k_sd from `(q[:, None] * k[None]).sum(-1)`.

    Such a sum becomes a view of a batched product `bmm`, so that the rest of the code sees the one
    form. Autograd must know the tensors.

    Returns:
        the nodes of the product and of its factors, then the node itself; of any other node that
        node alone.
    """
    product = node.inputs[0] if node.inputs else node
    axes: Sequence[int] = node.named.get("dim") or ()
    n_axes = product.tensor.ndim
    is_sum = node.op == "sum" and product.op == "mul" and node.tensor.ndim < n_axes
    if not is_sum or len(axes) != 1 or len(product.inputs) != 2:
        return [node]
    first, second = product.inputs
    columns, rows, summed = _repeated(first, product), _repeated(second, product), axes[0] % n_axes
    if len(columns) != 1 or len(rows) != 1:
        return [node]
    (column,), (row,) = columns, rows
    if len({summed, row, column}) < 3:
        return [node]
    if row > column:  # rows, which the first factor has, are the axis that comes first
        row, column, first, second = column, row, second, first
    rest = [axis for axis in range(n_axes) if axis not in (summed, row, column)]
    left = _without_repeats(first, [*rest, row, summed, column])
    if summed == n_axes - 1:  # as of keys `[token, d]`, which are transposed for the product
        stored = _without_repeats(second, [*rest, column, summed, row])
        right = Node("transpose", [stored], stored.tensor.mT, named={"dim0": -2, "dim1": -1})
        made = [left, stored, right]
    else:
        right = _without_repeats(second, [*rest, summed, column, row])
        made = [left, right]
    order = [axis - (axis > summed) for axis in (*rest, row, column)]
    made.append(Node("bmm", [left, right], node.tensor.permute(order)))
    node.op, node.inputs = "permute", made[-1:]
    node.named = {"dims": [order.index(axis) for axis in range(len(order))]}
    for new in made:
        label(new)
    return [*made, node]


def _repeated(factor: Node, product: Node) -> list[int]:
    """Axes along which a factor of an elementwise product is broadcast; none where the factor is
    not made by a layer's matrices, its role being another than "deep".

    Autograd stores a broadcast axis with size 1, or repeats its entries by a stride of 0."""
    tensor, shape = factor.tensor, product.tensor.shape
    if factor.role != "deep" or tensor.ndim != len(shape):
        return []
    return [
        axis
        for axis, size in enumerate(shape)
        if size > 1 and (tensor.shape[axis] == 1 or tensor.stride(axis) == 0)
    ]


def _without_repeats(factor: Node, order: list[int]) -> Node:
    """A factor as a matrix: with its axes in another order, of which the last, along which all its
    entries are the same, is dropped.

    The node is called a permutation. Its axes are read by `named["dims"]`, in which an axis that
    was dropped at the end moves no other one.

    Args:
        factor: the factor.
        order: the index, in the factor, of each new axis.
    """
    matrix = factor.tensor.permute(order).select(-1, 0)
    return Node("permute", [factor], matrix, named={"dims": order})


def label(node: Node) -> None:
    """Sets a node's role and its nearest products with a parameter, from its operands'."""
    node.role = _role(node)
    is_product = node.op in MATRIX and any(arg.parameter is not None for arg in node.inputs)
    node.matrix = ()
    if node.role == "deep":
        node.matrix = (node,) if is_product else products(node.inputs)


def products(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nearest products with a parameter from which some nodes are computed, each once and in
    the order in which every run computes them."""
    return tuple(dict.fromkeys(product for node in nodes for product in node.matrix))


def _role(node: Node) -> Role:
    """Role of a new tensor, from its operation and the roles of its operands."""
    op, roles = node.op, [operand.role for operand in node.inputs]
    if not any(roles) or op in FRESH or node.tensor.dtype in PLACES:
        return ""
    if reduces(node):
        return "deep" if "deep" in roles else "reduced"
    if op in MATRIX or op in FUSED:
        return "deep"
    if op in NORMS:
        return roles[0]
    if "stream" in roles and "deep" in roles:
        return "stream" if op in VIEW or op in SUM else "deep"
    if "stream" in roles:
        scales = op in FACTOR and not any(_as_many(operand, node) for operand in node.inputs)
        if op in VIEW or op in SUM or scales:
            return "stream"
        # a square or another function is on its way to a mean, most of the time
        return "reduced" if op in BENT or op in FACTOR else "deep"
    return "deep" if "deep" in roles else "reduced"


def reduces(node: Node) -> bool:
    """Whether an operation makes one number of many, on the way to a norm: a mean, a length, or
    the product of each vector with itself or with a constant vector."""
    if node.op not in MATRIX or any(operand.parameter is not None for operand in node.inputs):
        return node.op in REDUCTION
    if len(node.inputs) < 2:
        return False
    vectors, other = (whole(operand) for operand in node.inputs[-2:])
    size = node.inputs[-2].tensor
    return (
        (other is vectors or not other.role)
        and size.ndim > 0
        and node.tensor.numel() * size.shape[-1] == size.numel()
    )


def _as_many(node: Node, product: Node) -> bool:
    """Whether a factor in a product with the stream varies with each number of the stream, as a
    gate does. The size of a token, one number for all its coordinates, does not."""
    if node.role == "stream":
        return len(product.made_of("stream")) > 1
    while node.role and node.op in VIEW and node.inputs:
        node = node.inputs[0]
    return bool(node.role) and node.tensor.numel() >= product.tensor.numel() > 1


def whole(node: Node) -> Node:
    """The first tensor, going back through views, that has the same numbers in another shape."""
    while (
        node.op in VIEW
        and len(node.inputs) == 1
        and node.inputs[0].tensor.numel() == node.tensor.numel()
    ):
        node = node.inputs[0]
    return node


def is_norm(node: Node) -> bool:
    """Whether an operation divides the stream by its own size."""
    return node.op in NORMS or (node.op in FACTOR and bool(node.made_of("reduced")))


def pattern_of(product: Node) -> Node | None:
    """The softmax whose weights are the first factor of a product with the values; None where
    another product lies between, or there is no softmax."""
    node = product.inputs[0] if product.inputs and product.op not in FUSED else None
    while node is not None and node.op not in SOFTMAX:
        plain = (
            node.op in VIEW
            or node.op in FACTOR
            or node.op in ("where", "masked_fill", "bernoulli_", "nan_to_num")
        )
        node = next(iter(node.made_of()), None) if plain else None
    return node


def named_arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an operator's call by name, with the defaults of those that the call
    leaves out."""
    named = {argument.name: argument.default_value for argument in func._schema.arguments}
    return named | dict(zip(named, args, strict=False)) | dict(kwargs)


def first_floating(*values: Any) -> Tensor | None:
    """The first floating-point tensor among a module's arguments or outputs: the residual
    stream, by the custom of all libraries."""
    return next((tensor for tensor in tensors_in(values) if tensor.is_floating_point()), None)


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and mappings, in order."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, Mapping):
        values = tuple(values.values())
    return (
        [tensor for value in values for tensor in tensors_in(value)]
        if isinstance(values, (list, tuple))
        else []
    )
