"""How a stranger's model is called, and what is differentiated."""

from __future__ import annotations

import importlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from explorer.display import shown
from explorer.own.blocks import Block
from explorer.own.nodes import tensors_in

Batch = Tensor | tuple[Any, ...] | Mapping[str, Any] | Callable[[nn.Module], Any]
Loss = Callable[[Any], Tensor]
DIRECTION_SEED = 0


def unwrapped(model: nn.Module) -> nn.Module:
    """The model within what compiles or distributes it.

    Raises:
        ValueError: its parameters have no numbers, or only a part of them.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"model must be Python code; {name or 'it'} is TorchScript")
        if type(module).__name__ == "FullyShardedDataParallel":
            raise ValueError(f"model must be whole in this process; {name or 'it'} is sharded: use ex.watch")
    while type(model).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel"):
        model = model._modules["_orig_mod" if "_orig_mod" in model._modules else "module"] or model
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"model must have numbers; its parameter {name} has no shape yet: run it once")
        if parameter.is_meta:
            raise ValueError(f"model must have numbers; its parameter {name} is on the meta device")
        if type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor":
            raise ValueError(f"model must be whole in this process; its parameter {name} is sharded: use ex.watch")
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
        raise TypeError("batch must be a tensor, a tuple or a mapping of arguments, or a function of the model; got "
                        f"{shown(batch)} of type {type(batch).__name__}")
    held = tensors_in((dict(batch) if isinstance(batch, Mapping) else batch,))
    if not held or any(tensor.numel() == 0 for tensor in held):
        raise ValueError(f"batch must hold at least one token; got {[tuple(x.shape) for x in held] or 'no tensor'}")
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch) if isinstance(batch, Tensor) else model(*batch)


def loss_of(output: Any, loss: Loss | None) -> tuple[Tensor, float]:
    """The scalar to differentiate: the caller's loss, else the output's own, else a projection on a random direction.

    Returns:
        the scalar, and its factor: with a direction of unit norm, gradients would vanish in half precision.
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
            given = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else shown(value)
            raise ValueError(f"loss must give one number; got {given}")
    elif isinstance(own, Tensor) and own.numel() == 1:
        value = own
    else:
        tensors = tensors_in((_plain(output),))
        floating = next((tensor for tensor in tensors if tensor.is_floating_point() and tensor.requires_grad), None)
        if floating is None:
            kinds = ", ".join(f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}" for x in tensors[:3])
            raise ValueError("loss must be given, for the model's output has no floating tensor with a gradient; "
                             f"it has {kinds or shown(output)}")
        numbers = torch.Generator().manual_seed(DIRECTION_SEED)
        exact = floating if floating.dtype == torch.float64 else floating.float()
        value = (exact * torch.randn(floating.shape, generator=numbers).to(exact)).sum()
        scale = math.sqrt(floating.numel())
    if not value.requires_grad:
        raise ValueError("loss must depend on the model's parameters; it has no gradient")
    return value.reshape(()), scale


def repeated(model: nn.Module, batch: Batch) -> list[list[Block]]:
    """Blocks that one pass calls several times: layers that share one module. The outermost of those called most."""
    calls: Counter[str] = Counter()
    modules = dict(model.named_modules())
    with torch.no_grad(), ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(lambda *_, name=name: calls.update([name])).remove)
        called(model, batch)
    layers = [name for name, count in calls.items() if name and count > 1
              and sum(parameter.ndim > 1 for parameter in modules[name].parameters()) > 1]
    outer = [name for name in layers if not any(name.startswith(f"{other}.") for other in layers if other != name)]
    return [[Block(name, modules[name])] for name in outer]


def _plain(output: Any) -> Any:
    """The values of a dataclass or of an object with attributes, as a tuple; any other output as it is."""
    if is_dataclass(output) and not isinstance(output, (type, Mapping)):
        return tuple(getattr(output, field.name) for field in fields(output))
    if not isinstance(output, (Tensor, Mapping, list, tuple)) and hasattr(output, "__dict__"):
        return tuple(vars(output).values())
    return output


def make(name: str) -> tuple[Any, ...]:
    """Runs a person's own function, which makes a model and a batch, and is named on the command line.

    Modules of the current folder come before installed ones.

    Args:
        name: "package.module:function"; the function takes nothing and returns (model, batch) or (model, batch, loss).
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
        raise ValueError(f"factory must be importable; {module} is not: {_line(error)}") from error
    if not callable(factory):
        raise ValueError(f"factory must be a function; {module} has no {function}")
    try:
        made = factory()
    except Exception as error:
        raise ValueError(f"factory must run without arguments; {name} raised {_line(error)}") from error
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise ValueError(f"factory must return (model, batch) or (model, batch, loss); {name} returned {shown(made)}")
    return made


def _line(error: Exception) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
