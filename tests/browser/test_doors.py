"""The websockets that a server has, each with its limits, and what stderr has of those who send anything else."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tornado.web import Application
from tornado.websocket import WebSocketHandler
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from explorer.serve.server import Cells, Channels, guarded

from .conftest import server
from .test_operator import numbers
from .visitor import PROTOCOL, answers, arrive, asked, enter, message, received, serving, turned_away, wait_until

LESSON = "/lessons/02_second_moment.ipynb"
TRAINS = "/lessons/06_root_d.ipynb"
NOBODY = "0-0-0-0-0"
"""No kernel."""
TOLD = "nobody-may-know"
LIMIT = 20.0
"""Seconds in which a page asks for its cells."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors") / "log"


@pytest.fixture(scope="module")
def address(log: Path) -> Iterator[str]:
    """A server of this file's own."""
    with server(["serve", "--preheat", "0"], log, EXPLORER_PROCESSES="1", EXPLORER_GRACE_SECONDS="600") as running:
        yield running


@pytest.fixture(scope="module")
def kernel(address: str) -> str:
    """The kernel of a lesson whose page has not asked for its cells."""
    return arrive(address, LESSON)


def cells(address: str, kernel: str, **options: str) -> ClientConnection:
    """A websocket that runs a lesson's cells."""
    where = f"{address.replace('http', 'ws')}/voila/execution/{kernel}"
    return connect(where, max_size=None, close_timeout=1, **options)  # type: ignore[arg-type]


def request(kernel: str, action: str = "execute") -> str:
    return json.dumps({"action": action, "payload": {"kernel_id": kernel}})


WALK = """
import asyncio, sys
from tornado.web import Application
from tornado.websocket import WebSocketHandler
from explorer.serve import SETTINGS, notebooks
from explorer.serve.server import Server

async def walk():
    server = Server(config_file_paths=[str(SETTINGS)])
    server.initialize([str(notebooks() / "explorer.ipynb"), f"--Voila.root_dir={notebooks()}", "--no-browser",
                       "--Voila.base_url=/", f"--preheat_kernel={sys.argv[1]}", "--pool_size=0"])
    server.app = Application(**server.init_settings())
    server.voila_configuration.progressive_rendering = True  # with every handler that Voilà has
    server.app.add_handlers(".*$", server.init_handlers())
    for rule in server.app.default_router.rules + server.app.wildcard_router.rules:
        for row in getattr(rule.target, "rules", [rule]):
            if isinstance(row.target, type) and issubclass(row.target, WebSocketHandler):
                print(row.target.__name__)

asyncio.run(walk())
"""


@pytest.mark.parametrize("preheat", ["True", "False"])
def test_every_websocket_of_the_application_is_guarded(preheat: str) -> None:
    """A walk over all handlers of all rules: one that a new release of Voilà brings would be here, too."""
    walked = subprocess.run([sys.executable, "-c", WALK, preheat], capture_output=True, text=True, check=False)
    assert not walked.returncode, walked.stderr
    assert set(walked.stdout.split()) == {Cells.__name__, Channels.__name__}


def test_a_websocket_that_nobody_guards_is_not_served() -> None:
    class Another(WebSocketHandler):
        """As a new release may bring."""

    path, kind, *_ = guarded((r"/another", Another, {"option": 1}))
    assert path == r"/another"
    assert not issubclass(kind, WebSocketHandler)
    assert Application([(path, kind, *_)])


@pytest.mark.parametrize("path", [f"/voila/execution/{NOBODY}", "/voila/execution/x", f"/voila/query/{NOBODY}",
                                  f"/api/kernels/{NOBODY}/channels"])
def test_there_is_no_websocket_without_a_kernel(address: str, path: str) -> None:
    with (pytest.raises(InvalidStatus) as refusal,
          connect(address.replace("http", "ws") + path, subprotocols=[Subprotocol(PROTOCOL)])):
        pass
    assert refusal.value.response.status_code == 404


def test_a_foreign_origin_is_refused_and_takes_nobodys_place(address: str, kernel: str) -> None:
    with enter(address, kernel) as visit:
        for where in (f"/api/kernels/{kernel}/channels", f"/voila/execution/{kernel}"):
            with pytest.raises(InvalidStatus) as refusal, connect(
                    address.replace("http", "ws") + where, origin="http://evil.example",  # type: ignore[arg-type]
                    subprotocols=[Subprotocol(PROTOCOL)]):
                pass
            assert refusal.value.response.status_code == 403
        assert answers(visit)


def test_a_kernel_has_one_websocket_for_its_cells_which_counts(address: str, kernel: str) -> None:
    before = numbers(address)["explorer_websockets"]
    with cells(address, kernel):
        assert numbers(address)["explorer_websockets"] == before + 1
        for _ in range(20):
            with pytest.raises(InvalidStatus) as refusal, cells(address, kernel):
                pass
            assert refusal.value.response.status_code == 409
    wait_until(lambda: numbers(address)["explorer_websockets"] == before)


def test_an_unfinished_message_is_small_and_does_not_stay(address: str, kernel: str) -> None:
    """A page asks in a hundred bytes, at once; 5.9 MB of a message that never ends were kept once."""
    before = serving(address).memory_info().rss
    with cells(address, kernel) as visit:
        head = b"\x01\xff" + (5_900_000).to_bytes(8, "big") + bytes(4)
        with suppress(OSError):  # it may be closed while this is sent
            visit.socket.sendall(head + bytes(5_800_000))
        assert turned_away(visit) == 1009
    assert serving(address).memory_info().rss - before < 3e6
    with cells(address, kernel) as visit:
        assert "initialized" in str(visit.recv())
        with pytest.raises(ConnectionClosed, match="silent"):
            visit.recv(timeout=2 * LIMIT)


@pytest.mark.parametrize("rude", ["{", "[]", "[" * 900, "x" * 5000, b"\xff" * 64, request(NOBODY), "{}"])
def test_whoever_asks_for_anything_else_is_turned_away(address: str, kernel: str, rude: str | bytes) -> None:
    with cells(address, kernel) as visit:
        visit.send(rude)
        assert turned_away(visit) in (1008, 1009)


def test_cells_run_once(address: str) -> None:
    """The page of the lesson gets them; the connection ends with them, and there is no other."""
    kernel = arrive(address, LESSON)
    with enter(address, kernel), cells(address, kernel) as visit:
        visit.send(request(kernel))
        came = []
        with suppress(ConnectionClosed):
            while len(came) < 4:
                came.append(json.loads(visit.recv(timeout=60))["action"])
        assert came == ["initialized", "execution_result", "execution_result", "execution_result"]
        visit.send("and more")
        assert turned_away(visit) == 1008
        with pytest.raises(InvalidStatus) as refusal, cells(address, kernel):
            pass
    assert refusal.value.response.status_code == 409


def test_cells_that_train_are_asked_for_once_and_after_the_others(address: str, kernel: str) -> None:
    with cells(address, kernel) as visit:
        visit.send(request(kernel, "train"))
        assert turned_away(visit) == 1008
    lesson = arrive(address, TRAINS)
    with enter(address, lesson), cells(address, lesson) as visit:
        visit.send(request(lesson))
        while "execution_result" not in str(visit.recv(timeout=60)):
            pass
        visit.send(request(lesson, "train"))
        visit.recv(timeout=60)
        visit.send(request(lesson, "train"))
        assert turned_away(visit) == 1008


PATHS = [
    "/..%2f..%2fconf.json", "/%2e%2e/conf.json", "/%ff", "/voila/api/shutdown/%ff", "/voila/static/%00",
    "/voila/static/..%2f..%2fconf.json", "/voila/files/..%2fx", "/voila/api/themes/..%2f..%2fx",
    "/voila/labextensions/..%5c..%5cx", "/voila/labextensions/%0d%0ax", "/voila/templates/%00/static/x",
    "/voila/templates/explorer/static/..%2f..%2fconf.json", "/voila/templates/explorer/static/",
    "/voila/templates/explorer/static//",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_no_link_has_is_not_found(address: str, path: str) -> None:
    assert asked(address, path)[0].status == 404


def test_no_cookie_is_kept_beyond_the_visit(address: str) -> None:
    """The place in line, and one that comes with an error, both until the browser is closed."""
    for path in ("/", LESSON, "/nothing", f"/api/kernels/{NOBODY}", "/health"):
        for cookie in asked(address, path)[0].headers.get_all("Set-Cookie", []):
            assert cookie.startswith(("_xsrf=", "explorer-line="))
            assert "expires" not in cookie.lower()
            assert "max-age" not in cookie.lower()
            assert {"HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "POST", "PUT"])
def test_a_kernel_cannot_be_ended_or_changed_with_a_token_that_is_valid(address: str, kernel: str, method: str) -> None:
    """Ended so, it left a page that waited for ever, and the server counted it on."""
    cookies = asked(address, "/nothing-here")[0].headers.get_all("Set-Cookie") or []
    (token,) = (cookie.split(";")[0].removeprefix("_xsrf=") for cookie in cookies if cookie.startswith("_xsrf="))
    with enter(address, kernel) as visit:
        for path in (f"/api/kernels/{kernel}", "/api/kernels", f"/api/kernels/{kernel}/interrupt",
                     "/api/contents/explorer.ipynb", "/api/sessions"):
            answer, _ = asked(address, path, method, Cookie=f"_xsrf={token}", X_XSRFToken=token)
            assert answer.status in (404, 405), path
        assert answers(visit)


TROUBLE = {
    "an unknown target": ("comm_open", {"comm_id": TOLD, "target_name": TOLD, "data": {}}),
    "an unknown widget": ("comm_open", {
        "comm_id": TOLD, "target_name": "jupyter.widget", "data": {"state": {"_model_name": TOLD}}}),
    "a comm without an id": ("comm_msg", {"data": {TOLD: TOLD}}),
    "no content": ("comm_info_request", [TOLD]),
}


def test_stderr_is_lines_of_json_whatever_comes(address: str, kernel: str, log: Path) -> None:
    """The last test: malformed paths, heads, frames, messages; hundreds of them make few lines."""
    port, before = int(address.rpartition(":")[2]), len(log.read_text())
    for _ in range(100):
        for rude in ("{", "[]"):
            with cells(address, kernel) as visit:
                visit.send(rude)
                assert turned_away(visit) == 1008
        asked(address, f"/voila/templates/explorer/static/{TOLD}/..%2f", Referer=TOLD, User_Agent=TOLD)
        with suppress(InvalidStatus), cells(address, kernel, origin=f"http://{TOLD}.example"):
            pass
    for raw in (b"\xff\xfe\r\n\r\n", f"GET /{TOLD} HTTP/9\r\n\r\n".encode(),
                b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with socket.create_connection(("localhost", port)) as line:
            line.sendall(raw)
    for path in PATHS:
        asked(address, f"{path}?{TOLD}={TOLD}", Cookie=f'username-x="2|1:0|{TOLD}"')
    for method in ("PATCH", "DELETE", "PUT", "POST"):
        asked(address, f"/api/kernels/{uuid.uuid4()}", method, Cookie=f"_xsrf={TOLD}", X_XSRFToken=TOLD)
    with enter(address, kernel) as visit, ExitStack() as others:
        for kind, content in TROUBLE.values():
            visit.send(message(kind, content))
            visit.send(message("kernel_info_request", {}))
            received(visit, "kernel_info_reply")
        others.enter_context(enter(address, kernel))
    text = log.read_text()
    own = ("Starting …", "Transformer Signal Explorer is at")  # for the person who starts it, on standard output
    lines = [line for line in text.splitlines() if not line.startswith(own)]
    events = [json.loads(line) for line in lines]
    assert all(event["time"] and event["event"] for event in events)
    assert len(text) - before < 40_000
    for private in (TOLD, kernel, "127.0.0.1", "localhost", "/voila/"):
        assert private not in "".join(lines)
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", "".join(lines)), "no kernel's name"
    faults = [event for event in events if event["event"] == "fault"]
    assert faults
    assert all(event.keys() <= {"time", "event", "logger", "at", "error", "raised"} for event in faults)
