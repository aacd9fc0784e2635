"""`Cluster`: the workers of a dask scheduler, through `Client.get_executor()`; they may come and go meanwhile."""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from explorer.sweeping.cell import Cell, Found
from explorer.sweeping.workers import Compute, Workers

LOOK_SECONDS = 1.0
"""Between two looks at who is there."""


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
        """Who is there now."""
        if self.client.status == "running" and time.monotonic() > self._next:
            self._next = time.monotonic() + LOOK_SECONDS
            with suppress(OSError):  # the connection broke just now, and the status will say so
                workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
                self.slots = max(1, sum(worker["nthreads"] for worker in workers))
                self.memory = min((worker["memory_limit"] / worker["nthreads"] for worker in workers
                                   if worker["memory_limit"]), default=float("inf"))
        return "" if self.client.status == "running" else "the connection to dask's scheduler is lost"


def of(executor: Executor) -> Workers:
    """Somebody's executor."""
    client = getattr(executor, "_client", None)
    return Cluster(executor, client) if hasattr(client, "scheduler_info") else Workers(executor)
