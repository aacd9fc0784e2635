"""What an operator and a load balancer see of a real server: its state, its numbers, the headers of its answers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, expect
from prometheus_client.parser import text_string_to_metric_families

from explorer import plotlyjs
from explorer.limits import process_count
from explorer.memory import WORKER, machine_memory
from explorer.serve.kernels import own_memory

from .conftest import server
from .dashboard import Dashboard
from .visitor import SOON, answers, arrive, asked, enter, kernels, message, serving, wait_until

PAGES = 2
FIRST: list[tuple[HTTPResponse, str]] = []
"""What the server answered as soon as it listened."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with few pages, also called `explorer.example`, whose numbers a second network may read.

    It looks at the memory of its kernels every second.
    """
    options = ["--max-pages", str(PAGES), "--allow-host", "explorer.example", "--metrics-from", "192.0.2.0/24"]
    with server(["serve", *options], tmp_path_factory.mktemp("operator") / "log", EXPLORER_LOOK_SECONDS="1") as running:
        FIRST.append(asked(running, "/health"))
        wait_until(lambda: asked(running, "/health")[0].status == 200)
        yield running


def numbers(address: str) -> dict[str, float]:
    """The numbers by name, with the reason where one has it; the text must be in Prometheus' format."""
    answer, text = asked(address, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("gauge", "counter", "summary") for family in families)
    return {sample.name + sample.labels.get("reason", ""): sample.value
            for family in families for sample in family.samples}


def test_visitors_are_sent_when_a_first_kernel_is_ready(address: str) -> None:
    (answer, text), = FIRST
    assert (answer.status, json.loads(text)["status"]) == (503, "starting")
    said = json.loads(asked(address, "/health")[1])
    assert said.pop("tasks_waiting") >= 0  # the kernel that waits for a visitor has its first design measured
    assert said == {"status": "ok", "pages": 0, "max_pages": PAGES, "waiting": 1, "workers": process_count()}


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


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via"])
def test_a_proxy_gets_no_numbers(address: str, header: str) -> None:
    assert asked(address, "/metrics", **{header: "for=192.0.2.7"})[0].status == 404


def test_the_public_name_has_no_numbers(address: str) -> None:
    assert asked(address, "/health", Host="explorer.example")[0].status == 200
    assert asked(address, "/metrics", Host="explorer.example")[0].status == 404


ANSWERS = {
    "the page": ("/", {}, 200),
    "a file of the template": ("/voila/templates/explorer/static/page.js", {}, 200),
    "a file of Voilà": ("/voila/static/voila.js", {}, 200),
    "plotly.js": (f"/{plotlyjs.path()}", {}, 200),
    "a theme": ("/voila/api/themes/@jupyterlab/theme-light-extension/index.css", {}, 404),
    "health": ("/health", {}, 200),
    "numbers": ("/metrics", {}, 200),
    "a search engine": ("/robots.txt", {}, 200),
    "no file": ("/nothing", {}, 404),
    "a file that visitors must not have": ("/voila/files/explorer.ipynb", {}, 403),
    "another name": ("/", {"Host": "rebound.example"}, 403),
    "another site": ("/", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
    "a page loaded ahead": ("/", {"Sec_Purpose": "prefetch"}, 503),
    "a kernel that is none": ("/api/kernels/0-0-0-0-0", {}, 404),
}


@pytest.mark.parametrize(("path", "headers", "status"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_says_what_a_browser_must_not_do(
    address: str, path: str, headers: dict[str, str], status: int,
) -> None:
    answer, _ = asked(address, path, **headers)
    assert answer.status == status
    policy = answer.headers["Content-Security-Policy"]
    for rule in ("default-src 'self'", "object-src 'none'", "base-uri 'none'", "form-action 'none'",
                 "frame-ancestors 'self'"):
        assert rule in policy
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert {"camera=()", "microphone=()", "geolocation=()"} <= set(answer.headers["Permissions-Policy"].split(", "))


def others() -> list[str]:
    """Addresses of this machine by which its neighbours reach it."""
    return [known.address for addresses in psutil.net_if_addrs().values() for known in addresses
            if known.family == socket.AF_INET and not known.address.startswith("127.")]


def test_open_pages_go_on_while_the_server_ends_and_nobody_new_comes(browser: Browser, tmp_path: Path) -> None:
    with server(["serve", "--drain-seconds", "60"], tmp_path / "log") as address:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visit, running = Dashboard(page, "voila"), serving(address)
        page.goto(address)
        visit.wait_until_drawn()
        running.terminate()
        wait_until(lambda: asked(address, "/health")[0].status == 503)
        assert json.loads(asked(address, "/health")[1])["status"] == "draining"
        refused, words = asked(address)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "15")
        assert "This server is about to be restarted." in words
        with visit.redrawn():
            visit.write("n_layers", "13")
        assert "Measured 13 layers" in visit.said
        page.close()  # the page says that it is left
        assert running.wait(SOON) == 0


def test_the_time_for_which_pages_go_on_ends(browser: Browser, tmp_path: Path) -> None:
    with server(["serve", "--preheat", "0", "--drain-seconds", "3"], tmp_path / "log") as address:
        page = browser.new_page()
        page.goto(address)
        page.get_by_role("tab").first.wait_for(timeout=60_000)
        running, begun = serving(address), time.monotonic()
        running.terminate()
        expect(page.locator("#ex-notice")).to_contain_text("The server has been stopped. The Python process of this")
        assert time.monotonic() - begun > 3
        assert running.wait(20) == 0
        page.close()


def test_a_server_that_is_asked_to_end_twice_ends_at_once(tmp_path: Path) -> None:
    with server(["serve", "--preheat", "0", "--drain-seconds", "60"], tmp_path / "log") as address:
        running = serving(address)
        with enter(address, arrive(address)):
            running.terminate()
            wait_until(lambda: asked(address, "/health")[0].status == 503)
            running.terminate()
            assert running.wait(20) == 0


def test_a_page_says_why_its_process_was_ended(browser: Browser, tmp_path: Path) -> None:
    """By its memory; one that was idle is ended in `test_crowds.py`."""
    limits = {"EXPLORER_KERNEL_MB": "10", "EXPLORER_LOOK_SECONDS": "1"}
    with server(["serve", "--public", "--preheat", "0"], tmp_path / "log", **limits) as address:
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("#ex-notice")).to_contain_text(
            "This page took more memory than a visitor may have here (10 MB). The Python process of this page",
            timeout=90_000)
        wait_until(lambda: not kernels(address))
        page.close()


def test_a_server_for_all_has_pages_for_its_memory_and_numbers_for_the_networks_named(tmp_path: Path) -> None:
    neighbour = next(iter(others()), "")
    named = ["--public", *(["--metrics-from", f"{neighbour}/32"] if neighbour else [])]
    most = {}
    for options, status in (([], 404), (named, 200)):
        with server(["serve", "--host", "0.0.0.0", "--preheat", "0", *options], tmp_path / "log") as address:  # noqa: S104
            most[status] = json.loads(asked(address, "/health")[1])["max_pages"]
            if neighbour:
                there = address.replace("localhost", neighbour)
                assert asked(there, "/health")[0].status == 200
                assert asked(there, "/metrics")[0].status == status
            if options:
                said = asked(address)[1]
    assert re.search(r"Transformer Signal Explorer \d+\.\d+[^·]* · 500 MB a page · "
                     r"designs to 2 GB and 60 processor-seconds · idle pages end after 15 min", said)
    assert most[200] == min(int((0.9 * machine_memory() - 300e6 - process_count() * WORKER) / 500e6), 100)
    assert most[200] <= most[404] <= 100


def test_the_memory_of_an_owner_is_that_of_all_its_processes() -> None:
    """50 MB in a process, 100 MB in its child; somebody else's process has little."""
    child = "x = bytearray(100_000_000); print(flush=True); input()"
    parent = (f"import subprocess, sys; x = bytearray(50_000_000); "
              f"subprocess.run([sys.executable, '-c', {child!r}])")
    with ExitStack() as running:
        owners = {}
        for name, code in (("large", parent), ("small", "print(flush=True); input()"), ("nobody", child)):
            process = running.enter_context(subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            running.callback(process.kill)
            process.stdout.readline()  # type: ignore[union-attr]
            owners[process.pid] = name
        found = own_memory({process: name for process, name in owners.items() if name != "nobody"})
        assert found.keys() == {"large", "small"}
        assert found["large"] - 2 * found["small"] == pytest.approx(150e6, rel=0.05)
        for process in map(psutil.Process, owners):
            for below in process.children():
                below.kill()


def test_events_are_lines_of_json_without_anything_of_a_visitor(tmp_path: Path) -> None:
    """Whatever a visitor sends stays out of the log: headers, address, path, cookie, and what is in messages."""
    log, secret = tmp_path / "log", "nobody-may-know"
    with server(["serve", "--preheat", "0", "--max-pages", "1"], log) as address:
        said = {"User_Agent": secret, "Referer": secret, "Cookie": f"explorer-line={secret}", "X_Forwarded_For": secret}
        answer, page = asked(address, f"/?title={secret}", **said)
        kernel = page.partition('"kernelId": "')[2].partition('"')[0]
        with enter(address, kernel) as visit:
            visit.send(message("comm_msg", {"comm_id": secret, "data": {"title": secret}}))
            assert answers(visit)
            assert (answer.status, asked(address, **said)[0].status) == (200, 503)
            asked(address, f"/voila/api/shutdown/{kernel}", "POST")
            wait_until(lambda: '"ended"' in log.read_text())
    text = log.read_text()
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert [event["event"] for event in events] == ["opened", "refused", "ended", "draining"]
    assert [event.get("reason") for event in events] == [None, "full", "left", None]
    assert [event.get("pages") for event in events] == [1, None, 0, 0]
    assert all(event["time"] for event in events)
    assert all(event["seconds"] >= 0 for event in events if event["event"] != "refused")
    assert secret not in text
    assert kernel not in text
    assert "127.0.0.1" not in "".join(map(str, events))
