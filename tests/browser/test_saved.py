"""A notebook that was saved and is opened again, without the kernel that its live pages belonged to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import HAS_RUN, jupyterlab
from .dashboard import PATIENCE, Dashboard

CELLS = (
    "import explorer as ex\nex.dashboard(ex.preset('post_ln', n_layers=3, d_model=32, n_ctx=16))",
    "ex.lab('07_residual')",
    "ex.predict(ex.Config(n_layers=2))",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notebooks").mkdir()
    cells = [{"cell_type": "code", "id": f"cell{number}", "metadata": {}, "outputs": [], "execution_count": None,
              "source": source} for number, source in enumerate(CELLS)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "notebooks" / "saved.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    return tmp_path


def opened(browser: Browser, address: str, name: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/lab/tree/{name}?reset")  # no other notebook beside it, whose style would apply to this one
    page.wait_for_selector("text='Python 3 (ipykernel) | Idle'")
    return page


def run_and_save(page: Page) -> None:
    """Runs every cell: live pages, and no still beside them."""
    for number in range(1, len(CELLS) + 1):
        page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").nth(number - 1).click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(HAS_RUN, arg=number)
    expect(page.locator(".ex-root")).to_have_count(2)
    expect(page.locator(".ex-still")).to_have_count(2)
    expect(page.locator(".ex-still:visible")).to_have_count(0)
    page.keyboard.press("Control+s")
    page.wait_for_selector(".jp-mod-dirty", state="detached")


def must_show_stills(page: Page) -> None:
    """The design, a number and the lab's charts are there to be read; nothing else is."""
    expect(page.get_by_text("Post-LN: 3 layers of width 32")).to_be_visible()
    expect(page.get_by_role("heading", name="Residual")).to_be_visible()
    expect(page.get_by_role("cell", name="Second moment").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="How to read it")).to_be_visible()
    page.wait_for_function("() => !document.body.innerText.includes('Loading widget')")
    assert "Error displaying" not in page.locator("body").inner_text()


def test_the_page_in_voila_has_its_still_hidden(visit: Dashboard) -> None:
    visit.wait_until_drawn()
    expect(visit.page.locator(".ex-still")).to_have_count(1)
    expect(visit.page.locator(".ex-still:visible")).to_have_count(0)


def test_a_notebook_that_is_opened_again_shows_stills_and_no_error(browser: Browser, folder: Path) -> None:
    mine, foreign = folder / "notebooks" / "saved.ipynb", folder / "notebooks" / "foreign.ipynb"
    with jupyterlab(folder) as address:
        page = opened(browser, address, mine.name)
        run_and_save(page)
        page.close()
    foreign.write_text(mine.read_text(encoding="utf-8").replace("cell0", "cell9"), encoding="utf-8")  # not signed here
    with jupyterlab(folder) as address:
        for notebook in (mine, foreign):
            page = opened(browser, address, notebook.name)
            if notebook is mine:  # JupyterLab has tried to find the page, and has given up
                page.wait_for_selector(".jp-OutputArea-output.jupyter-widgets", state="attached")
            must_show_stills(page)
            page.close()
