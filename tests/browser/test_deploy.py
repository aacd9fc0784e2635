"""docs/deploy.md and the Containerfile: what they say is run, as far as this machine can."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from explorer import command

from .conftest import server
from .dashboard import Dashboard
from .visitor import asked, wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
SERVED = re.search(r"^## Behind a proxy.*?^    explorer (serve .*?)$", DEPLOY, re.MULTILINE | re.DOTALL)


@contextmanager
def proxy(upstream: str, folder: Path, without: str = "nothing") -> Iterator[str]:
    """nginx as the page says, but for TLS and for lines with a word, and on a free port; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found = re.search(r"```nginx\n(.*?)```", DEPLOY, re.DOTALL)
    assert found
    site = re.sub(r"^ *ssl_.*\n", "", found[1], flags=re.MULTILINE)
    site = re.sub(rf"^ *proxy_set_header {without} .*\n", "", site, flags=re.MULTILINE)
    site = site.replace("listen 443 ssl;", f"listen {port};").replace("http://127.0.0.1:8866", upstream)
    assert site.count(upstream) == 2
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
                                       f"http {{ access_log off; {places}\n{site} }}\n")
    assert NGINX
    running = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")])
    try:
        wait_until(lambda: listens(port), 20, lambda: (folder / "log").read_text())
        yield f"http://localhost:{port}"
    finally:
        running.send_signal(signal.SIGQUIT)
        with suppress(subprocess.TimeoutExpired):
            running.wait(5)
        running.kill()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def public(tmp_path: Path) -> Iterator[str]:
    """The proxy's address, before a server that was started as the page says."""
    if not NGINX:
        pytest.skip("no nginx on this machine")
    assert SERVED
    with server([*SERVED[1].split(), "--preheat", "0"], tmp_path / "served") as address, \
            proxy(address.replace("localhost", "127.0.0.1"), tmp_path) as outside:
        yield outside


def test_the_page_works_behind_nginx(browser: Browser, public: str) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{public}/explorer/")
    visit.wait_until_drawn()
    with visit.redrawn():
        visit.write("n_layers", "13")
    assert "Measured 13 layers" in visit.said
    visit.must_be_clean()
    expect(page.locator("#ex-notice")).to_be_hidden()
    health = json.loads(asked(public, "/explorer/health", Host="lab.example.org")[1])
    assert (health["status"], health["pages"]) == ("ok", 1)
    assert asked(public, "/explorer/metrics", Host="lab.example.org")[0].status == 404
    assert asked(public, "/explorer/health", Host="rebound.example")[0].status == 403
    page.close()


@pytest.mark.skipif(not NGINX, reason="no nginx on this machine")
def test_a_proxy_that_passes_no_websockets_on_is_named(browser: Browser, tmp_path: Path) -> None:
    assert SERVED
    with server([*SERVED[1].split(), "--preheat", "0"], tmp_path / "served") as address, \
            proxy(address.replace("localhost", "127.0.0.1"), tmp_path, without="Upgrade") as outside:
        page = browser.new_page()
        page.goto(f"{outside}/explorer/")
        expect(page.locator("#ex-notice")).to_contain_text(
            "This page could not open a WebSocket to its server. A proxy in between may not pass WebSockets on.",
            timeout=120_000)
        page.close()


def test_the_container_is_healthy_where_the_server_computes(tmp_path: Path) -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"^HEALTHCHECK .*? CMD (\[.*\])$", lines, re.MULTILINE)
    assert found
    _, *check = json.loads(found[1])

    def healthy(port: str) -> bool:
        command = [sys.executable, *(word.replace("8866", port) for word in check)]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    with server(["serve", "--preheat", "0"], tmp_path / "served") as address:
        assert healthy(address.rpartition(":")[2])
    assert not healthy(address.rpartition(":")[2])


def test_nginx_limits_pages_by_address(public: str) -> None:
    asking = {"Sec_Purpose": "prefetch"}  # the server refuses it, so that no kernel is started
    told = [asked(public, "/explorer/", **asking)[0].status for _ in range(60)]
    assert set(told) == {503, 429}
    assert told.index(429) > 30


def test_commands_of_the_page_are_ones_that_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[object, ...]] = []
    monkeypatch.setattr(command, "serve", lambda given: served.append((given.host, given.port, given.public)))
    commands = re.findall(r"^    explorer (serve .*)$", DEPLOY, re.MULTILINE)
    assert len(commands) == 3
    entry = re.search(r"^ENTRYPOINT (.*)$", (ROOT / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    arguments = re.search(r"args: \[(.*)\]", DEPLOY)
    assert entry
    assert arguments
    contained = json.loads(entry[1])[1:] + arguments[1].split(", ")
    for words in (*map(str.split, commands), contained):
        assert command.run(words) == 0
    for_all, here = ("0.0.0.0", 8866, True), ("localhost", 8866, True)  # noqa: S104 (compared, not bound)
    assert served == [for_all, here, here, for_all]


def test_the_container_runs_without_rights_and_names_no_registry_of_packages() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    orders = [line.split() for line in lines if line and not line.startswith("#")]
    assert [order[1] for order in orders if order[0] == "FROM"] == ["${BASE}"]
    assert ["ARG", "BASE=docker.io/library/python:3.12-slim"] in orders  # a digest is named by whoever builds
    last = next(index for index, order in enumerate(orders) if order[0] == "USER")
    assert orders[last][1] == "10001:10001"
    assert not {"RUN", "COPY", "ADD"} & {order[0] for order in orders[last:]}
    assert "://" not in "\n".join(lines)
    copied = [name for order in orders if order[0] == "COPY" for name in order[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
