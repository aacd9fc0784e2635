"""More than one process: what of a tensor lies here, and sums over all processes.

Sums of squares are added, never norms averaged, so a sharded norm is whole. What several processes hold alike is
divided by their number before it is added.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def count() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def first() -> bool:
    """Whether this is the process that writes to files and services."""
    return count() == 1 or dist.get_rank() == 0


def local(x: Tensor) -> Tensor:
    """This process's part of a tensor, detached; a sum whose terms lie in several processes is added up first."""
    x = x.detach()
    sharded = as_dtensor(x)
    if sharded is None:
        return x
    from torch.distributed.tensor import Replicate

    if any(placement.is_partial() for placement in sharded.placements):
        whole = [Replicate() if placement.is_partial() else placement for placement in sharded.placements]
        sharded = sharded.redistribute(placements=whole)
    return sharded.to_local()


def copies(x: Tensor) -> int:
    """How many processes hold each number of a weight: all, unless it is sharded."""
    sharded = as_dtensor(x)
    if sharded is None:
        return count()
    shards = 1
    for axis, placement in enumerate(sharded.placements):
        shards *= sharded.device_mesh.size(axis) if placement.is_shard() else 1
    return count() // shards


def head_share(block: nn.Module) -> tuple[int, int]:
    """Which share of a block's heads this process computes, and into how many shares they are split.

    Where weights are sharded even during the pass, heads are split over the same processes (tensor parallelism). A
    fully sharded block gathers its weights before its pass, and computes every head.
    """
    for parameter in block.parameters():
        sharded = as_dtensor(parameter)
        for axis, placement in enumerate(sharded.placements if sharded is not None else ()):
            if sharded is not None and placement.is_shard():
                return sharded.device_mesh.get_local_rank(axis), sharded.device_mesh.size(axis)
    return 0, 1


def reduce(sums: Tensor, maxima: Tensor) -> tuple[Tensor, Tensor]:
    """Sums and maxima over all processes: two calls, whatever is watched. Every process must take part."""
    if count() > 1:
        dist.all_reduce(sums, dist.ReduceOp.SUM)
        dist.all_reduce(maxima, dist.ReduceOp.MAX)
    return sums, maxima


def as_dtensor(x: Tensor) -> DTensor | None:
    """The tensor as one that is spread over processes, or None if it is not."""
    if type(x) in (Tensor, nn.Parameter) or not dist.is_available():
        return None
    return cast("DTensor", x) if isinstance(x, _dtensor()) else None


@cache
def _dtensor() -> type[Tensor]:
    from torch.distributed.tensor import DTensor

    return DTensor


def reduction_device(device: torch.device) -> torch.device:
    """Where numbers must lie to be reduced: gloo takes those of the processor, NCCL those of its GPU."""
    return torch.device("cpu") if count() > 1 and "nccl" not in dist.get_backend() else device
