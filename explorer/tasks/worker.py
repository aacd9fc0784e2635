"""A worker process: computes one task after the other, and stops one in the middle when asked.

    python -m explorer.tasks.worker NICENESS
        # speaks in frames: tasks come in on stdin, results go out on stdout

It ends when its stdin is closed, which is also what happens when the process that started it ends,
however it ends.

`cluster_pool`: a pool whose tasks a Dask cluster computes, in place of processes of this machine.
The cluster's workers have this package, too. With each task go two queues of its scheduler: for the
messages of the task, and for those to it. When a worker is killed, the scheduler has its tasks
computed by another."""

from __future__ import annotations

import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from explorer import log
from explorer.limits import settle
from explorer.memory import WORKER
from explorer.stopping import Stopped, Throttle
from explorer.tasks.frames import receive, send
from explorer.tasks.pool import KILLED, NICENESS, Call, Pool

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "explorer.measuring.outside",
        "cells": "explorer.sweeping.cell",
        "example": "explorer.example",
        "race": "explorer.training.telling",
    }
)
"""Kinds of tasks, each with the module whose `compute` takes a `Call` and gives the bytes of a
result."""
EVERY = 0.05
"""Seconds between two reports of progress, at least."""


class Worker:
    """The loop of a worker process.

    Args:
        source, target: binary streams.
    """

    def __init__(self, source: Any, target: Any) -> None:
        self.source, self.target, self.saying = source, target, threading.Lock()
        self.waiting: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
        self.told: dict[str, set[int]] = {"stop": set(), "finish": set()}
        """Numbers of tasks that are no longer wanted, and of those that are to end with the result
        so far."""

    def listen(self) -> None:
        """Takes messages, and answers whether the process lives, until there is nobody who sends
        any.

        Then the process ends, whatever it computes.
        """
        try:
            while True:
                header, data = receive(self.source)
                for word in self.told.keys() & header.keys():
                    self.told[word].add(header[word])
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
            nonlocal reported
            if time.monotonic() - reported >= EVERY:
                reported = time.monotonic()
                self.say({"task": number, "progress": fraction})

        call = Call(
            header["body"],
            data,
            lambda: number in self.told["stop"],
            lambda: number in self.told["finish"],
            progress,
            lambda so_far: self.say({"task": number, "progress": math.nan}, so_far),
        )
        ended, result = outcome(header["kind"], call)
        self.say({"task": number, **ended}, result)
        for numbers in self.told.values():
            numbers.discard(number)


def outcome(kind: str, call: Call) -> tuple[dict[str, Any], bytes]:
    """Computes one task: its last message, with the result or the reason why there is none."""
    try:
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
        return {"done": True}, import_module(KINDS[kind]).compute(call)
    except Stopped:
        return {"stopped": True}, b""
    except Exception as error:  # noqa: BLE001 - it is the task's result, whoever asked for it shows it
        return {"error": type(error).__name__, "message": str(error)}, b""


# A cluster.


PATIENCE = 10.0
"""Seconds for which a scheduler is looked for."""
GLANCE = 0.2
"""Seconds between two looks at the messages of a task."""
SELDOM = 1.0
"""Seconds between two looks of a task at the messages to it, and between two reports of its
progress."""
LOST = "the cluster that computes for this page is out of reach"


def cluster_pool(address: str) -> Pool:
    """The pool of a cluster, with a slot for each thread of the workers that are there.

    Args:
        address: of its scheduler.
    Raises:
        ValueError: `distributed` is not installed, or no scheduler answers there.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "--scheduler needs a package: pip install transformer-signal-explorer[cluster]"
        ) from None
    try:
        cluster = Cluster(Client(address, timeout=PATIENCE, set_as_default=False))
        return Pool(max(1, cluster.threads), partial(ClusterWorker, cluster))
    except (OSError, ValueError):
        raise ValueError(
            f"--scheduler must be the address of a Dask scheduler that answers, such as "
            f"tcp://10.0.0.5:8786; got {address!r}"
        ) from None


def computed(
    header: Mapping[str, Any], data: bytes, name: str, long: bool
) -> tuple[dict[str, Any], bytes]:
    """Computes one task, on a worker of the cluster; see `outcome`.

    Args:
        name: of its queues.
        long: whether it takes minutes: then its thread's place is given to others.
    """
    from distributed import Queue, secede

    listening, telling, heard = Throttle(SELDOM, share=1.0), Throttle(SELDOM, share=1.0), set[str]()
    if long:
        secede()
    with closing(Queue(f"{name} from")) as news, closing(Queue(f"{name} to")) as orders:

        def is_told(word: str) -> bool:
            if listening.due:
                with listening:
                    heard.update(orders.get(batch=True))
            return word in heard

        def progress(part: float) -> None:
            if telling.due:
                with telling:
                    news.put((part, b""))

        return outcome(
            header["kind"],
            Call(
                header["body"],
                data,
                partial(is_told, "stop"),
                partial(is_told, "finish"),
                progress,
                lambda so_far: news.put((math.nan, so_far)),
            ),
        )


class Cluster:
    """A Dask cluster, and whether anything can be computed there."""

    def __init__(self, client: Any) -> None:
        self.client, self._looked = client, time.monotonic()
        self.threads = sum(client.nthreads().values())
        """Of its workers, when they were last counted."""

    @property
    def alive(self) -> bool:
        """Whether the scheduler answers, and has workers."""
        answers = self.client.status == "running" and time.monotonic() - self._looked < PATIENCE
        return answers and self.threads > 0

    def look(self) -> None:
        """Counts the threads, unless they were just counted. Where the scheduler stands still, this
        waits for it."""
        scheduler = (
            self.client.scheduler
        )  # None from the moment at which the client has closed, on a thread of its own
        if scheduler and time.monotonic() - self._looked >= SELDOM:
            with suppress(OSError, ValueError, RuntimeError):  # it is out of reach
                self.threads = sum(self.client.sync(scheduler.ncores, workers=None).values())
                self._looked = time.monotonic()


class ClusterWorker:
    """A thread of a cluster; a `pool.Worker`."""

    silent = ended = False  # the scheduler looks after its workers

    def __init__(self, cluster: Cluster, niceness: int) -> None:
        self._cluster, self._client, self._long, self._number = (
            cluster,
            cluster.client,
            niceness > NICENESS,
            0,
        )
        self._answers: Iterator[tuple[dict[str, Any], bytes]] = iter(())
        self._orders: queue.SimpleQueue[dict[str, int]] = queue.SimpleQueue()

    @property
    def alive(self) -> bool:
        """Whether the cluster can compute."""
        return self._cluster.alive

    def look(self, *, busy: bool) -> None:  # noqa: ARG002 - of the protocol
        """Looks at the cluster."""
        self._cluster.look()

    def tell(self, data: bytes = b"", **header: Any) -> None:
        """Takes a task, or a message to it. Only `answer` waits for the network."""
        if "task" in header:
            self._number, self._answers = header["task"], self._run(header, data)
        else:
            self._orders.put(header)

    def answer(self) -> tuple[dict[str, Any], bytes]:
        """Waits for the next message of the task."""
        return next(self._answers)

    def end(self) -> None:
        """Stops the task."""
        self.tell(stop=self._number)

    kill = end

    def _run(
        self, header: Mapping[str, Any], data: bytes
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Has the cluster compute a task; gives its messages."""
        from distributed import KilledWorker, Queue

        name, passed = f"explorer {uuid4().hex}", set[str]()
        try:
            with (
                closing(Queue(f"{name} from", self._client)) as news,
                closing(Queue(f"{name} to", self._client)) as orders,
            ):
                future = self._client.submit(computed, header, data, name, self._long, pure=False)
                while "stop" not in passed:
                    ended = future.done()  # asked first: all that it told is in its queue then
                    for part, so_far in news.get(batch=True):
                        yield {"progress": part}, so_far
                    if ended:
                        yield future.result()
                    while not self._orders.empty():
                        for word, number in self._orders.get().items():
                            if number == header["task"]:
                                passed.add(word)
                                orders.put(word)
                    with suppress(TimeoutError):
                        future.exception(timeout=GLANCE)
                future.cancel()
                yield {"stopped": True}, b""
        except KilledWorker:
            yield {"error": "RuntimeError", "message": KILLED}, b""
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the result is told
            yield (
                {"error": type(error).__name__, "message": str(error) if self.alive else LOST},
                b"",
            )


def main() -> None:
    """Begins: Ctrl-C is the parent's, and nothing but results is written to the pipe that carries
    them.

    The one argument is how far its priority is below that of others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(int(sys.argv[1]))
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    log.listen()
    settle(WORKER)
    import_module("explorer.measuring.observe")  # so that the first task does not wait for torch
    Worker(sys.stdin.buffer, target).run()


if __name__ == "__main__":
    main()
