"""Where cells are computed: in this process, in processes of this machine, on dask, or on any other executor.

This machine's processes are shared by all sweeps of this process, and end when they have been idle.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from explorer.limits import free_memory, settle
from explorer.memory import environment, machine_memory
from explorer.stopping import Stop
from explorer.sweeping.cell import Cell, Found

Compute = Callable[[list[Cell]], list[Found]]


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


class Workers:
    """An executor, with the facts that a sweep needs.

    Args:
        executor: computes the cells.
    """

    died: tuple[type[BaseException], ...] = (BrokenExecutor,)
    """Errors that say that a process was killed."""
    shared_fate = True
    """Whether all that was handed out is lost with a process that is killed."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.slots: int = 1 if isinstance(executor, Here) else getattr(executor, "_max_workers", processors())
        """Cells that are computed at a time."""
        self.inside = isinstance(executor, Here | ThreadPoolExecutor)
        """Whether they are computed in this process."""
        self.threads = None if self.inside and self.slots == 1 else max(1, processors() // self.slots)
        """Torch's threads for each slot; None leaves torch as it is."""
        self.memory = machine_memory()
        """Bytes that a cell may take."""

    @property
    def most(self) -> int:
        """Batches that are handed out at a time: one is computed in each slot, and one waits for it."""
        return 1 if isinstance(self.executor, Here) else 2 * self.slots

    @property
    def near(self) -> bool:
        """Whether cells are computed on this machine, but not in this process."""
        return isinstance(self.executor, ProcessPoolExecutor)

    def submit(self, compute: Compute, batch: list[Cell]) -> Future[list[Found]]:
        """Hands out cells."""
        return self.executor.submit(compute, batch)

    def look(self) -> str:
        """Updates the number of slots; gives the reason why nothing more can be computed, empty for none."""
        return ""

    def renew(self) -> bool:
        """Replaces a broken executor; False where it was given by the caller."""
        return False

    def end(self) -> None:
        """Ends what is computed at once, where that is possible."""


@dataclass(frozen=True)
class Flag:
    """A file that lies there while cells are wanted: any process of this machine sees at once that it is gone."""

    path: str

    @classmethod
    def raised(cls) -> Flag:
        """A new one."""
        with NamedTemporaryFile(prefix="explorer-sweep-", delete=False) as file:
            return cls(file.name)

    def __call__(self) -> bool:
        """Whether to stop."""
        return not os.path.exists(self.path)  # noqa: PTH110 - asked before each layer

    def lower(self) -> None:
        """Says stop."""
        Path(self.path).unlink(missing_ok=True)


def stopper(workers: Workers, stop: Stop) -> tuple[Stop | None, Flag | None]:
    """The function that tells a cell to stop: `stop` in this process, a flag for others of this machine, else None."""
    if workers.inside:
        return stop, None
    flag = None
    if workers.near:
        with suppress(OSError):  # no place for temporary files: cells end by themselves
            flag = Flag.raised()
    return flag, flag


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# `Cluster`: the workers of a dask scheduler, through `Client.get_executor()`; they may come and go meanwhile.


LOOK_SECONDS = 1.0
"""Seconds between two looks at which workers are connected."""


class Cluster(Workers):
    """A slot for each thread of each worker, and the memory of the smallest.

    Args:
        executor: of `Client.get_executor()`.
        client: whose it is.
    """

    shared_fate = False  # the scheduler hands what a killed worker had to others, a few times

    def __init__(self, executor: Executor, client: Any) -> None:
        from distributed import KilledWorker

        super().__init__(executor)
        self.client, self.died, self.threads = client, (KilledWorker,), 1
        self._next = 0.0
        self.look()

    def submit(self, compute: Compute, batch: list[Cell]) -> Future[list[Found]]:
        """Hands out cells; those that failed before are computed again."""
        return self.executor.submit(compute, batch, pure=False)  # type: ignore[call-arg]

    def look(self) -> str:
        """Updates slots and memory to the workers that are connected now; see `Workers.look`."""
        if self.client.status == "running" and time.monotonic() > self._next:
            self._next = time.monotonic() + LOOK_SECONDS
            with suppress(OSError):  # the connection broke just now, and the status will say so
                workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
                self.slots = max(1, sum(worker["nthreads"] for worker in workers))
                self.memory = min((worker["memory_limit"] / worker["nthreads"] for worker in workers
                                   if worker["memory_limit"]), default=float("inf"))
        return "" if self.client.status == "running" else "the connection to dask's scheduler is lost"


def workers_of(executor: Executor) -> Workers:
    """The workers of an executor, of dask's or any other."""
    client = getattr(executor, "_client", None)
    return Cluster(executor, client) if hasattr(client, "scheduler_info") else Workers(executor)


IDLE_SECONDS = 60
"""Seconds without work after which processes end."""
PROCESS = 300e6
"""Bytes that a process takes before it computes anything."""
ORPHANED_SECONDS = 1
"""Seconds between two looks of a process at whether its parent still lives."""
NICENESS = 5
"""Niceness of the processes: the page, and the theory that it shows first, come before them."""

_pools: dict[int, Executor] = {}
"""Number of processes to the pool that has so many."""
_lock = threading.Lock()


class Pool(Workers):
    """This machine's processes.

    Args:
        slots: how many, at least 2.
    """

    near = True

    def __init__(self, slots: int) -> None:
        from loky.process_executor import ShutdownExecutorError

        super().__init__(_pool(slots, None))
        self.slots, self.threads, self.memory = slots, max(1, processors() // slots), machine_memory() / slots
        self.died = (BrokenExecutor, ShutdownExecutorError)

    def renew(self) -> bool:
        """Replaces a broken pool."""
        self.executor = _pool(self.slots, self.executor)
        return True

    def end(self) -> None:
        """Kills its processes."""
        with _lock:
            if _pools.get(self.slots) is self.executor:
                del _pools[self.slots]
        self.executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]


def local_workers(need: float) -> Workers:
    """As many processes as there are processors (or EXPLORER_PROCESSES), or fewer where memory does not hold so many.

    Args:
        need: bytes of the largest cell.
    """
    slots = process_count(need)
    return Pool(slots) if slots > 1 else Workers(Here())


def process_count(need: float) -> int:
    """The number of processes of `local_workers`, at least one."""
    return max(1, int(min(environment("EXPLORER_PROCESSES", processors()), free_memory() // max(need, PROCESS))))


def _pool(slots: int, broken: Executor | None) -> Executor:
    """The pool with this number of processes, which is not the broken one."""
    from loky import ProcessPoolExecutor

    with _lock:
        if _pools.get(slots) is broken:
            # A cell that needs more memory than the first one is no leak, for which loky would end the process.
            _pools[slots] = ProcessPoolExecutor(slots, timeout=IDLE_SECONDS, initializer=_begin,
                                                initargs=(os.getpid(),), env={"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"})
        return _pools[slots]


def _begin(parent: int) -> None:
    """Prepares a process: it leaves Ctrl-C to its parent, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    settle(PROCESS)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ORPHANED_SECONDS)
    os._exit(1)
