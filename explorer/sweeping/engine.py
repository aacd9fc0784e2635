"""Hands cells to workers, a few at a time, and their results to whoever asked, in the calling thread.

No more is handed out than keeps the slots busy, so that the order holds, and that little is lost when it is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from functools import partial
from itertools import groupby

from explorer.sweeping.cell import ORIGINS, Cell, Found, Stop, find
from explorer.sweeping.workers import Workers

GLANCE = 0.1
"""Seconds between two looks at `stop`."""
KILLED = "the process that computed it was killed (out of memory, perhaps)"

Batch = list[Cell]
Done = Callable[[Cell, Found], None]


def run(cells: Sequence[Cell], workers: Workers, stop: Stop, done: Done) -> None:
    """Finds every cell, and calls `done` with each as it is found; ends early once `stop()` says true.

    A cell at which a process dies fails; the others that it had are computed again.
    """
    engine = Engine(cells, workers, stop, done)
    try:
        while engine.pending and not stop():
            engine.hand_out()
            engine.take()
    finally:
        engine.abandon()


class Engine:
    """What waits, and what is computed."""

    def __init__(self, cells: Sequence[Cell], workers: Workers, stop: Stop, done: Done) -> None:
        self.workers, self.stop, self.done = workers, stop, done
        self.waiting = list(_batches(cells))[::-1]
        self.suspects: list[Batch] = []
        """What a pool had when a process of it died: computed alone, so that it is known who was the reason."""
        self.running: dict[Future[list[Found]], Batch] = {}
        self.task = partial(find, threads=workers.threads)
        if workers.inside:
            self.task = partial(self.task, stop=stop)

    @property
    def pending(self) -> bool:
        """Whether anything is left."""
        return bool(self.waiting or self.suspects or self.running)

    def hand_out(self) -> None:
        """Hands out as much as keeps every slot busy, or one suspect alone."""
        source, most = (self.suspects, 1) if self.suspects else (self.waiting, self.workers.most)
        while source and len(self.running) < most and not self.stop():
            batch = source.pop()
            if refused := [cell for cell in batch if cell.memory > self.workers.memory]:
                self._fail(refused, f"needs about {{:.2g}} GB, and a worker has {self.workers.memory / 1e9:.2g} GB")
                batch = [cell for cell in batch if cell not in refused]
            if batch:
                self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        try:
            self.running[self.workers.executor.submit(self.task, batch)] = batch
        except BrokenExecutor:
            self._renew([batch])
        except RuntimeError as error:  # it was shut down
            self._fail(batch, f"its executor takes nothing more: {error}")

    def take(self) -> None:
        """Waits a moment for results, and passes on those that are there."""
        ready, _ = wait(self.running, GLANCE, FIRST_COMPLETED)
        alone = len(self.running) == 1
        lost = []
        for future in ready:
            batch = self.running.pop(future)
            error = None if future.cancelled() else future.exception()
            if future.cancelled() or (error and self.stop()):
                self._fail([] if self.stop() else batch, "its executor cancelled it")
            elif isinstance(error, BrokenExecutor) and not (alone and len(batch) == 1):
                lost.append(batch)
            elif error:
                self._fail(batch, KILLED if isinstance(error, BrokenExecutor) else f"{type(error).__name__}: {error}")
            else:
                for cell, found in zip(batch, future.result(), strict=True):
                    self.done(cell, found)
        if lost:
            self._renew(lost)

    def _renew(self, lost: list[Batch]) -> None:
        """Another pool for one that broke; whatever it had is computed again, a cell at a time."""
        if self.workers.renew is None:  # somebody's own
            self._fail([cell for batch in lost for cell in batch], KILLED)
            return
        lost += self.running.values()
        self.running = {}
        self.suspects += [[cell] for batch in lost for cell in batch]
        self.workers = self.workers._replace(executor=self.workers.renew())

    def _fail(self, batch: Batch, reason: str) -> None:
        for cell in batch:
            self.done(cell, Found({}, reason.format(cell.memory / 1e9)))

    def abandon(self) -> None:
        """Cancels what was handed out."""
        for future in self.running:
            future.cancel()
        if self.running:
            self.workers.end()


def _batches(cells: Sequence[Cell]) -> Iterator[Batch]:
    """Cells that are handed out together, in order."""
    for origin, group in groupby(cells, lambda cell: cell.origin):
        together, size = list(group), ORIGINS[origin].batch
        yield from (together[start : start + size] for start in range(0, len(together), size))
