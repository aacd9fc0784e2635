"""`probe`: a `Profile` of any `torch.nn.Module`, from one pass forward and backward that leaves no
trace in it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from explorer.display import must_be
from explorer.foreign import Learning, State
from explorer.profile import Profile
from explorer.sites import BRANCHES, STREAM
from explorer_models.ahead import sees_target
from explorer_models.facts import UNREADABLE
from explorer_models.faults import of_parameters, of_pass, with_names
from explorer_models.learning import any_number, drawn, first_states, grouped, numbers_of, stepped
from explorer_models.logits import of_output
from explorer_models.model import (
    Batch,
    Loss,
    called,
    find_stacks,
    is_compiled,
    kind_of,
    loss_of,
    named_error,
    repeated,
    unwrapped,
)
from explorer_models.nodes import Node, first_floating
from explorer_models.recording import Graph, Recording, backward
from explorer_models.shared import shared
from explorer_models.stack import Stack, follow, stacks_sentence
from explorer_models.texts import text
from explorer_models.twin import Twin

# What a probe must leave as it was: buffers, wishes for gradients, random state, and torch's own
# switches.


class Checkpoints:
    """Gradient checkpoints that are passed over: their functions run as they are, and
    activations are kept."""

    def __init__(self) -> None:
        self.count = 0
        """How many were gone around."""
        self.reentrant = 0
        """How many of them were reentrant: those give a gradient only where one of their arguments
        requires one."""
        self.as_is = False
        """Whether those that would give no gradient give none."""

    def run_reentrant(self, function: Callable[..., Any], _: object, *arguments: Any) -> Any:
        """Replacement of `CheckpointFunction.apply`."""
        self.count += 1
        self.reentrant += 1
        has_gradient = any(
            isinstance(argument, Tensor) and argument.requires_grad for argument in arguments
        )
        passes_gradients = has_gradient or not self.as_is
        with torch.set_grad_enabled(torch.is_grad_enabled() and passes_gradients):
            return function(*arguments)

    def run_plain(self, *_: object, **__: object) -> Iterator[None]:
        """Replacement of the generator of a checkpoint that is not reentrant."""
        self.count += 1
        return iter((None,))


class Wishes(NamedTuple):
    """Differences between the pass and the model's own training."""

    frozen: set[int]
    """`id` of each parameter that requires no gradient by itself."""
    checkpoints: Checkpoints


@contextmanager
def untouched(model: nn.Module) -> Iterator[Wishes]:
    """A context in which the model runs eagerly, with gradients by all parameters, and after
    which it is what it was, whatever happens.

    Gradient checkpoints are passed over: activations are kept for once, so that nothing is
    computed twice."""
    with ExitStack() as stack:
        frozen = {id(weight) for weight in model.parameters() if not weight.requires_grad}
        for module in model.modules():
            numbers = {
                name: buffer.clone()
                for name, buffer in module._buffers.items()
                if buffer is not None
            }
            stack.callback(_put_back, module._buffers, {**module._buffers}, numbers)
        for weight in model.parameters():
            stack.callback(weight.requires_grad_, weight.requires_grad)
            if weight.is_floating_point():  # frozen ones take part in the backward pass, too
                weight.requires_grad_()
        devices = sorted(
            {
                weight.device.index or 0
                for weight in model.parameters()
                if weight.device.type == "cuda"
            }
        )
        stack.enter_context(torch.random.fork_rng(devices))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 - a model may draw from it
        checkpoints = run_eagerly(stack, is_compiled(model))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield Wishes(frozen, checkpoints)


@torch.no_grad()
def _put_back(
    buffers: dict[str, Tensor | None],
    originals: dict[str, Tensor | None],
    numbers: dict[str, Tensor],
) -> None:
    """Restores a module's buffers and their numbers."""
    buffers.clear()
    buffers.update(originals)
    for name, number in numbers.items():
        if (buffer := originals[name]) is not None:
            buffer.copy_(number)


def run_eagerly(stack: ExitStack, compiled: bool) -> Checkpoints:
    """Switches off, until the stack is closed, what would hide operations: torch's fast path for
    a whole layer, compiled code, gradient checkpoints, and casts that are kept from one block
    for the next."""
    stack.callback(
        torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
    )
    torch.backends.mha.set_fastpath_enabled(False)
    stack.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
    torch.set_autocast_cache_enabled(False)
    checkpoints = Checkpoints()
    for owner, name, plain in (
        (checkpoint.CheckpointFunction, "apply", checkpoints.run_reentrant),
        (checkpoint, "_checkpoint_without_reentrant_generator", checkpoints.run_plain),
    ):
        stack.enter_context(patch.object(owner, name, plain))
    if compiled:  # what sets the stance imports a lot
        stack.enter_context(torch.compiler.set_stance("force_eager"))
    return checkpoints


ROUNDS: tuple[State, ...] = ("second", "later", "later")
"""State of a parameter by the further pass that gives it a gradient: a zero readout over zero
gates takes two."""


# Which parameters learn: by the gradients of the pass, and where some are exactly 0, by those of a
# second one.


class Passes:
    """Further passes of a model, which show the gradients that its parameters have after small
    steps.

    Args:
        model: the model, within `untouched`.
        batch: as for `probe`.
        loss: as for `probe`.
        wishes: what the first pass did otherwise than the model's own.
    """

    def __init__(self, model: nn.Module, batch: Batch, loss: Loss | None, wishes: Wishes) -> None:
        self.model, self.batch, self.loss, self.wishes = model, batch, loss, wishes
        # A table without rows, such as a projection that these sizes do not need, has nothing to
        # learn.
        self.parameters = {
            name: parameter for name, parameter in model.named_parameters() if parameter.numel()
        }

    def gradients(self, parameters: Sequence[nn.Parameter]) -> tuple[dict[int, Tensor], float]:
        """The gradients of one more pass by some parameters, of those on which the loss depends;
        and the scale of its loss."""
        value, scale = loss_of(called(self.model, self.batch), self.loss)
        values = torch.autograd.grad(value, list(parameters), allow_unused=True)
        pairs = zip(parameters, values, strict=True)
        return {id(parameter): value for parameter, value in pairs if value is not None}, scale

    def states(
        self, gradients: dict[int, Tensor], used: set[int] | None, stacks: Sequence[Stack]
    ) -> tuple[dict[str, State], tuple[str, ...]]:
        """The state of each parameter, and sentences on what could not be seen.

        Args:
            gradients: of the first pass, by the id of the parameter.
            used: `id` of each parameter that an operation read.
            stacks: which note the matrices that wait for a first step.
        """
        states = first_states(self.parameters, gradients, self.wishes.frozen, used)
        self.cut(states)
        still = {id(parameter): parameter for stack in stacks for parameter in stack.still()}
        waiting = {
            id(self.parameters[name]): self.parameters[name]
            for name, state in states.items()
            if state == "waiting"
        }
        if not still and not waiting:
            return states, ()
        try:
            self.later(states, gradients, {**still, **waiting}, stacks)
        except UNREADABLE as error:  # a batch that is a function may have no second pass
            return states, (text("learning", "no_second", error=named_error(error)),)
        return states, ()

    def cut(self, states: dict[str, State]) -> None:
        """Marks the parameters to which a reentrant checkpoint passes no gradient in the model
        as it is."""
        if not self.wishes.checkpoints.reentrant:
            return
        frozen = [weight for weight in self.parameters.values() if id(weight) in self.wishes.frozen]
        trained = [
            weight for weight in self.parameters.values() if id(weight) not in self.wishes.frozen
        ]
        with ExitStack() as stack:
            for parameter in frozen:
                stack.callback(parameter.requires_grad_, parameter.requires_grad)
                parameter.requires_grad_(False)
            stack.callback(setattr, self.wishes.checkpoints, "as_is", False)
            self.wishes.checkpoints.as_is = True
            try:
                gradients = self.gradients(trained)[0]
            except ValueError:  # nothing in the output has a gradient
                gradients = {}
        for name, parameter in self.parameters.items():
            if states[name] in ("first", "waiting") and id(parameter) not in gradients:
                states[name] = "checkpoint"

    def later(
        self,
        states: dict[str, State],
        gradients: dict[int, Tensor],
        wanted: dict[int, nn.Parameter],
        stacks: Sequence[Stack],
    ) -> None:
        """Judges gradients that are exactly 0 by further passes, each after a small step of the
        parameters that had a gradient before.

        They end where a pass reaches nothing more. What is 0 then is drawn at random where it is
        0 itself: a gradient that is there with it was 0 because several factors of one product
        are.

        Args:
            states: by name; gets the new ones.
            gradients: of the first pass.
            wanted: parameters whose gradients are looked at, by id.
            stacks: see `states`.
        """
        waiting = [name for name, state in states.items() if state == "waiting"]
        moving = [
            parameter for name, parameter in self.parameters.items() if states[name] == "first"
        ]
        moved: dict[nn.Parameter, Tensor] = {}
        for state in ROUNDS:
            moved |= stepped(moving, gradients)
            with numbers_of(moved):
                gradients, scale = self.gradients([*wanted.values()])
            awake = [stack.step(gradients, scale) for stack in stacks]
            reached = self.nonzero(waiting, gradients)
            states |= dict.fromkeys(reached, state)
            moving = [self.parameters[name] for name in reached]
            waiting = [name for name in waiting if name not in reached]
            left = waiting or any(stack.still() for stack in stacks)
            if not left or not (reached or any(awake)):
                break
        self.blame(states, waiting, moved)

    def blame(
        self, states: dict[str, State], never: Sequence[str], moved: dict[nn.Parameter, Tensor]
    ) -> None:
        """Distinguishes parameters that wait for one another, as they are 0 themselves, from
        others without a gradient.

        Args:
            states: by name; gets the new ones.
            never: parameters that no pass gave a gradient.
            moved: the numbers of the parameters after the small steps.
        """
        states |= dict.fromkeys(never, "never")
        parameters = [self.parameters[name] for name in never]
        zeros = [parameter for parameter in parameters if not parameter.any()]
        if zeros:
            with numbers_of(moved | drawn(zeros)):
                gradients = self.gradients(parameters)[0]
            states |= dict.fromkeys(self.nonzero(never, gradients), "zeros")

    def nonzero(self, names: Sequence[str], gradients: dict[int, Tensor]) -> list[str]:
        """The parameters whose gradient is not exactly 0."""
        reached = [name for name in names if id(self.parameters[name]) in gradients]
        flags = any_number([gradients[id(self.parameters[name])] for name in reached])
        return [name for name, flag in zip(reached, flags, strict=True) if flag]


# Statistics at sites that a person names, for a model whose structure is not understood.


NAMED = (*STREAM, *BRANCHES)


class Sites:
    """Modules whose outputs a person has named as sites, for code that is not understood.

    Args:
        model: whose modules are meant.
        names: site to the name of its modules, one a layer, in which * stands for anything.
    Raises:
        ValueError: a site is none, has another number of modules than the others, or `resid_post`
            is not named.
    """

    def __init__(self, model: nn.Module, names: Mapping[str, str]) -> None:
        if unknown := [site for site in names if site not in NAMED]:
            raise ValueError(f"blocks must name sites of {', '.join(NAMED)}; got {unknown[0]!r}")
        if "resid_post" not in names:
            raise ValueError(
                f"blocks must name the modules of resid_post; got {', '.join(names) or 'no site'}"
            )
        modules = {site: find_stacks(model, pattern)[0] for site, pattern in names.items()}
        self.stack = Stack(modules["resid_post"])
        self.stack.sites = [{} for _ in self.stack.blocks]
        self.stack.layers = [block.path for block in self.stack.blocks]
        for site, blocks in modules.items():
            wanted = 1 if site == "embed" else len(self.stack.blocks)
            if len(blocks) != wanted:
                raise ValueError(
                    f"blocks must name one module a layer; got {len(blocks)} of {site} for {wanted}"
                )
        self.places = [
            (site, layer, block)
            for site, blocks in modules.items()
            for layer, block in enumerate(blocks)
        ]

    def run(self, model: nn.Module, batch: Batch) -> Any:
        """Runs the model on a batch, takes the statistics, and returns the model's output."""
        with ExitStack() as stack:
            for site, layer, block in self.places:
                take = partial(self.take, site, layer, block.path)
                stack.callback(block.module.register_forward_hook(take).remove)
            output = called(model, batch)
        for site, layer, block in self.places:
            if site not in self.stack.sites[layer]:
                raise ValueError(f"blocks must be run by the model; {block.path} was not")
        return output

    def take(self, site: str, layer: int, path: str, _: nn.Module, __: object, out: Any) -> None:
        """Forward hook: takes the statistics of one module's output."""
        tensor = first_floating(out)
        if tensor is None or site in self.stack.sites[layer]:
            raise ValueError(f"blocks must put out a floating tensor, once; {path} does not")
        self.stack.dtype = str(tensor.dtype).removeprefix("torch.")
        with torch.no_grad():
            self.stack.signal(site, tensor, layer)
        node = self.stack.sites[layer][site] = Node("output", [], tensor, "stream")
        if site in STREAM:
            follow(node)
        if layer == 0:
            self.stack.sources.append(tensor)
        node.tensor = torch.empty(0)


def probe(
    model: nn.Module,
    batch: Batch,
    loss: Loss | None = None,
    blocks: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    spectra: bool = False,
) -> Profile:
    """Measures a model of any code, as it is: every statistic of the vocabulary that can be seen in
    it, by layer.

    One pass forward and backward, eager, in the mode the model is in. Parameters, buffers,
    gradients, hooks, mode and random state are afterwards what they were, also after an exception.
    Frozen parameters take part; compiled code runs as written, and gradient checkpoints are passed
    over: one block's inner tensors and all that autograd keeps are held at a time. `notes` says
    where requires_grad was set and checkpoints were gone around.

    `Profile.learning` says which parameters of the model as it is have a gradient, and why others
    have none. Where some gradients are exactly 0, further passes follow, up to four, each after a
    small step that is taken on copies; where reentrant checkpoints were gone around, one more.
    `coverage` says what was read where that is not all of the model.

    What is a stream, a branch, a norm or a matrix follows from the operations that a block runs,
    not from names: a dispatch mode of torch sees them all, fused attention included, of which H =
    log Σ exp(s) − E[s]. What a block does not show in this way is left out, and `notes` says what
    only some layers have. Where nothing attends, the first of two branches stands at attn_out;
    where streams are several, the block's input and output are all that is read of them. Where the
    loss is a cross-entropy of the output, `Profile.logits` has it, and what its logits come to.
    `explorer.profile.STATISTICS` has each statistic's definition and source.

    A profile keeps numbers, no weights. How they have changed since initialization, spectra among
    them, `ex.compare` says of a profile that was probed, or stored, before the training and one
    that was probed after it; `ex.watch` and the race read the spectra of each step's own change.

    Args:
        model: any module with repeated blocks.
        batch: a tensor, a tuple of positional or a mapping of named arguments; or a function that
            runs the model, which it is given, and returns its output.
        loss: from the model's output to a scalar; None for the output's own, where it has one named
            loss, else for its projection on a random direction of unit expected norm, as `measure`
            has it.
        blocks: names of the blocks, in which * stands for anything; None to find them. A mapping of
            sites to names of modules whose outputs they are, such as {"attn_out": "h.*.attn",
            "resid_post": "h.*"}, where the code is not understood; attention and matrices are then
            not read.
        spectra: whether spectral norms and stable ranks of the matrices, and of W_Qᵀ W_K by head,
            are wanted, too: some 70 more reads of each, and two small gradients a head.
    Returns:
        The longest stack's profile, of equals the later one's: a decoder comes before its encoder.
        `others` has those of the other stacks. A block that is called several times is as many
        layers.
    Raises:
        TypeError, ValueError: the model, the batch, the loss or the blocks will not do; says which,
            and why.

    Example:
        >>> from torch import nn, randn
        >>> layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        >>> profile = ex.probe(nn.TransformerEncoder(layer, 3), randn(4, 16, 32))
        >>> profile.layers
        ('layers.0', 'layers.1', 'layers.2')
        >>> profile["second_moment", "resid_post"].shape  # [seed, layer]
        (1, 3)
    """
    return probed(model, batch, loss, blocks, spectra)[0]


def probed(
    model: nn.Module,
    batch: Batch,
    loss: Loss | None = None,
    blocks: str | Sequence[str] | Mapping[str, str] | None = None,
    spectra: bool = False,
) -> tuple[Profile, Stack]:
    """The longest stack's profile, and the stack; arguments as for `probe`.

    One pass forward and back with all gradients reads the stacks, the loss and the model's faults.
    Further passes then tell why parameters have no gradient, and when they get one. Other stacks
    are read as well, and listed in the profile of the longest."""
    model = unwrapped(must_be(nn.Module, "model", model))
    begun = time.perf_counter()
    with untouched(model) as wishes, ExitStack() as cleanup:
        output, stacks, refused, graph = _forward(model, batch, blocks, spectra, cleanup)
        value, scale = loss_of(output, loss)
        asked = of_output(output, loss, value)
        facts = shared(stacks[0].facts, stacks[0].blocks)
        if graph is not None:
            facts |= sees_target(model, graph.lookups, asked, facts)
        gradients = backward(value, stacks, model)
        for stack in stacks:
            stack.faults = [
                *of_parameters(model, stack.layers, stack.anatomies, stack.norm_gains),
                *with_names(stack.faults, model, stack.norm_gains),
            ]
            stack.faults += of_pass(stack.faults, stack.values, batch, value)
            stack.by_weight = stack.of_weights(scale)
        del output, value
        n_checkpoints = wishes.checkpoints.count
        used = None if graph is None else graph.used
        states, unseen = Passes(model, batch, loss, wishes).states(gradients, used, stacks)
    name, seconds = type(model).__name__, time.perf_counter() - begun
    others = [stack.profile(name, seconds) for stack in stacks[1:]]
    profile = stacks[0].profile(name, seconds, others)
    return replace(
        profile,
        remarks=(*profile.remarks, *refused),
        logits=asked.numbers,
        learning=Learning(grouped(model, stacks[0].runs, states), 0, scale != 1.0, unseen),
        facts=facts,
        notes=_with_wishes(profile.notes, model, wishes.frozen, n_checkpoints),
        coverage=(*_other_stacks(stacks), *_named(model, blocks, stacks[0]), *profile.coverage),
    ), stacks[0]


class Forward(NamedTuple):
    """One pass forward of a model."""

    output: Any
    stacks: list[Stack]
    """Of the blocks that were read."""
    refused: list[str]
    """Why other stacks were not read."""
    graph: Graph | None
    """The mode that has seen all operations; None where a person named modules as sites."""


def _forward(
    model: nn.Module,
    batch: Batch,
    blocks: str | Sequence[str] | Mapping[str, str] | None,
    spectra: bool,
    cleanup: ExitStack,
) -> Forward:
    """Runs a model, and reads its blocks; arguments as for `probe`.

    Args:
        cleanup: undoes what the pass has done to the batch, when it is closed.
    Raises:
        ValueError: no block could be read.
    """
    if isinstance(blocks, Mapping):
        sites = Sites(model, blocks)
        return Forward(sites.run(model, batch), [sites.stack], [], None)
    stacks = _stacks(model, batch, blocks)
    for stack in stacks:
        stack.spectra = spectra
    recording = Recording(model, stacks)
    cleanup.callback(recording.restore)
    output = recording.run(model, batch)
    refused = [stack.refused for stack in stacks if stack.refused]
    read_stacks = [stack for stack in stacks if stack.sites and not stack.refused]
    if not read_stacks:
        raise ValueError(
            "; ".join(refused) or "blocks must be run by the model; none of those found was"
        )
    return Forward(output, read_stacks, refused, recording.graph)


def _with_wishes(
    notes: Mapping[str, str], model: nn.Module, frozen: set[int], checkpoints: int
) -> Mapping[str, str]:
    """Notes of a profile; the note on gradients also says what the pass did otherwise than the
    model's own training would.

    Args:
        notes: by statistic.
        frozen: `id` of each frozen parameter, which got a gradient all the same.
        checkpoints: how many gradient checkpoints the pass went around.
    """
    sentences = [notes["parameter_gradient"]] if "parameter_gradient" in notes else []
    if frozen:
        count = len(list(model.parameters()))
        sentences.append(text("note", "frozen", frozen=len(frozen), count=count))
    if checkpoints:
        sentences.append(text("note", "checkpoints", count=checkpoints))
    return {**notes, "parameter_gradient": "; ".join(sentences)} if sentences else notes


def _named(model: nn.Module, blocks: object, stack: Stack) -> Iterator[str]:
    """A sentence where a person named some blocks of a longer stack."""
    if not isinstance(blocks, (str, Sequence)):
        return
    try:
        stacks = find_stacks(model)
    except ValueError:  # none is found, so that none is known to have more
        return
    mine = {id(block.module) for block in stack.blocks}
    for every in stacks:
        if mine < {id(block.module) for block in every}:
            yield text(
                "coverage",
                "named",
                blocks=len(mine),
                every=len(every),
                path=kind_of([block.path for block in every]),
            )


def _other_stacks(stacks: Sequence[Stack]) -> Iterator[str]:
    """A sentence on the stacks beside the first, where there are some."""
    first, *others = ([block.path for block in stack.blocks] for stack in stacks)
    if others:
        listed = stacks_sentence(others)
        yield text("coverage", "stacks", blocks=len(first), path=kind_of(first), others=listed)


def twin(
    model: nn.Module,
    batch: Batch,
    blocks: str | Sequence[str] | None = None,
    loss: Loss | None = None,
) -> Twin:
    """The design of ours that is nearest to a model of any code: what `predict` says of it is the
    line under its dots.

    One pass forward and backward, as `probe` makes it. Read from the operations and from their
    numbers, by block: sizes, placement and kind of the norms and their ε, the function of the MLP
    and whether it is gated, what attention divides, caps, normalizes, hides and turns, the
    multipliers of stream and branch, and the variance of each matrix; and the second moment and
    token correlation of the first block's input. Then what theory expects of it is compared with
    what was measured: `Twin.parts` says where the model behaves otherwise.

    Args:
        model: any module with repeated blocks.
        batch: as for `probe`; two sequences or more show whether positions are added to the
            embeddings.
        blocks: names of the blocks, in which * stands for anything; None to find them.
        loss: as for `probe`.
    Raises:
        TypeError, ValueError: the model, the batch, the loss or the blocks will not do, or no
            branch of a block was seen.

    Example:
        >>> from torch import nn, randn
        >>> layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        >>> twin = ex.twin(nn.TransformerEncoder(layer, 3), randn(4, 16, 32))
        >>> ex.predict(twin.config)["second_moment", "resid_post"].shape  # the line: [1, layer]
        (1, 3)
    """
    return twin_in(probed(model, batch, loss, blocks)[1], model)


def twin_in(stack: Stack, model: nn.Module) -> Twin:
    """The twin of a stack.

    Raises:
        ValueError: no branch of a block was seen.
    """
    if stack.twin is None:
        unread = stack.unread()
        why = f"could not be read: {unread[0]}" if unread else "no sum was seen in those"
        raise ValueError(f"blocks must add branches to a stream; {why} of {type(model).__name__}")
    return stack.twin


def _stacks(model: nn.Module, batch: Batch, blocks: str | Sequence[str] | None) -> list[Stack]:
    """The stacks to measure: those of the module tree; where there are none, modules that one
    pass calls repeatedly."""
    try:
        return [Stack(run) for run in find_stacks(model, blocks)]
    except ValueError:
        shared = [] if blocks is not None else repeated(model, batch)
        if not shared:
            raise
        return [Stack(run) for run in shared]
