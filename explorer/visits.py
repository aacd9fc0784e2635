"""The server's side of a visit: which frames a visitor may send, which messages come back, how long the kernel lives.

jupyter_server trusts everyone who can open a kernel's websocket: in a notebook they may run code. A visitor of a served
page may only move its controls, so here each frame is checked before Jupyter reads it, in constant time; messages that
no page needs (output, errors, tracebacks) stay on the server; and a kernel ends soon after its page did. SECURITY.md
says what this is for. `jupyter/voila.json` names these classes; `explorer lab` uses `Prompt` alone, and Binder none.
Any notebook server of the environment sends plotly.js (`jupyter/jupyter_server_config.d/`).
"""

# mypy: disallow-untyped-calls = False
# Much of jupyter_server has no types.

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from functools import partial
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.utils import url_path_join
from tornado.ioloop import IOLoop
from tornado.iostream import StreamBufferFullError
from tornado.web import Finish, HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError
from voila.app import Voila
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler

from explorer import plotlyjs

PROTOCOL = "v1.kernel.websocket.jupyter.org"
"""The only format of messages that is spoken: its frames are checked here, and Voilà reads every answer as one."""
CHANNELS = (b"shell", b"control")
FEWEST, MOST = 6, 64
"""Offsets of a frame: where the channel begins and ends, and where each of four parts and of any buffers ends."""
ANSWERS = {
    "status", "comm_open", "comm_msg", "comm_close", "comm_info_reply", "kernel_info_reply", "shutdown_reply",
}
"""Types of messages that a page needs from its kernel; all others stay here."""
FRAME_COST, RATE, BURST = 1_000, 1e6, 16e6
"""Limits on what a visitor sends: bytes a second in the long run, and at once; each frame adds a fixed number."""
UNREAD = 64_000_000
"""Bytes that may wait for a visitor who does not read them."""
REFILL = 5.0
"""Seconds after which a kernel that was taken from the pool is replaced."""
GRACE = 50.0
"""Seconds that a kernel waits for its page: a network that fails for a moment must not end a visit."""


class Prompt(ZMQChannelsWebsocketConnection):
    """A websocket to the kernel on which each message goes out at once.

    By default the second message of an answer waits until the browser has acknowledged the first, which it puts off for
    40 ms.
    """

    def connect(self) -> Any:
        """Connects to the kernel's channels."""
        socket: Any = self.websocket_handler.ws_connection
        socket.set_nodelay(True)
        return super().connect()


class Connection(Prompt):
    """A visitor's websocket to the kernel. What does not fit closes this connection, and disturbs no other."""

    refused = False
    read_bytes, read_at = 0.0, 0.0

    async def prepare(self) -> None:
        """Lets a client in, or refuses the handshake of one that does not offer the one protocol that is spoken: 400.

        Raises:
            Finish: it was refused; Jupyter's own page for an error cannot be drawn where Voilà stands alone.
        """
        offered = self.websocket_handler.request.headers.get("Sec-WebSocket-Protocol", "")
        if PROTOCOL not in (name.strip() for name in offered.split(",")):
            self.websocket_handler.set_status(400)
            raise Finish(f"the websocket's subprotocol must be {PROTOCOL}")
        await super().prepare()

    def connect(self) -> Any:
        """Connects to the kernel's channels; a visitor who does not read is not waited for without end."""
        socket: Any = self.websocket_handler.ws_connection
        socket.stream.max_write_buffer_size = UNREAD
        return super().connect()

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Hands a frame on to the kernel if it is one; else ends the connection."""
        if self.refused:
            return
        if not self._is_message(incoming_msg):
            self._refuse(1003, "not a message of the protocol")
        elif self._is_too_fast(len(incoming_msg)):
            self._refuse(1008, "too many messages")
        else:
            super().handle_incoming_message(incoming_msg)

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Hands a kernel's message on to the page if pages need its kind."""
        _, parts = self.session.feed_identities(outgoing_msg)
        if self.refused or self.session.unpack(parts[1])["msg_type"] not in ANSWERS:
            return
        try:
            super().handle_outgoing_message(stream, outgoing_msg)
        except StreamBufferFullError:
            self._refuse(1008, "too much is unread")
        except WebSocketClosedError:
            self.refused = True  # the page has gone; its kernel does not know yet

    def _is_message(self, frame: object) -> bool:
        """Whether a frame is a message to a channel, with a header that names its type."""
        offsets = frame_offsets(frame) if isinstance(frame, bytes) else ()
        if not isinstance(frame, bytes) or not offsets or frame[offsets[0] : offsets[1]] not in CHANNELS:
            return False
        try:
            header = self.session.unpack(frame[offsets[1] : offsets[2]])
        except Exception:  # noqa: BLE001 - bytes from anybody, and whichever JSON reader is installed
            return False
        return isinstance(header, dict) and isinstance(header.get("msg_type"), str)

    def _is_too_fast(self, size: int) -> bool:
        """Whether a visitor has sent more than a page does."""
        now = IOLoop.current().time()
        self.read_bytes = max(0.0, self.read_bytes - (now - self.read_at) * RATE) + size + FRAME_COST
        self.read_at = now
        return self.read_bytes > BURST

    def _refuse(self, code: int, reason: str) -> None:
        self.refused = True
        self.websocket_handler.close(code, reason)


def frame_offsets(frame: bytes) -> tuple[int, ...]:
    """Offsets of a frame's parts, read in constant time; empty if they do not fit its length.

    A frame is the number of offsets, the offsets, and what they divide: eight bytes each, little-endian.
    """
    count = int.from_bytes(frame[:8], "little")
    if not FEWEST <= count <= MOST or len(frame) < (begin := 8 * (1 + count)):
        return ()
    offsets = struct.unpack_from(f"<{count}Q", frame, 8)
    ordered = list(offsets) == sorted(offsets)
    return offsets if ordered and offsets[0] == begin and offsets[-1] == len(frame) else ()


class Kernels(AsyncMappingKernelManager):
    """The visitors' kernels. One without a page ends, at once when the page says so, else after `grace` seconds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.grace = float(os.environ.get("EXPLORER_GRACE_SECONDS", GRACE))
        self._visited: set[str] = set()
        self._without_page: dict[str, float] = {}
        """Since when a kernel has had no page, in the event loop's seconds."""

    def notify_connect(self, kernel_id: str) -> None:
        """Notes that a page has come, or come back."""
        super().notify_connect(kernel_id)
        self._visited.add(kernel_id)
        self._without_page.pop(kernel_id, None)

    def notify_disconnect(self, kernel_id: str) -> None:
        """Notes that a page has gone, or is out of reach."""
        super().notify_disconnect(kernel_id)
        self._without_page[kernel_id] = IOLoop.current().time()

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Ends a kernel that has been without a page for too long, idle or not. Asked often."""
        model = self.kernel_model(kernel_id)
        waited_for = kernel_id not in self._visited and model["execution_state"] in ("starting", "busy")
        if model["connections"] or waited_for:  # its page is open, or still being made
            self._without_page.pop(kernel_id, None)
        else:
            now = IOLoop.current().time()
            if now - self._without_page.setdefault(kernel_id, now) >= self.grace:
                await self.end(kernel_id)

    async def end(self, kernel_id: str) -> None:
        """Ends a kernel with whatever it computes; nothing happens to one that has ended."""
        with suppress(HTTPError, KeyError):
            await self.shutdown_kernel(kernel_id, now=True)
        self._visited.discard(kernel_id)
        self._without_page.pop(kernel_id, None)

    async def shutdown_all(  # type: ignore[override] # Jupyter takes either kind
        self, now: bool = False,  # noqa: ARG002 - the server ends: nobody waits for a kernel
    ) -> None:
        """Ends every kernel at once, also those that are only starting."""
        for kernel_id in self.list_kernel_ids():
            await self.end(kernel_id)


class Leave(VoilaShutdownKernelHandler):  # type: ignore[misc]
    """Handler for a page that says it is leaving. A browser's beacon carries no token; the kernel's id is enough."""

    def check_xsrf_cookie(self) -> None:
        """Asks for no token."""

    async def post(self, kernel_id: str) -> None:
        """Ends the kernel; an unknown one is answered likewise."""
        await self.kernel_manager.end(kernel_id)
        self.set_status(204)
        self.finish()


class PlotlyScript(RequestHandler):
    """Handler of plotly.js, which every page of this version needs: the same bytes for everyone, for a year."""

    @allow_unauthenticated
    async def get(self) -> None:
        """Sends it packed; every browser that can draw the page can unpack it."""
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Content-Encoding", "gzip")
        self.set_header("Cache-Control", "public, max-age=31536000, immutable")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(await IOLoop.current().run_in_executor(None, plotlyjs.packed))


class Server(Voila):  # type: ignore[misc]
    """Voilà, with `Leave` in the place of its own handler, and a pool of kernels that is refilled at leisure."""

    def init_settings(self) -> dict[str, Any]:
        """The settings. A kernel that is taken from the pool is replaced later: its visitor's page comes first.

        Until then the pool is one short, and a visitor for whom there is none gets a kernel that starts for them.
        """
        settings: dict[str, Any] = super().init_settings()
        if self.voila_configuration.preheat_kernel:
            fill = self.kernel_manager.fill_if_needed

            def refill(delay: object = None, **options: Any) -> None:  # noqa: ARG001 - Voilà's own, which visitors wait for
                IOLoop.current().call_later(REFILL, partial(fill, delay=0, **options))

            self.kernel_manager.fill_if_needed = refill
        return settings

    def init_handlers(self) -> list[Any]:
        """The handlers, ours before Voilà's."""
        return [(url_path_join(self.server_url, r"/voila/api/shutdown/([\w-]+)"), Leave),
                _plotly(self.server_url), *super().init_handlers()]


def _plotly(base: str) -> tuple[str, type[PlotlyScript]]:
    return url_path_join(base, re.escape(plotlyjs.path())), PlotlyScript


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """What `jupyter_server_config.d` names is an extension of every notebook server of the environment."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Has a notebook server send plotly.js, and its kernels leave it to the server."""
    server.web_app.add_handlers(".*$", [_plotly(server.web_app.settings["base_url"])])
    os.environ[plotlyjs.SERVED] = "in JupyterLab"
