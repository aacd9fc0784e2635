"""A person's own function that makes a model and a batch, named on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from explorer.display import shown
from explorer.own.calls import Batch, Loss


class Made(NamedTuple):
    """The model, batch and loss that a factory returns."""

    model: nn.Module
    batch: Batch
    loss: Loss | None = None


def make(name: str) -> Made:
    """Runs a factory and takes what it returns; modules of the current folder come before installed ones.

    Args:
        name: "package.module:function"; the function takes nothing and returns (model, batch) or (model, batch, loss).
    Raises:
        ValueError: it is not there, it fails, or it returns something else.
    """
    made = _run(_found(name), name)
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise ValueError(f"factory must return (model, batch) or (model, batch, loss); {name} returned {shown(made)}")
    return Made(*made)


def _found(name: str) -> Callable[[], Any]:
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
    return factory  # type: ignore[no-any-return]


def _run(factory: Callable[[], Any], name: str) -> Any:
    try:
        return factory()
    except Exception as error:
        raise ValueError(f"factory must run without arguments; {name} raised {_line(error)}") from error


def _line(error: Exception) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
