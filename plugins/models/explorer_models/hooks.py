"""Hooks on a model: which pass counts, what a block takes in and gives out, and what comes back
through it.

Hooks on the root and the blocks stand from the start, so that a compiler that is called later sees
them; in compiled code they become one operator each, whose body runs as it is. Inner modules have
hooks only while a step is read."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from explorer_models.nodes import first_floating, tensors_in

# When a training step ends: torch tells before and after every optimizer's step, whoever calls it.


@dataclass(eq=False)
class Steps:
    """Follows the optimizers of a model. Where it has several, a step ends when all of its
    parameters were stepped.

    Args:
        model: whose.
        optimizers: which; empty for all that step parameters of the model.
        before: called before an optimizer's step, with it, the `id` of each of its parameters, and
            the factor by which its gradients are still multiplied.
        after: called after it.
        ended: called when a step has ended.
    """

    model: nn.Module
    optimizers: list[Optimizer]
    before: Callable[[Optimizer, set[int], float], None]
    after: Callable[[], None]
    ended: Callable[[], None]

    def __post_init__(self) -> None:
        self.owned: weakref.WeakKeyDictionary[Optimizer, set[int]] = weakref.WeakKeyDictionary()
        """`id` of each of the model's parameters that an optimizer steps."""
        self.needed: set[int] = set()
        """`id` of each parameter that must be stepped before a step ends."""
        self.stepped: list[Optimizer] = []
        """Optimizers that have stepped in this step."""
        STEPS.add(self)
        if not STEP_HOOKS:
            for register, event in (
                (register_optimizer_step_pre_hook, Steps.begins),
                (register_optimizer_step_post_hook, Steps.is_done),
            ):
                STEP_HOOKS.append(register(partial(_tell, event)))

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer steps parameters of the model, and is one that is followed."""
        if optimizer not in self.owned:
            parameters = {id(weight): weight.requires_grad for weight in self.model.parameters()}
            mine = {
                id(weight) for group in optimizer.param_groups for weight in group["params"]
            } & parameters.keys()
            self.needed = {key for key, learns in parameters.items() if learns}
            self.owned[optimizer] = (
                mine if not self.optimizers or optimizer in self.optimizers else set()
            )
        return bool(self.owned[optimizer])

    def begins(self, optimizer: Optimizer) -> None:
        """Before a step of one of the model's optimizers."""
        if optimizer in self.stepped:
            self.settle()
        # where a gradient scaler leaves the division to the optimizer
        scale = getattr(optimizer, "grad_scale", None)
        self.before(optimizer, self.owned[optimizer], 1.0 if scale is None else float(scale))

    def is_done(self, optimizer: Optimizer) -> None:
        """After a step of one of the model's optimizers."""
        self.after()
        self.stepped.append(optimizer)
        if self.needed <= set().union(*(self.owned[stepper] for stepper in self.stepped)):
            self.settle()

    def settle(self) -> None:
        """Ends a step of the model if an optimizer has begun one, whether or not all parameters
        were stepped, by calling `ended`."""
        if self.stepped:
            self.stepped.clear()
            self.ended()

    def remove(self) -> None:
        """Stops following the optimizers."""
        STEPS.discard(self)
        while STEP_HOOKS and not STEPS:
            STEP_HOOKS.pop().remove()


STEPS: weakref.WeakSet[Steps] = weakref.WeakSet()
STEP_HOOKS: list[RemovableHandle] = []
"""Torch's hooks on all optimizers, while any model is watched. They are one pair, and are not taken
off when a model is let go: that may happen while torch goes through them."""


def _tell(event: Callable[[Steps, Optimizer], None], optimizer: Optimizer, *_: object) -> None:
    """Calls a method of each `Steps` whose model an optimizer steps."""
    for steps in [*STEPS]:
        if steps.owns(optimizer):
            event(steps, optimizer)


Take = Callable[[int, Tensor], None]
"""Takes a place and a tensor there."""


class Hook:
    """A call with its first arguments fixed. A copy or a pickle of the model has one in its
    place that does nothing."""

    def __init__(self, run: Callable[..., None], *fixed: Any) -> None:
        self.run, self.fixed = run, fixed

    def __call__(self, *arguments: Any) -> None:
        self.run(*self.fixed, *arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        # of the standard library: what reads the pickle needs none of ours
        return getattr, (
            nullcontext(),
            "__exit__",
        )


@dataclass(eq=False)
class Passes:
    """Hooks on a model and its blocks that hand over what passes.

    Args:
        model: the root.
        blocks: its layers, in order.
        evaluation: whether passes in evaluation mode or without gradients count.
        begin: called before a pass that counts.
        value: called with a place and a tensor: place 0 is what goes into the first block, place l
            what block l gives.
        returned: called with a place and the gradient there.
        around: called with a block's number from 0 before its pass; what it returns is entered, and
            left after it.
    """

    model: InitVar[nn.Module]
    blocks: InitVar[list[nn.Module]]
    evaluation: bool
    begin: Callable[[], None]
    value: Take
    returned: Take
    around: Callable[[int], AbstractContextManager[Any]]

    def __post_init__(self, model: nn.Module, blocks: list[nn.Module]) -> None:
        self.inside = False
        """Whether the root runs."""
        self.counted = False
        """Whether the pass that runs counts."""
        self.quiet = False
        """Whether no pass counts, as while a block is run again."""
        self.call: tuple[nn.Module, Any, Any] | None = None
        """A block that has just run, and its arguments, while its output is seen."""
        self.entered: dict[int, AbstractContextManager[Any]] = {}
        """Contexts of the blocks that run."""
        self.graded = False
        """Whether the pass that runs began with gradients."""
        self.without: set[int] = set()
        """Blocks, from 0, that ran without gradients in such a pass."""
        self.again: set[int] = set()
        """Blocks that a checkpoint ran again in the backward pass."""
        self.several: dict[int, list[tuple[int, ...]]] = {}
        """Blocks that put out several tensors like the stream: the shape that is read, and those
        that are not."""
        self.number, self.anchor = next(_numbers), torch.zeros(())
        READERS[self.number] = self
        self.handles = [
            model.register_forward_pre_hook(Hook(self.enter_model), prepend=True),
            model.register_forward_hook(Hook(self.leave_model), prepend=True, always_call=True),
        ]
        for index, block in enumerate(blocks):
            self.handles += [
                block.register_forward_pre_hook(Hook(self.enter, index), with_kwargs=True),
                block.register_forward_hook(
                    Hook(self.leave, index), with_kwargs=True, prepend=True, always_call=True
                ),
            ]

    def remove(self) -> None:
        """Takes every hook off."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        READERS.pop(self.number, None)

    def counts(self, module: nn.Module) -> bool:
        """Whether a pass that begins with a module is read: one of training, unless evaluation
        is read, too."""
        return not self.quiet and (self.evaluation or (module.training and torch.is_grad_enabled()))

    def counting(self, module: nn.Module) -> bool:
        """Whether the pass that runs is read; it may have begun at this module rather than at
        the root."""
        return self.counted and not self.quiet if self.inside else self.counts(module)

    def enter_model(self, model: nn.Module, _: Any) -> None:
        """Before a pass. Whether it counts is decided once, for checkpointed blocks run without
        gradients."""
        if torch.compiler.is_compiling() or recomputing():
            return
        self.inside, self.counted, self.graded = True, self.counts(model), torch.is_grad_enabled()
        if self.counted:
            self.begin()

    def leave_model(self, *_: Any) -> None:
        """After a pass, also one that failed."""
        if not torch.compiler.is_compiling() and not recomputing():
            self.inside = False

    def enter(self, index: int, block: nn.Module, args: Any, kwargs: Any) -> None:
        """Forward pre-hook of a block."""
        x = first_floating(args, kwargs) if index == 0 else None
        if torch.compiler.is_compiling():
            self.compile(block, 0, x)
            return
        if not self.counting(block):
            return
        if x is not None:
            self.take(0, x)
        if recomputing():
            self.again.add(index)
        elif self.graded and not torch.is_grad_enabled():
            self.without.add(index)
        if not recomputing():
            self.entered[index] = self.around(index)
            self.entered[index].__enter__()

    def leave(self, index: int, block: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        """Forward hook of a block; after a failure its output is None."""
        x = first_floating(out)
        if torch.compiler.is_compiling():
            self.compile(block, index + 1, x)
            return
        if index in self.entered and not recomputing() and not self.quiet:
            self.entered.pop(index).__exit__(None, None, None)
        if x is not None and self.counting(block):
            self.call = block, args, kwargs
            others = [
                tuple(tensor.shape)
                for tensor in tensors_in((out,))
                if tensor is not x
                and tensor.is_floating_point()
                and tensor.ndim == x.ndim
                and tensor.shape[-1] == x.shape[-1]
            ]
            if others:
                self.several[index] = [tuple(x.shape), *others]
            self.take(index + 1, x)
            self.call = None

    def compile(self, block: nn.Module, place: int, x: Tensor | None) -> None:
        """Adds an operator to code that is being compiled: whenever the code runs, the operator
        hands the tensor to these `Passes`.

        Args:
            block: the module that is traced.
            place: where in the stream, from 0, as for `take`.
            x: the tensor; None where the module has none.
        """
        if x is not None and self.counts(block):
            # A number names these `Passes`, since compiled code holds no object. The operator
            # changes `anchor`, or a compiler would leave it out. Detached: it has no gradient.
            torch.ops.explorer.watched(x.detach(), self.anchor, self.number, place)

    def take(self, place: int, x: Tensor) -> None:
        """Hands over a tensor, and later its gradient. A tensor that a checkpoint computes again
        is not handed over again."""
        if not recomputing():
            self.value(place, x)
        if x.grad_fn is not None:  # a parameter would keep the hook from step to step
            x.register_hook(Hook(self.returned, place))  # type: ignore[no-untyped-call]


def inner_hooks(
    modules: Iterable[tuple[int, nn.Module]], take: Callable[[int, nn.Module, Tensor], None]
) -> ExitStack:
    """Hooks that hand over the outputs of modules, each with the module's number; to close the
    stack removes them."""

    def leave(number: int, module: nn.Module, _: Any, out: Any) -> None:
        if not torch.compiler.is_compiling() and (x := first_floating(out)) is not None:
            take(number, module, x)

    hooks = ExitStack()
    for number, module in modules:
        hooks.callback(module.register_forward_hook(Hook(leave, number)).remove)
    return hooks


def recomputing() -> bool:
    """Whether this runs within a backward pass, as the second run of a gradient checkpoint does."""
    return bool(torch._C._current_graph_task_id() != -1)


READERS: weakref.WeakValueDictionary[int, Passes] = weakref.WeakValueDictionary()
"""The `Passes` whose hooks were compiled, by the number in their operators. No number is used
twice, for compiled code may live on."""
_numbers = itertools.count(1)


@torch.library.custom_op(
    "explorer::watched",
    mutates_args=("anchor",),
    schema="(Tensor x, Tensor(a!) anchor, int number, int place) -> ()",
)
def watched(x: Tensor, anchor: Tensor, number: int, place: int) -> None:  # noqa: ARG001
    """Hands over a tensor in compiled code. The schema says that it changes the anchor, or a
    compiler would leave it out."""
    passes = READERS.get(number)
    if passes is not None and not recomputing():
        passes.value(place, x)
