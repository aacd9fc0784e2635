"""How seeds share a machine: on threads side by side, or several in one pass.

A layer's products are small. Split over threads they wait for each other more than they work, most
of all in deep, narrow models; seeds have nothing to wait for. A narrow model's pass is calls more
than arithmetic, and the weights of several seeds side by side need no more calls than one seed's:
see `products`. Wide models gain nothing, for one seed's numbers fill the caches by themselves; nor
is there a model of several seeds for each design: `limits.gains` and `limits.can_share`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from explorer.config import Config
from explorer.limits import OTHERS, SEEDS, SIDE_BY_SIDE_BYTES
from explorer.stopping import Stop
from explorer.vocabulary import Array, Key

if TYPE_CHECKING:
    import torch

SMALL = 2**16
"""Numbers in a layer's stream up to which a second thread costs more than it brings."""

_lock = threading.Lock()
_inside = 0
"""Blocks of `torch_threads` that are running."""
_outside_threads = 1
"""Torch's threads before the first of them."""


def shares(config: Config, device: torch.device) -> tuple[int, int]:
    """Number of seeds that run at a time, and of torch's threads for each.

    A first seed on its own, on all threads, would be done a fifth to two fifths sooner, and the
    last as much later."""
    import torch

    processors = torch.get_num_threads()
    if device.type != "cpu":
        return 1, processors
    fit = int(SIDE_BY_SIDE_BYTES // config.sizes.pass_bytes)  # into memory
    workers = max(1, min(config.n_seeds, processors, fit))
    if config.batch_size * config.n_ctx * config.d_model <= SMALL:
        return workers, 1
    return workers, max(1, processors // workers)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Limits torch to so many threads within a block. The setting is the process's: of blocks on
    several threads, the last to end restores it."""
    global _inside, _outside_threads
    import torch

    with _lock:
        if not _inside:
            _outside_threads = torch.get_num_threads()
        _inside += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                torch.set_num_threads(_outside_threads)


def device() -> torch.device:
    """Device of the measurements: EXPLORER_DEVICE = auto (a GPU if there is one), cpu or cuda.

    Raises:
        ValueError: the variable has another value, or asks for a GPU where there is none.
    """
    import torch

    choice = os.environ.get("EXPLORER_DEVICE", "auto")
    if choice not in ("auto", "cpu", "cuda"):
        raise ValueError(f"EXPLORER_DEVICE must be one of auto, cpu, cuda; got {choice!r}")
    has_gpu = choice != "cpu" and torch.cuda.is_available()
    if choice == "cuda" and not has_gpu:
        raise ValueError("EXPLORER_DEVICE = cuda needs a GPU that torch can use; there is none")
    return torch.device("cuda" if has_gpu else "cpu")


# Seeds that share a pass.


class Run(NamedTuple):
    """The numbers of the seeds that share a pass."""

    values: list[dict[Key, Array]]
    """For each seed, statistic and site to `[layer]` or `[layer, head]`."""
    pattern: Array | None
    """The attention pattern that is kept, of the first of them."""


Compute = Callable[
    [
        Config,
        Sequence[range],
        tuple[int, int],
        bool,
        Stop,
        Callable[[int, float], None],
        Callable[[Run], None],
    ],
    None,
]
"""Computes the runs of a config, each the seeds of one pass. After them it takes `measure`'s
pattern_of, backward and stop, a function called with the number of a run and the fraction of it
that is done, from any thread, and one called with the result of each, in order and on the calling
thread."""


def runs_of(config: Config, soon: bool = False) -> list[range]:
    """The seeds of a config, by pass.

    Args:
        soon: whether the first seed is waited for: it has a pass of its own, also where the others
            share theirs.
    """
    seeds = range(config.seed, config.seed + config.n_seeds)
    if config.sizes.together == 1:
        return [seeds[index : index + 1] for index in range(len(seeds))]
    if not soon:
        return [seeds[start : start + SEEDS] for start in range(0, len(seeds), SEEDS)]
    others = [seeds[start : start + OTHERS] for start in range(1, len(seeds), OTHERS)]
    return [seeds[:1], *others]
