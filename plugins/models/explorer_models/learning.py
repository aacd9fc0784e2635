"""Parameters that learn, and parameters that do not, and why: read in a probe's passes, or beside a
training."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from explorer.foreign import STUCK, Part, State
from explorer.vocabulary import Array
from explorer_models.model import Block
from explorer_models.sums import local
from explorer_models.window import plain

# Names in place of lists of parameters: a module whose parameters are in one state, in all layers
# that have it.


NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A part of a name that is a number, such as an expert's."""
MANY = 4
"""Modules of one name from which on some may get no token of a batch, as experts do."""
LEARNS: tuple[State, ...] = ("first", "second", "later")


class Place:
    """The layers that have a parameter, and its name within them; within the model where no
    layer has it.

    Args:
        layers: numbers of the layers, from 1; none for a parameter outside of all layers.
        path: its name in a layer, or in the model.
        taken: names of all layers in the model.
    """

    def __init__(self, layers: tuple[int, ...], path: str, taken: Sequence[str]) -> None:
        self.layers, self.path = layers, path
        self.above: list[str]
        """The modules that it is a part of, the largest first, and itself; none that holds a
        layer."""
        names = path.split(".")
        prefixes = [".".join(names[:length]) for length in range(1, len(names) + 1)]
        if layers:
            self.above = ["", *prefixes]  # "" is the whole layer
        else:
            # a module that holds layers is not one entry with what lies outside of them
            self.above = [
                prefix
                for prefix in prefixes
                if not any(f"{block}.".startswith(f"{prefix}.") for block in taken)
            ]

    @property
    def kind(self) -> str:
        """The name with * for each number, such as an expert's."""
        return NUMBER.sub("*", self.path)


def grouped(
    model: nn.Module, blocks: Sequence[Block], states: Mapping[str, State]
) -> tuple[Part, ...]:
    """Parameters by state. A module whose parameters have one state is one entry, in all layers
    that have it.

    Args:
        model: whose they are.
        blocks: its layers, in order; one that is called several times is as many.
        states: by the names that the model gives its parameters.
    """
    places = _places(model, blocks, states)
    states = _without_idle(states, places)
    beneath: defaultdict[tuple[tuple[int, ...], str], set[State]] = defaultdict(set)
    for name, place in places.items():
        for prefix in place.above:
            beneath[place.layers, prefix].add(states[name])
    parameters = dict(model.named_parameters())
    gathered: dict[tuple[State, str, bool], tuple[set[int], list[bool]]] = {}
    for name, place in places.items():
        prefix = next(above for above in place.above if len(beneath[place.layers, above]) == 1)
        key = states[name], NUMBER.sub("*", prefix), bool(place.layers)
        layers, matrices = gathered.setdefault(key, (set(), []))
        layers.update(place.layers)
        matrices.append(_is_matrix(parameters[name], states[name]))
    parts = [
        Part(state, name, tuple(sorted(layers)), len(matrices), any(matrices))
        for (state, name, _), (layers, matrices) in gathered.items()
    ]
    return tuple(sorted(parts, key=lambda entry: bool(entry.layers)))


def _is_matrix(parameter: nn.Parameter, state: State) -> bool:
    """Whether a parameter counts as a matrix, whose lack of learning is a fault; a vector's may
    be a design.

    A column or a row whose gradient stays 0 is a vector. For any other reason it is a matrix,
    such as a factor of rank 1 in an adapter, which no optimizer holds."""
    if state != "never":
        return parameter.ndim > 1
    return sum(size > 1 for size in parameter.shape) > 1


def _places(model: nn.Module, blocks: Sequence[Block], names: Iterable[str]) -> dict[str, Place]:
    """The place of each parameter, by its name in the model."""
    inside: dict[int, tuple[list[int], str]] = {}
    for layer, block in enumerate(blocks, start=1):
        for path, parameter in block.module.named_parameters():
            inside.setdefault(id(parameter), ([], path))[0].append(layer)
    parameters, taken = dict(model.named_parameters()), [plain(block.path) for block in blocks]
    places = {}
    for name in names:
        layers, path = inside.get(id(parameters[name]), ([], name))
        places[name] = Place(tuple(layers), plain(path), taken)
    return places


def _without_idle(states: Mapping[str, State], places: Mapping[str, Place]) -> dict[str, State]:
    """The states, with "idle" for the parameters of experts that got no token: others of their
    kind learn in the same layer, or the same expert learns in another."""
    alike: defaultdict[tuple[tuple[int, ...], str], list[State]] = defaultdict(list)
    elsewhere: defaultdict[str, set[State]] = defaultdict(set)
    for name, place in places.items():
        alike[place.layers, place.kind].append(states[name])
        elsewhere[place.path].add(states[name])
    new = dict(states)
    for name, place in places.items():
        beside = alike[place.layers, place.kind]
        chosen = len(beside) >= MANY or (
            len(beside) > 1 and not elsewhere[place.path].isdisjoint(LEARNS)
        )
        if place.layers and states[name] in STUCK and chosen and not set(beside).isdisjoint(LEARNS):
            new[name] = "idle"
    return new


# A probe: gradients of its pass, then, only where some are exactly 0, those after one small step.


STEP = 1e-3
"""Adam's usual first step: each number that has a gradient is moved by it, against the gradient's
sign."""


def any_number(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether each tensor has a number other than 0. All answers cross to the processor at once."""
    flags: list[Tensor] = []
    for tensor in tensors:
        numbers = local(tensor.coalesce().values() if tensor.is_sparse else tensor)
        flags.append((numbers != 0).any())
    return torch.stack([flag.to(flags[0].device) for flag in flags]).tolist() if flags else []


def first_states(
    named: Mapping[str, nn.Parameter],
    gradients: Mapping[int, Tensor],
    frozen: set[int],
    used: set[int] | None,
) -> dict[str, State]:
    """States after one pass.

    Args:
        named: the model's parameters.
        gradients: by the id of the parameter; none of one that no path leads to.
        frozen: `id` of each parameter that the model does not train.
        used: `id` of each parameter that an operation read; None where that was not seen.
    """
    states: dict[str, State] = {}
    reached = {
        name: gradients[id(parameter)]
        for name, parameter in named.items()
        if id(parameter) in gradients
    }
    moves = dict(zip(reached, any_number(list(reached.values())), strict=True))
    for name, parameter in named.items():
        if id(parameter) in frozen:
            states[name] = "frozen"
        elif name in moves:
            states[name] = "first" if moves[name] else "waiting"
        else:
            states[name] = "unreached" if used is None or id(parameter) in used else "unused"
    return states


@contextmanager
def numbers_of(moved: Mapping[nn.Parameter, Tensor]) -> Iterator[None]:
    """A context in which parameters have other numbers; their own come back whatever happens."""
    originals = {parameter: parameter.data for parameter in moved}
    try:
        for parameter, numbers in moved.items():
            parameter.data = numbers
        yield
    finally:
        for parameter, numbers in originals.items():
            parameter.data = numbers


def stepped(
    parameters: Iterable[nn.Parameter], gradients: Mapping[int, Tensor]
) -> dict[nn.Parameter, Tensor]:
    """The numbers of some parameters after one small step against their gradients' signs, as new
    tensors."""
    moved = {}
    for parameter in parameters:
        gradient = gradients[id(parameter)]
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        moved[parameter] = parameter.detach() - STEP * dense.detach().sign().to(parameter.dtype)
    return moved


def drawn(parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, Tensor]:
    """Small random numbers for some parameters."""
    generator = torch.Generator().manual_seed(0)
    return {
        parameter: (STEP * torch.randn(parameter.shape, generator=generator)).to(parameter)
        for parameter in parameters
    }


# A training: what every parameter's gradient and change were, in the first steps and in those that
# are read.


ENOUGH = 2
"""Steps that changed something, after which a gradient that is still exactly 0 is no longer waited
for."""
LOOKED = 10
"""Steps from the first on in which parameters are looked at, where few of them changed a
parameter: a learning rate may begin at 0."""
SAMPLED = 2**16
"""Numbers of a parameter that are compared in the first step."""


class Course:
    """Follows a training: which parameters have had a gradient, and which have changed, in the
    steps that are looked at.

    Args:
        model: whose; its parameters are looked up at each step, for sharding puts others in
            place.
        blocks: its layers.
    """

    def __init__(self, model: nn.Module, blocks: Sequence[Block]) -> None:
        self.model, self.blocks = model, blocks
        self.steps = 0
        """Steps that were looked at."""
        self.moving = 0
        """Steps among them that changed a number."""
        self.optimized = False
        """Whether a torch optimizer has stepped."""
        self.reached: set[str] = set()
        """Parameters whose gradient was not None."""
        self.since: dict[str, int] = {}
        """Parameter to the first step at which its gradient was not 0."""
        self.changed: set[str] = set()
        self.held: set[str] = set()
        """Parameters that an optimizer holds that has stepped."""
        self.rates: dict[str, float] = {}
        """Parameter to the largest learning rate of its steps."""
        self.calm: set[int] = set()
        """Layers, from 0, that ran without gradients, and not again in the backward pass."""
        self.called: set[int] | None = None
        """`id` of each innermost module that was called in a step that was read; None before there
        was one."""
        self._kept: dict[str, tuple[int, Tensor]] = {}
        self._open = False

    @property
    def judged(self) -> bool:
        """Whether a parameter without a gradient is no longer waited for: enough steps have
        passed, and the last one gave no further parameter a gradient."""
        latest = max(self.since.values(), default=0)
        return self.steps >= LOOKED or (self.moving >= ENOUGH and latest < self.steps - 1)

    def before(self, optimizer: Optimizer, stepped_ids: set[int]) -> None:
        """Before an optimizer's step: looks at its gradients, and copies some numbers of the
        parameters.

        Args:
            optimizer: which.
            stepped_ids: `id` of each parameter that it steps.
        """
        named = dict(self.model.named_parameters())
        mine = {
            name: parameter for name, parameter in named.items() if id(parameter) in stepped_ids
        }
        self.gradients(mine if self._open else named)
        self.optimized = True
        self.held |= mine.keys()
        rates = {
            id(parameter): float(group["lr"])
            for group in optimizer.param_groups
            if "lr" in group
            for parameter in group["params"]
        }
        for name, parameter in mine.items():
            self.rates[name] = max(self.rates.get(name, 0.0), rates.get(id(parameter), 0.0))
        for name, parameter in mine.items():
            if name not in self.changed and parameter.grad is not None:
                stride = 1 if self.steps else max(1, local(parameter).numel() // SAMPLED)
                self._kept[name] = stride, local(parameter).reshape(-1)[::stride].clone()

    def gradients(self, named: Mapping[str, nn.Parameter] | None = None) -> None:
        """Notes which parameters have a gradient in this step, in `reached`, and which have one
        that is not all 0 for the first time, in `since`.

        From here on the step is open: the next optimizer of the same step reads its own
        parameters alone.

        Args:
            named: the parameters by name; None for all of the model.
        """
        named = dict(self.model.named_parameters()) if named is None else named
        self._open = True
        gradients = {
            name: parameter.grad for name, parameter in named.items() if parameter.grad is not None
        }
        self.reached |= gradients.keys()
        # only of these the numbers are read, which takes time
        all_zero = {name: grad for name, grad in gradients.items() if name not in self.since}
        for name, is_not_zero in zip(all_zero, any_number(list(all_zero.values())), strict=True):
            if is_not_zero:
                self.since[name] = self.steps

    def after(self) -> None:
        """After an optimizer's step: compares the parameters with their copies."""
        named = dict(self.model.named_parameters())
        kept = {name: entry for name, entry in self._kept.items() if name in named}
        changes = [
            local(named[name]).reshape(-1)[::stride] - old for name, (stride, old) in kept.items()
        ]
        self.changed |= {
            name for name, moves in zip(kept, any_number(changes), strict=True) if moves
        }
        self._kept.clear()

    def end(self, changes: bool = False) -> None:
        """Ends a step that was looked at.

        Args:
            changes: whether the parameters are changed otherwise than by an optimizer.
        """
        if self._open:
            self.steps += 1
            self.moving += bool(self.changed) or changes
        self._open = False

    def flags(self, names: Sequence[str]) -> Tensor:
        """`[4 · parameter]` numbers that `merge` takes from all processes, as maxima: whether
        each parameter was reached, changed, and held by an optimizer; and the negative of the
        first step with a gradient."""
        rows = [
            [float(name in group) for name in names]
            for group in (self.reached, self.changed, self.held)
        ]
        first = [-float(self.since.get(name, np.inf)) for name in names]
        return torch.tensor([*rows, first], dtype=torch.float64).flatten()

    def merge(self, names: Sequence[str], flags: Array) -> None:
        """Takes the maxima of `flags` over all processes."""
        reached, changed, owned, first = flags.reshape(4, -1)
        for every, row in ((self.reached, reached), (self.changed, changed), (self.held, owned)):
            every |= {name for name, flag in zip(names, row, strict=True) if flag > 0}
        self.since |= {
            name: int(-step) for name, step in zip(names, first, strict=True) if np.isfinite(step)
        }

    def states(self) -> dict[str, State]:
        """The state of each parameter after the steps so far; empty before the first one."""
        if not self.steps:
            return {}
        named = dict(self.model.named_parameters())
        still = [
            name
            for name, parameter in named.items()
            if name not in self.since and name in self.reached
        ]
        zero = {
            name
            for name, moves in zip(
                still, any_number([named[name].detach() for name in still]), strict=True
            )
            if not moves and named[name].ndim > 1
        }
        calm = {
            id(parameter)
            for layer in self.calm
            for parameter in self.blocks[layer].module.parameters()
        }
        owner = {
            id(parameter): module
            for module in self.model.modules()
            for parameter in module.parameters(recurse=False)
        }
        # One without a number has nothing to learn. Sharding may leave none here: then a gradient
        # was seen elsewhere.
        judged = {
            name: parameter
            for name, parameter in named.items()
            if parameter.numel() or name in self.since
        }
        return {
            name: self._state(
                name, parameter, _beside(name, zero), id(parameter) in calm, owner[id(parameter)]
            )
            for name, parameter in judged.items()
        }

    def _state(
        self, name: str, parameter: nn.Parameter, zeros: bool, calm: bool, owner: nn.Module
    ) -> State:
        """The state of one parameter.

        Args:
            name: of the parameter.
            parameter: itself.
            zeros: whether it is 0 itself, and so is another one beside it.
            calm: whether its block ran without gradients.
            owner: the module that holds it.
        """
        learns = LEARNS[min(self.since.get(name, 0), len(LEARNS) - 1)]
        if not parameter.requires_grad:
            return "frozen"
        if name not in self.reached:
            if calm:
                return "no_grad"
            if self.called is None or id(owner) in self.called or list(owner.children()):
                return "unreached"
            return "uncalled"
        if name not in self.since:
            if not self.judged:
                return "waiting"
            return "zeros" if zeros else "never"
        early = self.moving < ENOUGH and self.steps < LOOKED
        if (
            early
            or not self.optimized
            or name in self.changed
            or self.since[name] == self.steps - 1
        ):
            return learns
        if name not in self.held:
            return "unheld"
        if not self.rates.get(name, 1.0):
            return "no_rate"
        # a vector's gradient may be rounding alone, as that of keys' biases, or too small beside a
        # gain of 1
        return "unmoved" if parameter.ndim > 1 else learns


def _beside(name: str, zero: set[str]) -> bool:
    """Whether a parameter is 0 together with another one of the same module, or of the module
    above.

    Args:
        name: of the parameter.
        zero: names of the parameters that are 0.
    """
    above = name.split(".")[:-2]
    return name in zero and any(
        other != name and other.split(".")[: len(above)] == above for other in zero
    )
