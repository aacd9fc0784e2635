"""Where cells are computed: in this process, or on somebody's executor. `pool` has this machine's, `cluster` dask's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from explorer.memory import machine_memory
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
    """An executor, and what a sweep must know of it.

    Args:
        executor: anybody's.
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
        """Whether that is in this process."""
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
        """Learns anew how many slots there are; says why nothing can be computed any more, or nothing."""
        return ""

    def renew(self) -> bool:
        """Has another executor for one that broke; False where it is somebody's own."""
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
