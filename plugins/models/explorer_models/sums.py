"""Mergeable sums over the numbers of a tensor: micro-batches and processes are added, and divided
once, at the end.

Nothing waits for the device before a reading does. Where a value first was not finite is looked for
at every step: each look leaves one number on the device, and at the end of a step a handful of
calls turns them into the earliest place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from explorer.vocabulary import Array
from explorer_models.texts import text

HALF = (torch.float16, torch.bfloat16)


class Sums(NamedTuple):
    """Sums over the numbers of some tensors, or over a head's rows, on their device."""

    parts: Tensor
    """`[5, …]`; of tensors: count, Σx, Σx², Σx⁴, and how many are not finite."""
    largest: Tensor
    """`[…]`; of tensors: max |x|, nan if one number is."""

    @classmethod
    def of(cls, x: Tensor, squares_alone: bool = False) -> Sums:
        """The sums of one tensor. Its powers are taken relative to its largest number, so that x⁴
        fits into float32.

        Args:
            squares_alone: whether to take Σx² and leave 0 for the other sums.
        """
        x = x.float() if x.dtype in HALF else x
        parts = x.new_zeros(5, dtype=wide_on(x.device))
        if not x.numel():
            return cls(parts, parts[0])
        most = largest(x)
        unit = most.where(most.isfinite() & (most > 0), 1)
        scaled, wide, parts[0] = x / unit, unit.to(parts), x.numel()
        if squares_alone:
            parts[2] = (torch.linalg.vector_norm(scaled).to(parts) * wide) ** 2
        else:
            parts[1] = scaled.sum().to(parts) * wide
            parts[2] = scaled.square_().sum().to(parts) * wide**2
            parts[3] = scaled.square_().sum().to(parts) * wide**4
            parts[4] = torch.count_nonzero(x - x)  # 0 of a finite number, nan of any other
        return cls(parts, most.to(parts))

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        """The sums over both."""
        parts, largest = other.parts.to(self.parts.device), other.largest.to(self.parts.device)
        return Sums(self.parts + parts, torch.maximum(self.largest, largest))


def largest(x: Tensor) -> Tensor:
    """max |x| `[]`: finite if, and only if, all of x is; 0 of an empty tensor. On a processor 20
    × faster than a norm."""
    if not x.numel():
        return x.new_zeros(())
    least, most = torch.aminmax(x)
    return torch.maximum(most, -least)


def wide_on(device: torch.device) -> torch.dtype:
    """The type in which sums are kept: float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


NEVER, PLACES = 2**53, 2**20
"""A step and a position within it are one whole number, the position last, that float64
represents exactly."""


class Breakdown(NamedTuple):
    """The first value that was not finite."""

    step: int
    """Updates made before it."""
    module: str
    """Whose output it is in, or whose output's gradient."""
    direction: str
    """forward or backward."""

    def __str__(self) -> str:
        return text("breakdown", self.direction, step=self.step, module=self.module)


class Sentinel:
    """Gathers the largest |x| of every place at every step, and remembers when each first was
    not finite.

    Args:
        places: names of the places.
    """

    def __init__(self, places: list[str]) -> None:
        self.places = places
        self.pending: list[tuple[int, Tensor]] = []
        self.earliest: Tensor | None = None
        self.known: tuple[tuple[int, ...], Tensor, Tensor] | None = None

    def look(self, place: int, backward: bool, largest: Tensor) -> None:
        """Takes the largest |x| at a place, of a tensor or of its gradient."""
        self.pending.append((2 * place + backward, largest))

    def fold(self, step: int) -> None:
        """Ends a step: keeps the earliest time of each place that was not finite."""
        if not self.pending:
            return
        order = tuple(place for place, _ in self.pending)
        if self.earliest is None:
            device = self.pending[0][1].device
            self.earliest = torch.full(
                (2 * len(self.places),), NEVER, dtype=torch.int64, device=device
            )
        device = self.earliest.device
        values = torch.stack(
            [value.to(device, torch.float32, non_blocking=True) for _, value in self.pending]
        )
        if self.known is None or self.known[0] != order:
            index = torch.tensor(order, device=device)
            self.known = order, index, torch.arange(len(order), device=device)
        now = (self.known[2] + step * PLACES).masked_fill(values.isfinite(), NEVER)
        self.earliest.scatter_reduce_(0, self.known[1], now, "amin")
        self.pending.clear()

    def times(self) -> Tensor:
        """`[2 · place]`, times of tensors and gradients by turns; negative, so that the maximum
        over processes is the earliest."""
        if self.earliest is None:
            return torch.full((2 * len(self.places),), -NEVER)
        return -self.earliest

    def first(self, times: Tensor | Array) -> Breakdown | None:
        """The earliest of all times that `times` gave; None where every value was finite."""
        if not len(times) or int(times.max()) == -NEVER:
            return None
        place = int(times.argmax())
        step = int(-times[place]) // PLACES
        return Breakdown(step, self.places[place // 2], ("forward", "backward")[place % 2])


# More than one process: sums of squares are added, never norms averaged, so a sharded norm is
# whole. What several processes hold alike is divided by their number before it is added.


def n_processes() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first_process() -> bool:
    """Whether this is the process that writes to files and services."""
    return n_processes() == 1 or dist.get_rank() == 0


def local(x: Tensor) -> Tensor:
    """This process's part of a tensor, detached. A sum whose terms lie in several processes is
    added up first."""
    sharded: Any = x.detach()
    placements = getattr(sharded, "placements", ())
    if any(placement.is_partial() for placement in placements):
        from torch.distributed.tensor import Replicate

        whole = [Replicate() if placement.is_partial() else placement for placement in placements]
        sharded = sharded.redistribute(placements=whole)
    shard: Tensor = sharded.to_local() if placements else sharded
    return shard


def shards(x: Any) -> Iterator[tuple[int, int]]:
    """This process's number, and the number of processes, along each axis over which a tensor is
    split."""
    for axis, placement in enumerate(getattr(x, "placements", ())):  # of a DTensor
        if placement.is_shard():
            yield x.device_mesh.get_local_rank(axis), x.device_mesh.size(axis)


def copies(x: Tensor) -> int:
    """How many processes hold each number of a weight: all, unless it is sharded."""
    return n_processes() // math.prod(size for _, size in shards(x))


def head_share(block: nn.Module) -> tuple[int, int]:
    """This process's share of a block's heads, from 0, and the number of shares.

    Where weights are sharded even during the pass, heads are split over the same processes (tensor
    parallelism). A fully sharded block gathers its weights before its pass, and computes every
    head."""
    return next((share for parameter in block.parameters() for share in shards(parameter)), (0, 1))


def over_processes(
    sums: Sequence[Tensor], maxima: Sequence[Tensor], device: torch.device
) -> tuple[list[Array], list[Array]]:
    """Each sum and each maximum over all processes: two calls, whatever is watched, and the only
    wait for the device.

    Every process must take part, with tensors of the same shapes.
    """
    # gloo takes numbers of the processor
    if n_processes() > 1 and "nccl" not in dist.get_backend():
        device = torch.device("cpu")
    results = []
    for parts, kind in ((sums, "SUM"), (maxima, "MAX")):
        flat = torch.cat([part.to(device, wide_on(device)).flatten() for part in parts])
        if n_processes() > 1:
            dist.all_reduce(flat, getattr(dist.ReduceOp, kind))
        pieces = torch.split(flat.double().cpu(), [part.numel() for part in parts])
        results.append(
            [piece.view(part.shape).numpy() for piece, part in zip(pieces, parts, strict=True)]
        )
    return results[0], results[1]
