"""A live panel without a browser: what a person would do to it, and a way to wait for what it
says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from explorer.app.widgets.panel import Panel as AnyPanel
from explorer.app.widgets.parts import LOCK

WAIT = 60.0
"""Seconds after which a test gives up; nothing is asserted about how long anything takes."""
Panel = TypeVar("Panel", bound=AnyPanel)


class Watched(Generic[Panel]):
    """A panel, and a way to wait until its status line says something."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.changed = threading.Condition()
        panel.status.observe(self.notify, names=["state", "text", "detail", "action"])

    def __getattr__(self, name: str) -> Any:
        """The panel's parts."""
        return getattr(self.panel, name)

    def notify(self, _: object) -> None:
        with self.changed:
            self.changed.notify_all()

    def until(self, state: str, words: str = "") -> None:
        status = self.panel.status

        def there() -> bool:
            return status.state == state and words in status.text

        with self.changed:
            self.changed.wait_for(lambda: there() or status.state == "failed", WAIT)
        assert there(), f"wanted {state} {words!r}, got {status.state}: {status.text}"
        with LOCK:  # whoever changed the line has finished its change
            assert status.state == state

    def comes(self, there: Callable[[], bool]) -> bool:
        """Waits until something is true that the status line does not tell, and returns whether it
        is."""
        end = time.monotonic() + WAIT
        while not there() and time.monotonic() < end:
            time.sleep(0.01)
        return there()

    def set(self, **values: object) -> None:
        """What a browser does."""
        controls = self.panel.controls
        controls.set_state({"values": {**controls.values, **values}})

    def choose(self, words: str = "", /, **values: object) -> None:
        """The same, until the panel shows it; the status line has the words then."""
        self.set(**values)
        self.until("idle", words)
