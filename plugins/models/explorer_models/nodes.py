"""A tensor of a block, what made it, and what it is: the stream, a branch, or a size by which a
norm divides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
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


PLACES = (torch.bool, torch.int32, torch.int64)
"""Types of masks and of places, such as those by which a router sorts tokens; they are no numbers
of a signal."""


class Node:
    """A tensor of the block and what made it."""

    __slots__ = (
        "followed",
        "gradient",
        "inputs",
        "matrix",
        "named",
        "op",
        "parameter",
        "role",
        "tensor",
    )

    def __init__(
        self,
        op: str,
        inputs: list[Node],
        tensor: Tensor,
        role: Role = "",
        named: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.op, self.inputs, self.tensor, self.role = op, inputs, tensor, role
        self.named = named
        """The operation's arguments by name, a Node for a tensor."""
        self.parameter: nn.Parameter | None = None
        """The parameter that this is, or is a view of."""
        self.matrix: tuple[Node, ...] = ()
        """The products with a parameter that it comes from directly, with none other between, each
        once."""
        self.gradient: list[Tensor] = []
        """Mean square of the loss's gradient by it, once the backward pass has been there; of
        streams only."""
        self.followed = False

    def made_of(self, *roles: Role) -> list[Node]:
        """The operands that have one of these roles; without roles all that have any."""
        return [
            operand
            for operand in self.inputs
            if operand.role and (not roles or operand.role in roles)
        ]

    def inside(self) -> Iterator[Node]:
        """Nodes between the stream and this tensor, itself included, each once."""
        return walk(self, lambda node: node.made_of("deep"))


def walk(
    node: Node, onward: Callable[[Node], Iterable[Node]], nearest: bool = False
) -> Iterator[Node]:
    """A node and all to which it leads, each once.

    Args:
        onward: the nodes to which one leads.
        nearest: whether the nearest come first.
    """
    left, visited = [node], {id(node)}
    while left:
        node = left.pop(0 if nearest else -1)
        yield node
        for other in onward(node):
            if id(other) not in visited:
                visited.add(id(other))
                left.append(other)


def as_softmax(node: Node) -> Node:
    """A softmax that is written out, exp s / Σ exp s, as the one operation that it is; any other
    node as it is."""
    if node.op in FACTOR and "div" in node.op and len(node.inputs) == 2:
        shares, total = node.inputs
        while total.op in VIEW and len(total.inputs) == 1:
            total = total.inputs[0]
        if total.op == "sum" and total.inputs == [shares] and shares.op in ("exp", "exp_"):
            axes = total.named.get("dim")
            if axes is not None and len(axes) == 1:
                node.op, node.inputs, node.named = "_softmax", shares.inputs[:1], {"dim": axes[0]}
    elif node.op == "exp" and node.inputs and node.inputs[0].op == "_log_softmax":
        node.op, node.inputs, node.named = (
            "_softmax",
            node.inputs[0].inputs[:1],
            node.inputs[0].named,
        )
    return node


def expanded(node: Node) -> list[Node]:
    """A node, after the product of matrices and its factors where it is one that is written out,
    such as Σ_d q_td k_sd: the sum is then a view of the product. Autograd must know the tensors.
    """
    whole, axes = node.inputs[0] if node.inputs else node, node.named.get("dim")
    n_axes = whole.tensor.ndim
    if (
        node.op != "sum"
        or whole.op != "mul"
        or not axes
        or len(axes) != 1
        or node.tensor.ndim == n_axes
    ):
        return [node]
    alike, summed = [_repeated(operand, whole) for operand in whole.inputs], axes[0] % n_axes
    if [len(repeated) for repeated in alike] != [1, 1] or len({summed, *alike[0], *alike[1]}) < 3:
        return [node]
    (column,), (row,) = alike
    first, second = whole.inputs
    if row > column:  # rows, which the first factor has, are the axis that comes first
        row, column, first, second = column, row, second, first
    rest = [axis for axis in range(n_axes) if axis not in (summed, row, column)]
    turned = summed == n_axes - 1  # of keys, whose coordinates are last
    made = [
        _view(first, [*rest, row, summed, column]),
        _view(second, [*rest, *((column, summed) if turned else (summed, column)), row]),
    ]
    made += [
        Node("transpose", made[1:], made[1].tensor.mT, named={"dim0": -2, "dim1": -1})
    ] * turned
    order = [axis - (axis > summed) for axis in (*rest, row, column)]
    product = Node("bmm", [made[0], made[-1]], node.tensor.permute(order))
    node.op, node.inputs, node.named = (
        "permute",
        [product],
        {"dims": [order.index(axis) for axis in range(len(order))]},
    )
    for part in (*made, product):
        label(part)
    return [*made, product, node]


def _repeated(factor: Node, product: Node) -> list[int]:
    """The axes of a product along which a deep factor is the same."""
    own, shape = factor.tensor, product.tensor.shape
    if factor.role != "deep" or own.ndim != len(shape):
        return []
    return [
        axis
        for axis, size in enumerate(shape)
        if size > 1 and (own.shape[axis] == 1 or own.stride(axis) == 0)
    ]


def _view(factor: Node, order: list[int]) -> Node:
    """A factor with its axes in another order, without the last, along which it is the same."""
    return Node(
        "permute", [factor], factor.tensor.permute(order).select(-1, 0), named={"dims": order}
    )


def label(node: Node) -> None:
    """Says what a node is, from what its inputs are."""
    node.role = _role(node)
    learned = node.op in MATRIX and any(operand.parameter is not None for operand in node.inputs)
    node.matrix = () if node.role != "deep" else (node,) if learned else products(node.inputs)


def products(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The products with parameters that some nodes come from, each once, in an order that every run
    has."""
    return tuple(dict.fromkeys(product for node in nodes for product in node.matrix))


def _role(node: Node) -> Role:
    """Role of a new tensor, from its operation and the roles of its inputs."""
    op, roles = node.op, [operand.role for operand in node.inputs]
    if not any(roles) or op in FRESH or node.tensor.dtype in PLACES:
        return ""
    if reduces(node):
        return "reduced" if "deep" not in roles else "deep"
    if op in MATRIX or op in FUSED:
        return "deep"
    if op in NORMS:
        return roles[0]
    if "stream" in roles and "deep" not in roles:
        if (
            op in VIEW
            or op in SUM
            or (op in FACTOR and not any(_as_many(operand, node) for operand in node.inputs))
        ):
            return "stream"
        # a square or another function is on its way to a mean, most of the time
        return "reduced" if op in BENT or op in FACTOR else "deep"
    if "stream" in roles:
        return "stream" if op in VIEW or op in SUM else "deep"
    return "deep" if "deep" in roles else "reduced"


def reduces(node: Node) -> bool:
    """Whether it is one number of many: a mean, a norm, or each vector's product with itself, or
    with constants."""
    if node.op not in MATRIX or any(operand.parameter is not None for operand in node.inputs):
        return node.op in REDUCTION
    vectors, *others = (whole(operand) for operand in node.inputs[-2:])
    size = node.inputs[-2].tensor if len(others) else node.tensor
    return (
        bool(others)
        and (others[0] is vectors or not others[0].role)
        and size.ndim > 0
        and node.tensor.numel() * size.shape[-1] == size.numel()
    )


def _as_many(node: Node, product: Node) -> bool:
    """Whether a factor of the stream was itself made of the stream, number by number, and is no
    size of a token."""
    if node.role == "stream":
        return len(product.made_of("stream")) > 1
    while node.role and node.op in VIEW and node.inputs:
        node = node.inputs[0]
    return bool(node.role) and node.tensor.numel() >= product.tensor.numel() > 1


def whole(node: Node) -> Node:
    """The tensor that has the same numbers in another shape."""
    while (
        node.op in VIEW
        and len(node.inputs) == 1
        and node.inputs[0].tensor.numel() == node.tensor.numel()
    ):
        node = node.inputs[0]
    return node


def is_norm(node: Node) -> bool:
    """Whether an operation on the stream divides it by its own size."""
    return node.op in NORMS or (node.op in FACTOR and bool(node.made_of("reduced")))


def pattern_of(product: Node) -> Node | None:
    """The softmax behind the first factor of a product, where there is one and no other product
    between."""
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
    """The arguments of an operator's call by name, those included that it is not given."""
    named = {argument.name: argument.default_value for argument in func._schema.arguments}
    return named | dict(zip(named, args, strict=False)) | dict(kwargs)


def first_floating(*values: Any) -> Tensor | None:
    """The first floating-point tensor in what a module takes or gives: the stream, by the custom of
    all libraries."""
    return next((tensor for tensor in tensors_in(values) if tensor.is_floating_point()), None)


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of nested lists, tuples and mappings, in order."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, Mapping):
        values = tuple(values.values())
    return (
        [tensor for value in values for tensor in tensors_in(value)]
        if isinstance(values, (list, tuple))
        else []
    )
