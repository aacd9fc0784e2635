"""Records every operation of each block in one pass forward, and the gradients of one pass back.

A dispatch mode of torch sees every operation, whatever the code looks like that calls it. Each
tensor becomes a `Node`, with the operation that made it, and gets one of three roles. *Stream*: the
block's input, and what sums with branches, norms and multipliers make of it. *Deep*: a tensor
computed by a matrix since the stream was read, such as a branch. *Reduced*: a mean or a norm of a
token; to divide by it is a norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from explorer_models.ahead import TABLES, Lookup, lookup
from explorer_models.anatomy import read_block
from explorer_models.facts import UNREADABLE
from explorer_models.learning import any_number
from explorer_models.matrices import matrices, vectors
from explorer_models.model import Batch, Block, called, named_error
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
    """Records every operation of a block, from `begin` to `end`, while the mode is entered.

    Args:
        parameters: every parameter of the model, by the id of its tensor.
        on_stream: called with each new node of the stream, once autograd knows its tensor.
    """

    def __init__(
        self, parameters: Mapping[int, nn.Parameter], on_stream: Callable[[Node], None]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parameters, self.on_stream = parameters, on_stream
        self.used: set[int] = set()
        """`id` of each parameter that an operation has read, within a block or outside."""
        self.lookups: list[Lookup] = []
        """Rows of tables that were taken, such as the embeddings of tokens and of positions."""
        self.begin(torch.empty(0))
        self.recording = False
        self.paused = False
        """Whether a block that has run is being read: then operations are the reader's own."""

    def begin(self, stream: Tensor) -> None:
        """Starts the graph of a block, whose input is given."""
        self.source = Node("input", [], stream, "stream")
        self.by_tensor, self.due = {id(stream): self.source}, [self.source]
        self.order = [self.source]
        """Every node of the block, in the order of its computation."""
        self.recording = True
        self.paused = False

    def end(self, output: Tensor) -> Node:
        """Ends the graph of a block, and returns the node of its output. Until the next block
        begins, operations are neither recorded nor counted as uses of parameters."""
        self.announce()
        self.recording = False
        self.paused = True
        return self.find(output)

    def release(self) -> None:
        """Frees the block's tensors; its nodes keep their shapes, on the meta device."""
        for node in (*self.order, *self.by_tensor.values()):
            if node.tensor is not node.parameter:
                node.tensor = torch.empty(node.tensor.shape, dtype=node.tensor.dtype, device="meta")
        self.by_tensor.clear()
        self.order.clear()

    def announce(self) -> None:
        """Passes on the streams that the last operation made: only now autograd knows their
        tensors."""
        due, self.due = self.due, []
        for node in due:
            self.on_stream(node)

    def find(self, tensor: Tensor) -> Node:
        """The node of a tensor; a new leaf, where no operation of the block made the tensor."""
        node = self.by_tensor.get(id(tensor))
        if node is None:
            node = self.by_tensor[id(tensor)] = Node("leaf", [], tensor)
            node.parameter = self.parameters.get(id(tensor))
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, and records it where it belongs to a block."""
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        op = func.overloadpacket.__name__
        operands = tensors_in((args, kwargs))
        self.used.update(id(tensor) for tensor in operands if id(tensor) in self.parameters)
        if not self.recording:
            out = func(*args, **kwargs)
            if op in TABLES:
                rows = lookup(op, named_arguments(func, args, kwargs), out, self.parameters)
                self.lookups += [rows] if rows else []
            return out
        self.announce()
        inputs = [self.find(tensor) for tensor in operands]
        named = {
            name: self.find(value) if isinstance(value, Tensor) else value
            for name, value in named_arguments(func, args, kwargs).items()
            if not isinstance(value, (list, tuple)) or not tensors_in(value)
        }
        in_place = op.endswith("_") and not op.startswith("_") and inputs
        bases = overwritten(inputs[0]) if in_place else []
        tensors = [base.tensor for base in bases]
        for base in bases:  # their nodes keep the numbers that they had before
            base.tensor = base.tensor.detach().clone()
        out = func(*args, **kwargs)
        for tensor in tensors_in((out,)):
            node = self.keep(as_softmax(Node(op, inputs, tensor, named=named)))
            for base, overwritten_tensor in list(zip(bases, tensors, strict=True))[1:]:
                self.keep(Node("copy_", [base, node], overwritten_tensor))
        return out

    def keep(self, node: Node) -> Node:
        """Adds a new node to the block's."""
        is_view = node.op == "cat" or (node.op in VIEW and len(node.inputs) == 1)
        parameters = [operand.parameter for operand in node.inputs]
        if is_view and parameters and None not in parameters:
            node.parameter = parameters[0]  # of several that are joined, the first; see `matrices`
        label(node)
        self.by_tensor[id(node.tensor)] = node
        self.order.append(node)
        if node.role == "stream" and node.op not in VIEW:
            self.due.append(node)
        return node


def overwritten(node: Node) -> list[Node]:
    """The nodes that change when an operation writes to a tensor: the tensor's own, and those of
    which it is a view."""
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
    """Hooks that let a graph record each block while it runs. A block within a block belongs to the
    outer one.

    A block that is a list of modules has no call of its own: it lasts from the call of its first
    module to the next block, or to the last residual sum of the model.

    Args:
        model: whose parameters are known by their tensors.
        stacks: whose blocks are recorded; the first is the one that a person asked for.
    """

    def __init__(self, model: nn.Module, stacks: Sequence[Stack]) -> None:
        self.stacks = stacks
        self.graph = Graph(
            {id(parameter): parameter for parameter in model.parameters()}, self.on_stream
        )
        self.between = False
        """Whether a block has ended, and none has begun since."""
        self.whose = {
            module: (stack, block)
            for stack in stacks
            for block in reversed(stack.blocks)
            for module in starts(block.module)
        }
        """The block to which a module belongs: it is the block itself, or a module of a list."""
        self.within: list[nn.Module] = []
        """The modules of blocks that are running, the outermost first."""
        self.given: list[Tensor] = []
        """Other floating tensors with the stream's number of axes that the running block was
        given."""
        self.open: tuple[Stack, Block] | None = None
        """The list of modules that is running."""
        self.wished: list[Tensor] = []
        """Inputs of lists on which `requires_grad_` was called."""
        self.closed = ""
        """Operation that made the output of the previous list."""

    def run(self, model: nn.Module, batch: Batch) -> Any:
        """Runs the model on a batch, with hooks on every block, and returns its output."""
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
        """Undoes `requires_grad_` on inputs of lists, which belong to the model; after the
        backward pass."""
        for stream in self.wished:
            stream.requires_grad_(False)

    def checked(self, module: nn.Module) -> Callable[..., Any]:
        """A replacement of `module.forward` that refuses a direct call, of which hooks see
        nothing."""
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
        """Marks a stack as unread, with the reason; raises ValueError where it is the first
        stack."""
        if stack is self.stacks[0]:
            raise ValueError(why)
        stack.refused = why

    def on_stream(self, node: Node) -> None:
        """Has the gradient by a new stream kept, where a block runs: between two blocks the stream
        belongs to neither."""
        if not self.between:
            follow(node)

    def enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Forward pre-hook of a block: starts its graph at its first floating tensor, the stream.
        Returns the arguments, where the stream was replaced by a tensor with a gradient."""
        self.within.append(module)
        stack, block = self.whose[module]
        continues = self.open is not None and self.open[1] is block
        if stack.refused or len(self.within) > 1 or continues:
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
        is_list = block.module is not module
        # the code around a list adds to this very tensor
        if not stream.requires_grad and is_list:
            self.wished.append(stream.requires_grad_())
        if not stream.requires_grad:  # what comes before may have no weights, or be detached
            fresh = stream.detach().requires_grad_()
            stack.cut.append(block.path)
            old = stream
            arguments, named = tree_map_only(
                Tensor, lambda tensor: fresh if tensor is old else tensor, (arguments, named)
            )
            stream = fresh
        self.open = (stack, block) if is_list else None
        self.between = False
        self.given = [tensor for tensor in tensors_in((arguments, named)) if tensor is not stream]
        self.graph.begin(stream)
        return arguments, named

    def leave(self, module: nn.Module, _: object, out: Any) -> None:
        """Forward hook of a block: ends its graph and reads it."""
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
        """The output that goes on from the block's input stream: the first of its shape or made of
        it, else the first output."""
        shape = self.graph.source.tensor.shape
        if outputs[0].shape == shape:
            return outputs[0]
        streams = [tensor for tensor in outputs if self.graph.find(tensor).role == "stream"]
        same_shape = [tensor for tensor in outputs if tensor.shape == shape]
        return (streams or same_shape or outputs)[0]

    def is_stream(self, output: Tensor) -> bool:
        """Whether a further output is a stream, too: made of the block's stream, or of another
        input of its shape."""
        node, stream = self.graph.find(output), self.graph.source.tensor
        if not node.inputs or output.ndim != stream.ndim:
            return False
        if node.role and output.shape[-1] == stream.shape[-1]:
            return True
        given = {id(tensor) for tensor in self.given if tensor.shape == output.shape}
        return any(id(maker.tensor) in given for maker in walk(node, lambda maker: maker.inputs))

    def close(self, output: Tensor) -> None:
        """Ends the graph of the list of modules that is running, if one is, and reads it: no hook
        sees the end of a list.

        Args:
            output: of the list's last module.
        """
        if self.open is not None:
            stack, block = self.open
            self.open = None
            self.closed = self.graph.find(output).op
            self.take(stack, block, output)

    def take(self, stack: Stack, block: Block, output: Tensor) -> None:
        """Reads a block that has ended, hands it to its stack, and frees its tensors. An error
        while reading is kept as the reason why the stack is unread."""
        try:
            with torch.no_grad():
                end = self.graph.end(output)
                anatomy = read_block(self.graph.order, self.graph.source, end)
                anatomy.matrices, anatomy.vectors = dict(matrices(anatomy)), dict(vectors(anatomy))
                stack.take(block, anatomy)
                self.graph.release()
        except UNREADABLE as error:
            stack.refused = text("unread", "block", block=block.path, error=named_error(error))
        self.between = True
        self.graph.begin(output)
        stack.tail = self.graph.order

    def last(self) -> Tensor:
        """The output of a list of modules that is the model's last block: its last residual sum,
        or the norm of it, where the blocks before ended with one."""
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
    """The modules by whose call a block runs: itself, or the modules of a list, which has no call
    of its own."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return [start for child in module.children() for start in starts(child)]
    return [module]


def backward(loss: Tensor, stacks: Sequence[Stack], model: nn.Module) -> dict[int, Tensor]:
    """Runs the backward pass, and gives its gradients to the stacks. The model's own `.grad` stay
    as they are.

    Returns:
        gradients by the id of the parameter, of all on which the loss depends.
    """
    learned = {id(weight): weight for weight in model.parameters() if weight.requires_grad}
    sources = [source for stack in stacks for source in stack.sources if source.requires_grad]
    for node in (node for stack in stacks for sites in stack.sites for node in sites.values()):
        node.gradient.clear()  # from the small backward passes that reading a block has made
    values = torch.autograd.grad(loss, [*learned.values(), *sources], allow_unused=True)
    gradients = {
        key: value for key, value in zip(learned, values, strict=False) if value is not None
    }
    inside = {
        id(weight)
        for stack in stacks
        for block in stack.blocks
        for weight in block.module.parameters()
    }
    gates = [
        name
        for name, weight in model.named_parameters()
        if id(weight) in gradients
        and id(weight) not in inside
        and not name.endswith("bias")
        and not weight.any()
        and any_number([gradients[id(weight)]])[0]
    ]
    for stack in stacks:
        stack.gradients, stack.gates = gradients, gates
    return gradients
