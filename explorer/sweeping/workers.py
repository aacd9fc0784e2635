"""Where cells are computed: in this process, by workers outside it, on a Dask cluster, or on any
other executor.

`run` hands cells to workers, a few at a time, and passes their results on in the calling thread. No
more is handed out than keeps the slots busy, so that the order holds, and that little is lost when
it is stopped. Nothing is computed again here: a pool of tasks does that, and what an executor of
somebody's loses is missing until the sweep is run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any

from explorer import tasks
from explorer.limits import process_count, processors
from explorer.memory import machine_memory
from explorer.stopping import Stop
from explorer.sweeping.cell import Cell, Found, body_of, find, origins, result_of
from explorer.tasks.cluster import Cluster
from explorer.tasks.pool import LOST, Answer, Order, Task, TaskError

GLANCE = 0.1
"""Seconds between two looks at `stop`."""
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
        executor: computes the cells. It is not known how many at a time: torch has a thread for
            each.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.threads = None if isinstance(executor, Here) else 1
        """Torch's threads for each cell; None leaves torch as it is."""
        self.hears_stop = isinstance(executor, Here | ThreadPoolExecutor)
        """Whether a cell is computed in this process, and so can be stopped within."""

    @property
    def memory(self) -> float:
        """Bytes that a cell may take."""
        return machine_memory()

    @property
    def most(self) -> int:
        """Batches that are handed out at a time: one is computed in each slot, and one waits for
        it."""
        return 1 if isinstance(self.executor, Here) else 2 * processors()

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:
        """Hands out cells."""
        return self.executor.submit(compute, batch)

    def close(self) -> None:
        """Ends what was begun for this sweep alone."""


class Outside(Workers):
    """Cells as tasks of this machine's workers, or of the server's whose kernel this process is;
    see `explorer.tasks`.

    Args:
        need: bytes of the largest cell: no more cells are computed at a time than memory holds of
            it.
    """

    hears_stop = False  # but to cancel a future does stop its cells

    def __init__(self, need: float = 0.0) -> None:
        self.place = tasks.place()
        self.slots = min(self.place.slots, process_count(need))
        self.threads = max(1, processors() // self.slots)

    @property
    def memory(self) -> float:
        """Bytes that a cell may take."""
        return machine_memory() / self.slots

    @property
    def most(self) -> int:
        """Batches that are handed out at a time; see `Workers`."""
        return self.slots if self.slots < self.place.slots else 2 * self.slots

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:  # noqa: ARG002 - workers know how
        """Hands out cells."""
        return CellsFuture(
            self.place, Task("cells", body_of(batch, self.threads), Order.MAP), len(batch)
        )


class OnCluster(Outside):
    """Cells as tasks of a Dask cluster, whose workers may come and go meanwhile.

    Args:
        where: a client of the cluster, or the address of its scheduler.
    """

    def __init__(self, where: Any) -> None:
        self.cluster = Cluster(where, "executor")
        self.threads = 1
        self.place = self.cluster.pool

    @property
    def memory(self) -> float:
        """Bytes that a cell may take: those that a thread of the smallest worker has."""
        return self.cluster.memory

    @property
    def most(self) -> int:
        """Batches that are handed out at a time; see `Workers`."""
        return 2 * self.place.slots

    def close(self) -> None:
        """Ends what was begun for this sweep alone; the cluster goes on."""
        self.cluster.close()


def is_cluster(executor: object) -> bool:
    """Whether it is the address of a Dask scheduler, or a client of one."""
    return isinstance(executor, str) or hasattr(executor, "scheduler_info")


def workers_of(executor: Any) -> Workers:
    """The workers of an executor, of a Dask cluster, or what are workers already."""
    if isinstance(executor, Workers):
        return executor
    return OnCluster(executor) if is_cluster(executor) else Workers(executor)


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
        if not answer.last or not self.set_running_or_notify_cancel():
            return
        if answer.error == LOST:
            self.set_exception(TaskError(answer.error, answer.message))
        elif answer.result is None:
            # of several cells nobody knows which was the reason: another run may find them
            failed = Found({}, answer.message, skipped=self._cells > 1)
            self.set_result([failed] * self._cells)
        else:
            self.set_result(result_of(answer.result))


# The engine.


def run(parts: Sequence[tuple[Sequence[Cell], Workers]], stop: Stop, done: Done) -> None:
    """Computes every cell, one part after the other, and calls `done` with each result, or the
    reason for its lack.

    All ends early once `stop()` says true. The last part's processes start while the first is
    computed."""
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
        self.running: dict[Future[list[Found]], Batch] = {}
        self.compute = partial(find, threads=workers.threads)
        if workers.hears_stop:
            self.compute = partial(self.compute, stop=stop)

    def run(self) -> None:
        """Computes all that waits."""
        while (self.waiting or self.running) and not self.stop():
            self.hand_out()
            self.take()

    def hand_out(self) -> None:
        """Hands out as much as keeps every slot busy."""
        while self.waiting and len(self.running) < self.workers.most and not self.stop():
            memory = self.workers.memory
            batch = []
            for cell in self.waiting.pop():
                if cell.memory <= memory:
                    batch.append(cell)
                else:
                    self._skip(
                        [cell],
                        f"needs about {cell.memory / 1e9:.2g} GB, and a worker has "
                        f"{memory / 1e9:.2g} GB",
                    )
            if batch:
                self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        try:
            self.running[self.workers.submit(self.compute, batch)] = batch
        except Exception as error:  # noqa: BLE001 - it was shut down or broke; each library has its own
            self.waiting.append(batch)
            self._give_up(f"its executor takes nothing more: {error}")

    def take(self) -> None:
        """Waits a moment for results, and passes on those that are there."""
        ready, _ = futures.wait(self.running, GLANCE, futures.FIRST_COMPLETED)
        gone = ""
        for future in ready:
            batch = self.running.pop(future)
            error = None if future.cancelled() else future.exception()
            if self.stop() and (error or future.cancelled()):
                continue
            if future.cancelled():
                self._skip(batch, CANCELLED)
            elif isinstance(error, TaskError | BrokenExecutor):
                gone = str(error)
                if isinstance(error, BrokenExecutor):
                    gone = f"its executor broke: {error}"
                self.waiting.append(batch)
            elif error:
                for cell in batch:
                    self.done(cell, Found({}, f"{type(error).__name__}: {error}"))
            else:
                for cell, result in zip(batch, future.result(), strict=True):
                    self.done(cell, result)
        if gone:
            self._give_up(gone)

    def _give_up(self, reason: str) -> None:
        """Passes on everything that is left as not computed."""
        left = [*self.running.values(), *self.waiting[::-1]]
        self.running, self.waiting = {}, []
        for batch in left:
            self._skip(batch, reason)

    def _skip(self, batch: Batch, reason: str) -> None:
        """Passes cells on as not computed."""
        for cell in batch:
            self.done(cell, Found({}, reason, skipped=True))

    def close(self, *_: Any) -> None:
        """Cancels what was handed out."""
        for future in self.running:
            future.cancel()
        self.workers.close()


def _batches(cells: Sequence[Cell], *, together: bool) -> Iterator[Batch]:
    """Cells in order, in batches; each alone unless they are handed out `together`."""
    for origin, group in groupby(cells, lambda cell: cell.origin):
        row, size = list(group), origins()[origin].batch if together else 1
        yield from (row[start : start + size] for start in range(0, len(row), size))
