"""Rude visitors of a real server, over real websockets: each is turned away, and nobody else
notices."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog
from tornado.web import Application
from tornado.websocket import WebSocketHandler
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

import explorer
from explorer_serve.server import Cells, Channels, guarded

from .conftest import open_in_voila, server
from .dashboard import KERNEL, Dashboard
from .test_race import CURVE, Track
from .visitor import (
    PROTOCOL,
    SOON,
    answers,
    arrive,
    asked,
    enter,
    frame,
    get,
    kernels,
    message,
    numbers,
    processes,
    received,
    seconds_until_gone,
    turned_away,
    wait_until,
)

GRACE = 4
"""Seconds that kernels of these tests wait for their pages."""
LESSON = "/lessons/02_second_moment.ipynb"
TRAINS = "/lessons/06_root_d.ipynb"
NOBODY = "0-0-0-0-0"
"""No kernel."""
TOLD = "nobody-may-know"
LIMIT = 6.0
"""Seconds in which a page asks for its cells."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("visits") / "log"


@pytest.fixture(scope="module")
def address(log: Path) -> Iterator[str]:
    """A server of this file's own, since some of it might go down; it looks at its kernels every
    second."""
    with server(
        ["serve"],
        log,
        EXPLORER_GRACE_SECONDS=str(GRACE),
        EXPLORER_LOOK_SECONDS="1",
        EXPLORER_SILENCE_SECONDS=str(LIMIT),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def polite(address: str) -> Iterator[ClientConnection]:
    """A visit that lasts through all of this file's attacks, of somebody polite."""
    with enter(address, arrive(address)) as visit:
        yield visit
        assert answers(visit), "somebody polite was disturbed"


@pytest.fixture(scope="module")
def rude_kernels() -> list[str]:
    """Kernels of somebody rude, the last of which may still be there."""
    return []


def last_or_new(address: str, known: list[str], path: str = "/") -> str:
    """The last of some kernels; another one where it has ended, as any does without a page."""
    try:
        with enter(address, known[-1]):
            pass  # it waits for its page from now on
    except (IndexError, InvalidStatus):
        known.append(arrive(address, path))
    return known[-1]


@pytest.fixture
def kernel(address: str, polite: ClientConnection, rude_kernels: list[str]) -> str:
    """The kernel of somebody rude."""
    return last_or_new(address, rude_kernels)


@pytest.fixture(scope="module")
def lessons() -> list[str]:
    """Kernels of lessons, the last of which may still be there."""
    return []


@pytest.fixture
def lesson(address: str, lessons: list[str]) -> Iterator[str]:
    """The kernel of a lesson whose page is open and has not asked for its cells."""
    with enter(address, name := last_or_new(address, lessons, LESSON)):
        yield name


def test_kernel_that_waits_for_a_visitor_outlives_the_grace(address: str) -> None:
    """The first test: nobody has come yet."""
    end = time.monotonic() + SOON
    while not (waiting := kernels(address)) and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(GRACE + 2)
    assert processes(arrive(address))[0].pid in waiting


def test_threads_of_a_kernel_share_what_they_have_freed(kernel: str) -> None:
    assert processes(kernel)[0].environ()["MALLOC_ARENA_MAX"] == "2"


WHOLE = message("kernel_info_request", {})
RUDE: dict[str, bytes | str] = {
    "a number of parts without end": b"\xff" * 64,
    "two million parts": struct.pack("<Q", 2_000_000) + bytes(64),
    "no parts": bytes(64),
    "nothing": b"",
    "an offset beyond the end": struct.pack("<7Q", 6, 56, 61, 63, 65, 67, 2**40) + b"shell{}{}{}{}",
    "offsets that go back": struct.pack("<7Q", 6, 56, 61, 60, 65, 67, 69) + b"shell{}{}{}{}",
    "cut off": WHOLE[:-1],
    "more than it says": WHOLE + b"{}",
    "a header that is no JSON": frame(b"{", b"{}", b"{}", b"{}"),
    "a header that is no object": frame(b"[]", b"{}", b"{}", b"{}"),
    "a header without a type": frame(b"{}", b"{}", b"{}", b"{}"),
    "a header of many brackets": frame(b"[" * 200_000, b"{}", b"{}", b"{}"),
    "a channel that nobody knows": message("comm_msg", {}, channel=b"iopub"),
    "text": "\xff" * 64,
    "JSON of the older protocol": json.dumps(
        {"header": {"msg_type": "comm_msg"}, "channel": "shell"}
    ),
}


@pytest.mark.parametrize("rude", RUDE.values(), ids=RUDE)
def test_frame_that_is_no_message_ends_its_connection_only(
    address: str, kernel: str, rude: bytes | str
) -> None:
    with enter(address, kernel) as visit:
        visit.send(rude)
        assert turned_away(visit) == 1003
    with enter(address, kernel) as next_visit:
        assert answers(next_visit)


@pytest.mark.parametrize(
    ("size", "count", "code"), [(8_000_000, 1, 1009), (4_000_000, 8, 1008), (100, 40_000, 1008)]
)
def test_who_sends_too_much_is_turned_away(
    address: str, kernel: str, size: int, count: int, code: int
) -> None:
    with enter(address, kernel) as visit:
        sent = message("comm_msg", {"comm_id": "x" * size, "data": {}})
        with suppress(ConnectionClosed):  # it may be closed while we still send
            for _ in range(count):
                visit.send(sent)
        assert turned_away(visit) == code
    with enter(address, kernel) as next_visit:
        assert answers(next_visit)


@pytest.mark.parametrize("protocols", [(), ("another",)])
def test_client_without_the_protocol_is_refused_at_the_handshake(
    address: str,
    kernel: str,
    protocols: tuple[str, ...],
) -> None:
    with pytest.raises(InvalidStatus) as refusal, enter(address, kernel, protocols):
        pass
    assert refusal.value.response.status_code == 400


def cells(address: str, lesson: str, **options: str) -> ClientConnection:
    """A websocket that runs a lesson's cells."""
    where = f"{address.replace('http', 'ws')}/voila/execution/{lesson}"
    return connect(where, max_size=None, close_timeout=1, **options)  # type: ignore[arg-type]


def request(kernel: str, action: str = "execute") -> str:
    return json.dumps({"action": action, "payload": {"kernel_id": kernel}})


WALK = """
import asyncio
from tornado.web import Application
from tornado.websocket import WebSocketHandler
import explorer_serve.start

explorer_serve.start._prepare()  # which keeps a grammar from being compiled
from explorer_serve.server import Server

async def walk(preheat):
    server, notebooks = Server(config_file_paths=[str(explorer_serve.start.SETTINGS)]), explorer_serve.start.notebooks()
    server.initialize([str(notebooks / "explorer.ipynb"), f"--Voila.root_dir={notebooks}", "--no-browser",
                       "--Voila.base_url=/", f"--preheat_kernel={preheat}", "--pool_size=0"])
    server.app = Application(**server.init_settings())
    server.voila_configuration.progressive_rendering = True  # with every handler that Voilà has
    server.app.add_handlers(".*$", server.init_handlers())
    for rule in server.app.default_router.rules + server.app.wildcard_router.rules:
        for row in getattr(rule.target, "rules", [rule]):
            if isinstance(row.target, type) and issubclass(row.target, WebSocketHandler):
                print(preheat, row.target.__name__)

for preheat in (True, False):
    asyncio.run(walk(preheat))
"""


def test_every_websocket_of_the_application_is_guarded() -> None:
    """A walk over all handlers of all rules: one that a new release of Voilà brings would be here,
    too."""
    walked = subprocess.run(
        [sys.executable, "-c", WALK], capture_output=True, text=True, check=False
    )
    assert not walked.returncode, walked.stderr
    kinds = (Cells.__name__, Channels.__name__)
    assert {*walked.stdout.splitlines()} == {
        f"{preheat} {kind}" for preheat in (True, False) for kind in kinds
    }


def test_a_websocket_that_nobody_guards_is_not_served() -> None:
    class Another(WebSocketHandler):
        """As a new release may bring."""

    path, kind, *_ = guarded((r"/another", Another, {"option": 1}))
    assert path == r"/another"
    assert not issubclass(kind, WebSocketHandler)
    assert Application([(path, kind, *_)])


@pytest.mark.parametrize(
    "path",
    [
        f"/voila/execution/{NOBODY}",
        "/voila/execution/x",
        f"/voila/query/{NOBODY}",
        f"/api/kernels/{NOBODY}/channels",
    ],
)
def test_there_is_no_websocket_without_a_kernel(address: str, path: str) -> None:
    with (
        pytest.raises(InvalidStatus) as refusal,
        connect(address.replace("http", "ws") + path, subprotocols=[Subprotocol(PROTOCOL)]),
    ):
        pass
    assert refusal.value.response.status_code == 404


def test_a_foreign_origin_is_refused_and_takes_nobodys_place(address: str, lesson: str) -> None:
    with enter(address, lesson) as visit:
        for where in (f"/api/kernels/{lesson}/channels", f"/voila/execution/{lesson}"):
            with (
                pytest.raises(InvalidStatus) as refusal,
                connect(
                    address.replace("http", "ws") + where,
                    origin="http://evil.example",  # type: ignore[arg-type]
                    subprotocols=[Subprotocol(PROTOCOL)],
                ),
            ):
                pass
            assert refusal.value.response.status_code == 403
        assert answers(visit)


@pytest.mark.usefixtures("polite")
def test_a_kernel_has_one_websocket_for_its_cells_which_counts(address: str, lesson: str) -> None:
    def websockets() -> float:
        return numbers(address)["explorer_websockets"]

    wait_until(lambda: websockets() == 2, said=websockets)  # of somebody polite and of the lesson
    with cells(address, lesson):
        assert websockets() == 3
        for _ in range(20):
            with pytest.raises(InvalidStatus) as refusal, cells(address, lesson):
                pass
            assert refusal.value.response.status_code == 409
    wait_until(lambda: websockets() == 2)


def test_an_unfinished_message_is_small_and_does_not_stay(address: str, lesson: str) -> None:
    """A page asks in a hundred bytes, at once; 5.9 MB of a message that never ends are refused by
    what its head says of them."""
    with cells(address, lesson) as visit:
        head = b"\x01\xff" + (5_900_000).to_bytes(8, "big") + bytes(4)
        with suppress(OSError):  # it may be closed while this is sent
            visit.socket.sendall(head + bytes(5_800_000))
        assert turned_away(visit) == 1009
    with cells(address, lesson) as visit:
        assert "initialized" in str(visit.recv())
        with pytest.raises(ConnectionClosed, match="silent"):
            visit.recv(timeout=2 * LIMIT)


@pytest.mark.parametrize(
    "rude", ["{", "[]", "[" * 900, "x" * 5000, b"\xff" * 64, request(NOBODY), "{}"]
)
def test_whoever_asks_for_anything_else_is_turned_away(
    address: str, lesson: str, rude: str | bytes
) -> None:
    with cells(address, lesson) as visit:
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


def test_cells_that_train_are_asked_for_once_and_after_the_others(
    address: str, lesson: str
) -> None:
    with cells(address, lesson) as visit:
        visit.send(request(lesson, "train"))
        assert turned_away(visit) == 1008
    other = arrive(address, TRAINS)
    with enter(address, other), cells(address, other) as visit:
        visit.send(request(other))
        while "execution_result" not in str(visit.recv(timeout=60)):
            pass
        visit.send(request(other, "train"))
        visit.recv(timeout=60)
        visit.send(request(other, "train"))
        assert turned_away(visit) == 1008


PATHS = [
    "/..%2f..%2fconf.json",
    "/%2e%2e/conf.json",
    "/%ff",
    "/voila/api/shutdown/%ff",
    "/voila/static/%00",
    "/voila/static/..%2f..%2fconf.json",
    "/voila/files/..%2fx",
    "/voila/api/themes/..%2f..%2fx",
    "/voila/labextensions/..%5c..%5cx",
    "/voila/labextensions/%0d%0ax",
    "/voila/templates/%00/static/x",
    "/voila/templates/explorer/static/..%2f..%2fconf.json",
    "/voila/templates/explorer/static/",
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
def test_a_kernel_cannot_be_ended_or_changed_with_a_token_that_is_valid(
    address: str, lesson: str, method: str
) -> None:
    """Ended so, it left a page that waited for ever, and the server counted it on."""
    cookies = asked(address, "/nothing-here")[0].headers.get_all("Set-Cookie") or []
    (token,) = (
        cookie.split(";")[0].removeprefix("_xsrf=")
        for cookie in cookies
        if cookie.startswith("_xsrf=")
    )
    with enter(address, lesson) as visit:
        for path in (
            f"/api/kernels/{lesson}",
            "/api/kernels",
            f"/api/kernels/{lesson}/interrupt",
            "/api/contents/explorer.ipynb",
            "/api/sessions",
        ):
            answer, _ = asked(address, path, method, Cookie=f"_xsrf={token}", X_XSRFToken=token)
            assert answer.status in (404, 405), path
        assert answers(visit)


@pytest.fixture(scope="module")
def visit_after(browser: Browser, address: str, polite: ClientConnection) -> Iterator[Dashboard]:
    """A page that comes after somebody rude; a busy browser may come after the grace, and loads it
    again."""
    with enter(address, arrive(address)) as rude:
        rude.send(b"\xff" * 64)
        assert turned_away(rude) == 1003
    page = browser.new_page()
    visit = Dashboard(page, "voila")
    open_in_voila(page, address)
    visit.wait_until_drawn()
    visit.complaints = []
    yield visit
    page.close()


def test_next_visitor_still_gets_a_page(visit_after: Dashboard) -> None:
    with visit_after.redrawn():
        visit_after.write("n_layers", "5")
    assert visit_after.said == "Measured 5 layers of width 256"
    visit_after.must_be_clean()


def test_more_visitors_than_warm_kernels_each_have_one_of_their_own(address: str) -> None:
    """At once: the pool holds one kernel; the others get theirs as before, and all end when nobody
    comes.

    Also that of a page that never came: the first.
    """

    def visit(number: int) -> str:
        kernel = arrive(address)
        if number > 0:
            with enter(address, kernel) as entered:
                assert answers(entered)
        return kernel

    with ThreadPoolExecutor() as visitors:
        kernels = list(visitors.map(visit, range(3)))
    assert len(set(kernels)) == 3
    assert all(seconds_until_gone(kernel) < SOON for kernel in kernels)


TROUBLE = {
    "an unknown target": ("comm_open", {"comm_id": TOLD, "target_name": TOLD, "data": {}}),
    "an unknown widget": (
        "comm_open",
        {
            "comm_id": TOLD,
            "target_name": "jupyter.widget",
            "data": {"state": {"_model_name": TOLD}},
        },
    ),
    "an unknown comm": ("comm_msg", {"comm_id": f"{TOLD}?", "data": {}}),
    "a comm without an id": ("comm_msg", {"data": {TOLD: TOLD}}),
    "no content": ("comm_info_request", [TOLD]),
}


@pytest.mark.parametrize(("kind", "content"), TROUBLE.values(), ids=TROUBLE)
def test_no_traceback_leaves_the_server(
    address: str, kernel: str, kind: str, content: object
) -> None:
    with enter(address, kernel) as visit:
        visit.send(message(kind, content))
        visit.send(message("kernel_info_request", {}))
        must_be_silent_of_the_server(received(visit, "kernel_info_reply"))


def test_no_traceback_of_a_widget_leaves_the_server(address: str, kernel: str) -> None:
    """A new slider, and then values that raise in the kernel: in its validation, and in what
    follows a message."""
    with enter(address, kernel) as visit:
        comm = str(uuid.uuid4())
        state = {
            "_model_module": "@jupyter-widgets/controls",
            "_model_module_version": "2.0.0",
            "_model_name": "IntSliderModel",
            "_view_module": "@jupyter-widgets/controls",
            "_view_module_version": "2.0.0",
            "_view_name": "IntSliderView",
        }
        visit.send(
            message(
                "comm_open",
                {"comm_id": comm, "target_name": "jupyter.widget", "data": {"state": state}},
            )
        )
        for data in (
            {"method": "update", "state": {"value": "no number"}},
            {"method": "update", "state": {"layout": "IPY_MODEL_nothing"}},
            {"method": "update", "buffer_paths": [["a", "b"]], "state": {}},
            {"method": "update"},
            [],
        ):
            visit.send(message("comm_msg", {"comm_id": comm, "data": data}))
        visit.send(message("kernel_info_request", {}))
        must_be_silent_of_the_server(received(visit, "kernel_info_reply"))


PLACES = (
    "Traceback",
    "site-packages",
    str(Path(explorer.__file__).parent),
    f"{Path.home()}/",
    sys.prefix,
)
"""What tells of the machine."""


def must_be_silent_of_the_server(told: list[str]) -> None:
    assert [text for text in told for place in PLACES if place in text] == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/voila/files/explorer.ipynb",
        "/voila/templates/..%2f..",
        "/api/kernels/a",
        "/voila/plotly-000000000000.js",
    ],
)
def test_pages_of_the_server_name_no_place_on_it(address: str, path: str) -> None:
    must_be_silent_of_the_server([get(address, path)])


def test_kernel_waits_for_a_page_whose_network_failed(address: str) -> None:
    kernel = arrive(address)
    for _ in range(2):
        with enter(address, kernel):
            pass
    with enter(address, kernel) as visit:
        assert answers(visit)
        time.sleep(GRACE + 2)
        assert answers(visit), "the kernel of an open page has ended"
    assert seconds_until_gone(kernel) < SOON


def test_page_that_comes_back_while_its_kernel_ends_is_turned_away(address: str) -> None:
    """And does not wait a minute for it: the server has seen by then that the kernel was killed."""
    kernel = arrive(address)
    for process in processes(kernel):
        process.kill()
    with pytest.raises(InvalidStatus) as refusal, enter(address, kernel):
        pass
    assert refusal.value.response.status_code == 404


def test_stderr_is_lines_of_json_whatever_comes(address: str, lesson: str, log: Path) -> None:
    """Malformed paths, heads, frames, messages; hundreds of them make few lines."""
    port, before = int(address.rpartition(":")[2]), len(log.read_text())
    for _ in range(100):
        for rude in ("{", "[]"):
            with cells(address, lesson) as visit:
                visit.send(rude)
                assert turned_away(visit) == 1008
        asked(
            address, f"/voila/templates/explorer/static/{TOLD}/..%2f", Referer=TOLD, User_Agent=TOLD
        )
        with suppress(InvalidStatus), cells(address, lesson, origin=f"http://{TOLD}.example"):
            pass
    for raw in (
        b"\xff\xfe\r\n\r\n",
        f"GET /{TOLD} HTTP/9\r\n\r\n".encode(),
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        with socket.create_connection(("localhost", port)) as line:
            line.sendall(raw)
    for path in PATHS:
        asked(address, f"{path}?{TOLD}={TOLD}", Cookie=f'username-x="2|1:0|{TOLD}"')
    for method in ("PATCH", "DELETE", "PUT", "POST"):
        asked(
            address,
            f"/api/kernels/{uuid.uuid4()}",
            method,
            Cookie=f"_xsrf={TOLD}",
            X_XSRFToken=TOLD,
        )
    with enter(address, lesson) as visit, ExitStack() as others:
        for kind, content in TROUBLE.values():
            visit.send(message(kind, content))
            visit.send(message("kernel_info_request", {}))
            received(visit, "kernel_info_reply")
        others.enter_context(enter(address, lesson))
    text = log.read_text()
    # for the person who starts it, on standard output
    own = (
        "Starting …",
        "Transformer Signal Explorer is at",
    )
    lines = [line for line in text.splitlines() if not line.startswith(own)]
    events = [json.loads(line) for line in lines]
    assert all(event["time"] and event["event"] for event in events)
    assert len(text) - before < 40_000
    for private in (TOLD, lesson, "127.0.0.1", "localhost", "/voila/"):
        assert private not in "".join(lines)
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", "".join(lines)), "no kernel's name"
    faults = [event for event in events if event["event"] == "fault"]
    assert faults
    assert all(
        event.keys() <= {"time", "event", "logger", "at", "error", "raised"} for event in faults
    )


ASKING = """() => window.addEventListener("beforeunload", (event) => {
  event.preventDefault();
  event.returnValue = "stay";
})"""
"""Makes a page ask whether it may be left."""


def test_reload_ends_the_old_kernel_and_staying_does_not(visit_after: Dashboard, log: Path) -> None:
    """A page may ask before it is left. Voilà lets go of the kernel before the answer is known."""
    visit, page = visit_after, visit_after.page
    kernel = page.evaluate(KERNEL)
    page.evaluate(ASKING)
    page.locator("h1").click()  # a page that nobody has touched may not ask
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.once("dialog", stay)
    page.evaluate("() => { setTimeout(() => location.reload()); }")
    page.wait_for_timeout(1000 * (GRACE + 2))
    assert asked == ["beforeunload"]
    assert len(processes(kernel)) == 1
    visit.reset()
    page.once("dialog", lambda dialog: dialog.accept())
    page.reload()
    visit.wait_until_drawn()
    assert page.evaluate(KERNEL) != kernel
    assert seconds_until_gone(kernel) < GRACE
    visit.must_be_clean()
    assert "shutdown" not in log.read_text()


def test_kernel_that_computes_ends_with_its_page(visit_after: Dashboard) -> None:
    """The last test: the page is closed."""
    page, track = visit_after.page, Track(visit_after)
    kernel = page.evaluate(KERNEL)
    page.get_by_role("tab", name="Race").click()
    track.write("steps", "100000")
    track.press("Start")
    page.wait_for_function(
        "(curves) => Object.keys(eval(curves)('Training loss')).length > 0", arg=CURVE
    )
    page.close()
    assert seconds_until_gone(kernel) < SOON
