"""What fails around a page: workers and kernels are killed, the server restarts, the machine sleeps, a disk is full.

The page recovers by itself, or says what happened and offers the way on; no setting is lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, expect

from explorer.tasks.pool import KILLED

from .conftest import server
from .dashboard import Dashboard
from .test_drag import DRAG
from .test_map import DOTS, LINK, status
from .test_operator import numbers
from .test_race import SIZES, Track
from .test_voila import KERNEL
from .visitor import asked, processes, serving, wait_until

BEGIN_DRAG = f"""(field) => {{
  globalThis.dragged = ({DRAG})([field, Array.from({{ length: 40 }}, (_, index) => index < 30 ? 1 : -1)]);
}}"""
"""Begins a drag of some three seconds, which goes on while other things happen."""
SETTINGS = """() => [...document.querySelectorAll('.ex-explore [data-field]')].map((control) => [
  control.dataset.field,
  [...control.querySelectorAll('input, select')].map(({ type, checked, value }) => type === 'radio' ? checked : value),
])"""
WORKER = "explorer.tasks.worker"
ASLEEP = 8_000
"""Milliseconds; the page waits for five seconds at most, the server for three, before it takes a kernel for dead."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this file's own, which its last test ends."""
    with server(["serve"], tmp_path_factory.mktemp("faults") / "log", EXPLORER_PROCESSES="2") as running:
        yield running


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Dashboard]:
    """A page of a server."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(address)
    visit.wait_until_drawn()
    yield visit
    page.close()


@pytest.fixture(scope="module")
def shown(browser: Browser, address: str) -> Iterator[Dashboard]:
    """A page that outlives all that fails around it."""
    with opened(browser, address) as visit:
        yield visit


@pytest.fixture
def visit(shown: Dashboard) -> Dashboard:
    """That page, at its defaults."""
    shown.page.get_by_role("tab", name="Explore", exact=True).click()
    shown.reset()
    return shown


def workers(address: str) -> list[psutil.Process]:
    """The server's worker processes."""
    found = []
    for child in serving(address).children():
        with suppress(psutil.Error):
            if WORKER in child.cmdline():
                found.append(child)
    return found


def busiest(address: str) -> psutil.Process:
    """The worker that computes."""
    before = {worker: sum(worker.cpu_times()[:2]) for worker in workers(address)}
    time.sleep(0.3)
    return max(before, key=lambda worker: sum(worker.cpu_times()[:2]) - before[worker])


def depth_of(visit: Dashboard) -> int:
    return int(visit.entry("n_layers").input_value())


def must_follow(visit: Dashboard, n_layers: int) -> None:
    """The page measures another design."""
    with visit.redrawn():
        visit.write("n_layers", str(n_layers))
    assert visit.said == f"Measured {n_layers} layers of width 256"
    assert visit.dots("Second moment")["x"][-1] == n_layers


def test_workers_killed_in_the_middle_of_a_drag_are_no_matter(visit: Dashboard, address: str) -> None:
    before = workers(address)
    assert numbers(address)["explorer_workers"] == len(before)
    with visit.redrawn():
        visit.page.evaluate(BEGIN_DRAG, "n_layers")
        visit.page.wait_for_timeout(1000)
        for worker in before:
            worker.kill()
        visit.page.evaluate("dragged")
    assert not set(before) & set(workers(address))
    assert numbers(address)["explorer_workers_died_total"] >= 1
    depth = depth_of(visit)
    assert depth == 12 + 30 - 10
    expect(visit.page.locator(".ex-status-text").first).to_have_text(f"Measured {depth} layers of width 256")
    assert visit.dots("Second moment")["x"][-1] == depth
    visit.must_be_clean()


def test_a_race_whose_process_is_killed_says_so_and_can_be_run_again(visit: Dashboard, address: str) -> None:
    track = Track(visit)
    visit.page.get_by_role("tab", name="Race", exact=True).click()
    track.adding.wait_for()
    track.panel.locator("details").evaluate_all("(folds) => folds.forEach((fold) => { fold.open = true; })")
    track.leave("Pre-LN")
    for field, text in (SIZES | {"steps": "100000"}).items():
        track.write(field, text)
    usual = workers(address)
    track.press("Start")
    expect(track.said).to_have_text("Training 1 contender")
    track.wait_until_grown(["Pre-LN"])
    track.wait_until_grown(["Pre-LN"], track.curves())
    (racing,) = set(workers(address)) - set(usual)
    racing.kill()
    expect(track.said).to_have_text(f"RuntimeError: {KILLED}. Press Start to run the race again.")
    assert track.curves()["Pre-LN"]["length"]
    track.write("steps", "12")
    track.press("Start")
    expect(track.said).to_have_text("Finished at step 12 of 12")
    visit.must_be_clean()


def test_a_worker_killed_in_the_middle_of_a_map_leaves_no_hole(shown: Dashboard, address: str) -> None:
    visit, page = shown, shown.page
    page.goto(f"{address}/{LINK.replace('y_count=12', 'y_count=8')}")
    page.locator(".ex-map .main-svg").first.wait_for()
    page.wait_for_function(f"() => ({DOTS})() > 4")
    busiest(address).kill()
    expect(status(visit)).to_contain_text("Measured 8 × 7 cells")
    page.wait_for_function(f"() => ({DOTS})() === 56")
    page.goto(address)
    visit.wait_until_drawn()
    visit.must_be_clean()


def test_a_kernel_killed_in_the_middle_of_a_drag_is_said_and_its_settings_come_back(visit: Dashboard) -> None:
    """Of the drag, all that the kernel had heard of."""
    page = visit.page
    must_follow(visit, 9)
    with visit.redrawn():
        visit.choose("norm_placement", "post")
    before = dict(page.evaluate(SETTINGS))
    page.evaluate(BEGIN_DRAG, "init_variance")
    page.wait_for_timeout(1000)
    for process in processes(page.evaluate(KERNEL)):
        process.kill()
    notice = page.locator("#ex-notice")
    expect(notice).to_contain_text("has ended, so its controls do nothing", timeout=10_000)
    page.evaluate("dragged")
    notice.get_by_role("button", name="Reload").click()
    visit.wait_until_drawn()
    after = dict(page.evaluate(SETTINGS))
    begun, reached = (int(settings.pop("init_variance")[0]) for settings in (before, after))
    assert (before.pop("preset"), after.pop("preset")) == (["Post-LN"], ["custom"])
    assert begun < reached <= begun + 30
    assert after == before
    assert visit.said == "Measured 9 layers of width 256"


def family(address: str) -> list[psutil.Process]:
    """A server, and all processes that it has started."""
    running = serving(address)
    return [running, *running.children(recursive=True)]


def test_a_machine_that_was_asleep_goes_on(visit: Dashboard, address: str) -> None:
    """The whole server stands still for longer than any heartbeat of its or of the page, in the middle of a drag."""
    visit.page.evaluate(BEGIN_DRAG, "n_layers")
    visit.page.wait_for_timeout(500)
    asleep = family(address)
    for process in asleep:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    visit.page.wait_for_timeout(ASLEEP)
    for process in asleep:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    expect(visit.page.locator(".ex-status-text")).to_have_text("Measured 32 layers of width 256")
    must_follow(visit, 7)
    expect(visit.page.locator("#ex-notice")).to_be_hidden()


def test_a_network_that_was_away_goes_on(visit: Dashboard) -> None:
    page = visit.page
    page.context.set_offline(True)
    visit.write("n_layers", "9")
    expect(page.locator(".ex-status-text")).to_have_text("Python does not answer", timeout=20_000)
    page.context.set_offline(False)
    expect(page.locator(".ex-status-text")).to_have_text("Measured 9 layers of width 256")
    must_follow(visit, 7)
    expect(page.locator("#ex-notice")).to_be_hidden()
    visit.complaints = []  # of a console that could not reach the server


@contextmanager
def standing(
    log: Path, port: int, *options: str, below: tuple[str, ...] = (), **environment: str,
) -> Iterator[psutil.Process]:
    """A server at a port that the test knows; gives its process once the page can be had."""
    program = [*below, sys.executable, "-m", "explorer", "serve", "--no-browser", "--port", str(port),
               "--drain-seconds", "0", *options]
    with log.open("w") as output:
        process = psutil.Popen(program, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment)
    try:
        wait_until(lambda: listens(port), said=log.read_text)
        yield process
    finally:
        if process.is_running():
            process.terminate()
            process.wait(20)


def listens(port: int) -> bool:
    try:
        return asked(f"http://localhost:{port}", "/health")[0].status == 200
    except OSError:
        return False


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
        return number


@pytest.mark.skipif(not shutil.which("taskset"), reason="this machine has no taskset")
def test_one_core_is_enough(browser: Browser, tmp_path: Path, port: int) -> None:
    with standing(tmp_path / "log", port, below=("taskset", "-c", "0")) as running:
        assert len(running.cpu_affinity()) == 1
        with opened(browser, f"http://localhost:{port}") as visit:
            with visit.redrawn():
                visit.page.evaluate(BEGIN_DRAG, "n_layers")
                visit.page.evaluate("dragged")
            expect(visit.page.locator(".ex-status-text")).to_have_text("Measured 32 layers of width 256")
            visit.must_be_clean()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 16 MB, at a path that is short enough for a server's folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        try:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("a disk can be made by root alone")
        yield Path(folder)
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_ends_nothing_that_is_open(browser: Browser, tmp_path: Path, port: int, small_disk: Path) -> None:
    """Also a design goes on being measured for which memory is claimed; somebody new comes once there is room."""
    address, fill = f"http://localhost:{port}", small_disk / "fill"
    with standing(tmp_path / "log", port, TMPDIR=str(small_disk)), opened(browser, address) as visit:
        assert list(small_disk.glob("explorer-serve-*"))
        with suppress(OSError), fill.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        must_follow(visit, 7)
        must_follow(visit, 60)  # needs more than a worker has: memory is claimed
        fill.unlink()
        must_follow(visit, 8)
        visit.must_be_clean()
        visit.page.goto(address)
        visit.wait_until_drawn()
        must_follow(visit, 5)


def test_after_restarts_of_the_server_a_reload_brings_all_settings_back(
    visit: Dashboard, address: str, tmp_path: Path,
) -> None:
    """The last test: the server is asked to end, and the one in its place is killed."""
    notice, port = visit.page.locator("#ex-notice"), int(address.rpartition(":")[2])
    running: psutil.Process = serving(address)
    must_follow(visit, 9)
    with ExitStack() as servers:
        for end, said in (
            ("terminate", "The server has been stopped. The Python process of this page has ended"),
            ("kill", "The connection to the server is lost; trying again."),
        ):
            getattr(running, end)()
            expect(notice).to_contain_text(said, timeout=10_000)
            wait_until(lambda ended=running: ended.status() == psutil.STATUS_ZOMBIE or not ended.is_running(), 20)
            running = servers.enter_context(standing(tmp_path / end, port, "--preheat", "0"))
            expect(notice).to_contain_text("has ended, so its controls do nothing", timeout=10_000)
            notice.get_by_role("button", name="Reload").click()
            visit.wait_until_drawn()
            assert depth_of(visit) == 9
        must_follow(visit, 7)
