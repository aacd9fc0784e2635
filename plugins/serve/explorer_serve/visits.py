"""A visitor's websocket to the kernel of their page: which frames come in, which messages go out,
how many wait.

jupyter_server trusts everyone who can open a kernel's websocket: in a notebook they may run code. A
visitor of a served page may only move its controls, so here each frame is checked before Jupyter
reads it, in constant time; messages that no page needs (output, errors, tracebacks) stay on the
server; and what is unread or unanswered is limited. SECURITY.md says what this is for.
`jupyter/voila.json` names `Connection`; `explorer lab` uses `Prompt` alone, and Binder neither."""

# mypy: disallow-untyped-calls = False
# Much of jupyter_server has no types.

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.ioloop import IOLoop
from tornado.web import Finish
from tornado.websocket import WebSocketClosedError

from explorer_serve.metrics import refused

PROTOCOL = "v1.kernel.websocket.jupyter.org"
"""The only format of messages that is spoken: its frames are checked here, and Voilà reads every
answer as one."""
CHANNELS = (b"shell", b"control")
FEWEST, MOST = 6, 64
"""Offsets of a frame: where the channel begins and ends, and where each of four parts and of any
buffers ends."""
ANSWERS = {
    "status",
    "comm_open",
    "comm_msg",
    "comm_close",
    "comm_info_reply",
    "kernel_info_reply",
    "shutdown_reply",
}
"""Types of messages that a page needs from its kernel; all others stay here."""
FRAME_COST, RATE, BURST = 1_000, 1e6, 16e6
"""Limits on what a visitor sends: bytes a second in the long run, and at once; each frame adds a
fixed number."""
UNREAD, UNREAD_BY_ALL = 4_000_000, 64_000_000
"""Bytes that may wait for a visitor who does not read them, and for all visitors. One message may
be larger."""
NUDGE = 0.5
"""Seconds after which a kernel that has not answered is asked again."""
ENDED = GONE = 1001
"""The code with which a connection closes whose kernel has ended, or whose browser has gone to
another page."""
UNANSWERED = 400
"""Messages that may wait for a kernel: a page sends the next one when the last one is answered."""


class Prompt(ZMQChannelsWebsocketConnection):
    """A websocket to the kernel on which each message goes out at once.

    By default the second message of an answer waits until the browser has acknowledged the first,
    which it puts off for 40 ms."""

    def connect(self) -> Any:
        """Connects to the kernel's channels."""
        socket: Any = self.websocket_handler.ws_connection
        socket.set_nodelay(True)
        return super().connect()


class Connection(Prompt):
    """A visitor's websocket to the kernel. What does not fit closes this connection, and disturbs
    no other.

    A kernel has one: a page whose network failed comes back with another, before the server knows
    that the first is dead. The newer one takes the place of the older."""

    newest: ClassVar[dict[str, Connection]] = {}
    """The connection of each kernel."""
    unread_by_all: ClassVar[int] = 0
    """Bytes that wait in the server for any visitor, of connections that were replaced, too."""
    refused = connected = False
    read_bytes, read_at = 0.0, 0.0
    unread = unanswered = 0

    async def prepare(self) -> None:
        """Lets a client in, or refuses the handshake of one that does not offer the one protocol
        that is spoken: 400.

        Jupyter's own waits a minute for a kernel that ends meanwhile.

        Raises:
            Finish: it was refused, its kernel has ended, or a newer one has come; Jupyter's own
                page for an error cannot be drawn where Voilà stands alone.
        """
        offered = self.websocket_handler.request.headers.get("Sec-WebSocket-Protocol", "")
        if PROTOCOL not in (name.strip() for name in offered.split(",")):
            self.websocket_handler.set_status(400)
            raise Finish(f"the websocket's subprotocol must be {PROTOCOL}")
        if older := self.newest.get(self.kernel_id):
            older.give_way()
        self.newest[self.kernel_id] = self
        ready = asyncio.ensure_future(super().prepare())
        # nobody may wait for it any more
        ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while (
                not (gone := self.refused or self.kernel_id not in self.multi_kernel_manager)
                and not ready.done()
            ):
                await asyncio.wait({ready}, timeout=NUDGE)
            if gone:
                self.websocket_handler.set_status(404)
                raise Finish(
                    "the kernel has ended, the client has gone, or a newer connection has its place"
                )
            await ready
        except BaseException:
            self.disconnect()
            raise

    def connect(self) -> Any:
        """Connects to the kernel's channels."""
        self.connected = True
        coming = super().connect()
        # another session's, which will not come back
        self.multi_kernel_manager.stop_buffering(self.kernel_id)
        return coming

    def nudge(self) -> asyncio.Future[None]:
        """Asks the kernel for a sign of life until one arrives: then nothing that it publishes is
        missed any more.

        Jupyter's own opens two more channels for it, and keeps them for a minute where the
        connection is gone by then."""
        return asyncio.ensure_future(self._hear())

    async def _hear(self) -> None:
        heard, control = asyncio.Event(), self.channels["control"]
        self.channels["iopub"].on_recv(lambda _: heard.set())
        control.on_recv(lambda _: None)  # no answer to a question of the page
        while not heard.is_set() and not self.refused:
            self.session.send(control, "kernel_info_request")
            with suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), NUDGE)

    def disconnect(self) -> None:  # type: ignore[override] # as in the class above
        """Lets go of the kernel's channels; asked again, it does nothing."""
        self.refused = True
        if self.newest.get(self.kernel_id) is self:
            del self.newest[self.kernel_id]
        if self.connected:
            self.connected = False
            super().disconnect()
            if self.websocket_handler.close_code == GONE:
                self.multi_kernel_manager.leave(self.kernel_id)
            self.channels = {}  # kept for a page that comes back, they are no longer this connection's

    def give_way(self) -> None:
        """Ends this connection for a newer one."""
        if not self.refused:
            self._refuse(1008, "a newer connection has its place", at_once=bool(self.unread))
        self.disconnect()

    def end(self, reason: str) -> None:
        """Tells the page that its kernel has ended, with a sentence that it shows, and closes the
        connection."""
        if not self.refused:
            dead = self.session.msg("status", {"execution_state": "dead", "reason": reason})
            self._write(serialize_msg_to_ws_v1(dead, "iopub", self.session.pack), binary=True)
            self._refuse(ENDED, "the kernel has ended")

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Hands a frame on to the kernel if it is one; else ends the connection."""
        if self.refused:
            return
        if not self._is_message(incoming_msg):
            self._refuse(1003, "not a message of the protocol")
        elif self._is_too_fast(len(incoming_msg)):
            self._refuse(1008, "too many messages")
        elif self.unanswered >= UNANSWERED:
            self._refuse(1008, "too many messages wait for an answer")
        else:
            self.unanswered += 1
            super().handle_incoming_message(incoming_msg)

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Hands a kernel's message on to the page if pages need its kind."""
        _, parts = self.session.feed_identities(outgoing_msg)
        kind = self.session.unpack(parts[1])["msg_type"]
        if kind == "status" and self.session.unpack(parts[4]).get("execution_state") == "idle":
            self.unanswered = max(0, self.unanswered - 1)
        if not self.refused and kind in ANSWERS:
            super().handle_outgoing_message(stream, outgoing_msg)

    @property
    def write_message(self) -> Callable[..., None]:
        """Sends a message to the page, and counts its bytes until the page's computer has them."""
        return self._write

    def _write(self, message: bytes | str, binary: bool = False) -> None:
        size = len(message)
        if self.unread and self.unread + size > UNREAD:
            self._refuse(1008, "too much is unread", at_once=True)
            return
        self.unread += size
        Connection.unread_by_all += size
        if self.unread_by_all > UNREAD_BY_ALL:
            slowest = max((self, *self.newest.values()), key=lambda other: other.unread)
            slowest._refuse(1008, "too much is unread", at_once=True)
            if self.refused:
                self._forget(size)
                return
        try:
            self.websocket_handler.write_message(message, binary).add_done_callback(
                lambda sent: self._sent(size, sent)
            )
        except WebSocketClosedError:  # the page has gone; its kernel does not know yet
            self.refused = True
            self._forget(size)

    def _forget(self, size: int) -> None:
        """Notes that bytes wait no longer."""
        self.unread -= size
        Connection.unread_by_all -= size

    def _sent(self, size: int, sent: Any) -> None:
        """Notes that bytes are sent, or never will be."""
        self._forget(size)
        if not sent.cancelled():
            sent.exception()  # the connection closed: whoever closed it knows

    def _is_message(self, frame: object) -> bool:
        """Whether a frame is a message to a channel, with a header that names its type."""
        offsets = frame_offsets(frame) if isinstance(frame, bytes) else ()
        if (
            not isinstance(frame, bytes)
            or not offsets
            or frame[offsets[0] : offsets[1]] not in CHANNELS
        ):
            return False
        try:
            header = self.session.unpack(frame[offsets[1] : offsets[2]])
        except Exception:  # noqa: BLE001 - bytes from anybody, and whichever JSON reader is installed
            return False
        return isinstance(header, dict) and isinstance(header.get("msg_type"), str)

    def _is_too_fast(self, size: int) -> bool:
        """Whether a visitor has sent more than a page does."""
        now = IOLoop.current().time()
        self.read_bytes = (
            max(0.0, self.read_bytes - (now - self.read_at) * RATE) + size + FRAME_COST
        )
        self.read_at = now
        return self.read_bytes > BURST

    def _refuse(self, code: int, reason: str, *, at_once: bool = False) -> None:
        """Closes the connection; `at_once` drops what is unread, for which the reason would have to
        wait."""
        self.refused = True
        if code != ENDED:
            refused(reason)
        socket: Any = self.websocket_handler.ws_connection
        if at_once and socket:
            socket.stream.close()
        else:
            self.websocket_handler.close(code, reason)


def frame_offsets(frame: bytes) -> tuple[int, ...]:
    """Offsets of a frame's parts, read in constant time; empty if they do not fit its length.

    A frame is the number of offsets, the offsets, and what they divide: eight bytes each,
    little-endian."""
    count = int.from_bytes(frame[:8], "little")
    if not FEWEST <= count <= MOST or len(frame) < (begin := 8 * (1 + count)):
        return ()
    offsets = struct.unpack_from(f"<{count}Q", frame, 8)
    ordered = list(offsets) == sorted(offsets)
    return offsets if ordered and offsets[0] == begin and offsets[-1] == len(frame) else ()
