"""Tasks that are computed in threads of this process, where a test is of what is computed and not
of who computes it.

A race has a worker process of its own, which imports torch first: two seconds of a processor for a
few steps. That workers are processes, and that the page needs no torch, is what other tests say.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from explorer.tasks.pool import Call, Pool
from explorer.tasks.worker import outcome

HOLD = threading.Event()
"""Set while a task that has shown a result so far waits for word that it is to end."""


@contextmanager
def held() -> Iterator[None]:
    """Whoever acts on a result so far acts before the next one, however slow."""
    HOLD.set()
    try:
        yield
    finally:
        HOLD.clear()


class Here:
    """A thread; a `pool.Worker`."""

    alive, ended, silent = True, False, False

    def look(self, *, busy: bool) -> None:
        """Does nothing: a thread of this process answers."""

    def __init__(self, _: int) -> None:
        self.messages: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
        self.told: dict[str, set[int]] = {"stop": set(), "finish": set()}
        self.number = 0

    def tell(self, data: bytes = b"", **header: Any) -> None:
        """Begins a task, or hears that one is to end."""
        for word in self.told.keys() & header.keys():
            self.told[word].add(header[word])
        if "task" in header:
            self.number = header["task"]
            threading.Thread(target=self.compute, args=(header, data), daemon=True).start()

    def compute(self, header: dict[str, Any], data: bytes) -> None:
        """Computes one task."""
        number = header["task"]

        def send(progress: float, so_far: bytes = b"") -> None:
            self.messages.put(({"task": number, "progress": progress}, so_far))

        def show(so_far: bytes) -> None:
            send(math.nan, so_far)
            while HOLD.is_set() and not any(number in numbers for numbers in self.told.values()):
                time.sleep(0.005)

        call = Call(
            header["body"],
            data,
            lambda: number in self.told["stop"],
            lambda: number in self.told["finish"],
            send,
            show,
        )
        ended, result = outcome(header["kind"], call)
        self.messages.put(({"task": number, **ended}, result))

    def answer(self) -> tuple[dict[str, Any], bytes]:
        """Waits for the next message."""
        return self.messages.get()

    def end(self) -> None:
        """Stops the task."""
        self.told["stop"].add(self.number)

    kill = end


@cache
def place() -> Pool:
    """In place of `tasks.place`."""
    return Pool(2, Here)
