"""Callbacks of long work: `Stop` asks whether to stop, `Progress` takes how far it is.

`Throttle` limits a rate; `Rarely` does the same and forgets nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Stop = Callable[[], bool]
"""Asked often; true once the result is no longer wanted."""
Progress = Callable[[float], None]
"""Told the fraction that is done."""


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """A computation was abandoned because `stop()` was true.

    Example:
        >>> ex.measure(ex.Config(), stop=lambda: True)
        Traceback (most recent call last):
        explorer.stopping.Stopped
    """


def check(stop: Stop) -> None:
    """Raises: Stopped: `stop()` is true."""
    if stop():
        raise Stopped


class Throttle:
    """Limit on the rate of some work: `if throttle.due: with throttle: …`.

    Args:
        least: seconds from one time to the next, at least.
        share: of all time that the work may take.
        most: seconds after which the work is due in any case.
    """

    def __init__(self, least: float, share: float, most: float = 10.0) -> None:
        self._least, self._share, self._most = least, share, most
        self._next = self._begun = 0.0

    @property
    def due(self) -> bool:
        """Whether the work is due."""
        return time.monotonic() >= self._next

    def now(self) -> None:
        """Makes the work due at once."""
        self._next = 0.0

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *_: object) -> None:
        end = time.monotonic()
        self._next = end + min(self._most, max(self._least, (end - self._begun) / self._share))


class Rarely:
    """Work that is done at once when it is asked for, and, where it was just done, once a little
    later for all who ask.

    What is asked for is always done in the end, though nobody asks again.

    Args:
        work: what to do, on any thread.
        least: seconds from one time to the next, at least.
    """

    def __init__(self, work: Callable[[], object], least: float) -> None:
        self._work, self._least = work, least
        self._lock = threading.Lock()
        self._next = 0.0
        self._waits = False

    def ask(self) -> None:
        """Does the work now, or has it done when it is due."""
        with self._lock:
            if self._waits:
                return
            left = self._next - time.monotonic()
            self._waits = True
        if left <= 0:
            self._do()
            return
        later = threading.Timer(left, self._do)
        later.daemon = True  # a process that ends does not wait for it
        later.start()

    def _do(self) -> None:
        with self._lock:
            self._waits = (
                False  # whoever asks while the work is being done may have come too late for it
            )
            self._next = time.monotonic() + self._least
        self._work()
