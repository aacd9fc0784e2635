"""The repeated blocks of any module: what a layer of its Transformer is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn

from explorer.display import shown

Signature = tuple[type[nn.Module], tuple[type[nn.Module], ...]]


class Block(NamedTuple):
    """A module that is one layer of a stack."""

    path: str
    """Its name within the model, such as transformer.h.3; its first where it has several."""
    module: nn.Module


def find_stacks(model: nn.Module, blocks: str | Sequence[str] | None = None) -> list[list[Block]]:
    """Every stack of blocks, the longest first, and of equals the later one: a decoder comes before its encoder.

    A stack is what a container holds by number: two or more modules of one class that have matrices, and are not
    themselves parts of a block. Layers of other classes between them are of the stack too.

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
            raise TypeError(f"blocks must be a name, several, or a mapping of sites to names; got {kind}")
        return [_named(model, names)]
    runs: list[list[Block]] = []
    _search(model, "", runs)
    if not runs:
        raise ValueError(f"blocks must be named, for {type(model).__name__} has no repeated modules; "
                         'say blocks="…", a name from model.named_modules() in which * stands for anything')
    runs.reverse()
    return sorted(runs, key=len, reverse=True)


def _search(module: nn.Module, path: str, outermost: list[list[Block]]) -> None:
    """Adds the stacks below a module to `outermost`: what is repeated within a block is not looked at."""
    children = {name: child for name, child in module._modules.items() if child is not None}
    runs: dict[Signature, list[Block]] = {}
    for name, child in children.items():
        inner = _only(child)
        if re.search(r"\d$", name) and _matrices(inner):
            runs.setdefault(_signature(inner), []).append(Block(f"{path}.{name}".lstrip("."), child))
    stacks = [run for run in runs.values() if len(run) > 1 and _is_layer(run[0].module)]
    every = sorted((block for run in runs.values() for block in run if _is_layer(block.module)), key=_number)
    if stacks and isinstance(module, nn.ModuleList):
        stacks = [every]
    elif len(stacks) == 1:  # a layer between two is one of them; a stem or a head is not
        ends = [_number(block) for block in (stacks[0][0], stacks[0][-1])]
        stacks = [[block for block in every if ends[0] <= _number(block) <= ends[1]]]
    for stack in stacks:
        outermost += _inner(stack) or [stack]
    taken = {id(block.module) for run in stacks for block in run}
    for name, child in children.items():
        if id(child) not in taken:
            _search(child, f"{path}.{name}".lstrip("."), outermost)


def _number(block: Block) -> int:
    """Its place in the container."""
    return int(re.findall(r"\d+$", block.path)[0])


def _inner(stages: list[Block]) -> list[list[Block]]:
    """The stacks within stages that are stacks themselves, those of one shape as one; none within layers.

    A layer may hold a list of experts, but those have no norms of their own.
    """
    parts: list[list[Block]] = []
    for stage in stages:
        held: list[list[Block]] = []
        _search(stage.module, stage.path, held)
        counts = [_matrices(block.module) for run in held for block in run]
        if counts and _matrices(stage.module) - sum(counts) <= max(counts):  # else they are parts of a layer
            parts += held
    joined: dict[object, list[Block]] = {}
    for part in parts:
        if any(_is_norm(module) for module in part[0].module.modules()):
            first = _only(part[0].module)
            shapes = tuple(parameter.shape for parameter in first.parameters())
            joined.setdefault((_signature(first), shapes), []).extend(part)
    return list(joined.values())


def _is_norm(module: nn.Module) -> bool:
    """Whether it learns by feature and nothing else."""
    own = list(module.parameters(recurse=False))
    return bool(own) and all(parameter.ndim == 1 for parameter in own)


def _only(module: nn.Module) -> nn.Module:
    """The module inside any wrappers that hold a single module and nothing else."""
    children = list(module.children())
    while len(children) == 1 and not list(module.parameters(recurse=False)):
        module = children[0]
        children = list(module.children())
    return module


def _signature(module: nn.Module) -> Signature:
    """Its class; of a Sequential, which may be anything, those of its parts too."""
    parts = module.children() if isinstance(module, (nn.Sequential, nn.ModuleList)) else ()
    return type(module), tuple(type(part) for part in parts)


def _matrices(module: nn.Module) -> int:
    return sum(parameter.ndim >= 2 for parameter in module.parameters())


def _is_layer(module: nn.Module) -> bool:
    """Whether it is more than a single matrix: an expert or an embedding table is none."""
    return _matrices(module) >= 2


def _named(model: nn.Module, patterns: Sequence[str]) -> list[Block]:
    """Modules whose names match, in the order of the model."""
    modules: Mapping[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
    stages = {path: module for path, module in modules.items()
              if path and any(fnmatchcase(path, pattern) for pattern in patterns)}
    parts = [Block(path, module) for path, module in stages.items()  # * goes through dots: the outermost are meant
             if not any(path.startswith(f"{above}.") for above in stages)]
    if not parts:
        some = ", ".join([path for path in modules if path][:4])
        raise ValueError(f"blocks must name modules of the model, such as {some}; got {', '.join(patterns)!r}")
    return parts


def is_compiled(module: nn.Module) -> bool:
    """Whether part of a module runs as compiled code."""
    return any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in module.modules())
