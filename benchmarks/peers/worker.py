"""A process a row: what one changes in torch, none of the others feels, and one that dies takes
none along."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.install import failure
from benchmarks.peers.kit import Row
from benchmarks.peers.model import SIZES, Values, subject

LEAST = 0.1
"""Seconds of passes that one timing is the mean of; at least one pass."""
PATIENCE = 100.0
"""Seconds after which a row that does not answer is given up."""


class Failed(Exception):  # noqa: N818 - an answer like any other
    """A row that cannot be read, and why."""


class Worker:
    """The parent's end: `ask` does something in the row's process."""

    def __init__(self, row: Row) -> None:
        context = multiprocessing.get_context("spawn")
        self.row, (self.connection, other) = row, context.Pipe()
        self.process = context.Process(target=serve, args=(other, row), daemon=True)
        self.process.start()
        other.close()

    def ask(self, *request: Any) -> Any:
        """The answer; `Failed` says why there is none."""
        try:
            self.connection.send(request)
            return self.answer()
        except (BrokenPipeError, ConnectionResetError, EOFError):
            raise Failed(f"its process ended with {self.process.exitcode}") from None

    def answer(self) -> Any:
        """The next message."""
        if not self.connection.poll(PATIENCE):
            self.process.kill()
            raise Failed(f"no answer in {PATIENCE:.0f} s")
        found = self.connection.recv()
        if isinstance(found, Failed):
            raise found
        return found

    def close(self) -> None:
        """Ends the process."""
        with suppress(OSError):
            self.connection.send(None)
        self.process.join(5)
        self.process.kill()


def serve(connection: Connection, row: Row) -> None:
    """Answers until it is told None."""
    null = os.open(os.devnull, os.O_WRONLY)  # what peers print is not ours to show
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers: dict[str, Callable[..., Any]] = {
        "begin": lambda: begun(row),
        "read": lambda size: state.read(size),
        "time": lambda: state.seconds(),
    }
    state = State(row)
    for name, *arguments in iter(connection.recv, None):
        try:
            connection.send(answers[name](*arguments))
        except Failed as reason:
            connection.send(reason)
        except Exception as error:  # noqa: BLE001 - reported in the table, whatever it is
            first = next(iter(str(error).strip().splitlines()), "")
            connection.send(Failed(f"{type(error).__name__}: {first}"))


def begun(row: Row) -> str:
    """The version, once it is imported."""
    try:
        import_module(f"benchmarks.peers.rows.{row.module}")
    except ImportError as error:
        why = failure(row.distribution)
        raise Failed(
            f"does not install with torch {torch.__version__}: {why}" if why else str(error)
        ) from error
    return version(row.distribution) if row.distribution else ""


class State:
    """The child's end: a row at a size."""

    def __init__(self, row: Row) -> None:
        self.row, self.run, self.pass_seconds = row, dict, LEAST
        self.run: Callable[[], Values]

    def read(self, size: str) -> tuple[Values, float | None]:
        """Prepares it at a size: what it reads, and the MB that a pass adds to the process, at
        most."""
        self.run = dict  # lets go of the last size's
        module = import_module(f"benchmarks.peers.rows.{self.row.module}")
        self.run = getattr(module, self.row.function)(subject(SIZES[size]))
        values = self.run()
        start = time.perf_counter()
        added = memory(self.run)
        self.pass_seconds = time.perf_counter() - start
        return values, added

    def seconds(self) -> float:
        """Mean time of a pass, of so many that it takes a while."""
        count = max(1, round(LEAST / self.pass_seconds))
        start = time.perf_counter()
        for _ in range(count):
            self.run()
        return (time.perf_counter() - start) / count


def memory(run: Callable[[], object]) -> float | None:
    """Largest memory during a pass above that before it, in MB; None where the system does not
    say."""
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        # the peak is counted from here
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = status("VmRSS")
        run()
        return (status("VmHWM") - before) / 1000
    except (OSError, AttributeError):
        return None


def status(name: str) -> int:
    """A line of the process's own status, in kB."""
    found = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in found.splitlines() if line.startswith(name))
