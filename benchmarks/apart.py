"""One point of a growth: a work at one value of an axis, in a process of its own: its peak memory
is its own."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
import tracemalloc
from multiprocessing.connection import Connection
from typing import NamedTuple

from benchmarks.works import WORKS, Configs, Ready
from explorer.config import Config

SMALL = Config(n_layers=4, d_model=64, n_heads=2, n_ctx=16, n_seeds=1)
FIELDS = {
    "depth": ("n_layers", (16, 32, 64, 125, 250, 500, 1000)),
    "width": ("d_model", (32, 64, 128, 256, 512, 1024)),
    "tokens": ("n_ctx", (16, 32, 64, 128, 256, 512)),
    "heads": ("n_heads", (2, 4, 8, 16, 32, 64)),
    "seeds": ("n_seeds", (1, 2, 4, 8, 16)),
}
"""The field of an axis, and its values."""
COUNTS = {"designs": (1, 2, 4, 8, 12), "pins": (1, 2, 3, 4, 5)}
"""Designs beside each other; the page takes five pins."""
REPEATS, ENOUGH = 15, 0.6
"""Runs of each point at most, and seconds after which there are no more, if there were three."""


class Found(NamedTuple):
    """One point: the least and the median of what was counted or timed, and bytes of memory on top
    of the smallest."""

    least: float
    middle: float
    bytes: float


def points(work: str, axis: str) -> list[tuple[int, Configs]]:
    """The designs at each value of an axis."""
    base = SMALL.replace(**WORKS[work].fixed)
    if axis in COUNTS:
        every = [base.replace(alpha=1 + number / 16) for number in range(max(COUNTS[axis]) + 1)]
        return [(count, every[: count + (axis == "pins")]) for count in COUNTS[axis]]
    name, values = FIELDS[axis]
    base = base.replace(d_model=256) if axis == "heads" else base
    return [(value, [base.replace(**{name: value})]) for value in values]


def peak() -> float:
    """The most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(ready: Ready, number: int) -> float:
    """Seconds of the processors, or what the work counts."""
    start = time.process_time()
    counted = ready(number)
    return time.process_time() - start if counted is None else counted


def alone(work: str, smallest: Configs, configs: Configs, answer: Connection) -> None:
    """Runs in a process of its own: once at the smallest size as a warm-up, then until there is
    enough."""
    row = WORKS[work]
    row.prepare(smallest)(-2)
    before, ready = peak(), row.prepare(configs)
    timed(ready, -1)
    found, began = [], time.perf_counter()
    while len(found) < 3 or (len(found) < REPEATS and time.perf_counter() - began < ENOUGH):
        found.append(timed(ready, len(found)))
    taken = peak() - before
    if not row.torch:
        tracemalloc.start()
        ready(REPEATS)
        taken = tracemalloc.get_traced_memory()[1]
    answer.send(Found(min(found), statistics.median(found), taken))


def apart(work: str, smallest: Configs, configs: Configs) -> Found:
    """A point, in a process that begins with everything imported and nothing computed."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=alone, args=(work, smallest, configs, send))
    process.start()
    send.close()
    found: Found = receive.recv()
    process.join()
    return found
