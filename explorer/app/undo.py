"""`Undo`: the links of the page as it was, back and forth. No widgets."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import parse_qsl

QUIET = 1.0
"""Seconds: changes of the same parts that follow each other sooner are one, as when a slider is dragged."""
STEPS = frozenset(("tab", "lab", "story", "step", "pin", "racer"))
"""Parts that are never dragged: each change of them is a step of its own."""
MOST = 200
"""Steps that are kept."""


class Undo:
    """Links of the page as it is, of earlier states, and of those undone.

    Args:
        link: where it starts.
        clock: seconds, from any start.
    """

    def __init__(self, link: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.now, self._clock = link, clock
        self.past: list[str] = []
        self.future: list[str] = []
        self._parts: frozenset[str] = frozenset()  # those that changed last
        self._when = -QUIET

    def note(self, link: str) -> None:
        """Notes where the page is now."""
        if link == self.now:
            return
        parts, now = differing(self.now, link), self._clock()
        same = parts == self._parts and not parts & STEPS and now - self._when < QUIET and self.past
        if not same:
            self.past = [*self.past, self.now][-MOST:]
        self.now, self.future, self._parts, self._when = link, [], parts, now

    def back(self) -> str:
        """Goes one step back; stays where there is none."""
        return self._go(self.past, self.future)

    def forth(self) -> str:
        """Takes a step back again; stays where there is none."""
        return self._go(self.future, self.past)

    def _go(self, source: list[str], target: list[str]) -> str:
        if source:
            target.append(self.now)
            self.now, self._parts = source.pop(), frozenset()
        return self.now


def differing(before: str, after: str) -> frozenset[str]:
    """The keys of two links that have other values."""
    parts = [set(parse_qsl(link.removeprefix("?"), keep_blank_values=True)) for link in (before, after)]
    return frozenset(key for key, _ in parts[0] ^ parts[1] if key != "v")
