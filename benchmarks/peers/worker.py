"""A process a row: what one changes in torch, none of the others feels, and one that dies takes
none along."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.kit import Row
from benchmarks.peers.model import SIZES, Values, subject

LEAST = 0.1
"""Seconds of passes that one timing is the mean of; at least one pass."""
PATIENCE = 100.0
"""Seconds after which a row that does not answer is given up."""


class Failed(Exception):  # noqa: N818 - an answer like any other
    """A row that cannot be read, and why."""


class Worker:
    """The process of a row, which does one thing after the other."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), begin, (row,))
        self.process = self.pool.submit(os.getpid)

    def ask(self, method: str, *given: Any) -> Any:
        """What a method of `Reader` returns in the process.

        Raises:
            Failed: it raised something, took too long, or the process ended.
        """
        try:
            return self.pool.submit(answered, method, *given).result(PATIENCE)
        except BrokenProcessPool:
            raise Failed("its process ended") from None
        except TimeoutError:
            os.kill(self.process.result(), signal.SIGKILL)
            raise Failed(f"no answer in {PATIENCE:.0f} s") from None

    def close(self) -> None:
        """Ends the process."""
        self.pool.shutdown()


class Reader:
    """A row in its process, at one size after the other."""

    def __init__(self, row: Row) -> None:
        self.row, self.pass_seconds = row, LEAST
        self.run: Callable[[], Values] = dict

    def version(self) -> str:
        """The version of the row's package, once the row is imported."""
        import_module(f"benchmarks.peers.rows.{self.row.module}")
        return version(self.row.distribution) if self.row.distribution else ""

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


readers: list[Reader] = []
"""Of this process, where it is a row's."""


def begin(row: Row) -> None:
    """Begins a row's process. What peers print is not shown."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    readers.append(Reader(row))


def answered(method: str, *given: Any) -> Any:
    """What a method of this process's reader returns.

    Raises:
        Failed: it raised something, which another process might not be able to import.
    """
    try:
        return getattr(readers[0], method)(*given)
    except Exception as error:  # noqa: BLE001 - reported in the table, whatever it is
        first = next(iter(str(error).strip().splitlines()), "")
        raise Failed(f"{type(error).__name__}: {first}") from None


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
