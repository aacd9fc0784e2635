"""`Schedule`: the newest job of a panel, its last result, and whether a move waits.

It knows nothing of widgets, and is changed under the page's lock."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from explorer.app.widgets.parts import LOCK

Job = TypeVar("Job")
Result = TypeVar("Result")


class Schedule(Generic[Job, Result]):
    """The newest job of a panel, and its last good result."""

    def __init__(self) -> None:
        self.job: Job | None = None
        """The one that the controls asked for last; None before that, and after a stop."""
        self.result: Result | None = None
        """The last good one, which the charts show until the next is there."""
        self.stale = False
        """Whether the charts show another job's result than the controls ask for."""
        self._moved = -math.inf
        self._waiting_moves: list[None] = []

    def ask(self, job: Job) -> None:
        """A move asks for a job."""
        self.job = job
        self.stale = self.result is not None
        self._moved = math.inf  # until the move is handled, however long theory takes for it

    def halt(self) -> None:
        """The controls are refused, a person has stopped the job, or it has failed."""
        self.stale = True

    def stop(self) -> None:
        """A person has stopped the job, whose result may be on its way."""
        self.job = None

    def receive(self, result: Result, *, refused: bool) -> None:
        """The newest job is done; the controls may have been refused since."""
        self.result = result
        self.stale = refused

    def moved(self) -> None:
        """A move was handled."""
        self._moved = time.monotonic()

    @property
    def since_move(self) -> float:
        """Seconds since the last move was handled; below 0 while one is."""
        return time.monotonic() - self._moved

    @contextmanager
    def moving(self) -> Iterator[None]:
        """The page's lock, for a move: what is being drawn under it ends at the next chart."""
        self._waiting_moves.append(None)
        LOCK.acquire()
        self._waiting_moves.pop()
        try:
            yield
        finally:
            LOCK.release()

    @property
    def interrupted(self) -> bool:
        """Whether a move waits for the page's lock."""
        return bool(self._waiting_moves)
