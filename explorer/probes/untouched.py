"""What a probe must leave as it was: buffers, wishes for gradients, random state, and torch's own switches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import checkpoint


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Runs what is inside eagerly, with gradients by all parameters; whatever happens, the model stays what it was.

    Gradient checkpoints are passed over: activations are kept for once, so that nothing is computed twice.
    """
    with ExitStack() as stack:
        stack.enter_context(_buffers(model))
        stack.enter_context(_wishes(model))
        devices = sorted({one.device.index or 0 for one in model.parameters() if one.device.type == "cuda"})
        stack.enter_context(torch.random.fork_rng(devices))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 - a model may draw from it
        stack.enter_context(_switches(model))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


@contextmanager
def _buffers(model: nn.Module) -> Iterator[None]:
    """Puts the buffers back, with their numbers."""
    kept = [(module, dict(module._buffers), {name: one.clone() for name, one in module._buffers.items()
                                            if one is not None}) for module in model.modules()]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, held, numbers in kept:
                module._buffers.clear()
                module._buffers.update(held)
                for name, number in numbers.items():
                    if (one := held[name]) is not None:
                        one.copy_(number)


@contextmanager
def _wishes(model: nn.Module) -> Iterator[None]:
    """Has every parameter take part in the backward pass; frozen ones are frozen again."""
    kept = [(one, one.requires_grad) for one in model.parameters()]
    try:
        for one, _ in kept:
            if one.is_floating_point():
                one.requires_grad_()
        yield
    finally:
        for one, wish in kept:
            one.requires_grad_(wish)


@contextmanager
def _switches(model: nn.Module) -> Iterator[None]:
    """No call that hides a whole layer, no compiled code, no cast that outlives a block, no checkpoint."""
    fused, cached = torch.backends.mha.get_fastpath_enabled(), torch.is_autocast_cache_enabled()
    compiled = any(type(one).__name__ == "OptimizedModule" or one._compiled_call_impl is not None
                   for one in model.modules())
    eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()  # imports a lot
    shortcuts: list[tuple[Any, str, Any]] = [
        (checkpoint.CheckpointFunction, "apply", lambda function, _, *arguments: function(*arguments)),
        (checkpoint, "_checkpoint_without_reentrant_generator", lambda *_, **__: iter((None,))),
    ]
    kept = [(owner, name, vars(owner).get(name)) for owner, name, _ in shortcuts]
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        torch.set_autocast_cache_enabled(False)
        for owner, name, plain in shortcuts:
            setattr(owner, name, plain)
        with eager:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        torch.set_autocast_cache_enabled(cached)
        for owner, name, own in kept:
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
