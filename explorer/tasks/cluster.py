"""`Cluster`: a pool whose tasks a Dask cluster computes, in place of processes of this machine.

The cluster's workers have this package, too. With each task go two queues of its scheduler: for the
messages of the task, and for those to it. Dask begins a task anew when a worker is lost; here that
only says that the worker was lost: what is computed again is the pool's choice, as on this
machine."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from functools import partial
from typing import Any
from uuid import uuid4

from explorer.choices import ConfigError
from explorer.stopping import Throttle
from explorer.tasks.pool import LOST, NICENESS, Call, Pool
from explorer.tasks.worker import outcome

PATIENCE = 10.0
"""Seconds for which a scheduler is looked for."""
GLANCE = 0.2
"""Seconds between two looks at the messages of a task."""
SELDOM = 1.0
"""Seconds between two looks of a task at the messages to it, and between two reports of its
progress."""
OUT_OF_REACH = "the Dask cluster that computes is out of reach"


class Cluster:
    """A Dask cluster, with a pool that has a slot for each thread of its workers.

    Args:
        where: a client of the cluster, or the address of its scheduler.
        argument: the name of the argument, for an error.
    Raises:
        ConfigError: `distributed` is not installed, no scheduler answers there, or the client is
            asynchronous.
    """

    def __init__(self, where: Any, argument: str) -> None:
        self._own_client = isinstance(where, str)
        self.client = _connected(where, argument) if self._own_client else where
        if self.client.asynchronous:
            raise ConfigError(f"{argument} must be a synchronous client; got an asynchronous one")
        self.threads = 0
        """Of all workers that are there; they may come and go."""
        self.memory = math.inf
        """Bytes that each thread of the smallest worker has."""
        self._looked = -math.inf
        """When they were counted last, by `time.monotonic`."""
        self.pool = Pool(1, partial(ClusterWorker, self))
        self.look()

    @property
    def alive(self) -> bool:
        """Whether the scheduler answers, and has workers."""
        answers = self.client.status == "running" and time.monotonic() - self._looked < PATIENCE
        return answers and self.threads > 0

    def look(self) -> None:
        """Counts the cluster's threads and their memory, unless they were just counted. Where the
        scheduler stands still, this waits for it."""
        if self.client.status != "running" or time.monotonic() - self._looked < SELDOM:
            return
        try:
            with suppress(OSError, ValueError, RuntimeError):  # the scheduler may be gone
                self._count()
        except AttributeError:  # another thread may have closed the client, which has no scheduler
            if self.client.status == "running":
                raise

    def _count(self) -> None:
        self.threads = sum(self.client.nthreads().values())
        self._looked = time.monotonic()
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limited = [worker for worker in workers if worker["memory_limit"]]
        by_thread = (worker["memory_limit"] / worker["nthreads"] for worker in limited)
        self.memory = min(by_thread, default=math.inf)
        self.pool.grow(self.threads)

    def close(self) -> None:
        """Stops what is computed, and leaves the cluster as it was."""
        self.pool.close()
        if self._own_client:
            self.client.close()


def _connected(address: str, argument: str) -> Any:
    """A client of the scheduler at an address.

    Raises:
        ConfigError: `distributed` is not installed, or no scheduler answers; names the argument.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(
            f"{argument} needs a package: pip install transformer-signal-explorer[cluster]"
        ) from None
    try:
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError):
        raise ConfigError(
            f"{argument} must be the address of a Dask scheduler that answers, such as "
            f"tcp://10.0.0.5:8786; got {address!r}"
        ) from None


class ClusterWorker:
    """A thread of a cluster; a `pool.Worker`."""

    silent = False  # the scheduler looks after its workers

    def __init__(self, cluster: Cluster, niceness: int) -> None:
        # a pool hires workers of higher niceness for long tasks
        self._cluster, self._long = cluster, niceness > NICENESS
        self.ended = False
        self._number = 0
        """Of the task that is computed."""
        self._answers: Iterator[tuple[dict[str, Any], bytes]] = iter(())
        """Messages of the task."""
        self._orders: queue.SimpleQueue[dict[str, int]] = queue.SimpleQueue()
        """Messages to tasks, each `{"stop": number}` or `{"finish": number}`."""

    @property
    def alive(self) -> bool:
        """Whether the cluster can compute."""
        return self._cluster.alive

    def look(self, *, busy: bool) -> None:  # noqa: ARG002 - of the protocol
        """Looks at the cluster; the scheduler looks after single workers."""
        self._cluster.look()

    def tell(self, data: bytes = b"", **header: Any) -> None:
        """Takes a task, or a message to it. Only `answer` waits for the network."""
        if "task" in header:
            self._number, self._answers = header["task"], self._run(header, data)
        else:
            self._orders.put(header)

    def answer(self) -> tuple[dict[str, Any], bytes]:
        """Waits for the next message of the task.

        Raises:
            EOFError: the worker of the cluster that computed it is lost.
        """
        return next(self._answers)

    def end(self) -> None:
        """Stops the task."""
        self.tell(stop=self._number)

    kill = end

    def _run(
        self, header: Mapping[str, Any], data: bytes
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Has the cluster compute a task; gives its messages, the last of which says how it ended.

        Raises:
            EOFError: the worker of the cluster that computed it is lost.
        """
        from distributed import KilledWorker, Queue

        client, name = self._cluster.client, f"explorer {uuid4().hex}"
        stopping = False
        last: tuple[dict[str, Any], bytes] = {"stopped": True}, b""
        try:
            _must_be_connected(client)
            with (
                closing(Queue(f"{name} from", client)) as news,
                closing(Queue(f"{name} to", client)) as orders,
            ):
                orders.put("begin")
                future = client.submit(computed, header, data, name, self._long, pure=False)
                while not stopping:
                    _must_be_connected(client)
                    is_done = future.done()  # asked first: if so, all its messages have come
                    for fraction, so_far in news.get(batch=True):
                        yield {"progress": fraction}, so_far
                    if is_done:
                        last = future.result()
                        break
                    for word in self._orders_to(header["task"]):
                        stopping = stopping or word == "stop"
                        orders.put(word)
                    with suppress(TimeoutError):  # waits a moment, or until the task has ended
                        future.exception(timeout=GLANCE)
                future.cancel()
        except KilledWorker:
            last = {"lost": True}, b""
        except (OSError, CancelledError):
            last = {"error": LOST, "message": OUT_OF_REACH}, b""
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the result is told
            last = {"error": type(error).__name__, "message": str(error)}, b""
        if "lost" in last[0]:
            self.ended = True
            raise EOFError
        yield last

    def _orders_to(self, task: int) -> Iterator[str]:
        """Takes all orders, each `{word: number of a task}`; gives the words for this task, "stop"
        or "finish"."""
        while not self._orders.empty():
            for word, number in self._orders.get().items():
                if number == task:
                    yield word


def _must_be_connected(client: Any) -> None:
    """Raises OSError where the scheduler is gone: a message to it would wait for half a minute."""
    if client.status != "running":
        raise OSError(client.status)


def computed(
    header: Mapping[str, Any], data: bytes, name: str, long: bool
) -> tuple[dict[str, Any], bytes]:
    """Computes one task, on a worker of the cluster; see `outcome`.

    Args:
        header: the task, as a pool sends it to a worker.
        name: of its two queues.
        long: whether it takes minutes: then its thread's place is given to others.
    """
    from distributed import Queue, secede

    if long:
        secede()
    with closing(Queue(f"{name} from")) as news, closing(Queue(f"{name} to")) as orders:
        received = set[str](orders.get(batch=True))
        if "begin" not in received:  # another worker has begun the task, and is lost
            return {"lost": True}, b""
        # each message goes by the scheduler, which all tasks share
        listening, reporting = Throttle(SELDOM, share=1.0), Throttle(SELDOM, share=1.0)

        def is_ordered(word: str) -> bool:
            """Whether an order has come, "stop" or "finish"."""
            if listening.due:
                with listening:
                    received.update(orders.get(batch=True))
            return word in received

        def progress(fraction: float) -> None:
            """Reports how far the task is, 0 … 1."""
            if reporting.due:
                with reporting:
                    news.put((fraction, b""))

        call = Call(
            body=header["body"],
            data=data,
            stop=partial(is_ordered, "stop"),
            early=partial(is_ordered, "finish"),
            progress=progress,
            show=lambda so_far: news.put((math.nan, so_far)),
        )
        return outcome(header["kind"], call)
