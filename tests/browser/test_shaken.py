"""Kernels that are to answer late do, in both hosts: else the tests that are run with `EXPLORER_SHAKE` say nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from explorer.serve import notebooks

from .conftest import HOSTS, Laboratory, jupyterlab, server
from .dashboard import Dashboard
from .visitor import serving


@contextmanager
def in_voila(folder: Path, shake: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A server, and its page."""
    with server(["serve"], folder / "log", **shake) as address:
        yield address, address


@contextmanager
def in_lab(folder: Path, shake: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A JupyterLab, and a notebook in it that nobody has opened."""
    shutil.copytree(notebooks(), folder / "notebooks")
    with jupyterlab(folder, **shake) as address:
        yield address, Laboratory(address, folder).fresh()


@pytest.mark.parametrize(("host", "running"), [("voila", in_voila), ("lab", in_lab)], ids=HOSTS)
def test_kernels_answer_late(browser: Browser, tmp_path: Path, host: str, running: object) -> None:
    """Both what a browser sends and what it is sent waits, in a process that the server started."""
    log = tmp_path / "delays"
    with running(tmp_path, {"EXPLORER_SHAKE": "0.2", "EXPLORER_SHAKE_LOG": str(log)}) as (address, place):  # type: ignore[operator]
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visit = Dashboard(page, host)
        HOSTS[host](page, place)
        visit.wait_until_drawn()
        with visit.redrawn():
            visit.write("n_layers", "13")
        kernels = {child.pid for child in serving(address).children(recursive=True)}
        page.close()
    delays = [line.split() for line in log.read_text(encoding="ascii").splitlines()]
    assert {what for process, what in delays if int(process) in kernels} == {"taken", "told"}
