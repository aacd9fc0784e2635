"""Threads of a measurement: independent seeds side by side, few threads each.

A layer's products are small. Split over threads they wait for each other more than they work, most of all in deep,
narrow models; seeds have nothing to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from explorer.config import Config

SMALL = 2**16
"""Numbers in a layer's stream up to which a second thread costs more than it brings."""
SIDE_BY_SIDE_BYTES = 1e9
"""Bytes that passes running together may take; a single pass may take more."""

_lock = threading.Lock()
_inside = 0
_outside_threads = 1


def shares(config: Config, device: torch.device) -> tuple[int, int]:
    """Number of seeds that run at a time, and of threads for each.

    A first seed on its own, on all threads, would be done a fifth to two fifths sooner, and the last as much later.
    """
    processors = torch.get_num_threads()
    if device.type != "cpu":
        return 1, processors
    workers = max(1, min(config.n_seeds, processors, int(SIDE_BY_SIDE_BYTES // bytes_of(config))))
    small = config.batch_size * config.n_ctx * config.d_model <= SMALL
    return workers, 1 if small else max(1, processors // workers)


def bytes_of(config: Config) -> float:
    """Bytes that one seed's pass takes, about."""
    return 2 * config.sizes.activation_bytes + 8 * config.sizes.n_parameters


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Limits torch to so many threads for a while. The setting is the process's; the last to leave restores it."""
    global _inside, _outside_threads
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
