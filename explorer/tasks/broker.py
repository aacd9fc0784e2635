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
        """Takes connections on a thread of its own, and serves each on a further thread, by its
        number."""
        for number in itertools.count(1):
            with suppress(OSError):  # a client that has gone again
                connection, _ = self._listener.accept()
                threading.Thread(target=Client(self, connection, number).run, daemon=True).start()


class Client:
    """A kernel's connection, seen from the broker.

    Args:
        number: of the connection; as a visitor's, it decides on turns.
    """

    def __init__(self, broker: Broker, connection: socket.socket, number: int) -> None:
        self.broker, self.connection, self.number = broker, connection, number
        self.stream = connection.makefile("rwb")
        self.wishes: dict[int, Wish] = {}
        """By the kernel's number of a task."""
        self.outgoing: queue.SimpleQueue[tuple[int, Answer] | None] = queue.SimpleQueue()
        """Numbers of tasks and answers that are to be sent; None ends the sending."""
        self.unread = 0
        """Bytes of results in `outgoing`."""

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
        """Does as a message says: cancels or finishes a task, or enters one with its data.

        Raises:
            ValueError, KeyError, TypeError: the message is none, or there are too many tasks.
        """
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
        pool = self.broker.pool
        wish = Wish(pool, self.number, task.order, lambda answer: self._put(number, answer))
        self.wishes[number] = wish
        pool.enter(task, wish)

    def _put(self, number: int, answer: Answer) -> None:
        """Has an answer to a task sent. Mere progress is left out while anything else waits; a
        kernel that takes nothing for long is cut off."""
        is_progress = not (answer.last or answer.so_far)
        if is_progress and not self.outgoing.empty():
            return
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
        with suppress(OSError):  # the other end takes nothing of what was still to be sent
            self.stream.close()
        self.connection.close()

    def _write(self) -> None:
        """Sends answers until the connection is closed, on a thread of its own."""
        with suppress(OSError, ValueError):  # whoever closed the connection knows of it
            while item := self.outgoing.get():
                number, answer = item
                payload = payload_of(answer)
                header = answer._asdict()
                del header["result"], header["so_far"]  # they are the payload
                is_done = answer.result is not None
                send(self.stream, {"task": number, "done": is_done, **header}, payload)
                self.unread -= len(payload)


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
        """Tasks without a last answer, by number."""
        self._stream: Stream | None = None
        """None while there is no connection."""
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
        """Takes answers as long as there is a broker that gives any, on a thread of its own. Once
        it is out of reach for `PATIENCE`, all tasks fail; the next task makes a new attempt."""
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
        message = "the server that computes for this page is out of reach"
        for _, notify in lost:
            notify(Answer(error=LOST, message=message))

    def _greet(self, stream: Stream) -> None:
        """Begins a connection: shows the server's key, and hands in all tasks that wait."""
        with self._lock:
            self._stream = stream
            self._send({"key": os.environ[KEY]})
            for number, (task, _) in self._asked.items():
                self._ask(number, task)

    def _tell(self, header: Mapping[str, Any], payload: bytes) -> None:
        """Passes an answer of the broker on to who waits for it, unless it was withdrawn."""
        answer = Answer(
            progress=header["progress"],
            result=payload if header["done"] else None,
            so_far=None if header["done"] else payload or None,
            error=header["error"],
            message=header["message"],
        )
        number = header["task"]
        with self._lock:
            asked = self._asked.get(number)
            if answer.last:
                self._asked.pop(number, None)
        if asked:
            _, notify = asked
            notify(answer)

    def _ask(self, number: int, task: Task) -> None:
        """Hands a task in at the broker."""
        header = {"task": number, "kind": task.kind, "body": task.body, "order": task.order}
        self._send(header, task.data)

    def _send(self, header: Mapping[str, Any], data: bytes = b"") -> None:
        """Sends a message, if there is a connection."""
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
