"""`cluster_pool`: a pool whose tasks a Dask cluster computes, in place of processes of this machine.

The cluster's workers have this package, too. With each task go two queues of its scheduler: for the messages of the
task, and for those to it. When a worker is killed, the scheduler has its tasks computed by another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

from explorer.stopping import Throttle
from explorer.tasks.pool import KILLED, NICENESS, Call, Pool
from explorer.tasks.worker import outcome

PATIENCE = 10.0
"""Seconds for which a scheduler is looked for."""
GLANCE = 0.2
"""Seconds between two looks at the messages of a task."""
SELDOM = 1.0
"""Seconds between two looks of a task at the messages to it, and between two reports of its progress."""
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
        raise ValueError("--scheduler needs a package: pip install transformer-signal-explorer[cluster]") from None
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
        return Pool(max(1, sum(client.nthreads().values())), partial(ClusterWorker, client))
    except (OSError, ValueError):
        raise ValueError(f"--scheduler must be the address of a Dask scheduler that answers, such as "
                         f"tcp://10.0.0.5:8786; got {address!r}") from None


def computed(header: Mapping[str, Any], data: bytes, name: str, long: bool) -> tuple[dict[str, Any], bytes]:
    """Computes one task, on a worker of the cluster; see `worker.outcome`.

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

        return outcome(header["kind"], Call(header["body"], data, partial(is_told, "stop"), partial(is_told, "finish"),
                                            progress, lambda so_far: news.put((math.nan, so_far))))


class ClusterWorker:
    """A thread of a cluster; a `pool.Worker`."""

    def __init__(self, client: Any, niceness: int) -> None:
        self._client, self._long, self._number = client, niceness > NICENESS, 0
        self._answers: Iterator[tuple[dict[str, Any], bytes]] = iter(())
        self._orders: SimpleQueue[dict[str, int]] = SimpleQueue()

    @property
    def alive(self) -> bool:
        """Whether the scheduler answers."""
        return bool(self._client.status == "running")

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

    def _run(self, header: Mapping[str, Any], data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Has the cluster compute a task; gives its messages."""
        from distributed import KilledWorker, Queue

        name, passed = f"explorer {uuid4().hex}", set[str]()
        try:
            with (closing(Queue(f"{name} from", self._client)) as news,
                  closing(Queue(f"{name} to", self._client)) as orders):
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
            yield {"error": type(error).__name__, "message": str(error) if self.alive else LOST}, b""
