"""The matrices of a model at an optimizer's step: norms of their gradients, and of their change over their own."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from explorer.measuring.statistics import norms
from explorer.own.blocks import Block
from explorer.own.processes import copies, local
from explorer.own.sums import HALF

WRAPPERS = re.compile(r"(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.(?=.)")
"""Parts of names that wrappers add; weights are named without them."""


class Matrix(NamedTuple):
    """A weight with two axes or more, and where it belongs."""

    site: str
    """Its name within its block, or within the model where it is in none."""
    layer: int | None
    """Its block, from 0."""
    weight: nn.Parameter


class Weights:
    """Squared norms of every matrix's gradient and change at one step, as shares that processes add up.

    Args:
        model: whose.
        blocks: its layers.
    """

    def __init__(self, model: nn.Module, blocks: list[Block]) -> None:
        self.model, self.blocks = model, blocks
        self.kept: dict[int, Tensor] = {}

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Every matrix; looked up at the step itself, for sharding puts others in their places."""
        return matrices(self.model, self.blocks)

    @cached_property
    def numbers(self) -> list[list[float]]:
        """By matrix: Σ g², whether it has a gradient, Σ ΔW², Σ W², whether it was stepped."""
        return [[0.0] * 5 for _ in self.matrices]

    def before(self, stepped: set[int], scale: float) -> None:
        """Before an optimizer's step: reads its gradients, and copies the weights that it will change.

        Args:
            stepped: `id` of each parameter that it steps.
            scale: what the gradients are still multiplied by.
        """
        self.gradients(scale)
        self.kept = {
            index: local(matrix.weight).clone() for index, matrix in enumerate(self.matrices)
            if id(matrix.weight) in stepped and matrix.weight.grad is not None
        }

    def after(self) -> None:
        """After the step: reads the change of the weights."""
        if not self.kept:
            return
        old = list(self.kept.values())
        size = squares(old)
        torch._foreach_sub_(old, [local(self.matrices[index].weight) for index in self.kept])
        for index, moved, held in zip(self.kept, squares(old), size, strict=True):
            share = 1 / copies(self.matrices[index].weight)
            self.numbers[index][2:] = [moved * share, held * share, 1.0]
        self.kept.clear()

    def gradients(self, scale: float = 1.0) -> bool:
        """Reads the gradients that are there, over a scale; whether there are any."""
        gradients = {index: matrix.weight.grad for index, matrix in enumerate(self.matrices)
                     if matrix.weight.grad is not None}
        for index, square in zip(gradients, squares([dense(local(x)) for x in gradients.values()]), strict=True):
            self.numbers[index][:2] = [square / scale**2 / copies(self.matrices[index].weight), 1.0]
        return bool(gradients)


def matrices(model: nn.Module, blocks: list[Block]) -> list[Matrix]:
    """Every matrix of a model once, those of the blocks first."""
    inner = [Matrix(plain(name), layer, weight) for layer, block in enumerate(blocks)
             for name, weight in block.module.named_parameters() if weight.ndim > 1]
    held = {id(matrix.weight) for matrix in inner}
    return inner + [Matrix(plain(name), None, weight) for name, weight in model.named_parameters()
                    if weight.ndim > 1 and id(weight) not in held]


def plain(name: str) -> str:
    """A name without what wrappers add to it."""
    return WRAPPERS.sub("", name)


def squares(tensors: list[Tensor]) -> list[float]:
    """Sum of squares of each tensor: half precision in float32, and no overflow (see `probe.statistics.norms`)."""
    totals = [0.0] * len(tensors)
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.numel():  # a process may have no part of a small matrix
            kinds.setdefault((tensor.device, tensor.dtype), []).append(index)
    for (_, dtype), indices in kinds.items():
        some = [tensors[index] for index in indices]
        if dtype in HALF:
            sizes = torch.stack([torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in some]).tolist()
        else:
            sizes = norms(some)
        for index, size in zip(indices, sizes, strict=True):
            totals[index] = size * size
    return totals


def dense(gradient: Tensor) -> Tensor:
    """The numbers of a gradient; those of a sparse one, where the rest is zero."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient
