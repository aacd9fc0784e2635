"""Hands cells to workers, a few at a time, and passes their results on in the calling thread.

No more is handed out than keeps the slots busy, so that the order holds, and that little is lost when it is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any

from explorer.stopping import Stop
from explorer.sweeping.cell import ORIGINS, Cell, Found, find
from explorer.sweeping.workers import Workers, stopper
from explorer.tasks.pool import KILLED

GLANCE = 0.1
"""Seconds between two looks at `stop`."""
BROKEN = "its executor broke: a process of it was killed (out of memory, perhaps)"
CANCELLED = "its executor cancelled it"

Batch = list[Cell]
Done = Callable[[Cell, Found], None]


def run(parts: Sequence[tuple[Sequence[Cell], Workers]], stop: Stop, done: Done) -> None:
    """Computes every cell, one part after the other, and calls `done` with each result, or the reason for its lack.

    A cell at which a process dies fails; the others that it had are computed again. All ends early once `stop()` says
    true. The last part's processes start while the first is computed.
    """
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
        """Cells that were lost with a process: computed alone, so that it is known which is the reason."""
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
                self.done(cell, Found({}, f"needs about {cell.memory / 1e9:.2g} GB, and a worker has "
                                          f"{self.workers.memory / 1e9:.2g} GB", skipped=True))
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
        ready, _ = wait(self.running, GLANCE, FIRST_COMPLETED)
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
            self.flag.lower()
        for future in self.running:
            future.cancel()


def _batches(cells: Sequence[Cell], *, together: bool) -> Iterator[Batch]:
    """Cells in order, in batches; each alone unless they are handed out `together`."""
    for origin, group in groupby(cells, lambda cell: cell.origin):
        row, size = list(group), ORIGINS[origin].batch if together else 1
        yield from (row[start : start + size] for start in range(0, len(row), size))
