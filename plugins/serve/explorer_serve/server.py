"""`Server`: Voilà for people whom nobody knows: who is given a page, and what a request may cost.

Voilà and jupyter_server limit neither connections nor kernels, and answer some addresses with an
error of their own. SECURITY.md says what this is for, and which test holds each promise."""

# mypy: disallow-untyped-calls = False
# Much of Voilà and jupyter_server has no types.

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from http.client import responses
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote_to_bytes

import psutil
from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.auth.identity import User
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.services.kernels.handlers import KernelHandler
from jupyter_server.utils import url_path_join
from nbclient.exceptions import CellExecutionError, DeadKernelError
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.iostream import IOStream
from tornado.routing import AnyMatches, HostMatches, Matcher, Rule, RuleRouter
from tornado.web import (
    Application,
    HTTPError,
    OutputTransform,
    RedirectHandler,
    RequestHandler,
    authenticated,
)
from tornado.websocket import WebSocketClosedError, WebSocketHandler
from traitlets import Int, List, Unicode
from voila.app import Voila
from voila.configuration import VoilaConfiguration
from voila.request_info_handler import RequestInfoSocketHandler
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.static_file_handler import TemplateStaticFileHandler
from voila.tornado.execution_request_handler import ExecutionRequestHandler
from voila.tornado.handler import TornadoVoilaHandler
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler
from voila.voila_identity_provider import VoilaIdentityProvider

from explorer.log import note
from explorer.memory import environment
from explorer.tasks.pool import Pool
from explorer_serve import metrics, plotly
from explorer_serve.kernels import NoRoomError
from explorer_serve.visits import Connection

HEAD, BODY, BUFFER = 64_000, 64_000, 8_000_000
"""Bytes of a request's head and of its body (files come over the websocket), and of what is read
ahead."""
SILENCE = environment("EXPLORER_SILENCE_SECONDS", 20.0)
"""Seconds in which a request must be there, and after which a connection without one is closed."""
REQUEST = 1_000
"""Bytes of the message by which a page asks for a lesson's cells, at most."""
TRAIN, SKIP = "train", "skip-execution"
"""The tag of cells that wait until a visitor wants them, and nbclient's own of cells that are not
to run."""
STALLED = 120.0
"""Seconds after which a connection may be closed that does not take its answer, where others wait
for a place."""
SILENT = logging.getLogger("explorer.nobody")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
LINE_COOKIE = "explorer-line"
MOST_IN_LINE = 200
"""Visitors in line, at most."""
AGAIN = max(2, round(environment("EXPLORER_RETRY_SECONDS", 15.0)))
"""Seconds after which a page that could not be given asks again."""
NEW, PRESENT, KEPT = AGAIN - 1, AGAIN * 5 / 3, 120.0
"""Seconds since a visitor asked last, beyond which others go ahead, and beyond which the place is
lost.

A tab that nobody sees asks again once a minute. Others go ahead sooner of somebody who has not come
back yet: a browser that keeps no token is new each time, and must not wait for itself."""
ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
]


def is_lesson(notebook: Path) -> bool:
    """Whether a notebook is a lesson, whose page shows its code."""
    return notebook.parent.name in ("lessons", "zh")


class Line:
    """Places by token, which a visitor's browser keeps. Only tokens that were made here are
    remembered."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, float]] = {}
        """When each visitor asked last, and for how long that counts, in the order in which they
        came."""

    def ahead(self, token: str) -> int:
        """Visitors who come before one, or before somebody new."""
        now, count = time.monotonic(), 0
        for other, (asked, counts) in self._asked.items():
            if other == token:
                break
            count += now - asked < counts
        return count

    def wait(self, token: str) -> str:
        """Has a visitor wait, and returns their token: a new one for somebody new, none where the
        line is full."""
        now, counts = time.monotonic(), PRESENT
        self._asked = {other: last for other, last in self._asked.items() if now - last[0] < KEPT}
        if token not in self._asked:
            if len(self._asked) >= MOST_IN_LINE:
                return ""
            token, counts = secrets.token_urlsafe(16), NEW
        self._asked[token] = now, counts
        return token

    def leave(self, token: str) -> None:
        """Takes a visitor out who has got a page."""
        self._asked.pop(token, None)


def place(ahead: int) -> str:
    """A sentence for a visitor before whom so many others come."""
    return (
        f"You are {ORDINALS[ahead]} in line."
        if ahead < len(ORDINALS)
        else f"You are number {ahead + 1} in line."
    )


class Page(TornadoVoilaHandler):  # type: ignore[misc]
    """Handler of the page itself. Only a person who opens it gets a kernel."""

    making: asyncio.Task[None] | None = None

    @authenticated
    async def get(self, path: str = "") -> None:
        """Sends the page, or says why there is none now: 503."""
        self._must_be_a_visit(path)
        self.making = asyncio.ensure_future(self._make())
        try:
            await self.making
            seconds = self.request.request_time()
            metrics.MADE.observe(seconds)
            note("opened", pages=self.kernel_manager.pages, seconds=round(seconds, 3))
        except NoRoomError as error:
            metrics.refused(error.reason)
            self.set_status(503)
            self.set_header("Retry-After", str(AGAIN))
            where = self._wait() if error.reason == "full" else ""
            self.finish(
                self.render_template("full.html", reason=str(error), place=where, seconds=AGAIN)
            )
        except asyncio.CancelledError:  # the visitor has gone
            return

    @authenticated
    async def head(self, path: str = "") -> None:
        """Answers without a body and without a kernel."""
        if path:
            raise HTTPError(404)
        self.set_header("Content-Type", "text/html")

    def on_connection_close(self) -> None:
        """No kernel is started for a visitor who has gone."""
        if self.making:
            self.making.cancel()

    def _must_be_a_visit(self, path: str) -> None:
        """Refuses what browsers ask for without a person who opens the page: an image of another
        site, a preview."""
        if path:
            raise HTTPError(404)
        site, mode, target = (
            self.request.headers.get(f"Sec-Fetch-{name}", usual)
            for name, usual in (("Site", "none"), ("Mode", "navigate"), ("Dest", "document"))
        )
        if site not in ("none", "same-origin") and (mode, target) != ("navigate", "document"):
            metrics.refused("another site")
            raise HTTPError(403)
        if "prefetch" in self.request.headers.get(
            "Sec-Purpose", self.request.headers.get("Purpose", "")
        ):
            metrics.refused("loaded ahead")
            raise HTTPError(503)

    @property
    def _token(self) -> str:
        """The visitor's place in line, as their browser keeps it."""
        return str(self.get_cookie(LINE_COOKIE, ""))

    def _wait(self) -> str:
        """A sentence with the place in line that the visitor has now."""
        line = self.settings["line"]
        if not (token := line.wait(self._token)):
            return "The line is full."
        self.set_cookie(LINE_COOKIE, token, path=self.base_url, httponly=True, samesite="Lax")
        return place(line.ahead(token))

    async def _make(self) -> None:
        """Has a kernel make the page, and sends its parts as they come.

        A kernel that had waited for a visitor may have been killed since: then there is another
        try."""
        for last in (False, True):
            begun = False
            await self.kernel_manager.bury()
            # A kernel that waits for a visitor becomes a page, too.
            self.kernel_manager.must_have_room(self.settings["line"].ahead(self._token))
            try:
                async for part in self.get_generator():
                    begun = True
                    self.settings["line"].leave(self._token)
                    self.write(part)
                    self.flush()
            except (NoRoomError, HTTPError):
                raise
            except Exception:
                if begun or last:
                    raise
            else:
                return


class Plain(RequestHandler):
    """Handler whose errors are a line of text: where Voilà stands alone, Jupyter cannot draw its
    pages for them."""

    def write_error(self, status_code: int, **_: Any) -> None:
        """Answers with the number and its name."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code} {responses.get(status_code, '')}\n")


class Door(WebSocketMixin, WebSocketHandler, Plain):
    """Handler of a websocket to a kernel. Before there is one, the kernel must be there, and no
    other site may ask."""

    @property
    def asked_kernel(self) -> str:
        """The kernel that the address names."""
        return str(self.path_kwargs["kernel_id"])

    async def prepare(self) -> None:
        """Refuses other sites, and kernels that are not there."""
        await super().prepare()
        if not self.check_origin():
            metrics.refused("another site")
            raise HTTPError(403)
        if self.asked_kernel not in self.settings["kernel_manager"]:
            metrics.refused("no such kernel")
            raise HTTPError(404)


class Channels(Door, VoilaKernelWebsocketHandler):  # type: ignore[misc]
    """Handler of a page's websocket; `visits` says what passes."""


def keep_outputs(_: object, notebook: Any, cwd: str) -> None:  # noqa: ARG001 - Voilà calls it so
    """Keeps what is stored of the cells that train, before Voilà clears all outputs of a notebook
    that it serves."""
    for cell in notebook.cells:
        if TRAIN in cell.metadata.get("tags", []):
            cell.metadata.stored = cell.outputs


class Cells(Door, ExecutionRequestHandler):  # type: ignore[misc]
    """Handler that runs a lesson's cells for a page that shows its text already, until its visitor
    leaves.

    A kernel has one, once, which is asked for at once and in one short message. Cells that train
    wait for another such message, so that the live figures of the page answer meanwhile. Until then
    the page has what is stored of them."""

    running: ClassVar[dict[str, Cells]] = {}
    """The websocket of each kernel."""
    max_message_size = REQUEST
    _executor: Any = None  # Voilà's, which asks for it also where no cell has run
    asked: asyncio.Task[None] | None = None
    training: asyncio.Task[None] | None = None
    waiting: Sequence[tuple[int, Any]] = ()
    """Cells that train, and their places in the lesson."""

    async def prepare(self) -> None:
        """Refuses a second one."""
        await super().prepare()
        if self.asked_kernel in self.running or self.kernel_manager.has_run(self.asked_kernel):
            metrics.refused("cells that run already")
            raise HTTPError(409)
        self.running[self.asked_kernel] = self

    async def open(self, kernel_id: str) -> None:
        """Waits for the one message; not for long."""
        self.limit = IOLoop.current().call_later(SILENCE, self._refuse, "silent")
        await super().open(kernel_id)

    async def on_message(self, message_str: str | bytes) -> None:
        """Has the cells run. Meanwhile the connection is read on, to hear when the visitor
        leaves."""
        IOLoop.current().remove_timeout(self.limit)
        if not self.asked and asks("execute", message_str, self.asked_kernel):
            self.kernel_manager.run(self.asked_kernel)
            self.asked = asyncio.ensure_future(self._run(message_str))
        elif self.waiting and not self.training and asks(TRAIN, message_str, self.asked_kernel):
            self.training = asyncio.ensure_future(self._train())
        else:
            self._refuse("not a message of the protocol")

    async def _run(self, message: str | bytes) -> None:
        """Runs the cells that do not train, and sends what comes out, or is stored, one by one."""
        lesson = self._execution_data.get(self.asked_kernel)
        cells = (
            [
                (place, cell)
                for place, cell in enumerate(lesson["nb"].cells)
                if "stored" in cell.metadata
            ]
            if lesson
            else []
        )
        self.waiting = deepcopy(cells)  # Voilà takes the source out of what it has sent
        for _, cell in cells:
            cell.outputs = cell.metadata.stored
            cell.metadata.tags.append(SKIP)
        with suppress(WebSocketClosedError):
            if ran := super().on_message(message):
                await ran
            if not self.waiting:
                self.close()

    async def _train(self) -> None:
        """Runs the cells that train, after all others, and sends what comes out, one by one."""
        if self.asked:
            await self.asked
        with suppress(WebSocketClosedError, DeadKernelError):
            for place, cell in self.waiting:
                try:
                    await self._executor.execute_cell(cell, None, place, store_history=False)
                except CellExecutionError as error:
                    self._executor.strip_code_cell_errors(cell)
                    self.log.error("a cell that trains failed", exc_info=error)
                cell.pop("source")
                result = {"output_cell": cell, "cell_index": place, "total_cell": place + 1}
                await self.write_message({"action": "execution_result", "payload": result})
            self.close()

    def write_message(self, message: Any, binary: bool = False) -> Any:
        """Sends a message. To Voilà's script the lesson is longer where cells wait, or it would
        close at the last."""
        if isinstance(message, dict) and message["action"] == "execution_result":
            message["payload"]["total_cell"] += len(self.waiting)
        return super().write_message(message, binary)

    def _refuse(self, reason: str) -> None:
        """Closes the connection."""
        metrics.refused(reason)
        self.close(1008, reason)

    def on_finish(self) -> None:
        """Makes room where there was no handshake."""
        if not self.ws_connection:
            self._leave()

    def on_close(self) -> None:
        """Ends the connection to the kernel, if there is one."""
        IOLoop.current().remove_timeout(self.limit)
        self._leave()
        super().on_close()

    def _leave(self) -> None:
        if self.running.get(self.asked_kernel) is self:
            del self.running[self.asked_kernel]

    @classmethod
    def forget(cls, kernels: Container[str]) -> None:
        """Lets go of the lessons that Voilà keeps for pages which never asked for their cells."""
        for kernel_id in list(cls._execution_data):
            if kernel_id not in kernels:
                del cls._execution_data[kernel_id]

    @property
    def log(self) -> Any:
        """The server's log; a cell whose kernel ended with its visitor is no error."""
        return (
            SILENT
            if self.close_code or self.running.get(self.asked_kernel) is not self
            else super().log
        )


def asks(action: str, message: str | bytes, kernel_id: str) -> bool:
    """Whether a message is the one by which a page asks for a lesson's cells, or for those that
    train."""
    try:
        return bool(json.loads(message) == {"action": action, "payload": {"kernel_id": kernel_id}})
    except (ValueError, RecursionError):
        return False


class Requests(RequestInfoSocketHandler):  # type: ignore[misc]
    """Voilà's store of requests for kernels that ask for theirs. Ours ask their browser: nobody
    would take one out."""

    @classmethod
    def forget(cls) -> None:
        """Empties the store."""
        cls._cache.clear()


class Leave(VoilaShutdownKernelHandler):  # type: ignore[misc]
    """Handler for a page that says it is leaving. A browser's beacon carries no token; the kernel's
    id is enough."""

    def check_xsrf_cookie(self) -> None:
        """Asks for no token."""

    async def post(self, kernel_id: str) -> None:
        """Ends the kernel; an unknown one is answered likewise."""
        await self.kernel_manager.end(kernel_id)
        self.set_status(204)
        self.finish()


class Model(KernelHandler):
    """Handler of what is known of a kernel, which can only be read.

    Jupyter's also ends it: behind the server's back, with a page that waits for ever.
    """

    SUPPORTED_METHODS = ("GET", "HEAD")


class Answer(RequestHandler):
    """Handler of what programs ask for: the same few bytes each time, and no kernel for it."""

    def initialize(self, status: int, text: str = "", refused: str = "") -> None:
        """Takes what is answered, and the reason where that is a refusal."""
        self.status, self.text, self.refused = status, text, refused

    @allow_unauthenticated
    def get(self, *_: str) -> None:
        """Answers."""
        if self.refused:
            metrics.refused(self.refused)
        self.set_status(self.status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(self.text or None)

    head = post = get

    def check_xsrf_cookie(self) -> None:
        """Asks for no token: nothing changes."""


class Health(RequestHandler):
    """Handler of a load balancer's question: whether visitors may come, how many are there, and how
    many may be."""

    @allow_unauthenticated
    def get(self) -> None:
        """Answers with the numbers, as JSON; 503 where visitors should not come now."""
        kernels, pool = self.settings["kernel_manager"], self.settings["pool"]
        status = "ok"
        if kernels.draining:
            status = "draining"
        elif not kernels.ready:
            status = "starting"
        elif pool and not pool.alive:
            status = "no workers"
        self.set_status(200 if status == "ok" else 503)
        self.set_header("Cache-Control", "no-store")
        numbers = {
            "pages": kernels.pages,
            "max_pages": kernels.max_pages,
            "waiting": kernels.waiting,
        }
        if pool:
            numbers |= {"workers": pool.alive, "tasks_waiting": pool.waiting}
        self.finish({"status": status, **numbers})

    head = get


class Visitors(VoilaIdentityProvider):  # type: ignore[misc]
    """All visitors are nobody in particular. Jupyter gives each a name, in a cookie that stays for
    30 days."""

    def get_user(self, handler: Any) -> User:  # noqa: ARG002 - whoever asks
        """The one user that there is."""
        return User("visitor")


class SafeHeaders(OutputTransform):
    """Adds the headers that Jupyter sends with its own answers to all others: files, refusals,
    errors."""

    def __init__(self, added: Mapping[str, str], request: HTTPServerRequest) -> None:
        super().__init__(request)
        self.added = added

    def transform_first_chunk(
        self,
        status_code: int,
        headers: HTTPHeaders,
        chunk: bytes,
        finishing: bool,  # noqa: ARG002 - of the protocol
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Adds them to an answer's head."""
        for name, text in self.added.items():
            headers.setdefault(name, text)
        return status_code, headers, chunk


class TemplateFile(TemplateStaticFileHandler):  # type: ignore[misc]
    """Handler of the templates' files."""

    def parse_url_path(self, path: str) -> str:
        """The path of a file; a malformed one is not found, where Voilà fails."""
        if not re.fullmatch(r"[^/]+/static/[^/].*", path):
            raise HTTPError(404)
        return str(super().parse_url_path(path))


class Front(HTTPServer):
    """Takes the connections: so many at a time, and none for long that says nothing.

    Where there are as many as there may be, the one goes that has waited longest without having
    sent a whole request, else one that has not taken its answer for minutes. Websockets do not
    count here: a kernel has one."""

    def initialize(self, handler: RuleRouter, most: int) -> None:  # type: ignore[override]
        """Takes what answers, and how many connections there may be."""
        super().initialize(
            handler,
            max_header_size=HEAD,
            max_body_size=BODY,
            body_timeout=SILENCE,
            idle_connection_timeout=SILENCE,
            max_buffer_size=BUFFER,
        )
        self.most = most
        self.since: dict[IOStream, float] = {}
        """Connections, oldest first, and since when each is open."""
        self.silent: dict[IOStream, None] = {}
        """Connections that have not sent a whole request, the longest silent first."""

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Takes a connection."""
        if len(self.since) >= self.most:
            oldest = next(iter(self.since))
            stalled = time.monotonic() - self.since[oldest] > STALLED
            metrics.refused("connections")
            next(iter(self.silent), oldest if stalled else stream).close()
        if not stream.closed():
            self.since[stream] = time.monotonic()
            super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: Any) -> HTTPMessageDelegate:
        """Waits for a request on a connection."""
        self.silent[request_conn.stream] = None
        return Hearing(
            super().start_request(server_conn, request_conn), self.silent, request_conn.stream
        )

    def on_close(self, server_conn: Any) -> None:
        """Forgets a connection that was closed, or has become a websocket."""
        super().on_close(server_conn)
        self.since.pop(server_conn.stream, None)
        self.silent.pop(server_conn.stream, None)


class Hearing(HTTPMessageDelegate):
    """Takes a connection off the silent ones when a whole request has come; else hands everything
    on."""

    def __init__(
        self, handler: HTTPMessageDelegate, silent: dict[IOStream, None], stream: IOStream
    ) -> None:
        self.handler, self.silent, self.stream = handler, silent, stream

    def headers_received(self, start_line: Any, headers: HTTPHeaders) -> Awaitable[None] | None:
        """Hands the head of a request on."""
        return self.handler.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Hands a part of its body on."""
        return self.handler.data_received(chunk)

    def finish(self) -> None:
        """Hands on that it is whole."""
        self.silent.pop(self.stream, None)
        self.handler.finish()

    def on_connection_close(self) -> None:
        """Hands on that the client has gone."""
        self.handler.on_connection_close()


class AddressMatches(Matcher):
    """Matches a request whose host is written as an address: no other site's name can lead to
    it."""

    def match(self, request: Any) -> dict[str, Any] | None:
        """An empty dict where it is, else None."""
        return {} if metrics.is_address(request.host_name) else None


class Malformed(Matcher):
    """Matches a path that no link of ours has: one that climbs, or has signs that no file's name
    has."""

    def match(self, request: Any) -> dict[str, Any] | None:
        """An empty dict where it is, else None."""
        path = unquote_to_bytes(request.path)
        climbs = not {b".", b".."}.isdisjoint(re.split(rb"[/\\]", path))
        return {} if climbs or re.search(rb"[\x00-\x1f\x7f-\xff\\]", path) else None


def guarded(handler: tuple[Any, ...]) -> tuple[Any, ...]:
    """One of Voilà's rows of handlers, with ours in its place.

    A websocket that is not guarded here is not served, whatever a new release of Voilà brings.
    """
    path, kind, *options = handler
    if kind is TornadoVoilaHandler:
        kind = Page
    elif kind is VoilaKernelWebsocketHandler:
        kind = Channels
    elif issubclass(kind, WebSocketHandler):
        return path, Answer, {"status": 404}
    else:
        kind = type(kind.__name__, (Plain, kind), {})
    return path, kind, *options


class Server(Voila):  # type: ignore[misc]
    """Voilà, with our page, limits and answers in the place of its own."""

    notebooks: Sequence[Path] = ()
    """Each has a page of its own, at its path below the folder that all are in."""
    pool: Pool | None = None
    """Computes for all visitors; None where each kernel has workers of its own."""
    hosts = List(
        Unicode(),
        config=True,
        help="Names by which a request may call this server, besides any address.",
    )
    most_connections = Int(400, config=True, help="Connections at a time, without websockets.")
    readers = List(
        Unicode(), list(metrics.THIS_MACHINE), config=True, help="Networks that may read /metrics."
    )
    fill: Callable[..., None] | None = None
    """Starts kernels to wait for a visitor, where there shall be some."""

    take: Callable[..., Awaitable[Any]]
    """Takes a kernel that waits, with what it has made of the page."""

    @property
    def transforms(self) -> Any:
        """Changes to every answer on its way out."""
        return [partial(SafeHeaders, self.tornado_settings["headers"])]

    def init_settings(self) -> dict[str, Any]:
        """The settings; kernels that wait for a visitor are looked after by `tend`, not when one is
        taken."""
        settings: dict[str, Any] = super().init_settings()
        if self.voila_configuration.preheat_kernel:
            self.fill = self.kernel_manager.fill_if_needed
            self.kernel_manager.fill_if_needed = lambda *_, **__: None
            self.take = self.kernel_manager.get_rendered_notebook
            self.kernel_manager.get_rendered_notebook = self._take
        settings["line"] = self.line = Line()
        settings["pool"] = self.pool
        self.kernel_manager.ready = not self.fill
        settings["transforms"] = self.transforms
        # a refusal is no fault, and a fault is told where it was raised
        settings["log_function"] = lambda _: None
        self.tending = PeriodicCallback(self.tend, 1000 * self.kernel_manager.cull_interval)
        self.tending.start()
        return settings

    async def _take(self, *arguments: Any, **options: Any) -> Any:
        """Takes a kernel that waits for a visitor, and notes that it is no longer one of those."""
        self.kernel_manager.being_given += 1
        try:
            *made, kernel_id = await self.take(*arguments, **options)
            self.kernel_manager.give(kernel_id)
        finally:
            self.kernel_manager.being_given -= 1
        return *made, kernel_id

    async def tend(self) -> None:
        """Replaces kernels waiting for a visitor that were taken or have died, and looks at the
        memory of all.

        One that was taken is replaced at the next look, not at once: its visitor's page comes
        first."""
        await self.kernel_manager.bury(listen=True)
        if self.fill:
            self.fill(delay=0, notebook_name=self.kernel_manager.notebook_path)
        await self.kernel_manager.look()
        Cells.forget(self.kernel_manager)
        Requests.forget()

    async def drain(self, seconds: float) -> None:
        """Ends the server when its visitors have gone, or after so many seconds; at once where it
        is asked again."""
        if not self.kernel_manager.draining:
            self.tending.stop()
            await self.kernel_manager.drain(seconds)
        self.ioloop.stop()

    def _show_numbers(self) -> None:
        """Adds the numbers of the kernels and connections to those that an operator reads."""
        kernels = self.kernel_manager
        metrics.show(
            {
                "explorer_pages": ("Visitors' pages, open or about to be.", lambda: kernels.pages),
                "explorer_max_pages": ("Pages at a time, at most.", lambda: kernels.max_pages),
                "explorer_kernels_waiting": (
                    "Kernels that wait for a visitor.",
                    lambda: kernels.waiting,
                ),
                "explorer_kernels_memory_bytes": (
                    "Memory of all kernels that they share with no other process (USS).",
                    lambda: sum(kernels.memory.values()),
                ),
                "explorer_server_memory_bytes": (
                    "Memory of the server's own process that it shares with no other (USS).",
                    lambda: psutil.Process().memory_full_info().uss,
                ),
                "explorer_visitors_in_line": (
                    "Visitors who wait until a page is free.",
                    lambda: self.line.ahead(""),
                ),
                "explorer_connections": (
                    "HTTP connections, without websockets.",
                    lambda: len(self.front.since),
                ),
                "explorer_websockets": (
                    "Websockets to kernels.",
                    lambda: len(Connection.newest) + len(Cells.running),
                ),
                "explorer_unread_bytes": (
                    "Bytes of messages that wait until their visitors' browsers take them.",
                    lambda: Connection.unread_by_all,
                ),
            }
        )
        if pool := self.pool:
            metrics.show(
                {
                    "explorer_workers": ("Workers that can compute.", lambda: pool.alive),
                    "explorer_tasks_waiting": (
                        "Tasks that no worker has begun.",
                        lambda: pool.waiting,
                    ),
                    "explorer_tasks_computed": (
                        "Tasks that were computed to their end.",
                        lambda: pool.computed,
                    ),
                }
            )
            pool.on_death = metrics.worker_died

    def init_handlers(self) -> list[Any]:
        """The handlers, ours before Voilà's."""

        def at(path: str) -> str:
            return str(url_path_join(self.server_url, path))

        own = [
            (at(r"/health"), Health),
            (at(r"/metrics"), metrics.Metrics, {"readers": self.readers}),
            (at(r"/robots.txt"), Answer, {"status": 200, "text": "User-agent: *\nDisallow: /\n"}),
            (at(r"/favicon.ico"), Answer, {"status": 204}),  # the page brings its icon along
            (at(r"/log(?:in|out)"), Answer, {"status": 404}),  # nobody has an account here
            # it tells kernels of requests; ours ask their browser
            (
                at(r"/voila/query/.*"),
                Answer,
                {"status": 404},
            ),
            (at(r"/voila/api/shutdown/([\w-]+)"), Leave),
            (at(r"/api/kernels/(?P<kernel_id>[\w-]+)"), Model),
            (at(r"/voila/templates/(.*)"), TemplateFile),
            plotly.handler(self.server_url),
            (at(r"/voila/execution/(?P<kernel_id>[\w-]+)"), Cells),
        ]
        return [*own, *self._pages(), *map(guarded, super().init_handlers())]

    def _pages(self) -> Iterator[tuple[Any, ...]]:
        """Handlers of the notebooks, at their paths, so that they lead to each other by relative
        links.

        The server's own is at the root, where the links of a notebook in no folder are the same. A
        lesson's are not."""
        for notebook in self.notebooks:
            name = notebook.relative_to(self.root_dir).as_posix()
            address = url_path_join(self.server_url, name)
            if notebook == Path(self.notebook_path) and is_lesson(notebook):
                yield (
                    self.server_url,
                    RedirectHandler,
                    {"url": url_path_join(self.base_url, name), "permanent": False},
                )
            elif notebook == Path(self.notebook_path):
                yield (
                    re.escape(address),
                    RedirectHandler,
                    {"url": self.base_url, "permanent": False},
                )
                continue
            yield (
                re.escape(address),
                Page,
                {
                    "notebook_path": name,
                    "template_paths": self.template_paths,
                    "config": self.config,
                    "voila_configuration": VoilaConfiguration(
                        parent=self,
                        strip_sources=not is_lesson(notebook),
                        progressive_rendering=is_lesson(notebook),
                        prelaunch_hook=keep_outputs,
                    ),
                },
            )

    def listen(self) -> None:
        """Listens, and answers until it is stopped."""
        names = ".*" if "*" in self.hosts else "|".join(map(re.escape, self.hosts))
        refusal = "This name is not one of the server's; explorer serve --allow-host adds it.\n"
        as_here = {"transforms": self.transforms, "log_function": self.app.settings["log_function"]}
        stranger = Application(
            [(".*", Answer, {"status": 403, "text": refusal, "refused": "another name"})], **as_here
        )
        nothing = Application([(".*", Answer, {"status": 404})], **as_here)
        rules = [
            Rule(Malformed(), nothing),
            Rule(HostMatches(f"(?i:{names})$"), self.app),
            Rule(AddressMatches(), self.app),
            Rule(AnyMatches(), stranger),
        ]
        self.front = Front(RuleRouter(rules), most=self.most_connections)
        self._show_numbers()
        self.front.listen(self.port, self.ip)
        self.ioloop = IOLoop.current()
        try:
            self.ioloop.start()
        finally:
            self.stop()
