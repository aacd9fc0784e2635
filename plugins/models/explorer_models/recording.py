"""One pass forward with every block watched, and one backward.

A dispatch mode sees every operation of a block, whatever the code that calls it looks like. Each
tensor becomes a `Node` that remembers what made it. Three kinds are told apart as they are made.
The *stream* is the block's input and what is left of it after sums with branches, norms and
multipliers. *Deep* is what has been through a matrix since.
*Reduced* is a mean or a norm of something, one number a token: a factor of it makes a norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from explorer_models.ahead import TABLES, Lookup, lookup
from explorer_models.anatomy import read_block
from explorer_models.facts import UNREADABLE
from explorer_models.matrices import matrices, vectors
from explorer_models.model import Batch, Block, called
from explorer_models.nodes import (
    SUM,
    VIEW,
    Node,
    as_softmax,
    first_floating,
    label,
    named_arguments,
    tensors_in,
    walk,
)
from explorer_models.stack import Stack, follow
from explorer_models.texts import text


class Graph(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records while it is entered, from `begin`, which says where the stream comes in, to `end`.

    Args:
        parameters: every parameter of the model, by the id of its tensor.
        shown: told of each new stream, once autograd knows its tensor.
    """

    def __init__(
        self, parameters: Mapping[int, nn.Parameter], shown: Callable[[Node], None]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parameters, self.shown = parameters, shown
        self.used: set[int] = set()
        """`id` of each parameter that an operation has read, within a block or outside."""
        self.lookups: list[Lookup] = []
        """Rows of tables that were taken, such as the embeddings of tokens and of positions."""
        self.begin(torch.empty(0))
        self.recording = False
        self.paused = False
        """Whether a block that has run is read: operations are our own then, and are not looked
        at."""

    def begin(self, stream: Tensor) -> None:
        """A new block, whose input this is."""
        self.source = Node("input", [], stream, "stream")
        self.by_tensor, self.due = {id(stream): self.source}, [self.source]
        self.order = [self.source]
        """Every node that was made, in turn."""
        self.recording = True
        self.paused = False

    def end(self, output: Tensor) -> Node:
        """The block's output; nothing more is recorded, and until the next block begins nothing is
        looked at."""
        self.announce()
        self.recording = False
        self.paused = True
        return self.find(output)

    def release(self) -> None:
        """Lets go of the block's numbers; its nodes keep their shapes, on the meta device."""
        for node in (*self.order, *self.by_tensor.values()):
            if node.tensor is not node.parameter:
                node.tensor = torch.empty(node.tensor.shape, dtype=node.tensor.dtype, device="meta")
        self.by_tensor.clear()
        self.order.clear()

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
        if self.paused:
            return func(*args, **kwargs)
        operands = tensors_in((args, tuple(kwargs.values())))
        self.used.update(id(tensor) for tensor in operands if id(tensor) in self.parameters)
        if not self.recording:
            out = func(*args, **kwargs)
            if (op := func.overloadpacket.__name__) in TABLES and (
                part := lookup(op, named_arguments(func, args, kwargs), out, self.parameters)
            ):
                self.lookups.append(part)
            return out
        self.announce()
        inputs = [self.find(tensor) for tensor in operands]
        named = {
            name: self.find(value) if isinstance(value, Tensor) else value
            for name, value in named_arguments(func, args, kwargs).items()
            if not isinstance(value, (list, tuple)) or not tensors_in(value)
        }
        op = func.overloadpacket.__name__
        bases = (
            overwritten(inputs[0]) if op.endswith("_") and not op.startswith("_") and inputs else []
        )
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
        if (
            node.inputs
            and (node.op == "cat" or (node.op in VIEW and len(node.inputs) == 1))
            and all(operand.parameter is not None for operand in node.inputs)
        ):
            node.parameter = node.inputs[
                0
            ].parameter  # of several that are joined, the first; see `matrices`
        label(node)
        self.by_tensor[id(node.tensor)] = node
        self.order.append(node)
        if node.role == "stream" and node.op not in VIEW:
            self.due.append(node)
        return node


def overwritten(node: Node) -> list[Node]:
    """Nodes that change when an operation writes to a tensor: its own, and those of which it is a
    view."""
    nodes = [node]
    memory = node.tensor.untyped_storage().data_ptr()
    while (
        node.op in VIEW
        and node.inputs
        and node.inputs[0].tensor.untyped_storage().data_ptr() == memory
    ):
        node = node.inputs[0]
        nodes.append(node)
    return nodes


class Recording:
    """Hooks that have a graph record each block while it runs; blocks within a block are a part of
    it.

    A block that is a list of parts is never called itself: it lasts from its first part to the next
    block, or to what the last sum made.

    Args:
        model: whose parameters are known by their tensors.
        stacks: whose blocks are watched.
    """

    def __init__(self, model: nn.Module, stacks: Sequence[Stack]) -> None:
        self.stacks = stacks
        self.graph = Graph(
            {id(parameter): parameter for parameter in model.parameters()}, self.shown
        )
        self.after = False
        """Whether a block has ended, and none has begun since."""
        self.whose = {
            module: (stack, block)
            for stack in stacks
            for block in reversed(stack.blocks)
            for module in starts(block.module)
        }
        """Which block begins with a module: the module itself, or a part of a list."""
        self.within: list[nn.Module] = []
        self.given: list[Tensor] = []
        """Other floating tensors with the stream's number of axes that the running block was
        given."""
        self.open: tuple[Stack, Block] | None = None
        """The list that is running."""
        self.wished: list[Tensor] = []
        """Inputs of lists that required no gradient."""
        self.closed = ""
        """Operation that made the output of the list before."""

    def run(self, model: nn.Module, batch: Batch) -> Any:
        """The model's output."""
        with ExitStack() as hooks:
            for module in self.whose:
                hooks.callback(
                    module.register_forward_pre_hook(self.enter, with_kwargs=True).remove
                )
                hooks.callback(module.register_forward_hook(self.leave).remove)
                hooks.enter_context(patch.object(module, "forward", self.checked(module)))
            with self.graph:
                output = called(model, batch)
            if self.open is not None:
                self.close(self.last())
        self.graph.recording = False
        for stack in self.stacks:
            stack.end()
        self.graph.release()
        return output

    def restore(self) -> None:
        """Takes back the wish for gradients by tensors that are not ours; after the backward
        pass."""
        for stream in self.wished:
            stream.requires_grad_(False)

    def checked(self, module: nn.Module) -> Callable[..., Any]:
        """`module.forward`, refused where it is called as such, which passes hooks by."""
        forward = module.forward

        def check(*arguments: Any, **named: Any) -> Any:
            if not self.within or self.within[-1] is not module:
                path = self.whose[module][1].path
                raise ValueError(
                    f"blocks must be called as modules, for hooks see no other call; {path} is called by "
                    ".forward(): write block(x) for block.forward(x)"
                )
            return forward(*arguments, **named)

        return check

    def refuse(self, stack: Stack, why: str) -> None:
        """Leaves a stack out, or raises where it is the one that is asked for."""
        if stack is self.stacks[0]:
            raise ValueError(why)
        stack.refused = why

    def shown(self, node: Node) -> None:
        """A new stream; what comes after a block is none of its."""
        if not self.after:
            follow(node)

    def enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Before a block: its first floating tensor is the stream."""
        self.within.append(module)
        stack, block = self.whose[module]
        if (
            stack.refused
            or len(self.within) > 1
            or (self.open is not None and self.open[1] is block)
        ):
            return None
        stream = first_floating(arguments, named)
        if stream is None or stream.numel() == 0 or not stream.ndim:
            given = "none" if stream is None else f"one of shape {tuple(stream.shape)}"
            self.refuse(
                stack,
                f"blocks must be given a floating tensor with numbers; {block.path} got {given}",
            )
            return None
        if not torch.is_grad_enabled():
            self.refuse(
                stack,
                f"model must run with gradients; its block {block.path} runs under torch.no_grad()",
            )
            return None
        if self.open is not None:
            self.close(stream)
        # the code around a list adds to this very tensor
        if not stream.requires_grad and block.module is not module:
            self.wished.append(stream.requires_grad_())
        if not stream.requires_grad:  # what comes before may have no weights, or be detached
            fresh = stream.detach().requires_grad_()
            stack.cut.append(block.path)
            swap = {id(stream): fresh}
            arguments, named = _swapped(arguments, swap), _swapped(named, swap)
            stream = fresh
        self.open = (stack, block) if block.module is not module else None
        self.after = False
        self.given = [tensor for tensor in tensors_in((arguments, named)) if tensor is not stream]
        self.graph.begin(stream)
        return arguments, named

    def leave(self, module: nn.Module, _: object, out: Any) -> None:
        """After a block: what it computed is read."""
        self.within.pop()
        if self.within or self.open is not None:
            return
        stack, block = self.whose[module]
        if stack.refused:
            return
        outputs = [tensor for tensor in tensors_in((out,)) if tensor.is_floating_point()]
        if not outputs:
            self.refuse(
                stack,
                f"blocks must put out a floating tensor; {block.path} puts out {type(out).__name__}",
            )
            return
        output = self.continued(outputs)
        others = [tensor for tensor in outputs if tensor is not output and self.is_stream(tensor)]
        stack.several.append((tuple(output.shape), *(tuple(tensor.shape) for tensor in others)))
        self.take(stack, block, output)

    def continued(self, outputs: Sequence[Tensor]) -> Tensor:
        """The output that goes on from the stream that was read at the block's input: the first, if
        none is told."""
        shape = self.graph.source.tensor.shape
        if outputs[0].shape == shape:
            return outputs[0]
        streams = [tensor for tensor in outputs if self.graph.find(tensor).role == "stream"]
        alike = [tensor for tensor in outputs if tensor.shape == shape]
        return next(iter(streams or alike or outputs))

    def is_stream(self, output: Tensor) -> bool:
        """Whether a further output is made of the block's stream, or of another tensor of its shape
        that came in."""
        node, stream = self.graph.find(output), self.graph.source.tensor
        if not node.inputs or output.ndim != stream.ndim:
            return False
        if node.role and output.shape[-1] == stream.shape[-1]:
            return True
        given = {id(tensor) for tensor in self.given if tensor.shape == output.shape}
        return any(id(part.tensor) in given for part in walk(node, lambda part: part.inputs))

    def close(self, output: Tensor) -> None:
        """The end of a list."""
        if self.open is not None:
            (stack, block), self.open = self.open, None
            self.closed = self.graph.find(output).op
            self.take(stack, block, output)

    def take(self, stack: Stack, block: Block, output: Tensor) -> None:
        """Reads a block that has ended."""
        try:
            with torch.no_grad():
                end = self.graph.end(output)
                anatomy = read_block(self.graph.order, self.graph.source, end)
                anatomy.matrices, anatomy.vectors = dict(matrices(anatomy)), dict(vectors(anatomy))
                stack.take(block, anatomy)
                self.graph.release()
        except UNREADABLE as error:
            stack.refused = text(
                "unread", "block", block=block.path, error=f"{type(error).__name__}: {error}"
            )
        self.after = True
        self.graph.begin(output)
        stack.tail = self.graph.order

    def last(self) -> Tensor:
        """The output of a list that nothing follows: the last sum, or its norm where the others
        ended with one."""
        sums = [node for node in self.graph.order if node.role == "stream" and node.op in SUM]
        if not sums:
            path = "" if self.open is None else self.open[1].path
            raise ValueError(
                f"blocks must add to a stream where they are lists of parts; {path} does not"
            )
        after = self.graph.order[self.graph.order.index(sums[-1]) :]
        return next(
            (node for node in after if node.role == "stream" and node.op == self.closed), sums[-1]
        ).tensor


def starts(module: nn.Module) -> list[nn.Module]:
    """Modules that are called to run a block: itself, or the parts of a list, which has no code of
    its own."""
    lists = isinstance(module, (nn.ModuleList, nn.ModuleDict))
    return [part for child in module.children() for part in starts(child)] if lists else [module]


def _swapped(value: Any, swap: Mapping[int, Tensor]) -> Any:
    """Arguments with some tensors replaced."""
    if isinstance(value, Tensor):
        return swap.get(id(value), value)
    if isinstance(value, dict):
        return {name: _swapped(part, swap) for name, part in value.items()}
    return (
        type(value)(_swapped(part, swap) for part in value)
        if type(value) in (tuple, list)
        else value
    )


def backward(loss: Tensor, stacks: Sequence[Stack], model: nn.Module) -> dict[int, Tensor]:
    """Runs the backward pass, and keeps the gradients by what the blocks learn; the model's own are
    not touched.

    Returns:
        gradients by the id of the parameter, of all that a path leads to.
    """
    inside = {
        id(weight)
        for stack in stacks
        for block in stack.blocks
        for weight in block.module.parameters()
    }
    learned = {id(weight): weight for weight in model.parameters() if weight.requires_grad}
    sources = [source for stack in stacks for source in stack.sources if source.requires_grad]
    for node in (node for stack in stacks for sites in stack.sites for node in sites.values()):
        node.gradient.clear()  # what reading a block has differentiated was not the loss
    values = torch.autograd.grad(loss, [*learned.values(), *sources], allow_unused=True)
    gradients = {
        key: value for key, value in zip(learned, values, strict=False) if value is not None
    }
    gates = [
        (name, gradients[id(weight)])
        for name, weight in model.named_parameters()
        if id(weight) in gradients
        and id(weight) not in inside
        and not name.endswith("bias")
        and not weight.any()
    ]
    moved = [name for name, gradient in gates if _any(gradient)]
    for stack in stacks:
        stack.gradients, stack.gates = gradients, moved
    return gradients


def _any(gradient: Tensor) -> bool:
    """Whether a gradient has a number that is not 0."""
    return bool((gradient.coalesce().values() if gradient.is_sparse else gradient).any())
