"""What one visitor may take of a real server: sockets, memory, kernels, connections; the others still get their pages.

Each attack is bounded in count and time: a few times what broke a server without limits.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Route, expect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from .conftest import server
from .test_voila import KERNEL
from .visitor import (
    ARRIVED,
    PROTOCOL,
    SOON,
    answers,
    arrive,
    asked,
    enter,
    kernels,
    message,
    processes,
    seconds_until_gone,
    serving,
    turned_away,
    wait_until,
)

PAGES = 3
"""Pages at a time that the server of these tests allows."""
MEGABYTE = 1e6


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crowds") / "log"


@pytest.fixture(scope="module")
def address(log: Path) -> Iterator[str]:
    """A server of this file's own, with few pages, which end soon and are looked at often; also `explorer.example`."""
    limits = ["--max-pages", str(PAGES), "--preheat", "1", "--allow-host", "explorer.example"]
    with server(["serve", *limits], log, EXPLORER_GRACE_SECONDS="3", EXPLORER_LOOK_SECONDS="1") as running:
        wait_until(lambda: health(running)["status"] == "ok")
        yield running
    assert "Traceback" not in log.read_text()


@pytest.fixture
def empty(address: str) -> str:
    """The server, without a visitor: one kernel waits."""
    while ARRIVED:
        asked(address, f"/voila/api/shutdown/{ARRIVED.pop()}", "POST")
    expected = {"status": "ok", "pages": 0, "max_pages": PAGES, "waiting": 1}
    wait_until(lambda: health(address).items() >= expected.items(),
               said=lambda: health(address))
    wait_until(lambda: in_line_count(address) == 0)
    return address


def health(address: str, base: str = "/") -> dict[str, object]:
    """The server's numbers."""
    return dict(json.loads(asked(address, f"{base}health")[1]))


def deaf(address: str, kernel: str) -> ClientConnection:
    """A websocket to a kernel that reads next to nothing."""
    where = f"{address.replace('http', 'ws')}/api/kernels/{kernel}/channels?session_id={uuid.uuid4()}"
    return connect(where, subprotocols=[Subprotocol(PROTOCOL)], max_size=None, max_queue=1, close_timeout=1)


def ask_for_everything(visit: ClientConnection, times: int) -> None:
    """Has the kernel send the state of the whole page, again and again."""
    comm = str(uuid.uuid4())
    visit.send(message("comm_open", {"comm_id": comm, "target_name": "jupyter.widget.control", "data": {}}))
    for _ in range(times):
        visit.send(message("comm_msg", {"comm_id": comm, "data": {"method": "request_states"}}))


def test_who_does_not_read_costs_the_server_little(empty: str) -> None:
    kernel, running = arrive(empty), serving(empty)
    before, most = running.memory_info().rss, 0
    with ExitStack() as open_ones:
        for _ in range(20):
            visit = open_ones.enter_context(deaf(empty, kernel))
            with suppress(ConnectionClosed):
                ask_for_everything(visit, 15)
            most = max(most, running.memory_info().rss)
        for _ in range(20):
            time.sleep(0.1)
            most = max(most, running.memory_info().rss)
    assert most - before < 60 * MEGABYTE


def test_messages_for_a_page_out_of_reach_are_limited(empty: str) -> None:
    """A page asks for everything and is gone before it comes: its kernel ends with what it has to say."""
    kernel, running = arrive(empty), serving(empty)
    before = running.memory_info().rss
    with enter(empty, kernel) as visit:
        assert answers(visit)
        ask_for_everything(visit, 300)
    assert seconds_until_gone(kernel) < SOON
    assert running.memory_info().rss - before < 80 * MEGABYTE


def test_a_newer_connection_takes_the_place_of_the_older(empty: str) -> None:
    kernel = arrive(empty)
    with enter(empty, kernel) as older, enter(empty, kernel) as newer:
        assert turned_away(older) == 1008
        assert answers(newer)


def test_connections_to_a_kernel_do_not_add_up(empty: str) -> None:
    kernel, running = arrive(empty), serving(empty)
    with ExitStack() as open_ones:
        last = open_ones.enter_context(enter(empty, kernel))
        assert answers(last)
        before = running.num_fds()
        for _ in range(80):
            last = open_ones.enter_context(enter(empty, kernel))
        assert answers(last)
        wait_until(lambda: running.num_fds() < before + 60)  # those that give way take the time of a goodbye
        with enter(empty, arrive(empty)) as somebody_else:
            assert answers(somebody_else)


def test_a_handshake_that_is_given_up_does_not_keep_a_kernel(empty: str) -> None:
    kernel = arrive(empty)
    request = (f"GET /api/kernels/{kernel}/channels HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
               f"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
               f"Sec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n")
    for _ in range(10):
        with socket.create_connection(("localhost", int(empty.rpartition(":")[2]))) as line:
            line.sendall(request.encode())
    assert seconds_until_gone(kernel) < SOON


def test_a_flooded_kernel_is_free_again_soon(empty: str) -> None:
    with enter(empty, arrive(empty)) as visit:
        assert answers(visit)
        with suppress(ConnectionClosed):
            for number in range(5_000):
                visit.send(message("comm_msg", {"comm_id": f"{number}", "data": {"method": "update", "state": {}}}))
        assert turned_away(visit) == 1008


def in_line(address: str, cookie: str = "") -> tuple[int, str, str]:
    """A visitor's answer: its status, its place in line, and the cookie that the browser keeps."""
    answer, words = asked(address, Cookie=cookie)
    found = re.search(r"You are (\w+) in line", words)
    kept = [told.partition(";")[0] for told in answer.headers.get_all("Set-Cookie", []) if "explorer-line=" in told]
    return answer.status, found[1] if found else "", "".join(kept[:1]) or cookie


def in_line_count(address: str) -> int:
    """Visitors in line, as the server counts them."""
    found = re.search(r"^explorer_visitors_in_line (\d+)", asked(address, "/metrics")[1], re.MULTILINE)
    assert found
    return int(found[1])


def test_a_full_house_is_said_and_kernels_are_no_more_than_allowed(empty: str) -> None:
    """Thirty ask at once; those who get a page stay, the others are told when to come again."""
    most = 0
    with ThreadPoolExecutor(30) as visitors:
        coming = [visitors.submit(asked, empty) for _ in range(30)]
        while not all(visit.done() for visit in coming):
            most = max(most, len(kernels(empty)))
            time.sleep(0.1)
    answers_ = [visit.result() for visit in coming]
    assert Counter(answer.status for answer, _ in answers_) == {200: PAGES, 503: 30 - PAGES}
    assert most <= PAGES + 1
    refused, words = next((answer, body) for answer, body in answers_ if answer.status == 503)
    assert refused.headers["Retry-After"] == "15"
    assert f"Every page that this server can show at a time is in use ({PAGES})." in words
    assert 'http-equiv="refresh"' in words
    told = sorted(int(found[1]) for _, body in answers_ if (found := re.search(r"You are number (\d+) in line", body)))
    assert told == list(range(11, 31 - PAGES))
    wait_until(lambda: len(kernels(empty)) == 1)
    cookie = in_line(empty)[2]
    wait_until(lambda: in_line(empty, cookie)[0] == 200)  # those in line do not ask again, and lose their turn


def test_a_kernel_that_waits_is_no_page_beyond_those_allowed(empty: str) -> None:
    with ExitStack() as open_ones:
        for _ in range(PAGES):
            open_ones.enter_context(enter(empty, arrive(empty)))
        wait_until(lambda: health(empty)["waiting"] == 1, said=lambda: health(empty))
        assert asked(empty)[0].status == 503
        assert health(empty)["pages"] == PAGES


def test_a_visitor_who_goes_while_waiting_leaves_no_kernel(empty: str) -> None:
    for _ in range(12):
        with closing(socket.create_connection(("localhost", int(empty.rpartition(":")[2])))) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(1)
    assert len(kernels(empty)) <= PAGES + 1
    wait_until(lambda: len(kernels(empty)) == 1)


WITHOUT_A_KERNEL = {
    "a health check": ("/health", "GET", {}, 200),
    "a head": ("/", "HEAD", {}, 200),
    "a search engine": ("/robots.txt", "GET", {}, 200),
    "an icon": ("/favicon.ico", "GET", {}, 204),
    "an image of another site": ("/", "GET", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors",
                                              "Sec_Fetch_Dest": "image"}, 403),
    "a frame of another site": ("/", "GET", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate",
                                             "Sec_Fetch_Dest": "iframe"}, 403),
    "a script on another port": ("/", "GET", {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors",
                                              "Sec_Fetch_Dest": "empty"}, 403),
    "a page loaded ahead": ("/", "GET", {"Sec_Purpose": "prefetch;prerender"}, 503),
    "another name": ("/", "GET", {"Host": "rebound.example"}, 403),
    "an account": ("/logout", "GET", {}, 404),
    "a login": ("/login", "GET", {}, 404),
    "no file": ("/nothing", "GET", {}, 404),
    "a template that is none": ("/voila/templates/x", "GET", {}, 404),
    "a template's folder": ("/voila/templates/explorer/x/page.js", "GET", {}, 404),
    "a large body": ("/voila/api/shutdown/x", "POST", {"Content_Length": "98000000"}, 400),
}


@pytest.mark.parametrize(("path", "method", "headers", "status"), WITHOUT_A_KERNEL.values(), ids=WITHOUT_A_KERNEL)
def test_programs_are_answered_without_a_kernel(
    address: str, path: str, method: str, headers: dict[str, str], status: int,
) -> None:
    before = kernels(address)
    assert asked(address, path, method, **headers)[0].status == status
    assert kernels(address) <= before


@pytest.mark.parametrize("host", ["explorer.example", "127.0.0.1:80", "[::1]", "10.1.2.3", "LOCALHOST"])
def test_names_of_the_server_are_known(address: str, host: str) -> None:
    assert asked(address, "/health", Host=host)[0].status == 200


def test_a_link_from_another_site_opens_the_page(empty: str) -> None:
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    answer, page = asked(empty, **headers)
    assert answer.status == 200
    assert "kernelId" in page
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'self'" in policy


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file")
def test_where_memory_runs_out_a_kernel_ends_and_not_the_server(empty: str) -> None:
    process = processes(arrive(empty))[0].pid
    assert Path(f"/proc/{process}/oom_score_adj").read_text() == "1000\n"
    assert Path(f"/proc/{serving(empty).pid}/oom_score_adj").read_text() != "1000\n"


def is_open(line: socket.socket) -> bool:
    """Whether the other end has a connection open, and has said nothing."""
    line.settimeout(0.0)
    try:
        line.recv(1000)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_connections_that_say_nothing_make_room_and_end(empty: str) -> None:
    """Room is made at once, by closing the oldest; and each ends by itself, once it has been silent for long."""
    port = int(empty.rpartition(":")[2])
    with ExitStack() as open_ones:
        lines = [open_ones.enter_context(socket.create_connection(("localhost", port))) for _ in range(600)]
        for number, line in enumerate(lines):
            with suppress(OSError):  # the server has closed it for a newer one
                line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"POST /health HTTP/1.1\r\n"
                             b"Content-Length: 9\r\n\r\nhalf")
        assert asked(empty, "/health")[0].status == 200
        assert is_open(lines[-1]), "others were answered while it still said nothing"
        assert not is_open(lines[0])
        assert arrive(empty)
        lines[-1].settimeout(60)
        with suppress(ConnectionResetError):
            while lines[-1].recv(1000):
                pass
        assert not is_open(lines[-1])


def rests(process: int) -> bool:
    """Whether a process uses no processor for a second."""
    before = psutil.Process(process).cpu_times()
    time.sleep(1)
    return psutil.Process(process).cpu_times() == before


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
def test_a_waiting_kernel_that_is_dead_or_stopped_is_nobodys(empty: str, harm: signal.Signals) -> None:
    wait_until(lambda: kernels(empty))
    (waiting,) = kernels(empty)
    wait_until(lambda: rests(waiting))  # it has run the notebook
    os.kill(waiting, harm)
    with enter(empty, arrive(empty)) as visit:
        assert answers(visit)
    wait_until(lambda: waiting not in kernels(empty))


def test_who_came_first_gets_the_next_page(empty: str) -> None:
    """The last test for which the server must be empty: it leaves a line, which is there for a while."""
    with ExitStack() as open_ones:
        for _ in range(PAGES):
            open_ones.enter_context(enter(empty, arrive(empty)))
        cookies = []
        for place in ("first", "second", "third"):
            status, told, cookie = in_line(empty)
            assert (status, told) == (503, place)
            cookies.append(cookie)
        told_again = [in_line(empty, cookie)[:2] for cookie in cookies]
        assert told_again == [(503, "first"), (503, "second"), (503, "third")]
        assert in_line_count(empty) == 3
        asked(empty, f"/voila/api/shutdown/{ARRIVED[-1]}", "POST")
        assert in_line(empty, cookies[2])[:2] == (503, "third")
        assert in_line(empty)[:2] == (503, "fourth")  # somebody new
        assert in_line(empty, "explorer-line=made-up")[:2] == (503, "fifth")
        assert in_line(empty, cookies[0])[0] == 200
        assert in_line(empty, cookies[2])[:2] == (503, "second")


def test_a_server_that_was_killed_leaves_nothing(tmp_path: Path) -> None:
    """Its kernels end by themselves; its folder is removed by the next server."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short)
        with server(["serve"], tmp_path / "log", TMPDIR=short) as address:
            kernel = arrive(address)
            serving(address).kill()
            assert seconds_until_gone(kernel) < SOON
        (left,) = folder.glob("explorer-serve-*")
        with server(["serve", "--preheat", "0"], tmp_path / "log2", TMPDIR=short) as address:
            assert asked(address, "/health")[0].status == 200
            assert not left.exists()
            assert len(list(folder.glob("explorer-serve-*"))) == 1
        assert not list(folder.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="nobody can write below /proc, not even root")
def test_a_long_path_and_a_home_that_cannot_be_written_are_no_hindrance(tmp_path: Path) -> None:
    """Where a socket's address below the folder for temporary files would be too long, another is used."""
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    homes = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), "/proc/nobody")
    with server(["serve", "--preheat", "0"], tmp_path / "log", TMPDIR=str(deep), **homes) as address, \
            enter(address, arrive(address)) as visit:
        assert answers(visit)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_few_open_files_are_said_and_make_fewer_pages(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = f"--no-browser --preheat 0 --max-pages 40 --port {port}"
    limited = f"ulimit -n 512; exec {sys.executable} -m explorer serve {options}"
    with subprocess.Popen(["bash", "-c", limited], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert [running.stdout.readline() for _ in range(3)][2] == (
                "Open files are limited to 512 (ulimit -n), which is too few for 40 pages\n")
        finally:
            running.terminate()


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose page is at `/explorer/`."""
    options = ["--base-url", "/explorer/", "--preheat", "0"]
    with server(["serve", *options], tmp_path_factory.mktemp("below") / "log", EXPLORER_GRACE_SECONDS="120") as address:
        yield address


def test_the_page_works_below_another_address_and_in_a_frame(browser: Browser, below: str) -> None:
    """As behind a proxy that hands on what is below `/explorer/`, within a page of the same site."""
    page = browser.new_page()
    asked_for: list[str] = []
    page.on("request", lambda request: asked_for.append(request.url))
    page.route(f"{below}/lesson", lambda route: route.fulfill(
        content_type="text/html", body='<iframe title="Depth" src="/explorer/?embed=1&n_layers=24"></iframe>'))
    page.goto(f"{below}/lesson")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".ex-status")).to_contain_text("Measured", timeout=60_000)
    assert health(below, "/explorer/")["pages"] == 1
    assert {url for url in asked_for if url.startswith("http")} == {
        url for url in asked_for if url.startswith((f"{below}/explorer/", f"{below}/lesson"))}
    page.goto(f"{below}/explorer/health")  # the page says that it is left
    wait_until(lambda: health(below, "/explorer/")["pages"] == 0, 30)
    page.close()


def test_a_page_whose_kernels_die_before_it_is_connected_says_so(browser: Browser, below: str) -> None:
    """Two: the page is loaded again by itself, once."""
    page = browser.new_page()

    def kill(route: Route) -> None:
        for process in kernels(below):
            os.kill(process, signal.SIGKILL)
        route.continue_()

    page.route("**/voila.js", kill)
    page.goto(f"{below}/explorer/")
    notice = page.locator("#ex-notice")
    expect(notice).to_contain_text("The Python process of this page has ended", timeout=60_000)
    page.unroute("**/voila.js")
    notice.get_by_role("button", name="Reload").click()
    expect(page.locator(".ex-root .ex-status")).to_contain_text("Measured", timeout=60_000)
    page.close()


def test_a_page_whose_browser_goes_elsewhere_keeps_no_kernel(below: str) -> None:
    """Also where its goodbye is lost, as Firefox loses it where it ends the page's process. A page that is out of reach
    keeps its own, though it went before."""
    kernel, unreachable = arrive(below, "/explorer/"), arrive(below, "/explorer/")
    for one, code in ((unreachable, 1000), (kernel, 1001)):
        with enter(f"{below}/explorer", one) as visit:
            assert answers(visit)
            visit.close(code)
    assert seconds_until_gone(kernel) < SOON
    assert processes(unreachable)


def moves(visit: ClientConnection) -> bool:
    """Whether a kernel answers after a message as of a widget: a question alone is no use of the page."""
    visit.send(message("comm_msg", {"comm_id": "none", "data": {}}))
    return answers(visit)


def test_an_idle_page_asks_and_stays_where_somebody_is_there(browser: Browser, tmp_path: Path) -> None:
    """And gives its kernel back where nobody is, as one without a browser does.

    Nobody is taken for gone sooner than a busy machine's kernel takes for its first answer.
    """
    limits = {"EXPLORER_IDLE_SECONDS": "18", "EXPLORER_LOOK_SECONDS": "1"}
    with ExitStack() as open_ones:
        address = open_ones.enter_context(server(["serve", "--preheat", "0"], tmp_path / "log", **limits))
        page = browser.new_page()
        page.goto(address)
        expect(page.locator(".ex-root .ex-status")).to_contain_text("Measured", timeout=60_000)
        own = page.evaluate(KERNEL)
        visit = open_ones.enter_context(enter(address, arrive(address)))
        idle = open_ones.enter_context(enter(address, kernel := arrive(address)))
        assert moves(visit)
        notice = page.locator("#ex-notice")
        expect(notice).to_contain_text(re.compile(r"Still there\? This page ends in \d+ s\."), timeout=30_000)
        page.get_by_role("button", name="Stay").click()
        expect(notice).to_be_hidden()
        assert processes(own)
        assert moves(visit)
        expect(notice).to_contain_text("Still there?", timeout=30_000)
        page.keyboard.press("Shift")  # any act will do
        expect(notice).to_be_hidden()
        wait_until(lambda: moves(visit) and not processes(kernel))  # it measures the first design, then rests
        assert turned_away(idle) == 1001
        with pytest.raises(InvalidStatus), enter(address, kernel):
            pass
        expect(notice).to_contain_text("This page was not used for 0.3 minutes. The Python process of this page",
                                       timeout=60_000)
        expect(notice.get_by_role("button")).to_have_text("Reload")
        wait_until(lambda: not processes(own), 30)  # the page is told before its kernel has ended
        page.close()
