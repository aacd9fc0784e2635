"""A block's computation as a graph: a dispatch mode sees every operation, whatever the code that calls it looks like.

Each tensor becomes a `Node` that remembers what made it. Three kinds are told apart as they are made. The *stream* is
the block's input and what is left of it after sums with branches, norms and multipliers. *Deep* is what has been
through a matrix since. *Reduced* is a mean or a norm of something, one number a token: a factor of it makes a norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.own.nodes import VIEW, Node, as_softmax, label, named_arguments, tensors_in


class Graph(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records while it is entered, from `begin`, which says where the stream comes in, to `end`.

    Args:
        parameters: every parameter of the model, by the id of its tensor.
        shown: told of each new stream, once autograd knows its tensor.
    """

    def __init__(self, parameters: Mapping[int, nn.Parameter], shown: Callable[[Node], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parameters, self.shown = parameters, shown
        self.recording = False
        self.by_tensor: dict[int, Node] = {}
        self.order: list[Node] = []
        """Every node that was made, in turn."""
        self.due: list[Node] = []
        self.source = Node("input", [], torch.empty(0), "stream")

    def begin(self, stream: Tensor) -> None:
        """A new block, whose input this is."""
        self.source = Node("input", [], stream, "stream")
        self.by_tensor, self.order, self.due = {id(stream): self.source}, [self.source], [self.source]
        self.recording = True

    def end(self, output: Tensor) -> Node:
        """The block's output; nothing more is recorded."""
        self.announce()
        self.recording = False
        return self.find(output)

    def release(self) -> None:
        """Lets go of the block's numbers; its nodes keep their shapes, on the meta device."""
        for node in (*self.order, *self.by_tensor.values()):
            if node.tensor is not node.parameter:
                node.tensor = torch.empty(node.tensor.shape, dtype=node.tensor.dtype, device="meta")
        self.by_tensor, self.order = {}, []

    def announce(self) -> None:
        """Tells of the streams that the last operation made."""
        due, self.due = self.due, []
        for node in due:
            self.shown(node)

    def find(self, tensor: Tensor) -> Node:
        """The node of a tensor; one that nothing made is a leaf of the block."""
        node = self.by_tensor.get(id(tensor))
        if node is None:
            node = self.by_tensor[id(tensor)] = Node("leaf", [], tensor)
            node.parameter = self.parameters.get(id(tensor))
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation, and remembers it."""
        kwargs = kwargs or {}
        if not self.recording:
            return func(*args, **kwargs)
        self.announce()
        inputs = [self.find(tensor) for tensor in tensors_in((args, tuple(kwargs.values())))]
        named = {name: self.find(value) if isinstance(value, Tensor) else value
                 for name, value in named_arguments(func, args, kwargs).items() if not isinstance(value, (list, tuple))
                 or not tensors_in(value)}
        op = func.overloadpacket.__name__
        bases = overwritten(inputs[0]) if op.endswith("_") and not op.startswith("_") and inputs else []
        wholes = [(base, base.tensor) for base in bases[1:]]
        for base in bases:  # keep what they were
            base.tensor = base.tensor.detach().clone()
        out = func(*args, **kwargs)
        for tensor in tensors_in((out,)):
            node = self.keep(as_softmax(Node(op, inputs, tensor, named=named)))
            for base, whole in wholes:
                self.keep(Node("copy_", [base, node], whole))
        return out

    def keep(self, node: Node) -> Node:
        """Remembers a new node."""
        if node.inputs and (node.op == "cat" or (node.op in VIEW and len(node.inputs) == 1)) and \
                all(operand.parameter is not None for operand in node.inputs):
            node.parameter = node.inputs[0].parameter  # of several that are joined, the first; see `matrices`
        label(node)
        self.by_tensor[id(node.tensor)] = node
        self.order.append(node)
        if node.role == "stream" and node.op not in VIEW:
            self.due.append(node)
        return node


def overwritten(node: Node) -> list[Node]:
    """Nodes that change when an operation writes to a tensor: its own, and those of which it is a view."""
    nodes = [node]
    while node.op in VIEW and node.inputs and _same_memory(node.tensor, node.inputs[0].tensor):
        node = node.inputs[0]
        nodes.append(node)
    return nodes


def _same_memory(tensor: Tensor, other: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
