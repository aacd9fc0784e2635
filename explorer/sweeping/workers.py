"""Where cells are computed: in this process, on a pool of processes of this machine, or on somebody's executor."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from explorer.limits import machine_memory

IDLE_SECONDS = 60
"""After which the processes of this machine's pool end."""


class Here(Executor):
    """Computes in the calling thread, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's, as on any executor
            future.set_exception(error)
        return future


class Workers(NamedTuple):
    """An executor, and what a sweep must know of it."""

    executor: Executor
    slots: int
    """Cells that are computed at a time."""
    threads: int | None
    """Of torch, for each; None leaves torch as it is."""
    memory: float
    """Bytes that a cell may take."""
    renew: Callable[[], Executor] | None = None
    """Makes another one where a process of it was killed; None where it is somebody's own."""
    end: Callable[[], None] = lambda: None
    """Abandons what is computed."""

    @property
    def most(self) -> int:
        """Batches that are handed out at a time: one is computed in each slot, and one waits for it."""
        return 1 if isinstance(self.executor, Here) else 2 * self.slots

    @property
    def inside(self) -> bool:
        """Whether cells are computed in this process, where they may be stopped half-way."""
        return isinstance(self.executor, Here | ThreadPoolExecutor)


def local(need: float) -> Workers:
    """This machine's pool: as many processes as there are processors, or fewer where memory does not hold so many.

    Args:
        need: bytes of the largest cell.
    """
    cores, memory = processors(), machine_memory()
    slots = max(1, min(cores, int(memory // max(need, 1))))
    threads = max(1, cores // slots)
    if slots == 1:
        return Workers(Here(), 1, None, memory)

    def pool() -> Executor:
        from loky import get_reusable_executor

        executor: Executor = get_reusable_executor(slots, timeout=IDLE_SECONDS)
        return executor

    def end() -> None:
        from loky import get_reusable_executor

        get_reusable_executor(slots, reuse=True).shutdown(kill_workers=True)

    return Workers(pool(), slots, threads, memory / slots, pool, end)


def of(executor: Executor) -> Workers:
    """Somebody's executor: a thread of torch for each slot, and the memory of its smallest worker."""
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "scheduler_info"):  # dask.distributed
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        slots = sum(worker["nthreads"] for worker in workers)
        memory = min((worker["memory_limit"] / worker["nthreads"] for worker in workers if worker["memory_limit"]),
                     default=float("inf"))
        return Workers(executor, max(1, slots), 1, memory)
    inside = isinstance(executor, Here | ThreadPoolExecutor)
    slots = 1 if isinstance(executor, Here) else getattr(executor, "_max_workers", processors())
    return Workers(executor, slots, None if slots == 1 and inside else max(1, processors() // slots), machine_memory())


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
