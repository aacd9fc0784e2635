"""Where cells are computed: in this process, by workers outside it, on dask, or on any other
executor.

`run` hands cells to workers, a few at a time, and passes their results on in the calling thread. No
more is handed out than keeps the slots busy, so that the order holds, and that little is lost when
it is stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import ExitStack, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from explorer import tasks
from explorer.limits import process_count, processors
from explorer.memory import machine_memory
from explorer.stopping import Stop
from explorer.sweeping.cell import ORIGINS, Cell, Found, body_of, find, result_of
from explorer.tasks.broker import LOST
from explorer.tasks.pool import KILLED, Answer, Order, Task

GLANCE = 0.1
"""Seconds between two looks at `stop`."""
BROKEN = "its executor broke: a process of it was killed (out of memory, perhaps)"
CANCELLED = "its executor cancelled it"

Batch = list[Cell]
Compute = Callable[[Batch], list[Found]]
Done = Callable[[Cell, Found], None]


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
    inside, near = False, False
    """Whether cells are computed in this process, or by others of this machine, which need a file
    to be stopped."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.slots: int = (
            1 if isinstance(executor, Here) else getattr(executor, "_max_workers", processors())
        )
        """Cells that are computed at a time."""
        self.inside = isinstance(executor, Here | ThreadPoolExecutor)
        self.near = isinstance(executor, ProcessPoolExecutor)
        self.threads = (
            None if self.inside and self.slots == 1 else max(1, processors() // self.slots)
        )
        """Torch's threads for each slot; None leaves torch as it is."""
        self.memory = machine_memory()
        """Bytes that a cell may take."""

    @property
    def most(self) -> int:
        """Batches that are handed out at a time: one is computed in each slot, and one waits for
        it."""
        return 1 if isinstance(self.executor, Here) else 2 * self.slots

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:
        """Hands out cells."""
        return self.executor.submit(compute, batch)

    def look(self) -> str:
        """Updates the number of slots; gives the reason why nothing more can be computed, empty for
        none."""
        return ""


def stopper(workers: Workers, stop: Stop) -> tuple[Stop | None, Path | None]:
    """The function that tells a cell to stop: `stop` in this process, for others of this machine
    that a file is gone.

    And this file, which lies there while cells are wanted: any process of the machine sees it.
    """
    if workers.inside:
        return stop, None
    with suppress(OSError):  # no place for temporary files: cells end by themselves
        if workers.near:
            with NamedTemporaryFile(prefix="explorer-sweep-", delete=False) as file:
                return partial(_is_gone, file.name), Path(file.name)
    return None, None


def _is_gone(path: str) -> bool:
    return not os.path.exists(path)  # noqa: PTH110 - asked before each layer


# `Cluster`: the workers of a dask scheduler, through `Client.get_executor()`; they may come and go
# meanwhile.


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

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:
        """Hands out cells; those that failed before are computed again."""
        return self.executor.submit(compute, batch, pure=False)  # type: ignore[call-arg]

    def look(self) -> str:
        """Updates slots and memory to the workers that are connected now; see `Workers.look`."""
        if self.client.status == "running" and time.monotonic() > self._next:
            self._next = time.monotonic() + LOOK_SECONDS
            with suppress(OSError):  # the connection broke just now, and the status will say so
                workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
                self.slots = max(1, sum(worker["nthreads"] for worker in workers))
                self.memory = min(
                    (
                        worker["memory_limit"] / worker["nthreads"]
                        for worker in workers
                        if worker["memory_limit"]
                    ),
                    default=float("inf"),
                )
        return (
            "" if self.client.status == "running" else "the connection to dask's scheduler is lost"
        )


def workers_of(executor: Executor | Workers) -> Workers:
    """The workers of an executor, of dask's or any other."""
    if isinstance(executor, Workers):
        return executor
    client = getattr(executor, "_client", None)
    return Cluster(executor, client) if hasattr(client, "scheduler_info") else Workers(executor)


# `Outside`: the workers of this machine, or of the server whose kernel this process is.


class Outside(Workers):
    """Cells as tasks; see `explorer.tasks`. A killed worker is replaced, and what it computed is
    computed again, once.

    Args:
        need: bytes of the largest cell: no more cells are computed at a time than memory holds of
            it.
    """

    died = ()

    def __init__(self, need: float = 0.0) -> None:
        self.place = tasks.place()
        self.slots = min(self.place.slots, process_count(need))
        self.threads, self.memory = (
            max(1, processors() // self.slots),
            machine_memory() / self.slots,
        )

    @property
    def most(self) -> int:
        """Batches that are handed out at a time; see `Workers`."""
        return self.slots if self.slots < self.place.slots else 2 * self.slots

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:  # noqa: ARG002 - workers know how
        """Hands out cells."""
        return CellsFuture(
            self.place, Task("cells", body_of(batch, self.threads), Order.MAP), len(batch)
        )


class CellsFuture(Future[list[Found]]):
    """Some cells that workers compute; to cancel it stops them."""

    def __init__(self, place: tasks.Place, task: Task, cells: int) -> None:
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
            self.set_result(
                [failed] * self._cells if answer.result is None else result_of(answer.result)
            )


# The engine.


def run(parts: Sequence[tuple[Sequence[Cell], Workers]], stop: Stop, done: Done) -> None:
    """Computes every cell, one part after the other, and calls `done` with each result, or the
    reason for its lack.

    A cell at which a process dies fails; the others that it had are computed again. All ends early
    once `stop()` says true. The last part's processes start while the first is computed."""
    engines = [Engine(cells, workers, stop, done) for cells, workers in parts]
    with ExitStack() as stack:
        for engine in engines:
            stack.push(engine.close)
        for engine in engines[::-1]:
            engine.hand_out()
        for engine in engines:
            engine.run()


class Engine:
    """Hands a sweep's cells to its workers: those that wait, and those that are being computed."""

    def __init__(self, cells: Sequence[Cell], workers: Workers, stop: Stop, done: Done) -> None:
        self.workers, self.stop, self.done = workers, stop, done
        self.waiting = list(_batches(cells, together=workers.most > 1))[::-1]
        self.suspects: list[Batch] = []
        """Cells that were lost with a process: computed alone, so that it is known which is the
        reason."""
        self.alone = False
        """Whether what is computed is a suspect."""
        self.running: dict[Future[list[Found]], Batch] = {}
        asked, self.flag = stopper(workers, stop)
        self.compute = partial(find, threads=workers.threads)
        if asked:
            self.compute = partial(self.compute, stop=asked)

    def run(self) -> None:
        """Computes all that waits."""
        while (self.waiting or self.suspects or self.running) and not self.stop():
            self.hand_out()
            self.take()

    def hand_out(self) -> None:
        """Hands out as much as keeps every slot busy, or one suspect alone."""
        if reason := self.workers.look():
            self._give_up(reason)
        while (self.waiting or self.suspects) and not self.stop():
            alone = bool(self.suspects)
            if self.running and (alone or self.alone or len(self.running) >= self.workers.most):
                return
            self.alone = alone
            self._submit((self.suspects or self.waiting).pop())

    def _submit(self, batch: Batch) -> None:
        for cell in batch:
            if cell.memory > self.workers.memory:
                self.done(
                    cell,
                    Found(
                        {},
                        f"needs about {cell.memory / 1e9:.2g} GB, and a worker has "
                        f"{self.workers.memory / 1e9:.2g} GB",
                        skipped=True,
                    ),
                )
        if batch := [cell for cell in batch if cell.memory <= self.workers.memory]:
            try:
                self.running[self.workers.submit(self.compute, batch)] = batch
            except self.workers.died:
                self._again([batch])
            except Exception as error:  # noqa: BLE001 - it was shut down, or its connection; each library has its own
                self.waiting.append(batch)
                self._give_up(f"its executor takes nothing more: {error}")

    def take(self) -> None:
        """Waits a moment for results, and passes on those that are there."""
        ready, _ = futures.wait(self.running, GLANCE, futures.FIRST_COMPLETED)
        lost = []
        for future in ready:
            batch = self.running.pop(future)
            error = None if future.cancelled() else future.exception()
            if self.stop() and (error or future.cancelled()):
                continue
            if future.cancelled():
                self._fail(batch, self.workers.look() or CANCELLED, skipped=True)
            elif isinstance(error, self.workers.died):
                if self.alone:
                    self._fail(batch, KILLED)
                else:
                    lost.append(batch)
            elif error:
                self._fail(batch, f"{type(error).__name__}: {error}")
            else:
                for cell, result in zip(batch, future.result(), strict=True):
                    self.done(cell, result)
        if lost:
            self._again(lost)

    def _again(self, lost: list[Batch]) -> None:
        """Computes again what was lost with a process, a cell at a time."""
        if self.workers.shared_fate:
            lost += self.running.values()
            self.running.clear()
        self.suspects += [[cell] for batch in lost for cell in batch]
        if self.workers.shared_fate:
            self._give_up(BROKEN)

    def _give_up(self, reason: str) -> None:
        """Passes on everything that is left as not computed."""
        left = [*self.running.values(), *self.suspects[::-1], *self.waiting[::-1]]
        self.running, self.suspects, self.waiting = {}, [], []
        for batch in left:
            self._fail(batch, reason, skipped=True)

    def _fail(self, batch: Batch, reason: str, *, skipped: bool = False) -> None:
        for cell in batch:
            self.done(cell, Found({}, reason, skipped=skipped))

    def close(self, *_: Any) -> None:
        """Cancels what was handed out."""
        if self.flag:
            self.flag.unlink(missing_ok=True)
        for future in self.running:
            future.cancel()


def _batches(cells: Sequence[Cell], *, together: bool) -> Iterator[Batch]:
    """Cells in order, in batches; each alone unless they are handed out `together`."""
    for origin, group in groupby(cells, lambda cell: cell.origin):
        row, size = list(group), ORIGINS[origin].batch if together else 1
        yield from (row[start : start + size] for start in range(0, len(row), size))
