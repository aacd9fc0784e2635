"""A model that is not ours: its repeated blocks, how it is called, and what is differentiated."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from explorer.display import shown
from explorer_models.nodes import tensors_in

# The repeated blocks: what a layer of its Transformer is.


Signature = tuple[type[nn.Module], tuple[type[nn.Module], ...]]


class Block(NamedTuple):
    """A module that is one layer of a stack."""

    path: str
    """Its name within the model, such as transformer.h.3; its first where it has several."""
    module: nn.Module


def find_stacks(model: nn.Module, blocks: str | Sequence[str] | None = None) -> list[list[Block]]:
    """Every stack of blocks, the longest first, and of equals the later one: a decoder comes before
    its encoder.

    A stack is the modules that a container numbers: two or more modules of one class that have
    matrices, and are not themselves parts of a block. Layers of other classes between them are of
    the stack too.

    Args:
        model: any module.
        blocks: names of the blocks, in which * stands for anything; None to look for them.
    Raises:
        TypeError: the names are none.
        ValueError: there are no blocks, or the names match nothing.
    """
    if blocks is not None:
        names = [blocks] if isinstance(blocks, str) else blocks
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            kind = f"{shown(blocks)} of type {type(blocks).__name__}"
            raise TypeError(
                f"blocks must be a name, several, or a mapping of sites to names; got {kind}"
            )
        return [_named(model, names)]
    runs: list[list[Block]] = []
    _search(model, "", runs)
    if not runs:
        raise ValueError(
            f"blocks must be named, for {type(model).__name__} has no repeated modules; "
            'say blocks="…", a name from model.named_modules() in which * stands for anything'
        )
    runs.reverse()
    return sorted(runs, key=len, reverse=True)


def kind_of(paths: Sequence[str]) -> str:
    """The names of blocks as one, with * for each component in which they differ: "layers.*"."""
    components = [path.split(".") for path in paths]
    if len({len(names) for names in components}) > 1:
        return f"{paths[0]} … {paths[-1]}"
    by_depth = zip(*components, strict=True)
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in by_depth)


def _search(module: nn.Module, path: str, outermost: list[list[Block]]) -> None:
    """Adds the stacks below a module to `outermost`; it does not search within blocks.

    Args:
        path: the module's name within the model.
    """
    # not `named_children`, which leaves out a module's repetitions
    children = [
        Block(f"{path}.{name}".lstrip("."), child)
        for name, child in module._modules.items()
        if child is not None
    ]
    runs: dict[Signature, list[Block]] = {}
    for block in children:
        inner = _only(block.module)
        if re.search(r"\d$", block.path) and _matrices(inner):
            runs.setdefault(_signature(inner), []).append(block)
    stacks = [run for run in runs.values() if len(run) > 1 and _is_layer(run[0].module)]
    every = sorted(
        (block for run in runs.values() for block in run if _is_layer(block.module)), key=_number
    )
    if stacks and isinstance(module, nn.ModuleList):
        stacks = [every]
    elif len(stacks) == 1:  # a layer between two is one of them; a stem or a head is not
        first, last = _number(stacks[0][0]), _number(stacks[0][-1])
        stacks = [[block for block in every if first <= _number(block) <= last]]
    for stack in stacks:
        outermost += _inner(stack) or [stack]
    taken = {id(block.module) for run in stacks for block in run}
    for block in children:
        if id(block.module) not in taken:
            _search(block.module, block.path, outermost)


def _number(block: Block) -> int:
    """A block's number in its container."""
    return int(re.findall(r"\d+$", block.path)[0])


def _inner(stages: list[Block]) -> list[list[Block]]:
    """The stacks within stages that are stacks themselves, as in Swin; stacks of one shape are
    joined. Empty where the stages are layers.

    A layer may hold a list of experts, but those have no norms of their own.
    """
    stacks: list[list[Block]] = []
    for stage in stages:
        inside: list[list[Block]] = []
        _search(stage.module, stage.path, inside)
        counts = [_matrices(block.module) for run in inside for block in run]
        # where more matrices lie beside these blocks than in one, they are parts of a layer
        if counts and _matrices(stage.module) - sum(counts) <= max(counts):
            stacks += inside
    joined: dict[object, list[Block]] = {}
    for stack in stacks:
        if any(_is_norm(module) for module in stack[0].module.modules()):
            first = _only(stack[0].module)
            shapes = tuple(parameter.shape for parameter in first.parameters())
            joined.setdefault((_signature(first), shapes), []).extend(stack)
    return list(joined.values())


def _is_norm(module: nn.Module) -> bool:
    """Whether a module learns vectors alone, such as a norm's gains."""
    parameters = list(module.parameters(recurse=False))
    return bool(parameters) and all(parameter.ndim == 1 for parameter in parameters)


def _only(module: nn.Module) -> nn.Module:
    """The module inside any wrappers that hold a single module and nothing else."""
    children = list(module.children())
    while len(children) == 1 and not list(module.parameters(recurse=False)):
        module = children[0]
        children = list(module.children())
    return module


def _signature(module: nn.Module) -> Signature:
    """A module's class; of a Sequential, which may be anything, its modules' classes too."""
    parts = module.children() if isinstance(module, (nn.Sequential, nn.ModuleList)) else ()
    return type(module), tuple(type(part) for part in parts)


def _matrices(module: nn.Module) -> int:
    """Number of a module's parameters with two axes or more."""
    return sum(parameter.ndim >= 2 for parameter in module.parameters())


def _is_layer(module: nn.Module) -> bool:
    """Whether a module has two matrices or more: an expert's projection or a table of embeddings
    has one."""
    return _matrices(module) >= 2


def _named(model: nn.Module, patterns: Sequence[str]) -> list[Block]:
    """The modules whose names match, in the order of the model."""
    modules = dict(model.named_modules(remove_duplicate=False))
    matching = [
        path for path in modules if path and any(fnmatchcase(path, pattern) for pattern in patterns)
    ]
    # * goes through dots: the outermost are meant
    inner = {path for path in matching for above in matching if path.startswith(f"{above}.")}
    blocks = [Block(path, modules[path]) for path in matching if path not in inner]
    if not blocks:
        some = ", ".join([path for path in modules if path][:4])
        raise ValueError(
            f"blocks must name modules of the model, such as {some}; got {', '.join(patterns)!r}"
        )
    return blocks


def is_compiled(module: nn.Module) -> bool:
    """Whether a module, or one within it, runs as compiled code."""
    return any(
        inner._compiled_call_impl is not None or hasattr(inner, "_orig_mod")
        for inner in module.modules()
    )


# How it is called.


Batch = Tensor | tuple[Any, ...] | Mapping[str, Any] | Callable[[nn.Module], Any]
Loss = Callable[[Any], Tensor]
DIRECTION_SEED = 0


def unwrapped(model: nn.Module) -> nn.Module:
    """The model within the wrappers of compilers and of DataParallel.

    Raises:
        ValueError: its parameters have no numbers, or only a part of them.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"model must be Python code; {name or 'it'} is TorchScript")
        if type(module).__name__ == "FullyShardedDataParallel":
            raise ValueError(
                f"model must be whole in this process; {name or 'it'} is sharded: use ex.watch"
            )
    while type(model).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel"):
        model = model._modules["_orig_mod" if "_orig_mod" in model._modules else "module"] or model
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(
                f"model must have numbers; its parameter {name} has no shape yet: run it once"
            )
        if parameter.is_meta:
            raise ValueError(f"model must have numbers; its parameter {name} is on the meta device")
        if type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor":
            raise ValueError(
                f"model must be whole in this process; its parameter {name} is sharded: use ex.watch"
            )
    return model


def called(model: nn.Module, batch: Batch) -> Any:
    """The model's output for a batch.

    Raises:
        TypeError: the batch is none.
        ValueError: it is empty.
    """
    if callable(batch) and not isinstance(batch, (Tensor, Mapping)):
        return batch(model)
    if not isinstance(batch, (Tensor, tuple, list, Mapping)):
        raise TypeError(
            "batch must be a tensor, a tuple or a mapping of arguments, or a function of the model; got "
            f"{shown(batch)} of type {type(batch).__name__}"
        )
    tensors = tensors_in((dict(batch) if isinstance(batch, Mapping) else batch,))
    if not tensors or any(tensor.numel() == 0 for tensor in tensors):
        raise ValueError(
            f"batch must hold at least one token; got {[tuple(x.shape) for x in tensors] or 'no tensor'}"
        )
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch) if isinstance(batch, Tensor) else model(*batch)


def loss_of(output: Any, loss: Loss | None) -> tuple[Tensor, float]:
    """The scalar to differentiate: the caller's loss, else the output's own, else a projection on a
    random direction.

    Returns:
        the scalar, and its factor: with a direction of unit norm, gradients would vanish in half
        precision.
    Raises:
        ValueError: it is no scalar, or depends on nothing.
    """
    own, scale = getattr(output, "loss", None), 1.0
    if loss is not None:
        if not callable(loss):
            given = f"{shown(loss)} of type {type(loss).__name__}"
            raise TypeError(f"loss must be a function of the model's output; got {given}")
        value = loss(output)
        if not isinstance(value, Tensor) or value.numel() != 1:
            given = (
                f"a tensor of shape {tuple(value.shape)}"
                if isinstance(value, Tensor)
                else shown(value)
            )
            raise ValueError(f"loss must give one number; got {given}")
    elif isinstance(own, Tensor) and own.numel() == 1:
        value = own
    else:
        value, scale = projected(output)
    if not value.requires_grad:
        raise ValueError("loss must depend on the model's parameters; it has no gradient")
    return value.reshape(()), scale


def scalar_of(output: Any) -> Tensor | None:
    """The loss in a model's output: what is named so, else its first single floating number with
    a gradient."""
    named = _learned(getattr(output, "loss", None))
    return next(
        (tensor for tensor in [*named, *_learned(_plain(output))] if tensor.numel() == 1), None
    )


def output_of(output: Any, least: int = 2) -> Tensor | None:
    """The first floating tensor with a gradient, and with at least `least` numbers, in a model's
    output."""
    return next((tensor for tensor in _learned(_plain(output)) if tensor.numel() >= least), None)


def _learned(values: Any) -> list[Tensor]:
    """The floating tensors with a gradient among some values."""
    return [
        tensor
        for tensor in tensors_in(values)
        if tensor.is_floating_point() and tensor.requires_grad
    ]


def projected(output: Any, least: int = 1) -> tuple[Tensor, float]:
    """The projection of an output's first floating tensor on a random direction, and its factor:
    see `loss_of`.

    Args:
        output: of the model.
        least: numbers that the tensor must have; 2 passes over a loss.
    Raises:
        ValueError: the output has no such tensor.
    """
    tensors, floating = tensors_in(_plain(output)), output_of(output, least)
    if floating is None:
        kinds = ", ".join(
            f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}" for x in tensors[:3]
        )
        raise ValueError(
            "loss must be given, for the model's output has no floating tensor with a gradient; "
            f"it has {kinds or shown(output)}"
        )
    numbers = torch.Generator().manual_seed(DIRECTION_SEED)
    exact = floating if floating.dtype == torch.float64 else floating.float()
    value = (exact * torch.randn(floating.shape, generator=numbers).to(exact)).sum()
    return value, math.sqrt(floating.numel())


def repeated(model: nn.Module, batch: Batch) -> list[list[Block]]:
    """Blocks that one pass calls several times: modules that several layers share. Of nested ones
    the outermost."""
    calls: Counter[str] = Counter()
    modules = dict(model.named_modules())
    with torch.no_grad(), ExitStack() as hooks:
        for name, module in modules.items():
            count = partial(lambda name, *_: calls.update([name]), name)
            hooks.callback(module.register_forward_hook(count).remove)
        called(model, batch)
    layers = [name for name in calls if name and calls[name] > 1 and _is_layer(modules[name])]
    inner = {name for name in layers for above in layers if name.startswith(f"{above}.")}
    return [[Block(name, modules[name])] for name in layers if name not in inner]


def _plain(output: Any) -> Any:
    """The values of a dataclass or of an object with attributes, as a tuple; any other output as
    it is."""
    if is_dataclass(output) and not isinstance(output, (type, Mapping)):
        return tuple(getattr(output, field.name) for field in fields(output))
    if not isinstance(output, (Tensor, Mapping, list, tuple)) and hasattr(output, "__dict__"):
        return tuple(vars(output).values())
    return output


def make(name: str) -> tuple[Any, ...]:
    """Calls a person's own function, named on the command line, that makes a model and a batch.

    Modules of the current folder come before installed ones.

    Args:
        name: "package.module:function"; the function takes nothing and returns (model, batch) or
            (model, batch, loss).
    Raises:
        ValueError: it is not there, it fails, or it returns something else.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"factory must be package.module:function; got {name!r}")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        factory = getattr(importlib.import_module(module), function, None)
    except Exception as error:
        raise ValueError(
            f"factory must be importable; {module} is not: {named_error(error)}"
        ) from error
    if not callable(factory):
        raise ValueError(f"factory must be a function; {module} has no {function}")
    try:
        made = factory()
    except Exception as error:
        raise ValueError(
            f"factory must run without arguments; {name} raised {named_error(error)}"
        ) from error
    if not is_made(made):
        raise ValueError(
            f"factory must return (model, batch) or (model, batch, loss); {name} returned {shown(made)}"
        )
    return tuple(made)


def is_made(made: object) -> bool:
    """Whether this is (model, batch) or (model, batch, loss), which factories return."""
    return isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], nn.Module)


def named_error(error: Exception) -> str:
    """An exception in one line: its type and its message."""
    return " ".join(f"{type(error).__name__}: {error}".split())
