"""Where cells are computed: in this process, by workers outside it, on dask, or on any other executor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from explorer import tasks
from explorer.limits import process_count, processors
from explorer.memory import machine_memory
from explorer.stopping import Stop
from explorer.sweeping.cell import Cell, Found, body_of, result_of
from explorer.tasks.broker import LOST
from explorer.tasks.pool import Answer, Order, Place, Task

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


def workers_of(executor: Executor | Workers) -> Workers:
    """The workers of an executor, of dask's or any other."""
    if isinstance(executor, Workers):
        return executor
    client = getattr(executor, "_client", None)
    return Cluster(executor, client) if hasattr(client, "scheduler_info") else Workers(executor)


# `Outside`: the workers of this machine, or of the server whose kernel this process is.


class Outside(Workers):
    """Cells as tasks; see `explorer.tasks`. A killed worker is replaced, and what it computed is computed again, once.

    Args:
        need: bytes of the largest cell: no more cells are computed at a time than memory holds of it.
        order: how urgent they are.
    """

    died = ()

    def __init__(self, need: float = 0.0, order: Order = Order.MAP) -> None:
        self.place, self.order, self.inside = tasks.place(), order, False
        self.slots = min(self.place.slots, process_count(need))
        self.threads, self.memory = max(1, processors() // self.slots), machine_memory() / self.slots

    @property
    def most(self) -> int:
        """Batches that are handed out at a time; see `Workers`."""
        return self.slots if self.slots < self.place.slots else 2 * self.slots

    @property
    def near(self) -> bool:
        """Whether a flag is needed to stop cells: `CellsFuture` stops its own."""
        return False

    def submit(self, compute: Compute, batch: list[Cell]) -> Future[list[Found]]:  # noqa: ARG002 - workers know how
        """Hands out cells."""
        return CellsFuture(self.place, Task("cells", body_of(batch, self.threads), self.order), len(batch))


class CellsFuture(Future[list[Found]]):
    """Some cells that workers compute; to cancel it stops them."""

    def __init__(self, place: Place, task: Task, cells: int) -> None:
        super().__init__()
        self._cells = cells
        self._ticket = place.submit(task, self._take)

    def cancel(self) -> bool:
        """Stops the cells, also while they are computed."""
        self._ticket.cancel()
        return super().cancel()

    def _take(self, answer: Answer) -> None:
        if answer.last and self.set_running_or_notify_cancel():
            failed = Found({}, answer.message, skipped=answer.error == LOST)
            self.set_result([failed] * self._cells if answer.result is None else result_of(answer.result))
