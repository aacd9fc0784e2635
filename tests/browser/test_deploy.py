"""docs/deploy.md and the Containerfile: what they say is run, as far as this machine can."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from distributed import LocalCluster
from playwright.sync_api import Browser, Route, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from explorer import plotlyjs
from explorer.command import run
from explorer.memory import machine_memory
from explorer_serve import command
from explorer_serve.kernels import GRACE

from .conftest import free_port, server
from .dashboard import KERNEL, Dashboard
from .visitor import (
    answers,
    arrive,
    asked,
    enter,
    kernels,
    message,
    neighbour,
    processes,
    serving,
    turned_away,
    wait_until,
)

ROOT = Path(__file__).parents[2]
DEPLOY = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
in_front = pytest.mark.skipif(not NGINX, reason="no nginx on this machine")
SERVED = re.search(
    r"^## Behind a proxy.*?^    explorer (serve .*?)$", DEPLOY, re.MULTILINE | re.DOTALL
)


@contextmanager
def proxy(upstream: str, folder: Path) -> Iterator[str]:
    """nginx as the page says, but for TLS and for lines with a word, and on a free port; gives its
    address."""
    port, upstream = free_port(), upstream.replace("localhost", "127.0.0.1")
    found = re.search(r"```nginx\n(.*?)```", DEPLOY, re.DOTALL)
    assert found
    site = re.sub(r"^ *ssl_.*\n", "", found[1], flags=re.MULTILINE)
    site = site.replace("listen 443 ssl;", f"listen {port};").replace(
        "http://127.0.0.1:8866", upstream
    )
    assert site.count(upstream) == 2
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
        f"http {{ access_log off; {places}\n{site} }}\n"
    )
    assert NGINX
    running = subprocess.Popen(
        [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")]
    )
    try:
        wait_until(lambda: listens(port), 20, lambda: (folder / "log").read_text())
        yield f"http://localhost:{port}"
    finally:
        running.terminate()
        running.wait(20)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deploy") / "log"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A Dask cluster with one worker."""
    with LocalCluster(
        "127.0.0.1:0", n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as running:
        yield running


@pytest.fixture(scope="module")
def address(log: Path, cluster: LocalCluster) -> Iterator[str]:
    """A server that was started as the page says: behind a proxy, where a cluster computes.

    It listens to its neighbours, too, who may read its numbers. Idle pages end soon; nobody is
    taken for gone sooner than a busy machine's kernel takes for its first answer. The path of its
    temporary files is too long for a socket's address, and its home cannot be written."""
    assert SERVED
    deep = log.parent / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    options = [
        *SERVED[1].split(),
        "--preheat",
        "0",
        "--host",
        "0.0.0.0",  # noqa: S104
        "--scheduler",
        cluster.scheduler_address,
    ]
    if neighbour():
        options += ["--metrics-from", f"{neighbour()}/32"]
    homes = dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), "/proc/nobody"
    )
    with server(
        options,
        log,
        EXPLORER_IDLE_SECONDS="18",
        EXPLORER_LOOK_SECONDS="1",
        TMPDIR=str(deep),
        **homes,
    ) as running:
        yield running


def health(address: str) -> dict[str, Any]:
    return dict(json.loads(asked(address, "/explorer/health", Host="lab.example.org")[1]))


@in_front
def test_the_page_works_behind_nginx(browser: Browser, address: str, tmp_path: Path) -> None:
    """And it measures as any other does, where a cluster computes: with no worker process beside
    the server."""
    with proxy(address, tmp_path) as public:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visit = Dashboard(page, "voila")
        page.goto(f"{public}/explorer/")
        visit.wait_until_drawn()
        with visit.redrawn():
            visit.write("n_layers", "13")
        assert "Measured 13 layers" in visit.said
        assert visit.dots("Second moment")["x"][-1] == 13
        visit.must_be_clean()
        expect(page.locator("#ex-notice")).to_be_hidden()
        said = health(public)
        assert (said["status"], said["pages"], said["workers"]) == ("ok", 1, 1)
        assert asked(public, "/explorer/metrics", Host="lab.example.org")[0].status == 404
        assert asked(public, "/explorer/health", Host="rebound.example")[0].status == 403
        page.close()
    assert not [
        child for child in serving(address).children() if "explorer.tasks.worker" in child.cmdline()
    ]


@in_front
def test_nginx_limits_pages_by_address(address: str, tmp_path: Path) -> None:
    asking = {"Sec_Purpose": "prefetch"}  # the server refuses it, so that no kernel is started
    with proxy(address, tmp_path) as public:
        told = [asked(public, "/explorer/", **asking)[0].status for _ in range(60)]
    assert set(told) == {503, 429}
    assert told.index(429) > 30


def test_the_container_is_healthy_where_the_server_computes(voila: str) -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"^HEALTHCHECK .*? CMD (\[.*\])$", lines, re.MULTILINE)
    assert found
    _, *check = json.loads(found[1])

    def healthy(port: str) -> bool:
        command = [sys.executable, *(word.replace("8866", port) for word in check)]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    wait_until(lambda: healthy(voila.rpartition(":")[2]))
    assert not healthy(str(free_port()))


def test_a_server_for_all_has_pages_for_its_memory_and_says_its_limits(address: str) -> None:
    """Its neighbours, whom it names, may read its numbers."""
    assert health(address)["max_pages"] == min(int((0.9 * machine_memory() - 300e6) / 500e6), 100)
    assert re.search(
        r"Transformer Signal Explorer \d+\.\d+[^·]* · 500 MB a page · "
        r"designs to 2 GB and 60 processor-seconds · idle pages end after 0\.3 min",
        asked(address, "/explorer/")[1],
    )
    if neighbour():
        there = address.replace("localhost", neighbour())
        assert [asked(there, f"/explorer/{path}")[0].status for path in ("health", "metrics")] == [
            200,
            200,
        ]


def test_plotly_lies_below_the_address_and_no_file_is_for_visitors(address: str) -> None:
    announced = asked(address, "/explorer/")[1].split('data-plotly="')[1].split('"')[0]
    assert announced.startswith("/explorer/voila/plotly-")
    with urlopen(f"{address}{announced}", timeout=60) as sent:  # noqa: S310 - our own
        assert sent.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert sent.read() == plotlyjs.part()
    assert asked(address, "/explorer/voila/files/explorer.ipynb")[0].status == 403


def test_the_page_works_below_another_address_and_in_a_frame(
    browser: Browser, address: str
) -> None:
    """As behind a proxy that hands on what is below `/explorer/`, within a page of the same
    site."""
    page = browser.new_page()
    asked_for: list[str] = []
    page.on("request", lambda request: asked_for.append(request.url))
    page.route(
        f"{address}/lesson",
        lambda route: route.fulfill(
            content_type="text/html",
            body='<iframe title="Depth" src="/explorer/?embed=1&n_layers=24"></iframe>',
        ),
    )
    page.goto(f"{address}/lesson")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".ex-status")).to_contain_text("Measured", timeout=60_000)
    kernel = page.frames[1].evaluate(KERNEL)
    assert processes(kernel)
    assert {url for url in asked_for if url.startswith("http")} == {
        url for url in asked_for if url.startswith((f"{address}/explorer/", f"{address}/lesson"))
    }
    page.goto(f"{address}/explorer/health")  # the page says that it is left
    wait_until(lambda: not processes(kernel), 30)
    page.close()


def test_a_page_whose_kernels_die_before_it_is_connected_says_so(
    browser: Browser, address: str
) -> None:
    """Two: the page is loaded again by itself, once."""
    page = browser.new_page()

    def kill(route: Route) -> None:
        for process in kernels(address):
            os.kill(process, signal.SIGKILL)
        route.continue_()

    page.route("**/voila.js", kill)
    page.goto(f"{address}/explorer/")
    notice = page.locator("#ex-notice")
    expect(notice).to_contain_text("The Python process of this page has ended", timeout=60_000)
    expect(notice.get_by_role("button")).to_have_text("Reload")
    page.close()


def test_a_page_whose_browser_goes_elsewhere_keeps_no_kernel(address: str) -> None:
    """Also where its goodbye is lost, as Firefox loses it where it ends the page's process; and
    where such a page has opened another connection meanwhile, which breaks off. A page that is out
    of reach keeps its own."""
    base = f"{address}/explorer"
    unreachable, left, opened_again = (arrive(address, "/explorer/") for _ in range(3))
    for kernel, code in ((unreachable, 1000), (left, 1001), (opened_again, 1001)):
        with enter(base, kernel) as visit:
            assert answers(visit)
            visit.close(code)
    with enter(base, opened_again) as visit:
        visit.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not processes(left) and not processes(opened_again), GRACE / 2)
    assert processes(unreachable)


def moves(visit: ClientConnection) -> bool:
    """Whether a kernel answers after a message as of a widget: a question alone is no use of the
    page."""
    visit.send(message("comm_msg", {"comm_id": "none", "data": {}}))
    return answers(visit)


def test_an_idle_page_asks_and_stays_where_somebody_is_there(
    browser: Browser, address: str
) -> None:
    """And gives its kernel back where nobody is, as one without a browser does."""
    base = f"{address}/explorer"
    with ExitStack() as open_ones:
        page = browser.new_page()
        page.goto(f"{base}/")
        expect(page.locator(".ex-root .ex-status")).to_contain_text("Measured", timeout=60_000)
        own = page.evaluate(KERNEL)
        visit = open_ones.enter_context(enter(base, arrive(address, "/explorer/")))
        idle = open_ones.enter_context(enter(base, kernel := arrive(address, "/explorer/")))
        assert moves(visit)
        notice = page.locator("#ex-notice")
        expect(notice).to_contain_text(re.compile(r"This page ends in \d+ s\."), timeout=30_000)
        expect(page.get_by_role("button", name="Stay")).to_be_visible()
        page.keyboard.press("Shift")  # any act will do
        expect(notice).to_be_hidden()
        assert processes(own)
        # it measures the first design, then rests
        wait_until(lambda: moves(visit) and not processes(kernel))
        assert turned_away(idle) == 1001
        with pytest.raises(InvalidStatus), enter(base, kernel):
            pass
        expect(notice).to_contain_text(
            "not used for 0.3 minutes. The Python process of this page", timeout=60_000
        )
        expect(notice.get_by_role("button")).to_have_text("Reload")
        wait_until(lambda: not processes(own), 30)  # the page is told before its kernel has ended
        page.close()


def test_without_its_cluster_it_takes_no_visitors_and_ends_with_ctrl_c(
    address: str,
    cluster: LocalCluster,
    log: Path,
) -> None:
    """The last test. A page is open when it ends."""
    cluster.close()
    wait_until(lambda: asked(address, "/explorer/health")[0].status == 503)
    said = health(address)
    assert (said["status"], said["workers"]) == ("no workers", 0)
    running = serving(address)
    with enter(f"{address}/explorer", arrive(address, "/explorer/")) as visit:
        assert answers(visit)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    first, where, *events = log.read_text().splitlines()
    assert (first, where) == (
        "Starting …",
        f"Transformer Signal Explorer is at {address}/explorer/ (Ctrl-C stops it)",
    )
    assert all(event.startswith("{") for event in events)


def test_commands_of_the_page_are_ones_that_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        command, "serve", lambda given: served.append((given.host, given.port, given.public))
    )
    commands = re.findall(r"^    explorer (serve .*)$", DEPLOY, re.MULTILINE)
    assert len(commands) == 3
    entry = re.search(
        r"^ENTRYPOINT (.*)$", (ROOT / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    arguments = re.search(r"args: \[(.*)\]", DEPLOY)
    assert entry
    assert arguments
    contained = json.loads(entry[1])[1:] + arguments[1].split(", ")
    for words in (*map(str.split, commands), contained):
        assert run(words) == 0
    for_all, here = ("0.0.0.0", 8866, True), ("localhost", 8866, True)  # noqa: S104 (compared, not bound)
    assert served == [for_all, here, here, for_all]


def test_the_container_runs_without_rights_and_names_no_registry_of_packages() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    orders = [line.split() for line in lines if line and not line.startswith("#")]
    assert [order[1] for order in orders if order[0] == "FROM"] == ["${BASE}"]
    assert [
        "ARG",
        "BASE=docker.io/library/python:3.12-slim",
    ] in orders  # a digest is named by whoever builds
    last = next(index for index, order in enumerate(orders) if order[0] == "USER")
    assert orders[last][1] == "10001:10001"
    assert not {"RUN", "COPY", "ADD"} & {order[0] for order in orders[last:]}
    assert "://" not in "\n".join(lines)
    copied = [name for order in orders if order[0] == "COPY" for name in order[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
