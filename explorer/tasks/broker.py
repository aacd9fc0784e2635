"""`Broker`: lets the kernels of a server share one pool, over a private socket; `Remote` is a
kernel's end of it.

The socket lies in a folder that only the server's user can enter, and whoever connects must know
the server's key. Only plain data is taken from a kernel, and no more of it than a page asks for.
"""

from __future__ import annotations

import hmac
import itertools
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from explorer.limits import process_count
from explorer.tasks.frames import Stream, receive, send
from explorer.tasks.pool import LOST, Answer, Notify, Order, Pool, Task, Wish

ADDRESS, KEY = "EXPLORER_TASKS", "EXPLORER_TASKS_KEY"
"""Environment variables of a served kernel: where the socket is, and the key."""
MOST_TASKS = 256
"""Tasks of one kernel that may wait or be computed; a kernel that hands in more is cut off."""
MOST_DATA = 200_000_000
"""Bytes that a task may bring along: a saved race."""
UNREAD = 256e6
"""Bytes of results that may wait for a kernel that does not take them."""
PATIENCE = 10.0
"""Seconds that a kernel looks for its server's workers, before it says that they are out of
reach."""
GLANCE = 0.2
"""Seconds between two tries."""


class Broker:
    """Takes the tasks of kernels to a pool; visitors have turns there.

    Args:
        pool: computes them.
        folder: where the socket is made; nobody else may enter it.
    """

    def __init__(self, pool: Pool, folder: Path) -> None:
        self.pool, self.address, self.key = pool, str(folder / "tasks"), secrets.token_hex(32)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        os.chmod(self.address, 0o600)  # noqa: PTH101 - the path of a socket
        self._listener.listen()
        threading.Thread(target=self._accept, name="explorer-broker", daemon=True).start()

    def _accept(self) -> None:
        for number in itertools.count(1):
            with suppress(OSError):  # a client that has gone again
                connection, _ = self._listener.accept()
                threading.Thread(target=Client(self, connection, number).run, daemon=True).start()


class Client:
    """A kernel's connection, seen from the broker."""

    def __init__(self, broker: Broker, connection: socket.socket, number: int) -> None:
        self.broker, self.connection, self.number = broker, connection, number
        self.stream = connection.makefile("rwb")
        self.wishes: dict[int, Wish] = {}
        self.outgoing: queue.SimpleQueue[tuple[int, Answer] | None] = queue.SimpleQueue()
        self.unread = 0

    def run(self) -> None:
        """Serves the connection until it ends, or sends what no kernel of ours would."""
        try:
            header, _ = receive(self.stream, most=0)
            if hmac.compare_digest(str(header.get("key")).encode(), self.broker.key.encode()):
                threading.Thread(target=self._write, daemon=True).start()
                while True:
                    self._obey(*receive(self.stream, most=MOST_DATA))
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            pass  # it has gone, or speaks another language: either way it is served no longer
        finally:
            self._hang_up()
            for wish in list(self.wishes.values()):
                wish.cancel()
            self.outgoing.put(None)
            self.broker.pool.turns.pop(self.number, None)

    def _obey(self, header: dict[str, Any], data: bytes) -> None:
        if "cancel" in header:
            if wish := self.wishes.pop(int(header["cancel"]), None):
                wish.cancel()
            return
        if "finish" in header:
            if wish := self.wishes.get(int(header["finish"])):
                wish.finish()
            return
        number = int(header["task"])
        if len(self.wishes) >= MOST_TASKS or number in self.wishes:
            raise ValueError("too many tasks")
        task = Task(str(header["kind"]), str(header["body"]), Order(header["order"]), data)
        self.wishes[number] = Wish(
            self.broker.pool, self.number, task.order, lambda answer: self._put(number, answer)
        )
        self.broker.pool.enter(task, self.wishes[number])

    def _put(self, number: int, answer: Answer) -> None:
        """Has an answer sent; progress only where nothing else waits, and results so far always."""
        if answer.last or answer.so_far or self.outgoing.empty():
            if answer.last:
                self.wishes.pop(number, None)
            self.unread += len(payload_of(answer))
            if self.unread > UNREAD:
                self._hang_up()
            self.outgoing.put((number, answer))

    def _hang_up(self) -> None:
        """Ends the connection. To close a socket would not, while its stream is open."""
        with suppress(OSError):  # the other end was faster
            self.connection.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):  # which took nothing of what was still to be sent
            self.stream.close()
        self.connection.close()

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # the connection is closed: whoever closed it knows
            while item := self.outgoing.get():
                number, answer = item
                header = {
                    name: value
                    for name, value in answer._asdict().items()
                    if not isinstance(value, bytes)
                }
                send(
                    self.stream,
                    {"task": number, "done": answer.result is not None, **header},
                    payload_of(answer),
                )
                self.unread -= len(payload_of(answer))


def payload_of(answer: Answer) -> bytes:
    """The bytes of an answer: a result, or one so far."""
    return answer.result or answer.so_far or b""


class Remote:
    """A broker, seen from a kernel, in the place of a `Pool`.

    A connection that breaks is made again, and all that waits asked again.

    Args:
        address: the broker's socket.
    """

    def __init__(self, address: str) -> None:
        self.address, self.slots = address, process_count()
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[Task, Notify]] = {}
        self._stream: Stream | None = None
        self._listening = False

    def submit(self, task: Task, notify: Notify) -> RemoteTicket:
        """Hands in a task; see `Pool.submit`."""
        with self._lock:
            number = next(self._numbers)
            self._asked[number] = task, notify
            self._ask(number, task)
            if not self._listening:
                self._listening = True
                threading.Thread(target=self._listen, name="explorer-tasks", daemon=True).start()
            return RemoteTicket(self, number)

    def cancel(self, number: int) -> None:
        """Withdraws a task."""
        with self._lock:
            if self._asked.pop(number, None):
                self._send({"cancel": number})

    def finish(self, number: int) -> None:
        """Asks for the result so far of a task."""
        with self._lock:
            if number in self._asked:
                self._send({"finish": number})

    def _listen(self) -> None:
        """Takes answers as long as there is a broker that gives any, on a thread of its own."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(self.address)
                self._greet(connection.makefile("rwb"))
                with suppress(EOFError, ValueError):
                    while self._stream:
                        self._tell(*receive(self._stream))
                        end = time.monotonic() + PATIENCE
            with self._lock:
                self._stream = None
            time.sleep(GLANCE)
        with self._lock:
            self._listening, lost = False, list(self._asked.values())
            self._asked.clear()
        for _, notify in lost:
            notify(
                Answer(error=LOST, message="the server that computes for this page is out of reach")
            )

    def _greet(self, stream: Stream) -> None:
        """Begins a connection."""
        with self._lock:
            self._stream = stream
            self._send({"key": os.environ[KEY]})
            for number, (task, _) in self._asked.items():
                self._ask(number, task)

    def _tell(self, header: Mapping[str, Any], payload: bytes) -> None:
        result, so_far = (payload, None) if header["done"] else (None, payload or None)
        answer = Answer(header["progress"], result, so_far, header["error"], header["message"])
        with self._lock:
            _, notify = (
                self._asked.pop(header["task"], (None, None))
                if answer.last
                else self._asked.get(header["task"], (None, None))
            )
        if notify:
            notify(answer)

    def _ask(self, number: int, task: Task) -> None:
        self._send(
            {"task": number, "kind": task.kind, "body": task.body, "order": task.order}, task.data
        )

    def _send(self, header: Mapping[str, Any], data: bytes = b"") -> None:
        if self._stream:
            with suppress(OSError, ValueError):  # it broke: `_listen` makes another, and asks again
                send(self._stream, header, data)


class RemoteTicket(NamedTuple):
    """A task that a kernel has handed in, in the place of a `Wish`."""

    remote: Remote
    number: int

    def cancel(self) -> None:
        """Withdraws it."""
        self.remote.cancel(self.number)

    def finish(self) -> None:
        """Asks for the result so far."""
        self.remote.finish(self.number)
