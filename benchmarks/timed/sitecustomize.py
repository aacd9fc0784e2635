"""With `EXPLORER_TIMELINE` set to a path: a kernel that writes down when it does what on the way
from a move to dots.

Python imports a module of this name at its start; `benchmarks.timeline` puts this folder on the
path of what it starts."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

if (path := os.environ.get("EXPLORER_TIMELINE")) and any(
    "ipykernel_launcher" in word for word in sys.orig_argv
):
    from ipywidgets import Widget

    take, known = Widget._handle_msg, threading.Event()

    def timed(owner: Any, name: str, words: str) -> None:
        """Makes a method write a line: when it began and ended (s since 1970), its thread, and what
        it does."""
        inner = getattr(owner, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            start = time.time()
            try:
                return inner(*given, **named)
            finally:
                with Path(f"{path}.{os.getpid()}").open("a", encoding="utf-8") as file:
                    file.write(
                        f"{start}\t{time.time()}\t{threading.current_thread().name}\t{words}\n"
                    )

        setattr(owner, name, wrapped)

    def first(self: Widget, message: dict[str, Any]) -> None:
        """The first message of a page: by then all is imported. Each widget has kept this for its
        own first one."""
        if known.is_set():
            take(self, message)
            return
        known.set()
        from explorer.app.explore.drawing import Drawing
        from explorer.app.explore.panel import Explore
        from explorer.app.widgets.chart import Chart

        for owner, name, words in (
            (Explore, "_ask", "a move is taken"),
            (Explore, "_expect", "the theory is asked"),
            (Drawing, "draw", "all charts are drawn"),
            (Chart, "show", "a chart is sent"),
            (Explore, "_judge", "the verdict"),
        ):
            timed(owner, name, words)
        take(self, message)

    Widget._handle_msg = first
