"""When a training step ends: torch tells before and after every optimizer's step, whoever calls it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Steps:
    """Follows the optimizers of a model. Where it has several, a step ends when all of its parameters were stepped.

    Args:
        model: whose.
        optimizers: which; empty for all that step parameters of the model.
        before: called before an optimizer's step, with the `id` of each of its parameters, and what its gradients are
            still multiplied by.
        after: called after it.
        ended: called when a step has ended.
    """

    def __init__(self, model: nn.Module, optimizers: list[Optimizer], before: Callable[[set[int], float], None],
                 after: Callable[[], None], ended: Callable[[], None]) -> None:
        self.model, self.optimizers = model, optimizers
        self.before, self.after, self.ended = before, after, ended
        self.owned: weakref.WeakKeyDictionary[Optimizer, set[int]] = weakref.WeakKeyDictionary()
        self.needed: set[int] = set()
        self.stepped: list[Optimizer] = []
        me = weakref.ref(self)  # torch's list of hooks must not keep a model alive

        def pre(optimizer: Optimizer, *_: object) -> None:
            if (steps := me()) is not None and steps.owns(optimizer):
                steps.begins(optimizer)

        def post(optimizer: Optimizer, *_: object) -> None:
            if (steps := me()) is not None and steps.owns(optimizer):
                steps.is_done(optimizer)

        self.handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]
        for handle in self.handles:
            weakref.finalize(self, handle.remove)

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer is one of the model's."""
        if optimizer not in self.owned:
            parameters = {id(one): one.requires_grad for one in self.model.parameters()}
            mine = {id(one) for group in optimizer.param_groups for one in group["params"]} & parameters.keys()
            self.needed = {one for one, learns in parameters.items() if learns}
            self.owned[optimizer] = mine if not self.optimizers or optimizer in self.optimizers else set()
        return bool(self.owned[optimizer])

    def begins(self, optimizer: Optimizer) -> None:
        """Before a step of one of the model's optimizers."""
        if optimizer in self.stepped:
            self.settle()
        scale = getattr(optimizer, "grad_scale", None)  # where a gradient scaler leaves the division to the optimizer
        self.before(self.owned[optimizer], 1.0 if scale is None else float(scale))

    def is_done(self, optimizer: Optimizer) -> None:
        """After it."""
        self.after()
        self.stepped.append(optimizer)
        if self.needed <= set().union(*(self.owned[one] for one in self.stepped)):
            self.settle()

    def settle(self) -> None:
        """Ends the step if an optimizer has stepped, though some parameters were left as they are."""
        if self.stepped:
            self.stepped.clear()
            self.ended()

    def remove(self) -> None:
        """Takes the hooks off."""
        for handle in self.handles:
            handle.remove()
