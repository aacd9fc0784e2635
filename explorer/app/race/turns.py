"""`Turn`: limits how often charts and verdicts are updated while a race runs."""

from __future__ import annotations

import time


class Turn:
    """Limit on the rate of some work: `if turn.due: with turn: …`.

    Args:
        least: seconds from one time to the next, at least.
        share: of all time that the work may take.
        most: seconds after which the work is due in any case.
    """

    def __init__(self, least: float, share: float = 1.0, most: float = 10.0) -> None:
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
        cost = time.monotonic() - self._begun
        self._next = self._begun + cost + min(self._most, max(self._least, cost / self._share))
