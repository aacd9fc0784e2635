"""The log of a server and its processes: a JSON object a line on stderr, with nothing of a visitor
in it.

An event has numbers and the server's own words. A fault of a library is told by its class and by
where it was raised: its message may have an address, a header or a kernel's name in it, so no
message of a library is written."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

SELDOM = 1.0
"""Seconds between two lines about the same fault, at least: whoever causes one could fill a disk.
All are counted."""
_events = logging.getLogger("explorer.events")
_faults = logging.getLogger("explorer.faults")


def note(event: str, **more: float | str) -> None:
    """Notes an event: with numbers, and with a reason in the server's own words, never in a
    visitor's."""
    _events.info(event, extra={"more": more})


class Line(logging.Formatter):
    """Writes an event, or a fault, as JSON with its time."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event: dict[str, Any] = fault(record)
        if record.name == _events.name:
            event = {"event": record.msg, **vars(record)["more"]}
        return json.dumps({"time": at, **event})


def fault(record: logging.LogRecord) -> dict[str, str]:
    """Event of a library's message: its logger, where it was written, and the class and place of an
    error."""
    event = {"event": "fault", "logger": record.name, "at": f"{record.module}:{record.lineno}"}
    if record.exc_info and record.exc_info[0]:
        event["error"] = record.exc_info[0].__name__
        for frame, number in traceback.walk_tb(record.exc_info[2]):
            event["raised"] = f"{Path(frame.f_code.co_filename).stem}:{number}"
    return event


class Lines(logging.StreamHandler[TextIO]):
    """Handler that writes lines of JSON; of equal faults one a second.

    Args:
        on_fault: called for each fault, also for one that is not written.
    """

    def __init__(self, stream: TextIO, on_fault: Callable[[], object] = lambda: None) -> None:
        super().__init__(stream)
        self.setFormatter(Line())
        self._on_fault, self._written = on_fault, dict[tuple[str, ...], float]()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        if record.name == _events.name:
            super().emit(record)
        elif record.levelno >= logging.ERROR:
            self._on_fault()
            kind, now = tuple(fault(record).values()), time.monotonic()
            if now - self._written.get(kind, -SELDOM) >= SELDOM:
                self._written[kind] = now
                super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Does nothing where a line cannot be written: logging's own would write the message to
        stderr."""


def listen(stream: TextIO | None = None, on_fault: Callable[[], object] = lambda: None) -> None:
    """Has all that this process logs, warns of, or does not catch written as lines of JSON.

    Args:
        stream: where to, stderr by default.
        on_fault: see `Lines`.
    """
    root = logging.getLogger()
    root.handlers = [Lines(stream or sys.stderr, on_fault)]
    _events.setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.excepthook = _tell
    sys.unraisablehook = lambda error: _tell(error.exc_type, error.exc_value, error.exc_traceback)
    threading.excepthook = lambda error: _tell(error.exc_type, error.exc_value, error.exc_traceback)


def adopt(logger: logging.Logger) -> None:
    """Has a logger that brought a handler of its own write to the one above."""
    logger.handlers, logger.propagate = [], True


def _tell(
    kind: type[BaseException], error: BaseException | None, where: TracebackType | None
) -> None:
    raised: Any = (kind, error, where)
    if issubclass(kind, Exception):  # Ctrl-C, and the end of an interpreter, are no faults
        _faults.error("", exc_info=raised)
