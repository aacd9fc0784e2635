"""The page where no plug-in can be imported, shown by Voilà as anybody starts it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .conftest import STARTUP, free_port
from .dashboard import PATIENCE, Dashboard

ROOT = Path(__file__).parents[2]
EARLY = ROOT / "tests" / "early"
TABS = ["Explore", "Map", "Learn"]


@contextmanager
def started(folder: Path, notebook: Path) -> Iterator[str]:
    """Runs Voilà on a notebook, without settings of its own, until the block ends; gives its
    address."""
    port = free_port()
    command = [sys.executable, "-m", "voila", f"--port={port}", "--no-browser", str(notebook)]
    paths = [str(EARLY), os.environ.get("PYTHONPATH", "")]
    homes = {
        name: str(folder)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    }
    environment = os.environ | homes | {"EXPLORER_PLUGINS": "absent"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + STARTUP
        while time.monotonic() < deadline:
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            try:
                socket.create_connection(("localhost", port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                break
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def alone(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("alone")
    notebook = folder / "notebooks" / "explorer.ipynb"
    notebook.parent.mkdir()
    shutil.copy(ROOT / "notebooks" / "explorer.ipynb", notebook)
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    with started(folder, notebook) as address:
        page.goto(address, timeout=3 * PATIENCE)  # it comes when its cells have run
        page.get_by_role("tab").first.wait_for()
        yield visit
    page.close()


def test_the_page_has_the_tabs_of_the_package_and_draws_a_design(alone: Dashboard) -> None:
    tabs = alone.page.locator(".ex-root").get_by_role("tab")
    expect(tabs).to_have_text(TABS)
    alone.wait_until_drawn()
    assert alone.page.get_by_text("Race", exact=True).count() == 0


def test_the_map_has_no_trained_cells_and_measures(alone: Dashboard) -> None:
    page = alone.page
    page.get_by_role("tab", name="Map", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Measured")).to_be_visible(timeout=90_000)
    assert page.get_by_text("Coordinate check").count() == 0
    page.get_by_role("tab", name="Learn", exact=True).click()
    expect(page.locator(".ex-lesson-cards li").first).to_be_visible()
