"""What fails around a page: workers and kernels are killed, the server restarts, the machine
sleeps, a disk is full.

The page recovers by itself, or says what happened and offers the way on; no setting is lost.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, expect

from explorer.tasks.pool import KILLED

from .conftest import server
from .dashboard import KERNEL, Dashboard
from .test_crowds import health, rests
from .test_drag import DRAG
from .test_links import GO
from .test_map import DOTS, linked, status
from .test_race import SIZES, Track
from .visitor import (
    SOON,
    answers,
    arrive,
    enter,
    kernels,
    numbers,
    processes,
    seconds_until_gone,
    serving,
    wait_until,
)

BEGIN_DRAG = f"""(field) => {{
  globalThis.dragged = ({DRAG})([field, Array.from({{ length: 40 }}, (_, index) => index < 30 ? 1 : -1)]);
}}"""
"""Begins a drag of some three seconds, which goes on while other things happen."""
SETTINGS = """() => [...document.querySelectorAll('.ex-explore [data-field]')].map((control) => [
  control.dataset.field,
  [...control.querySelectorAll('input, select')].map(({ type, checked, value }) => type === 'radio' ? checked : value),
])"""
WORKER = "explorer.tasks.worker"
forked = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forks on Linux alone")
ASLEEP = 8_000
"""Milliseconds; the page waits for five seconds at most, the server for three, before it takes a
kernel for dead."""


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A disk of 64 MB where one can be made, else a folder; its path is short enough for a server's
    folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder],
                check=True,
                capture_output=True,
            )
        yield Path(folder)
        if Path(folder).is_mount():
            subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, disk: Path) -> Iterator[str]:
    """A server of this file's own, which its last test ends; it looks at its kernels every
    second."""
    usual = {"EXPLORER_PROCESSES": "2", "EXPLORER_LOOK_SECONDS": "1", "TMPDIR": str(disk)}
    with server(["serve"], tmp_path_factory.mktemp("faults") / "log", **usual) as running:
        yield running


@pytest.fixture(scope="module")
def shown(browser: Browser, address: str) -> Iterator[Dashboard]:
    """A page that outlives all that fails around it."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(address)
    visit.wait_until_drawn()
    yield visit
    page.close()


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


def test_workers_killed_in_the_middle_of_a_drag_are_no_matter(
    visit: Dashboard, address: str
) -> None:
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
    expect(visit.page.locator(".ex-status-text").first).to_have_text(
        f"Measured {depth} layers of width 256"
    )
    assert visit.dots("Second moment")["x"][-1] == depth
    visit.must_be_clean()


def test_a_race_whose_process_is_killed_says_so_and_can_be_run_again(
    visit: Dashboard, address: str
) -> None:
    track = Track(visit)
    visit.page.get_by_role("tab", name="Race", exact=True).click()
    track.adding.wait_for()
    track.panel.locator("details").evaluate_all(
        "(folds) => folds.forEach((fold) => { fold.open = true; })"
    )
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


def test_a_worker_killed_in_the_middle_of_a_map_leaves_no_hole(
    shown: Dashboard, address: str
) -> None:
    visit, page = shown, shown.page
    page.evaluate(GO, linked(y_count=8))
    page.locator(".ex-map .main-svg").first.wait_for()
    page.wait_for_function(f"() => ({DOTS})() > 4")
    busiest(address).kill()
    expect(status(visit)).to_contain_text("Measured 8 × 7 cells")
    page.wait_for_function(f"() => ({DOTS})() === 56")
    page.goto(address)
    visit.wait_until_drawn()
    visit.must_be_clean()


def test_a_kernel_killed_in_the_middle_of_a_drag_is_said_and_its_settings_come_back(
    visit: Dashboard,
) -> None:
    """Of the drag, all that the kernel had heard of."""
    page = visit.page
    must_follow(visit, 9)
    with visit.redrawn():
        visit.choose("norm_placement", "post")
    before = dict(page.evaluate(SETTINGS))
    page.evaluate(BEGIN_DRAG, "init_variance")
    page.wait_for_timeout(1000)
    kernel = page.evaluate(KERNEL)
    (process,) = processes(kernel)
    process.kill()
    notice = page.locator("#ex-notice")
    expect(notice).to_contain_text("has ended, so its controls do nothing", timeout=10_000)
    page.evaluate("dragged")
    # the page that is left is at rest, too
    with page.expect_navigation(wait_until="commit"):
        notice.get_by_role("button", name="Reload").click()
    visit.wait_until_drawn()
    assert page.evaluate(KERNEL) != kernel
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
    """The whole server stands still for longer than any heartbeat of its or of the page, in the
    middle of a drag."""
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


def test_a_full_disk_ends_nothing_that_is_open(visit: Dashboard, address: str, disk: Path) -> None:
    """Also a design goes on being measured for which memory is claimed; somebody new comes once
    there is room."""
    if not disk.is_mount():
        pytest.skip("a disk can be made by root alone")
    fill = disk / "fill"
    assert list(disk.glob("explorer-serve-*"))
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


def zygote(address: str) -> psutil.Process:
    """The process of a server that kernels are forks of."""
    (found,) = [
        child for child in serving(address).children() if "zygote" in " ".join(child.cmdline())
    ]
    return found


def rested(address: str) -> None:
    """Waits until a kernel waits for a visitor that has run the page's notebook, and nothing else
    starts."""
    wait_until(lambda: health(address)["status"] == "ok" and health(address)["waiting"] == 1)
    wait_until(lambda: all(rests(process) for process in kernels(address)))


@forked
def test_a_kernel_that_was_given_to_a_page_is_not_ended_for_being_slow(address: str) -> None:
    """It is stopped between the page and its websocket, for longer than a heart may miss, and
    looked at meanwhile."""
    rested(address)
    kernel = arrive(address)
    (process,) = processes(kernel)
    process.suspend()
    time.sleep(6)
    process.resume()
    with enter(address, kernel) as visit:
        assert answers(visit)


@forked
def test_pages_go_on_where_the_zygote_dies_and_new_ones_come(address: str) -> None:
    rested(address)
    with ExitStack() as visits:
        before = visits.enter_context(enter(address, arrive(address)))
        rested(address)
        killed = zygote(address)
        killed.kill()
        time.sleep(0.2)
        for _ in range(2):  # the kernel that waited, and one that is forked by another zygote
            visit = visits.enter_context(enter(address, arrive(address)))
            assert answers(visit)
        assert zygote(address) != killed
        time.sleep(3)  # a kernel that looked for its parent would have ended
        assert answers(before)
        assert answers(visit)


@forked
def test_a_zygote_that_stands_still_is_replaced(address: str) -> None:
    rested(address)
    stopped = zygote(address)
    stopped.suspend()
    for _ in range(2):
        with enter(address, arrive(address)) as visit:
            assert answers(visit)
    assert zygote(address) != stopped


@forked
@pytest.mark.skipif(
    not shutil.which("taskset") or not shutil.which("prlimit"),
    reason="this machine has no util-linux",
)
def test_after_the_server_was_killed_a_reload_brings_all_settings_back(
    visit: Dashboard,
    address: str,
    disk: Path,
    tmp_path: Path,
) -> None:
    """The last test. Kernels end by themselves, also where the process has died of which they are
    forks.

    The next server, at the same port, removes what the other has left. One core and few open files
    are enough for it, though for fewer pages than it shall have."""
    page, notice, port = (
        visit.page,
        visit.page.locator("#ex-notice"),
        int(address.rpartition(":")[2]),
    )
    must_follow(visit, 9)
    kernel, (left,) = page.evaluate(KERNEL), disk.glob("explorer-serve-*")
    running: psutil.Process = serving(address)
    zygote(address).kill()
    running.kill()
    running.wait(20)
    expect(notice).to_contain_text(
        "The connection to the server is lost; trying again.", timeout=10_000
    )
    assert seconds_until_gone(kernel) < SOON
    with server(
        ["serve", "--preheat", "0", "--max-pages", "40"],
        tmp_path / "log",
        port=port,
        TMPDIR=str(disk),
        below="taskset -c 0 prlimit --nofile=512",
    ):
        assert len(serving(address).cpu_affinity()) == 1
        expect(notice).to_contain_text("has ended, so its controls do nothing", timeout=20_000)
        notice.get_by_role("button", name="Reload").click()
        visit.wait_until_drawn()
        assert depth_of(visit) == 9
        with visit.redrawn():
            page.evaluate(BEGIN_DRAG, "n_layers")
            page.evaluate("dragged")
        expect(page.locator(".ex-status-text")).to_have_text("Measured 32 layers of width 256")
        assert [*disk.glob("explorer-serve-*")] != [left]
        assert not left.exists()
        assert (
            "limited to 512 (ulimit -n), which is too few for 40 pages"
            in (tmp_path / "log").read_text()
        )
    assert not list(disk.glob("explorer-serve-*"))
