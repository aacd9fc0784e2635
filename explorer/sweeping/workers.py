"""Where cells are computed: in this process, by workers outside it, on a Dask cluster, or on any
other executor.

`run` hands cells to workers, a few at a time, and passes their results on in the calling thread. No
more is handed out than keeps the slots busy, so that the order holds, and that little is lost when
it is stopped. Nothing is computed again here: a pool of tasks does that, and the cells that a
user's executor loses are missing until the sweep is run again."""

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
"""Cells that are handed out together."""
Compute = Callable[[Batch], list[Found]]
Done = Callable[[Cell, Found], None]
"""Called with each cell and its result."""


class Here(Executor):
    """Computes in the calling thread, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls the function; gives a future that has its result or its error."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's, as on any executor
            future.set_exception(error)
        return future


class Workers:
    """An executor, with the facts that a sweep needs.

    Args:
        executor: computes the cells, nobody knows how many at a time: so each has one thread of
            torch's, unless it is `Here`.
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
        """Batches that are handed out at a time: for each slot, one that is computed and one that
        waits for it."""
        return 1 if isinstance(self.executor, Here) else 2 * processors()

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:
        """Hands out a batch; the future has a result for each of its cells."""
        return self.executor.submit(compute, batch)

    def close(self) -> None:
        """Ends everything that was begun for this sweep alone."""


class Outside(Workers):
    """Cells as tasks of this machine's workers, or of the server's whose kernel this process is;
    see `explorer.tasks`.

    Args:
        need: bytes of the largest cell: no more cells are computed at a time than memory holds of
            it.
    """

    hears_stop = False  # `stop` is not asked outside; to cancel a future stops its cells

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
        if self.slots < self.place.slots:
            return self.slots  # memory holds no more: one that waited would be computed, too
        return 2 * self.slots

    def submit(self, compute: Compute, batch: Batch) -> Future[list[Found]]:  # noqa: ARG002 - workers know how
        """Hands out a batch; the future has a result for each of its cells."""
        task = Task("cells", body_of(batch, self.threads), Order.MAP)
        return CellsFuture(self.place, task, len(batch))


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
        """Bytes that a cell may take: each thread's part of the smallest worker."""
        return self.cluster.memory

    @property
    def most(self) -> int:
        """Batches that are handed out at a time; see `Workers`."""
        return 2 * self.place.slots

    def close(self) -> None:
        """Ends everything that was begun for this sweep alone; the cluster goes on."""
        self.cluster.close()


def is_cluster(executor: object) -> bool:
    """Whether an executor is the address of a Dask scheduler, or a client of one."""
    return isinstance(executor, str) or hasattr(executor, "scheduler_info")


def workers_of(executor: Any) -> Workers:
    """The workers of an executor, or of a Dask cluster; workers stay as they are."""
    if isinstance(executor, Workers):
        return executor
    return OnCluster(executor) if is_cluster(executor) else Workers(executor)


class CellsFuture(Future[list[Found]]):
    """A batch that workers compute; to cancel it stops them.

    Args:
        place: has the task computed.
        cells: how many cells the task has.
    """

    def __init__(self, place: tasks.Place, task: Task, cells: int) -> None:
        super().__init__()
        self._cells = cells
        self._ticket = place.submit(task, self._take)

    def cancel(self) -> bool:
        """Stops the cells, also while they are computed."""
        self._ticket.cancel()
        return super().cancel()

    def _take(self, answer: Answer) -> None:
        """Takes the task's last answer, on a thread of the pool's, as the future's result, one for
        each cell, or as its error where nobody computed the task."""
        if not answer.last or not self.set_running_or_notify_cancel():
            return
        if answer.error == LOST:
            self.set_exception(TaskError(answer.error, answer.message))
        elif answer.result is None:
            # of several cells nobody knows which one failed: another run may compute the others
            failed = Found({}, answer.message, skipped=self._cells > 1)
            self.set_result([failed] * self._cells)
        else:
            self.set_result(result_of(answer.result))


# The engine.


def run(parts: Sequence[tuple[Sequence[Cell], Workers]], stop: Stop, done: Done) -> None:
    """Computes every cell, one part after the other, and calls `done` with each result, or the
    reason for its lack.

    It ends early once `stop()` says true. The last part's processes start while the first is
    computed."""
    engines = [Engine(cells, workers, stop, done) for cells, workers in parts]
    with ExitStack() as stack:
        for engine in engines:
            stack.push(engine.close)
        # the last first: to hand out to `Here` computes, and would delay the others' start
        for engine in engines[::-1]:
            engine.hand_out()
        for engine in engines:
            engine.run()


class Engine:
    """Hands a sweep's cells to its workers, batch by batch, and passes their results on.

    Args:
        workers: compute the cells.
        stop: whether nothing more is to be computed.
        done: called with each cell and its result, in the thread of `run`.
    """

    def __init__(self, cells: Sequence[Cell], workers: Workers, stop: Stop, done: Done) -> None:
        self.workers, self.stop, self.done = workers, stop, done
        self.waiting = list(_batches(cells))[::-1]
        """Batches that are not handed out yet, the next one last."""
        self.running: dict[Future[list[Found]], Batch] = {}
        self.compute = partial(find, threads=workers.threads)
        if workers.hears_stop:
            self.compute = partial(self.compute, stop=stop)

    def run(self) -> None:
        """Computes every batch that waits."""
        while (self.waiting or self.running) and not self.stop():
            self.hand_out()
            self.take()

    def hand_out(self) -> None:
        """Hands out as much as keeps every slot busy; cells that need more memory than a worker has
        are skipped."""
        while self.waiting and len(self.running) < self.workers.most and not self.stop():
            memory = self.workers.memory
            batch = []
            for cell in self.waiting.pop():
                if cell.memory <= memory:
                    batch.append(cell)
                    continue
                needed, available = f"{cell.memory / 1e9:.2g} GB", f"{memory / 1e9:.2g} GB"
                self._skip([cell], f"needs about {needed}, and a worker has {available}")
            if batch:
                self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        """Hands out a batch; where the executor takes nothing any more, everything is given up."""
        try:
            self.running[self.workers.submit(self.compute, batch)] = batch
        except Exception as error:  # noqa: BLE001 - it was shut down or broke; each library has its own
            self.waiting.append(batch)
            self._give_up(f"its executor takes nothing more: {error}")

    def take(self) -> None:
        """Waits for results, at most for `GLANCE`, and passes on those that are there."""
        ready, _ = futures.wait(self.running, GLANCE, futures.FIRST_COMPLETED)
        lost = ""  # why the workers compute nothing any more
        for future in ready:
            batch = self.running.pop(future)
            if future.cancelled():
                if not self.stop():
                    self._skip(batch, CANCELLED)
                continue
            error = future.exception()
            if error is None:
                for cell, result in zip(batch, future.result(), strict=True):
                    self.done(cell, result)
            elif self.stop():
                continue  # stopped, not failed: another run computes it
            elif isinstance(error, TaskError | BrokenExecutor):
                is_broken = isinstance(error, BrokenExecutor)
                lost = f"its executor broke: {error}" if is_broken else str(error)
                self.waiting.append(batch)
            else:
                for cell in batch:
                    self.done(cell, Found({}, f"{type(error).__name__}: {error}"))
        if lost:
            self._give_up(lost)

    def _give_up(self, reason: str) -> None:
        """Passes on every cell that is left as not computed, in the order of the sweep."""
        batches = [*self.running.values(), *self.waiting[::-1]]
        self.running, self.waiting = {}, []
        for batch in batches:
            self._skip(batch, reason)

    def _skip(self, batch: Batch, reason: str) -> None:
        """Passes cells on as not computed."""
        for cell in batch:
            self.done(cell, Found({}, reason, skipped=True))

    def close(self, *_: Any) -> None:
        """Cancels the batches that were handed out, however the sweep has ended."""
        for future in self.running:
            future.cancel()
        self.workers.close()


def _batches(cells: Sequence[Cell]) -> Iterator[Batch]:
    """Cells in order, in batches of one origin each, as large as the origin's row says."""
    for origin, group in groupby(cells, lambda cell: cell.origin):
        of_origin = list(group)
        size = origins()[origin].batch
        yield from (of_origin[start : start + size] for start in range(0, len(of_origin), size))
