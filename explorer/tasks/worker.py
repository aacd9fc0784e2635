"""A worker process: computes one task after the other, and stops one in the middle when asked.

    python -m explorer.tasks.worker NICENESS
        # speaks in frames: tasks come in on stdin, results go out on stdout

It ends when its stdin is closed, which is also what happens when the process that started it ends,
however it ends."""

from __future__ import annotations

import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from explorer import log, plugins
from explorer.limits import settle
from explorer.memory import WORKER
from explorer.stopping import Stopped
from explorer.tasks.frames import receive, send
from explorer.tasks.pool import Call

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "explorer.measuring.outside:compute",
        "cells": "explorer.sweeping.cell:compute",
    }
)
"""Kinds of tasks of this package, each with the function that takes a `Call` and gives the bytes of
a result."""
EVERY = 0.05
"""Seconds from one report of a task's progress to the next, at least."""


class Worker:
    """The loop of a worker process.

    Args:
        source, target: binary streams.
    """

    def __init__(self, source: Any, target: Any) -> None:
        self.source, self.target, self.saying = source, target, threading.Lock()
        self.waiting: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
        """Messages that bring a task."""
        self.orders: dict[str, set[int]] = {"stop": set(), "finish": set()}
        """Numbers of tasks that are no longer wanted, and of those that are to end with the result
        so far."""

    def listen(self) -> None:
        """Takes tasks and orders, and answers questions for a sign of life, on a thread of its own.

        Once stdin is closed the process ends, whatever it computes.
        """
        try:
            while True:
                header, data = receive(self.source)
                for word in self.orders.keys() & header.keys():
                    self.orders[word].add(header[word])
                if "task" in header:
                    self.waiting.put((header, data))
                if "ask" in header:
                    self.say({"alive": True})
        except (EOFError, OSError):
            os._exit(0)

    def say(self, header: Mapping[str, Any], data: bytes = b"") -> None:
        """Sends a message, from either thread."""
        with self.saying:
            send(self.target, header, data)

    def run(self) -> None:
        """Computes what arrives."""
        threading.Thread(target=self.listen, daemon=True).start()
        while True:
            self.compute(*self.waiting.get())

    def compute(self, header: Mapping[str, Any], data: bytes) -> None:
        """Computes one task, and sends its result or the reason why there is none."""
        number, reported = header["task"], time.monotonic()

        def progress(fraction: float) -> None:
            """Reports how far the task is, 0 … 1, unless that was reported just now."""
            nonlocal reported
            if time.monotonic() - reported >= EVERY:
                reported = time.monotonic()
                self.say({"task": number, "progress": fraction})

        call = Call(
            body=header["body"],
            data=data,
            stop=lambda: number in self.orders["stop"],
            early=lambda: number in self.orders["finish"],
            progress=progress,
            show=lambda so_far: self.say({"task": number, "progress": math.nan}, so_far),
        )
        end, result = outcome(header["kind"], call)
        self.say({"task": number, **end}, result)
        for numbers in self.orders.values():
            numbers.discard(number)


def outcome(kind: str, call: Call) -> tuple[dict[str, Any], bytes]:
    """Computes one task; gives header and bytes of its last message: the result, or the reason why
    there is none."""
    try:
        kinds = plugins.references("kinds", KINDS)
        if kind not in kinds:
            raise ValueError(f"kind must be one of {', '.join(kinds)}; got {kind!r}")
        return {"done": True}, plugins.load(kinds[kind])(call)
    except Stopped:
        return {"stopped": True}, b""
    except Exception as error:  # noqa: BLE001 - it is the task's result, whoever asked for it shows it
        return {"error": type(error).__name__, "message": str(error)}, b""


def main() -> None:
    """Begins: Ctrl-C is the parent's, and nothing but results is written to the pipe that carries
    them.

    The one argument is how far its priority is below that of others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(int(sys.argv[1]))
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a task prints goes to stderr
    log.listen()
    settle(WORKER)  # claims its memory, where a server keeps count of it
    import_module("explorer.measuring.observe")  # so that the first task does not wait for torch
    Worker(sys.stdin.buffer, target).run()


if __name__ == "__main__":
    main()
