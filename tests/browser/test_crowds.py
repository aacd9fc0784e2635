"""What one visitor may take of a real server: sockets, memory, kernels, connections; the others
still get their pages.

Each attack is bounded in count and time: a few times what broke a server without limits.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPResponse
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from explorer import plotlyjs
from explorer.limits import process_count
from explorer_serve.kernels import STOPPED
from explorer_serve.visits import UNREAD

from .conftest import server
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
    neighbour,
    numbers,
    processes,
    received,
    seconds_until_gone,
    serving,
    turned_away,
    wait_until,
)

PAGES = 3
"""Pages at a time that the server of these tests allows."""
RETRY = 8
"""Seconds after which visitors ask again for whom there was no page."""
FIRST: list[tuple[HTTPResponse, str]] = []
"""What the server answered as soon as it listened."""
MEGABYTE = 1e6


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crowds") / "log"


@pytest.fixture(scope="module")
def address(log: Path) -> Iterator[str]:
    """A server of this file's own, with few pages, which end soon and are looked at often; also
    `explorer_models.example`.

    Its neighbours reach it, and a network that is not theirs may read its numbers.
    """
    options = [
        "--max-pages",
        str(PAGES),
        "--preheat",
        "1",
        "--allow-host",
        "explorer_models.example",
        "--host",
        "0.0.0.0",  # noqa: S104
        "--metrics-from",
        "198.51.100.0/24",
        "--drain-seconds",
        "60",
    ]
    with server(
        ["serve", *options],
        log,
        EXPLORER_GRACE_SECONDS="3",
        EXPLORER_LOOK_SECONDS="1",
        EXPLORER_RETRY_SECONDS=str(RETRY),
        EXPLORER_SILENCE_SECONDS="6",
    ) as running:
        FIRST.append(asked(running, "/health"))
        wait_until(lambda: health(running)["status"] == "ok")
        yield running
    assert "Traceback" not in log.read_text()


@pytest.fixture
def empty(address: str) -> str:
    """The server, without a visitor: one kernel waits."""
    while ARRIVED:
        asked(address, f"/voila/api/shutdown/{ARRIVED.pop()}", "POST")
    expected = {"status": "ok", "pages": 0, "max_pages": PAGES, "waiting": 1}
    wait_until(lambda: health(address).items() >= expected.items(), said=lambda: health(address))
    wait_until(lambda: in_line_count(address) == 0)
    return address


def health(address: str, base: str = "/") -> dict[str, object]:
    """The server's numbers."""
    return dict(json.loads(asked(address, f"{base}health")[1]))


def test_visitors_are_sent_when_a_first_kernel_is_ready(address: str) -> None:
    ((answer, text),) = FIRST
    assert (answer.status, json.loads(text)["status"]) == (503, "starting")
    said = health(address)
    # the kernel that waits for a visitor has its first design measured
    assert said.pop("tasks_waiting") >= 0
    assert said == {
        "status": "ok",
        "pages": 0,
        "max_pages": PAGES,
        "waiting": 1,
        "workers": process_count(),
    }


def test_numbers_follow_what_happens(address: str) -> None:
    before = numbers(address)
    assert before["explorer_max_pages"] == PAGES
    asked(address, Host="rebound.example")
    asked(address, Sec_Purpose="prefetch")
    with enter(address, arrive(address)) as visit:
        assert answers(visit)
        after = numbers(address)
        assert after["explorer_pages"] == before["explorer_pages"] + 1
        assert after["explorer_websockets"] == 1
        assert after["explorer_connections"] >= 1
        assert after["explorer_refused_totalanother name"] == 1
        assert after["explorer_refused_totalloaded ahead"] == 1
        assert after["explorer_page_seconds_count"] == before["explorer_page_seconds_count"] + 1
        assert after["explorer_page_seconds_sum"] > before["explorer_page_seconds_sum"]


def test_the_memory_of_the_kernels_is_what_they_take(address: str) -> None:
    def both() -> tuple[float, float]:
        taken = sum(psutil.Process(process).memory_full_info().uss for process in kernels(address))
        return taken, numbers(address)["explorer_kernels_memory_bytes"]

    wait_until(lambda: both()[0] == pytest.approx(both()[1], rel=0.02), said=both)
    assert both()[1] > 30e6


def test_a_neighbour_whom_nobody_named_gets_no_numbers(address: str) -> None:
    if here := neighbour():
        there = address.replace("localhost", here)
        assert asked(there, "/health")[0].status == 200
        assert asked(there, "/metrics")[0].status == 404


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via"])
def test_a_proxy_gets_no_numbers(address: str, header: str) -> None:
    assert asked(address, "/metrics", **{header: "for=192.0.2.7"})[0].status == 404


def test_the_public_name_has_no_numbers(address: str) -> None:
    assert asked(address, "/health", Host="explorer_models.example")[0].status == 200
    assert asked(address, "/metrics", Host="explorer_models.example")[0].status == 404


ELSEWHERE = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}
ANSWERS = {
    "a head": ("/", "HEAD", {}, 200),
    "a file of the template": ("/voila/templates/explorer/static/page.js", "GET", {}, 200),
    "a file of Voilà": ("/voila/static/voila.js", "GET", {}, 200),
    "plotly.js": (f"/{plotlyjs.path()}", "GET", {}, 200),
    "a theme": ("/voila/api/themes/@jupyterlab/theme-light-extension/index.css", "GET", {}, 404),
    "health": ("/health", "GET", {}, 200),
    "numbers": ("/metrics", "GET", {}, 200),
    "a search engine": ("/robots.txt", "GET", {}, 200),
    "an icon": ("/favicon.ico", "GET", {}, 204),
    "an image of another site": ("/", "GET", {**ELSEWHERE, "Sec_Fetch_Dest": "image"}, 403),
    "a frame of another site": (
        "/",
        "GET",
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        403,
    ),
    "a script on another port": (
        "/",
        "GET",
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
        403,
    ),
    "a page loaded ahead": ("/", "GET", {"Sec_Purpose": "prefetch;prerender"}, 503),
    "another name": ("/", "GET", {"Host": "rebound.example"}, 403),
    "an account": ("/logout", "GET", {}, 404),
    "a login": ("/login", "GET", {}, 404),
    "no file": ("/nothing", "GET", {}, 404),
    "a file that visitors must not have": ("/voila/files/explorer.ipynb", "GET", {}, 403),
    "a template that is none": ("/voila/templates/x", "GET", {}, 404),
    "a template's folder": ("/voila/templates/explorer/x/page.js", "GET", {}, 404),
    "a kernel that is none": ("/api/kernels/0-0-0-0-0", "GET", {}, 404),
    "a large body": ("/voila/api/shutdown/x", "POST", {"Content_Length": "98000000"}, 400),
    "the page": ("/", "GET", {}, 200),
}


@pytest.mark.parametrize(("path", "method", "headers", "status"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_says_what_a_browser_must_not_do(
    empty: str,
    path: str,
    method: str,
    headers: dict[str, str],
    status: int,
) -> None:
    """The page alone gets a kernel. A body that is too large is refused before anything answers."""
    answer, text = asked(empty, path, method, **headers)
    assert answer.status == status
    assert health(empty)["pages"] == ('"kernelId": "' in text)
    if status == 400:
        return
    policy = answer.headers["Content-Security-Policy"]
    for rule in (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    ):
        assert rule in policy
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert {"camera=()", "microphone=()", "geolocation=()"} <= set(
        answer.headers["Permissions-Policy"].split(", ")
    )


def deaf(address: str, kernel: str) -> ClientConnection:
    """A websocket to a kernel that reads next to nothing."""
    where = (
        f"{address.replace('http', 'ws')}/api/kernels/{kernel}/channels?session_id={uuid.uuid4()}"
    )
    return connect(
        where, subprotocols=[Subprotocol(PROTOCOL)], max_size=None, max_queue=1, close_timeout=1
    )


def ask_for_everything(visit: ClientConnection, times: int) -> None:
    """Has the kernel send the state of the whole page, again and again."""
    comm = str(uuid.uuid4())
    visit.send(
        message("comm_open", {"comm_id": comm, "target_name": "jupyter.widget.control", "data": {}})
    )
    for _ in range(times):
        visit.send(message("comm_msg", {"comm_id": comm, "data": {"method": "request_states"}}))


def test_who_does_not_read_costs_the_server_little(empty: str) -> None:
    """Each is closed before more than the limit waits for it, and leaves nothing behind."""
    unread = []

    def refused() -> float:
        now = numbers(empty)
        unread.append(now["explorer_unread_bytes"])
        return now.get("explorer_refused_totaltoo much is unread", 0.0)

    for _ in range(2):
        before = refused()
        with deaf(empty, arrive(empty)) as visit:
            with suppress(ConnectionClosed):
                ask_for_everything(visit, 100)
            wait_until(lambda before=before: refused() > before)
    assert max(unread) <= UNREAD
    wait_until(lambda: numbers(empty)["explorer_unread_bytes"] == 0)


def test_messages_for_a_page_out_of_reach_are_limited(empty: str) -> None:
    """A page asks for everything and is gone before it comes: its kernel ends with what it has to
    say."""
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
        # those that give way take the time of a goodbye
        wait_until(lambda: running.num_fds() < before + 60)
        with enter(empty, arrive(empty)) as somebody_else:
            assert answers(somebody_else)


def test_a_handshake_that_is_given_up_does_not_keep_a_kernel(empty: str) -> None:
    kernel = arrive(empty)
    request = (
        f"GET /api/kernels/{kernel}/channels HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
    )
    for _ in range(10):
        with socket.create_connection(("localhost", int(empty.rpartition(":")[2]))) as line:
            line.sendall(request.encode())
    assert seconds_until_gone(kernel) < SOON


def test_a_flooded_kernel_is_free_again_soon(empty: str) -> None:
    with enter(empty, arrive(empty)) as visit:
        assert answers(visit)
        with suppress(ConnectionClosed):
            for number in range(5_000):
                visit.send(
                    message(
                        "comm_msg",
                        {"comm_id": f"{number}", "data": {"method": "update", "state": {}}},
                    )
                )
        assert turned_away(visit) == 1008


def in_line(address: str, cookie: str = "", **headers: str) -> tuple[int, str, str]:
    """A visitor's answer: its status, its place in line, and the cookie that the browser keeps."""
    answer, words = asked(address, Cookie=cookie, **headers)
    found = re.search(r"You are (\w+) in line", words)
    kept = [
        told.partition(";")[0]
        for told in answer.headers.get_all("Set-Cookie", [])
        if "explorer-line=" in told
    ]
    return answer.status, found[1] if found else "", "".join(kept[:1]) or cookie


def in_line_count(address: str) -> int:
    """Visitors in line, as the server counts them."""
    found = re.search(
        r"^explorer_visitors_in_line (\d+)", asked(address, "/metrics")[1], re.MULTILINE
    )
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
    assert refused.headers["Retry-After"] == str(RETRY)
    assert f"Every page that this server can show at a time is in use ({PAGES})." in words
    assert 'http-equiv="refresh"' in words
    told = sorted(
        int(found[1])
        for _, body in answers_
        if (found := re.search(r"You are number (\d+) in line", body))
    )
    assert told == list(range(11, 31 - PAGES))
    wait_until(lambda: len(kernels(empty)) == 1)
    cookie = in_line(empty)[2]
    # those in line do not ask again, and lose their turn
    wait_until(lambda: in_line(empty, cookie)[0] == 200)


def test_a_kernel_that_waits_is_no_page_beyond_those_allowed(empty: str) -> None:
    with ExitStack() as open_ones:
        for _ in range(PAGES):
            open_ones.enter_context(enter(empty, arrive(empty)))
        wait_until(lambda: health(empty)["waiting"] == 1, said=lambda: health(empty))
        assert asked(empty)[0].status == 503
        assert health(empty)["pages"] == PAGES


def test_a_visitor_who_goes_while_waiting_leaves_no_kernel(empty: str) -> None:
    for _ in range(12):
        with closing(
            socket.create_connection(("localhost", int(empty.rpartition(":")[2])))
        ) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(1)
    assert len(kernels(empty)) <= PAGES + 1
    wait_until(lambda: len(kernels(empty)) == 1)


@pytest.mark.parametrize(
    "host", ["explorer_models.example", "127.0.0.1:80", "[::1]", "10.1.2.3", "LOCALHOST"]
)
def test_names_of_the_server_are_known(address: str, host: str) -> None:
    assert asked(address, "/health", Host=host)[0].status == 200


def test_a_link_from_another_site_opens_the_page(empty: str) -> None:
    headers = {
        "Sec_Fetch_Site": "cross-site",
        "Sec_Fetch_Mode": "navigate",
        "Sec_Fetch_Dest": "document",
    }
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
    """Room is made at once, by closing the oldest; and each ends by itself, once it has been silent
    for long."""
    port = int(empty.rpartition(":")[2])
    with ExitStack() as open_ones:
        lines = [
            open_ones.enter_context(socket.create_connection(("localhost", port)))
            for _ in range(600)
        ]
        for number, line in enumerate(lines):
            with suppress(OSError):  # the server has closed it for a newer one
                line.sendall(
                    b"GET / HTTP/1.1\r\nHost: localhost\r\n"
                    if number % 2
                    else b"POST /health HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"
                )
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
def test_a_waiting_kernel_that_is_dead_or_stopped_is_nobodys(
    empty: str, harm: signal.Signals
) -> None:
    wait_until(lambda: kernels(empty))
    (waiting,) = kernels(empty)
    wait_until(lambda: rests(waiting))  # it has run the notebook
    os.kill(waiting, harm)
    wait_until(
        lambda: not psutil.pid_exists(waiting) or psutil.Process(waiting).status() in STOPPED
    )
    with enter(empty, arrive(empty)) as visit:
        assert answers(visit)
    wait_until(lambda: waiting not in kernels(empty))


def test_events_are_lines_of_json_without_anything_of_a_visitor(empty: str, log: Path) -> None:
    """Whatever a visitor sends stays out of the log: headers, address, path, cookie, and what is in
    messages."""
    secret, before = "nobody-may-know", len(log.read_text())
    with ExitStack() as open_ones:
        for _ in range(PAGES):
            visit = open_ones.enter_context(enter(empty, arrive(empty, f"/?title={secret}")))
        visit.send(message("comm_msg", {"comm_id": secret, "data": {"title": secret}}))
        assert answers(visit)
        cookie = in_line(
            empty,
            f"explorer-line={secret}",
            User_Agent=secret,
            Referer=secret,
            X_Forwarded_For=secret,
        )[2]
        asked(empty, f"/voila/api/shutdown/{ARRIVED[-1]}", "POST")
        wait_until(lambda: '"ended"' in log.read_text()[before:])
        events = [json.loads(line) for line in log.read_text()[before:].splitlines()]
        wait_until(lambda: in_line(empty, cookie)[0] == 200)  # the line is empty again
    assert [event["event"] for event in events] == ["opened"] * PAGES + ["refused", "ended"]
    assert [event.get("reason") for event in events[-2:]] == ["full", "left"]
    assert [event["pages"] for event in (*events[:PAGES], events[-1])] == [
        *range(1, PAGES + 1),
        PAGES - 1,
    ]
    assert all(event["time"] for event in events)
    assert all(event["seconds"] >= 0 for event in events if event["event"] != "refused")
    text = log.read_text()
    assert [private for private in (secret, *ARRIVED) if private in text] == []
    assert "127.0.0.1" not in "".join(map(str, events))


def test_who_came_first_gets_the_next_page(empty: str) -> None:
    """It leaves a line, which is there for a while."""
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


def test_open_pages_go_on_while_the_server_ends_until_it_is_asked_again(
    empty: str, log: Path
) -> None:
    """The last test: nobody new comes, and then the server ends at once and says so to the page."""
    running = serving(empty)
    with enter(empty, arrive(empty)) as visit:
        assert answers(visit)
        running.terminate()
        wait_until(lambda: asked(empty, "/health")[0].status == 503)
        assert health(empty)["status"] == "draining"
        refused, words = asked(empty)
        assert (refused.status, refused.headers["Retry-After"]) == (503, str(RETRY))
        assert "about to be restarted" in words
        assert answers(visit)
        running.terminate()
        assert received(visit, "The server has been stopped.")
        assert running.wait(20) == 0
    assert '"event": "draining"' in log.read_text()
