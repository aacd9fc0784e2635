"""`Server`: Voilà for people whom nobody knows: who is given a page, and what a request may cost.

Voilà and jupyter_server limit neither connections nor kernels, and answer some addresses with an error of their own.
SECURITY.md says what this is for, and which test holds each promise.
"""

# mypy: disallow-untyped-calls = False
# Much of Voilà and jupyter_server has no types.

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.utils import url_path_join
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.iostream import IOStream
from tornado.routing import AnyMatches, HostMatches, Matcher, Rule, RuleRouter
from tornado.web import Application, HTTPError, OutputTransform, RedirectHandler, RequestHandler, authenticated
from tornado.websocket import WebSocketClosedError
from traitlets import Int, List, Unicode
from voila.app import Voila
from voila.configuration import VoilaConfiguration
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.static_file_handler import TemplateStaticFileHandler
from voila.tornado.execution_request_handler import ExecutionRequestHandler
from voila.tornado.handler import TornadoVoilaHandler

from explorer.serve import metrics, plotly
from explorer.serve.kernels import NoRoomError
from explorer.serve.visits import Connection
from explorer.tasks.pool import Pool

HEAD, BODY, BUFFER = 64_000, 64_000, 8_000_000
"""Bytes of a request's head and of its body (files come over the websocket), and of what is read ahead."""
SILENCE = 20.0
"""Seconds in which a request must be there, and after which a connection without one is closed."""
STALLED = 120.0
"""Seconds after which a connection may be closed that does not take its answer, where others wait for a place."""
SILENT = logging.getLogger("explorer.nobody")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
LINE_COOKIE = "explorer-line"
MOST_IN_LINE = 200
"""Visitors in line, at most."""
NEW, PRESENT, KEPT = 14.0, 25.0, 120.0
"""Seconds since a visitor asked last, beyond which others go ahead, and beyond which the place is lost.

A page asks again every 15 seconds, in a tab that nobody sees once a minute. Others go ahead sooner of somebody who has
not come back yet: a browser that keeps no token is new each time, and must not wait for itself.
"""
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
AGAIN = 15
"""Seconds after which a page that could not be given asks again."""


def is_lesson(notebook: Path) -> bool:
    """Whether a notebook is a lesson, whose page shows its code."""
    return notebook.parent.name in ("lessons", "zh")


class Line:
    """Places by token, which a visitor's browser keeps. Only tokens that were made here are remembered."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, float]] = {}
        """When each visitor asked last, and for how long that counts, in the order in which they came."""

    def ahead(self, token: str) -> int:
        """Visitors who come before one, or before somebody new."""
        now, count = time.monotonic(), 0
        for other, (asked, counts) in self._asked.items():
            if other == token:
                break
            count += now - asked < counts
        return count

    def wait(self, token: str) -> str:
        """Has a visitor wait, and returns their token: a new one for somebody new, none where the line is full."""
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
    return f"You are {ORDINALS[ahead]} in line." if ahead < len(ORDINALS) else f"You are number {ahead + 1} in line."


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
            metrics.note("opened", pages=self.kernel_manager.pages, seconds=round(seconds, 3))
        except NoRoomError as error:
            metrics.refused(error.reason)
            self.set_status(503)
            self.set_header("Retry-After", str(AGAIN))
            where = self._wait() if error.reason == "full" else ""
            self.finish(self.render_template("full.html", reason=str(error), place=where, seconds=AGAIN))
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
        """Refuses what browsers ask for without a person who opens the page: an image of another site, a preview."""
        if path:
            raise HTTPError(404)
        site, mode, target = (self.request.headers.get(f"Sec-Fetch-{name}", usual) for name, usual in (
            ("Site", "none"), ("Mode", "navigate"), ("Dest", "document")))
        if site not in ("none", "same-origin") and (mode, target) != ("navigate", "document"):
            metrics.refused("another site")
            raise HTTPError(403)
        if "prefetch" in self.request.headers.get("Sec-Purpose", self.request.headers.get("Purpose", "")):
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

        A kernel that had waited for a visitor may have been killed since: then there is another try.
        """
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


class Cells(ExecutionRequestHandler):  # type: ignore[misc]
    """Handler that runs a lesson's cells for a page that shows its text already, until its visitor leaves."""

    began = left = False

    async def on_message(self, message_str: str | bytes) -> None:
        """Runs the cells and sends what comes out, one by one."""
        self.began = True
        self.kernel_manager.run(self.path_args[0])
        with suppress(WebSocketClosedError):
            await super().on_message(message_str)

    def on_close(self) -> None:
        """Ends the connection to the kernel, if there is one."""
        self.left = True
        if self.began:
            super().on_close()

    @property
    def log(self) -> Any:
        """The server's log; a cell whose kernel ended with its visitor is no error."""
        return SILENT if self.left else super().log


class Leave(VoilaShutdownKernelHandler):  # type: ignore[misc]
    """Handler for a page that says it is leaving. A browser's beacon carries no token; the kernel's id is enough."""

    def check_xsrf_cookie(self) -> None:
        """Asks for no token."""

    async def post(self, kernel_id: str) -> None:
        """Ends the kernel; an unknown one is answered likewise."""
        await self.kernel_manager.end(kernel_id)
        self.set_status(204)
        self.finish()


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
    """Handler of a load balancer's question: whether visitors may come, how many are there, and how many may be."""

    @allow_unauthenticated
    def get(self) -> None:
        """Answers with the numbers, as JSON; 503 where visitors should not come now."""
        kernels = self.settings["kernel_manager"]
        status = "draining" if kernels.draining else "ok" if kernels.ready else "starting"
        self.set_status(200 if status == "ok" else 503)
        self.set_header("Cache-Control", "no-store")
        numbers = {"pages": kernels.pages, "max_pages": kernels.max_pages, "waiting": kernels.waiting}
        if pool := self.settings["pool"]:
            numbers |= {"workers": pool.alive, "tasks_waiting": pool.waiting}
        self.finish({"status": status, **numbers})

    head = get


class SafeHeaders(OutputTransform):
    """Adds the headers that Jupyter sends with its own answers to all others: files, refusals, errors."""

    def __init__(self, added: Mapping[str, str], request: HTTPServerRequest) -> None:
        super().__init__(request)
        self.added = added

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool,  # noqa: ARG002 - of the protocol
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Adds them to an answer's head."""
        for name, text in self.added.items():
            headers.setdefault(name, text)
        return status_code, headers, chunk


class TemplateFile(TemplateStaticFileHandler):  # type: ignore[misc]
    """Handler of the templates' files."""

    def parse_url_path(self, path: str) -> str:
        """The path of a file; a malformed one is not found, where Voilà fails."""
        if path.split("/", 2)[1:2] != ["static"] or path.count("/") < 2:
            raise HTTPError(404)
        return str(super().parse_url_path(path))


class Front(HTTPServer):
    """Takes the connections: so many at a time, and none for long that says nothing.

    Where there are as many as there may be, the one goes that has waited longest without having sent a whole request,
    else one that has not taken its answer for minutes. Websockets do not count here: a kernel has one.
    """

    def initialize(self, handler: RuleRouter, most: int) -> None:  # type: ignore[override]
        """Takes what answers, and how many connections there may be."""
        super().initialize(handler, max_header_size=HEAD, max_body_size=BODY, body_timeout=SILENCE,
                           idle_connection_timeout=SILENCE, max_buffer_size=BUFFER)
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
        return Hearing(super().start_request(server_conn, request_conn), self.silent, request_conn.stream)

    def on_close(self, server_conn: Any) -> None:
        """Forgets a connection that was closed, or has become a websocket."""
        super().on_close(server_conn)
        self.since.pop(server_conn.stream, None)
        self.silent.pop(server_conn.stream, None)


class Hearing(HTTPMessageDelegate):
    """Takes a connection off the silent ones when a whole request has come; else hands everything on."""

    def __init__(self, handler: HTTPMessageDelegate, silent: dict[IOStream, None], stream: IOStream) -> None:
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
    """Matches a request whose host is written as an address: no other site's name can lead to it."""

    def match(self, request: Any) -> dict[str, Any] | None:
        """An empty dict where it is, else None."""
        return {} if metrics.is_address(request.host_name) else None


class Server(Voila):  # type: ignore[misc]
    """Voilà, with our page, limits and answers in the place of its own."""

    notebooks: Sequence[Path] = ()
    """Each has a page of its own, at its path below the folder that all are in."""
    pool: Pool | None = None
    """Computes for all visitors; None where each kernel has workers of its own."""
    hosts = List(Unicode(), config=True, help="Names by which a request may call this server, besides any address.")
    most_connections = Int(400, config=True, help="Connections at a time, without websockets.")
    readers = List(Unicode(), list(metrics.THIS_MACHINE), config=True, help="Networks that may read /metrics.")
    fill: Callable[..., None] | None = None
    """Starts kernels to wait for a visitor, where there shall be some."""

    @property
    def transforms(self) -> Any:
        """Changes to every answer on its way out."""
        return [partial(SafeHeaders, self.tornado_settings["headers"])]

    def init_settings(self) -> dict[str, Any]:
        """The settings; kernels that wait for a visitor are looked after by `tend`, not when one is taken."""
        settings: dict[str, Any] = super().init_settings()
        if self.voila_configuration.preheat_kernel:
            self.fill = self.kernel_manager.fill_if_needed
            self.kernel_manager.fill_if_needed = lambda *_, **__: None
        settings["line"] = self.line = Line()
        settings["pool"] = self.pool
        self.kernel_manager.ready = not self.fill
        settings["transforms"] = self.transforms
        self.tending = PeriodicCallback(self.tend, 1000 * self.kernel_manager.cull_interval)
        self.tending.start()
        return settings

    async def tend(self) -> None:
        """Replaces kernels waiting for a visitor that were taken or have died, and looks at the memory of all.

        One that was taken is replaced at the next look, not at once: its visitor's page comes first.
        """
        await self.kernel_manager.bury()
        if self.fill:
            self.fill(delay=0, notebook_name=self.kernel_manager.notebook_path)
        await self.kernel_manager.look()

    async def drain(self, seconds: float) -> None:
        """Ends the server when its visitors have gone, or after so many seconds; at once where it is asked again."""
        if not self.kernel_manager.draining:
            self.tending.stop()
            await self.kernel_manager.drain(seconds)
        self.ioloop.stop()

    def _show_numbers(self) -> None:
        """Adds the numbers of the kernels and connections to those that an operator reads."""
        kernels = self.kernel_manager
        metrics.show({
            "explorer_pages": ("Visitors' pages, open or about to be.", lambda: kernels.pages),
            "explorer_max_pages": ("Pages at a time, at most.", lambda: kernels.max_pages),
            "explorer_kernels_waiting": ("Kernels that wait for a visitor.", lambda: kernels.waiting),
            "explorer_kernels_memory_bytes": ("Memory of all kernels that they share with no other process (USS).",
                                              lambda: sum(kernels.memory.values())),
            "explorer_visitors_in_line": ("Visitors who wait until a page is free.", lambda: self.line.ahead("")),
            "explorer_connections": ("HTTP connections, without websockets.", lambda: len(self.front.since)),
            "explorer_websockets": ("Websockets to kernels.", lambda: len(Connection.newest)),
        })
        if pool := self.pool:
            metrics.show({
                "explorer_workers": ("Workers that can compute.", lambda: pool.alive),
                "explorer_tasks_waiting": ("Tasks that no worker has begun.", lambda: pool.waiting),
                "explorer_tasks_computed": ("Tasks that were computed to their end.", lambda: pool.computed),
            })
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
            (at(r"/voila/query/.*"), Answer, {"status": 404}),  # it tells kernels of requests; ours ask their browser
            (at(r"/voila/api/shutdown/([\w-]+)"), Leave),
            (at(r"/voila/templates/(.*)"), TemplateFile),
            plotly.handler(self.server_url),
            (at(r"/voila/execution/([\w-]+)"), Cells),
        ]
        voila = [(handler[0], Page, *handler[2:]) if handler[1] is TornadoVoilaHandler else handler
                 for handler in super().init_handlers()]
        return [*own, *self._pages(), *voila]

    def _pages(self) -> Iterator[tuple[Any, ...]]:
        """Handlers of the notebooks, at their paths, so that they lead to each other by relative links.

        The server's own is at the root, where the links of a notebook in no folder are the same. A lesson's are not.
        """
        for notebook in self.notebooks:
            name = notebook.relative_to(self.root_dir).as_posix()
            address = url_path_join(self.server_url, name)
            if notebook == Path(self.notebook_path) and is_lesson(notebook):
                yield self.server_url, RedirectHandler, {"url": url_path_join(self.base_url, name), "permanent": False}
            elif notebook == Path(self.notebook_path):
                yield re.escape(address), RedirectHandler, {"url": self.base_url, "permanent": False}
                continue
            yield re.escape(address), Page, {
                "notebook_path": name, "template_paths": self.template_paths, "config": self.config,
                "voila_configuration": VoilaConfiguration(parent=self, strip_sources=not is_lesson(notebook),
                                                          progressive_rendering=is_lesson(notebook))}

    def listen(self) -> None:
        """Listens, and answers until it is stopped."""
        names = ".*" if "*" in self.hosts else "|".join(map(re.escape, self.hosts))
        refusal = "This name is not one of the server's; explorer serve --allow-host adds it.\n"
        stranger = Application([(".*", Answer, {"status": 403, "text": refusal, "refused": "another name"})],
                               transforms=self.transforms)
        rules = [Rule(HostMatches(f"(?i:{names})$"), self.app), Rule(AddressMatches(), self.app),
                 Rule(AnyMatches(), stranger)]
        self.front = Front(RuleRouter(rules), most=self.most_connections)
        self._show_numbers()
        self.front.listen(self.port, self.ip)
        self.ioloop = IOLoop.current()
        try:
            self.ioloop.start()
        finally:
            self.stop()
