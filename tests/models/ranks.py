"""One of two processes that train together; `test_processes` starts both and compares what they
read.

RANK=… WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=… python tests/models/ranks.py FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from small_models import batch, llama, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import explorer as ex

SIZE, STEPS = 8, 3
SPLIT = {
    **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}
"""Tensor parallelism as everybody does it: heads and neurons over the processes."""


def data_parallel(model: nn.Module) -> tuple[nn.Module, ex.Watch]:
    """Watched, then wrapped."""
    watch = ex.watch(model, every=2, spectra=True)
    return DistributedDataParallel(model), watch


def wrapped_first(model: nn.Module) -> tuple[nn.Module, ex.Watch]:
    """Wrapped, then watched."""
    model = DistributedDataParallel(model)
    return model, ex.watch(model, every=2, spectra=True)


def sharded(model: nn.Module) -> tuple[nn.Module, ex.Watch]:
    """Every block's weights are sharded, and gathered for its passes."""
    for layer in model.layers:  # type: ignore[union-attr]
        fully_shard(layer)
    fully_shard(model)
    return model, ex.watch(model, every=2, spectra=True)


def sharded_later(model: nn.Module) -> tuple[nn.Module, ex.Watch]:
    """Watched, then sharded."""
    watch = ex.watch(model, every=2, spectra=True)
    return sharded(model)[0], watch


def tensor_parallel(model: nn.Module) -> tuple[nn.Module, ex.Watch]:
    """Every matrix of the blocks is split, in the passes too; both processes see the whole
    batch."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:  # type: ignore[union-attr]
        parallelize_module(layer, mesh, SPLIT)
    return model, ex.watch(model, every=2, spectra=True)


WAYS: dict[str, Callable[[nn.Module], tuple[nn.Module, ex.Watch]]] = {
    "data_parallel": data_parallel,
    "wrapped_first": wrapped_first,
    "sharded": sharded,
    "sharded_later": sharded_later,
    "tensor_parallel": tensor_parallel,
}


def run(model: nn.Module, rank: int = 0, processes: int = 1) -> None:
    """Trains on this process's part of the batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(step, SIZE).chunk(processes)[rank]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def main(folder: Path) -> None:
    """Trains each way, and writes what was read."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    for name, way in WAYS.items():
        model, watch = way(llama())
        run(model, *((0, 1) if name == "tensor_parallel" else (rank, processes)))
        watch.frame().to_csv(folder / f"{name}-{rank}.csv", index=False)
        watch.remove()
    model = llama()
    if rank == 1:
        model.layers[1].mlp.act_fn.register_forward_hook(lambda _, args, out: out * float("nan"))  # type: ignore[union-attr, index]
    watch = ex.watch(model, every=2)
    run(DistributedDataParallel(model), rank, processes)
    (folder / f"first-{rank}").write_text(str(watch.first_nonfinite))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(Path(sys.argv[1]))
