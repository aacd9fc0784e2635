"""A page whose server has a Dask cluster compute: it measures as any other does, with no worker process beside it."""

from __future__ import annotations

import json
from pathlib import Path

from distributed import LocalCluster
from playwright.sync_api import Browser

from .conftest import server
from .dashboard import Dashboard
from .visitor import asked, serving, wait_until


def test_a_cluster_computes_for_a_page(browser: Browser, tmp_path: Path) -> None:
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with (LocalCluster("127.0.0.1:0", **options) as cluster,
          server(["serve", "--scheduler", cluster.scheduler_address], tmp_path / "log") as address):
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visit = Dashboard(page, "voila")
        page.goto(address)
        visit.wait_until_drawn()
        with visit.redrawn():
            visit.write("n_layers", "5")
        assert visit.said == "Measured 5 layers of width 256"
        assert visit.dots("Second moment")["x"][-1] == 5
        assert not [child for child in serving(address).children() if "explorer.tasks.worker" in child.cmdline()]
        visit.must_be_clean()
        assert json.loads(asked(address, "/health")[1])["status"] == "ok"
        cluster.close()
        wait_until(lambda: asked(address, "/health")[0].status == 503)
        said = json.loads(asked(address, "/health")[1])
        assert (said["status"], said["workers"]) == ("no workers", 0)
        page.close()
    assert "Traceback" not in (tmp_path / "log").read_text()
