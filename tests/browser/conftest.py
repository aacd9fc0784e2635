"""Two hosts, one browser: Voilà and JupyterLab, started by the command a person would type.

A page is opened once a host and shared, also by files: each test gets it with every control reset,
and leaves the controls as it likes. After each test the console must be free of errors, and nothing
may have been asked of another host."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partialmethod
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Locator, Page, Playwright, expect, sync_playwright

from explorer_serve.start import notebooks

from .dashboard import PATIENCE, Dashboard

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
UNSEEN = (
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,AvoidUnnecessaryBeforeUnloadCheckSync,"
    "HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding,ThirdPartyStoragePartitioning"
)
"""Leaves out two lists of an address bar that nobody sees, which a process of their own would draw
for each page. This takes the place of playwright's own list, whose rows that matter to a page are
the others."""
QUIET = (  # a browser that minds its own business, also where there is no network and no sandbox
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    UNSEEN,
)
SHAKEN = bool(os.environ.get("EXPLORER_SHAKE"))
"""Whether kernels answer late and every click is held, to see that nothing depends on how soon the
page is answered."""
HELD = 40
"""Milliseconds of such a click, as a person's are."""
EVERY = 50
"""Milliseconds after which a page is asked again what is waited for; at every frame, asking would
keep it busy."""
STARTUP = 60
"""Seconds that a server may take to listen."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program; without one these tests are skipped, or fail where they are
    required."""
    for program in PROGRAMS:
        if path := shutil.which(program):
            return path
    reason = f"no browser: none of {', '.join(PROGRAMS)} is on the PATH"
    if os.environ.get("EXPLORER_REQUIRE_BROWSER"):
        pytest.fail(f"{reason}, and EXPLORER_REQUIRE_BROWSER is set", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    expect.set_options(timeout=PATIENCE)
    Page.wait_for_function = partialmethod(Page.wait_for_function, polling=EVERY)  # type: ignore[method-assign,assignment]
    if SHAKEN:
        Locator.click = partialmethod(Locator.click, delay=HELD)  # type: ignore[method-assign,assignment]
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(chromium: str, playwright: Playwright) -> Iterator[Browser]:
    running = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
    yield running
    running.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def start(
    arguments: list[str],
    log: Path,
    *,
    port: int,
    below: str = "",
    **environment: str,
) -> subprocess.Popen[bytes]:
    """Runs `explorer …` at a port, below another program where one is named; returns once it
    listens."""
    at_once = ["--drain-seconds", "0"] if arguments[0] == "serve" else []
    command = [
        *below.split(),
        sys.executable,
        "-m",
        "explorer",
        arguments[0],
        "--no-browser",
        "--port",
        str(port),
        *at_once,
        *arguments[1:],
    ]
    if SHAKEN or "EXPLORER_SHAKE" in environment:
        paths = [str(Path(__file__).with_name("shaken")), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment
        )
    deadline = time.monotonic() + STARTUP
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("localhost", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return process
    process.kill()
    process.wait()
    pytest.fail(f"{command} does not listen:\n{log.read_text()}", pytrace=False)


@contextmanager
def server(
    arguments: list[str],
    log: Path,
    *,
    port: int = 0,
    below: str = "",
    **environment: str,
) -> Iterator[str]:
    """Runs `explorer …`, at a free port where none is named, until the block ends; gives its
    address."""
    port = port or free_port()
    process = start(arguments, log, port=port, below=below, **environment)
    try:
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end(server: int) -> None:
    """Ends a server, by the number of its process, that another process may have started."""
    deadline = time.monotonic() + 20
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(server)
        process.terminate()
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.1)
        process.kill()


@contextmanager
def lent(folder: Path, arguments: list[str], **environment: str) -> Iterator[str]:
    """A server for all processes of a run of tests; gives its address.

    The first process that asks starts it, and the last that leaves ends it: which of them started
    it is no matter. One that was killed is no user any more."""
    note, lock = folder / "lent.json", FileLock(folder / "lent.lock")
    with lock:
        if not note.exists():
            port = free_port()
            process = start(arguments, folder / "lent.log", port=port, **environment)
            process.returncode = 0  # others may end it, and then it is no fault that this process has not waited for it
            note.write_text(json.dumps({"process": process.pid, "port": port, "users": []}))
        known = json.loads(note.read_text())
        known["users"].append(os.getpid())
        note.write_text(json.dumps(known))
    yield f"http://localhost:{known['port']}"
    with lock:
        known = json.loads(note.read_text())
        known["users"] = [
            user for user in known["users"] if user != os.getpid() and psutil.pid_exists(user)
        ]
        note.write_text(json.dumps(known))
        if not known["users"]:
            note.unlink()
            end(known["process"])


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a run of tests have in common."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def voila(run: Path) -> Iterator[str]:
    """Address of a standalone Voilà that serves the page."""
    folder = run / "voila"
    folder.mkdir(exist_ok=True)
    with lent(folder, ["serve"], EXPLORER_PROCESSES="2") as address:
        yield address


@pytest.fixture(scope="module")
def visit(browser: Browser, voila: str) -> Iterator[Dashboard]:
    """The page in Voilà, for all tests of a file; nothing is waited for but its tabs."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(voila)
    page.get_by_role("tab").first.wait_for()
    yield visit
    page.close()


def forget_runs(notebook: Path) -> None:
    """Removes all outputs, so that a cell which has run can be told from one that has not."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    notebook.write_text(json.dumps(content), encoding="utf-8")


class Laboratory(NamedTuple):
    """A JupyterLab at its address; its folder has `notebooks`, and all that it remembers."""

    address: str
    folder: Path

    def fresh(self) -> str:
        """The address of a copy of the page's notebook that nobody has opened."""
        number = len(list((self.folder / "notebooks").glob("explorer*.ipynb")))
        # other processes copy it as well
        copy = self.folder / "notebooks" / f"explorer{os.getpid()}-{number}.ipynb"
        shutil.copy(notebooks() / "explorer.ipynb", copy)
        forget_runs(copy)
        return f"{self.address}/lab/tree/{copy.name}"


@pytest.fixture(scope="session")
def laboratory(run: Path) -> Iterator[Laboratory]:
    """A JupyterLab on a copy of the notebooks (it saves what it shows), with nobody's settings and
    memories."""
    folder = run / "lab"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "copied.lock"):
        if not (folder / "notebooks").exists():
            shutil.copytree(notebooks(), folder / "notebooks")
    arguments, places = jupyterlab(folder)
    with lent(folder, arguments, **places) as address:
        yield Laboratory(address, folder)


def jupyterlab(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments of `explorer`, and environment, of a JupyterLab on a folder's `notebooks`, which
    keeps in the folder all that it remembers."""
    homes = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    options = [
        f"--ServerApp.root_dir={folder}/notebooks",
        "--allow-root",
        "--IdentityProvider.token=",
    ]
    places = {variable: str(folder / name) for variable, name in homes.items()}
    return ["lab", "--", *options], places


@pytest.fixture(scope="module")
def lab(laboratory: Laboratory) -> str:
    """Address of a notebook in JupyterLab that was not opened yet."""
    return laboratory.fresh()


def open_in_voila(page: Page, address: str) -> None:
    page.goto(address)


def open_in_lab(page: Page, address: str) -> None:
    """Opens a notebook, without any beside it that was open before; runs the import and the page,
    by keyboard."""
    page.goto(f"{address}?reset")
    # before, JupyterLab would ask which kernel is meant
    page.wait_for_selector("text='Python 3 (ipykernel) | Idle'")
    for number in (1, 2):
        page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").nth(number - 1).click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(HAS_RUN, arg=number)


HAS_RUN = """(number) => {
  const prompt = document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')[number - 1];
  return prompt?.textContent === `[${number}]:`;
}"""
"""A cell that has run shows which in order it was."""


HOSTS = {"voila": open_in_voila, "lab": open_in_lab}


in_voila = pytest.mark.parametrize("shared", ["voila"], indirect=True)
"""For what the kernel and the page's own scripts decide, whatever stands around them: it is tried
in one host."""


class Pages:
    """The page in each of its hosts, opened when it is first asked for; in JupyterLab from a
    notebook of its own.

    (A notebook that is opened again there would find its kernel, and what has run in it.)
    """

    def __init__(self, browser: Browser, addresses: Mapping[str, Callable[[], str]]) -> None:
        self.browser, self.addresses = browser, addresses
        self.opened: dict[str, Dashboard] = {}

    def get(self, host: str) -> Dashboard:
        if host not in self.opened:
            page = self.browser.new_page(viewport={"width": 1440, "height": 1000})
            # JupyterLab asks for some hundred
            page.add_init_script("performance.setResourceTimingBufferSize(5000)")
            dashboard = Dashboard(page, host)
            HOSTS[host](page, self.addresses[host]())
            dashboard.wait_until_drawn()
            self.opened[host] = dashboard
        return self.opened[host]

    def close(self) -> None:
        while self.opened:
            self.opened.popitem()[1].page.close()


@pytest.fixture(scope="session")
def pages(request: pytest.FixtureRequest, browser: Browser, voila: str) -> Iterator[Pages]:
    """JupyterLab is started where a test opens the page in it."""
    pages = Pages(
        browser,
        {"voila": lambda: voila, "lab": lambda: request.getfixturevalue("laboratory").fresh()},
    )
    yield pages
    pages.close()


@pytest.fixture(scope="module", params=HOSTS)
def shared(request: pytest.FixtureRequest, pages: Pages) -> Dashboard:
    """The page in one of its hosts."""
    return pages.get(request.param)


@pytest.fixture
def dashboard(shared: Dashboard) -> Iterator[Dashboard]:
    """The page at its defaults; what it complained of during the test fails the test."""
    shared.page.set_viewport_size({"width": 1440, "height": 1000})
    shared.reset()
    yield shared
    shared.must_be_clean()
