"""`Undo`: the page's records as they were, back and forth. No widgets."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from explorer.app.page import Page
from explorer.app.view import View
from explorer.choices import Choices

QUIET = 1.0
"""Seconds: changes of the same fields that follow each other sooner are one, as when a slider is dragged."""
STEPS = frozenset(("open", "story", "pins", "contenders"))
"""Fields that are never dragged: each change of them is a step of its own."""
MOST = 200
"""Steps that are kept."""


class Undo:
    """The page as it is, earlier pages, and those undone.

    Args:
        page: where it starts.
        clock: seconds, from any start.
    """

    def __init__(self, page: Page, clock: Callable[[], float] = time.monotonic) -> None:
        self.now, self._clock = page, clock
        self.past: deque[Page] = deque(maxlen=MOST)
        self.future: deque[Page] = deque()
        self._changed: frozenset[str] = frozenset()
        """The fields that changed last."""
        self._when = -QUIET

    def note(self, page: Page) -> None:
        """Notes the page as it is now."""
        if page == self.now:
            return
        changed, now = differing(self.now, page), self._clock()
        dragged = changed == self._changed and not STEPS & {name.rpartition(".")[2] for name in changed}
        if not (dragged and now - self._when < QUIET and self.past):
            self.past.append(self.now)
        self.now, self._changed, self._when = page, changed, now
        self.future.clear()

    def back(self) -> Page:
        """Goes one step back; stays where there is none."""
        return self._go(self.past, self.future)

    def forth(self) -> Page:
        """Takes a step back again; stays where there is none."""
        return self._go(self.future, self.past)

    def _go(self, source: deque[Page], target: deque[Page]) -> Page:
        if source:
            target.append(self.now)
            self.now, self._changed = source.pop(), frozenset()
        return self.now


def differing(before: Any, after: Any, name: str = "") -> frozenset[str]:
    """Names of the fields that differ between two records: `panels.explore.design.n_layers`."""
    if before == after:
        return frozenset()
    old, new = _fields(before), _fields(after)
    if not old or old.keys() != new.keys():
        return frozenset((name,))
    return frozenset().union(*(differing(old[key], new[key], f"{name}.{key}".lstrip(".")) for key in old))


def _fields(record: Any) -> Mapping[str, Any]:
    """The fields of a record by name; none of what is no record."""
    if isinstance(record, Page | View):
        return vars(record)
    if isinstance(record, Choices):
        return dict(record)
    if isinstance(record, Mapping):
        return record
    return record._asdict() if hasattr(record, "_asdict") else {}
