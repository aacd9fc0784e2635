"""`watch`: the one line beside a training loop."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim.optimizer import Optimizer

from explorer.display import must_be, shown
from explorer.probes.blocks import find_blocks
from explorer.watching import processes
from explorer.watching.handle import Watch
from explorer.watching.sinks import sinks


def watch(model: nn.Module, every: int = 50, sink: object = "memory", *,
          optimizer: Optimizer | Sequence[Optimizer] | None = None, blocks: str | Sequence[str] | None = None,
          evaluation: bool = False, start: int = 0) -> Watch:
    """Watches a model while it trains: a reading each `every` steps, and where a value first was not finite.

    A step ends when a torch optimizer has stepped, so gradients that are accumulated are one reading; a loop without
    one calls `Watch.step`. A step's number is that of the updates before it: step 0 is of the model as it was drawn.
    Training is bit for bit what it would have been.

    Where several processes train, each must watch; a reading is of all of them, and the first one writes it to sinks.
    A model that is to be compiled is watched first, then compiled: its stream, gradients by matrix and updates are
    read, its attention and gradients by the stream are not.

    Args:
        model: what is trained. DistributedDataParallel, `fully_shard` or tensor parallelism may come before or after.
        every: steps from one reading to the next.
        sink: where readings go besides memory: "tensorboard", "wandb", a folder for Parquet files, a SummaryWriter, a
            W&B run, or a list of such.
        optimizer: whose steps are counted; by default every torch optimizer of the model's parameters.
        blocks: names of the layers, in which * stands for anything; by default they are looked for.
        evaluation: whether passes in evaluation mode or without gradients are read as well.
        start: number of the first step, for a run that goes on.
    Raises:
        TypeError: the model or an optimizer is none.
        ValueError: the model is compiled already, or has no repeated blocks; `every` or `start` is no such number; a
            sink is none, needs what is not installed, or cannot be written.
    """
    must_be(nn.Module, "model", model)
    for name, value, least in (("every", every, 1), ("start", start, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number from {least} on; got {shown(value)}")
    given = [] if optimizer is None else [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    for one in given:
        must_be(Optimizer, "optimizer", one)
    if any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in model.modules()):
        raise ValueError("model must be watched before it is compiled: compiled code does not run hooks that come "
                         f"later; got a compiled {type(model).__name__}")
    found = find_blocks(model, blocks)
    return Watch(model, found, every, sinks(sink) if processes.first() else [], given, evaluation, start)
