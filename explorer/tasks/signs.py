"""Signs of life of another process: its messages, and the processor time that it uses."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from explorer.tasks.frames import Stream, receive

LOOK = 1.0
"""Seconds of a look at whether a message has come."""


class Pulse:
    """Says of a process whether it runs: on a crowded machine it may be long until it can answer.

    Args:
        pid: the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used = 0.0
        """Seconds of processor time that it had used when this was asked last."""

    def beats(self) -> bool:
        """Whether the process has used processor time since this was asked last."""
        before = self._used
        with suppress(psutil.Error):  # it has ended
            user, system = psutil.Process(self._pid).cpu_times()[:2]
            self._used = user + system
        return self._used > before


class Ear:
    """Messages of another process, read on a thread, so that whoever waits for one need not wait
    for ever.

    Args:
        stream: a pipe from the process.
        on_message: asked with the header of each message, on the thread; true where it is for
            nobody else.
    """

    def __init__(
        self, stream: Stream, on_message: Callable[[dict[str, Any]], bool] = lambda _: False
    ) -> None:
        self._stream, self._on_message = stream, on_message
        self._messages: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        """Headers and payloads; None once no more can come."""
        self._thread = threading.Thread(target=self._listen, name="explorer-ear", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Reads messages until the pipe ends or holds what is none, on a thread of its own."""
        with suppress(EOFError, OSError, ValueError):
            while True:
                header, payload = receive(self._stream)
                if not self._on_message(header):
                    self._messages.put((header, payload))
        self._messages.put(None)

    def hear(self) -> tuple[dict[str, Any], bytes]:
        """Waits for the next message.

        Raises:
            EOFError: the process has ended, or sends what is no message.
        """
        return self._next(None)

    def hear_soon(self, pulse: Pulse, looks: int) -> tuple[dict[str, Any], bytes]:
        """Waits for the next message as long as the process runs, see `hear`.

        Args:
            pulse: of the process.
            looks: seconds for which it may stand still, counted by looks of one second each: so
                none passes while this process is stopped, too.
        Raises:
            TimeoutError: it stands still.
        """
        while looks > 0:
            try:
                return self._next(LOOK)
            except queue.Empty:
                if not pulse.beats():
                    looks -= 1
        raise TimeoutError

    def _next(self, seconds: float | None) -> tuple[dict[str, Any], bytes]:
        """The next message, waited for so many seconds, or for ever (None).

        Raises:
            Empty: none came in time.
            EOFError: no more can come.
        """
        message = self._messages.get(timeout=seconds)
        if message is None:
            self._messages.put(None)  # for whoever asks next
            raise EOFError
        return message

    def close(self) -> None:
        """Waits until all is read, which is so once the process has ended, and closes the pipe."""
        self._thread.join()
        self._stream.close()
