"""Notebooks side by side, restarted, and saved and opened again, with and without the kernel of
their live pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from linked import state
from playwright.sync_api import Browser, Locator, Page, expect

from .conftest import HAS_RUN, Laboratory
from .dashboard import PATIENCE, Dashboard

CELLS = (
    "import explorer as ex\nex.dashboard(ex.preset('post_ln', n_layers=3, d_model=32, n_ctx=16))",
    "ex.predict(ex.Config(n_layers=2))",
)

ALL_DRAWN = """(layers) => {
  const panel = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .ex-panel:not(.ex-race)');
  const plots = [...panel?.querySelectorAll('.ex-chart-plot') ?? []];
  return plots.length === 6 && plots.every((plot) => Number(plot.dataset.drawn) > 0)
    && panel.querySelector('.ex-status-text').textContent.startsWith(`Measured ${layers} layers`);
}"""


def written(folder: Path, name: str, sources: Sequence[str]) -> None:
    """A notebook that has not been run."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell{number}",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": source,
        }
        for number, source in enumerate(sources)
    ]
    kernel = {
        "kernelspec": {
            "name": "python3",
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
        }
    }
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "notebooks" / name).write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(laboratory: Laboratory) -> Path:
    """Of all that these tests' JupyterLabs show and remember; each test has notebooks of its
    own."""
    return laboratory.folder


@pytest.fixture(scope="module")
def address(laboratory: Laboratory) -> str:
    """Of a JupyterLab on the folder."""
    return laboratory.address


def opened(browser: Browser, address: str, name: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(PATIENCE)
    # no other notebook beside it, whose style would apply to this one
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_selector("text='Python 3 (ipykernel) | Idle'")
    return page


def wait_until_saved(page: Page, notebook: Path) -> None:
    """Until its output is in the file: what is reloaded sooner was never saved."""
    for _ in range(PATIENCE // 50):
        if "widget-view" in notebook.read_text(encoding="utf-8"):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{notebook.name} was not saved")


def run_and_save(page: Page, name: str) -> None:
    """Runs every cell, which leaves live pages and no still beside them; saves by Ctrl+S from
    whatever has the focus, and the browser's dialog to save a page stays away."""
    for number in range(1, len(CELLS) + 1):
        page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").nth(number - 1).click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(HAS_RUN, arg=number)
    expect(page.locator(".ex-root")).to_have_count(1)
    expect(page.locator(".ex-still")).to_have_count(1)
    expect(page.locator(".ex-still:visible")).to_have_count(0)
    page.wait_for_function(ALL_DRAWN, arg=3)
    page.evaluate("""() => {
      globalThis.left = [];
      window.addEventListener('keydown', (event) => event.key === 's' && left.push(!event.defaultPrevented));
    }""")
    depth = page.locator("[data-field=n_layers]")
    for node in (
        depth.locator("input[type=range]"),
        depth.locator("input.ex-entry"),
        page.locator(".ex-tool").first,
    ):
        node.focus()
        # the end of saving
        with page.expect_response(lambda sent: f"{name}/checkpoints" in sent.url):
            page.keyboard.press("Control+s")
    assert page.evaluate("left") == [False] * 3
    page.wait_for_selector(".jp-mod-dirty", state="detached")


def choose(page: Page, menu: str, item: str) -> None:
    """Presses an item of JupyterLab's menus."""
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=item, exact=True).click()


def must_show_stills(page: Page) -> None:
    """The design and a number are there to be read; nothing else is."""
    expect(page.get_by_text("Post-LN: 3 layers of width 32")).to_be_visible()
    expect(page.get_by_role("cell", name="Second moment").first).to_be_visible()
    page.wait_for_function("() => !document.body.innerText.includes('Loading widget')")
    assert "Error displaying" not in page.locator("body").inner_text()


def test_a_notebook_saved_by_control_s_and_opened_again_shows_stills_and_no_error(
    browser: Browser,
    folder: Path,
    address: str,
) -> None:
    """First with a kernel that ends, then with another."""
    mine, foreign = folder / "notebooks" / "saved.ipynb", folder / "notebooks" / "foreign.ipynb"
    written(folder, mine.name, CELLS)
    page = opened(browser, address, mine.name)
    run_and_save(page, mine.name)
    choose(page, "Kernel", "Shut Down Kernel")
    page.wait_for_selector("text='No Kernel'")
    page.close()
    # not signed here
    foreign.write_text(mine.read_text(encoding="utf-8").replace("cell0", "cell9"), encoding="utf-8")
    for notebook in (mine, foreign):
        page = opened(browser, address, notebook.name)
        if notebook is mine:  # JupyterLab has tried to find the page, and has given up
            page.wait_for_selector(".jp-OutputArea-output.jupyter-widgets", state="attached")
        must_show_stills(page)
        page.close()


LINK = "?tab=race&n_layers=4&d_model=32" + state(
    explore={
        "statistic": "kurtosis",
        "pins": [{"config": {"n_layers": 2, "d_model": 32}, "name": "Short"}],
    },
    race={"plan": {"steps": 50}},
)
PAGE = """import explorer as ex
page = ex.dashboard(ex.Config(n_layers=3, d_model=32, n_ctx=16))
page"""
POLAR = """import plotly.graph_objects as go
around = go.Scatterpolar(r=[1, 1, 2], theta=[0, 90, 180])
ex.live(lambda flat: go.Figure(go.Scatter(y=[1, 3]) if flat else around), flat=True)"""


@pytest.fixture(scope="module")
def several(browser: Browser, folder: Path, address: str) -> Iterator[Dashboard]:
    """A notebook with a page, a link that it is to open, and a live figure."""
    written(folder, "several.ipynb", [PAGE, f"page.open_link({LINK!r})", POLAR])
    page = opened(browser, address, "several.ipynb")
    visit = Dashboard(page, "lab")
    for number in (1, 2, 3):
        page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").nth(number - 1).click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(HAS_RUN, arg=number)
    yield visit
    # JupyterLab's own
    visit.complaints = [words for words in visit.complaints if "debugger state" not in words]
    visit.must_be_clean()
    page.close()


def test_a_record_that_is_restored_is_shown(several: Dashboard) -> None:
    page = several.page
    expect(page.locator(".jp-OutputArea-output pre", has_text="[]")).to_have_count(1)
    expect(page.get_by_role("tab", name="Race")).to_have_attribute("aria-selected", "true")
    expect(several.entry("steps")).to_have_value("50")
    page.get_by_role("tab", name="Explore").click()
    expect(
        page.locator(".ex-status-text:visible", has_text="Measured 4 layers of width 32")
    ).to_be_visible()
    expect(page.get_by_label("Name of the pinned design Short")).to_be_visible()
    expect(page.locator(".ex-chart-title").first).to_have_text("Kurtosis of features")
    expect(several.control("statistic").locator("select").first).to_have_value("kurtosis")


def test_what_the_servers_part_of_plotly_cannot_draw_is_drawn_by_all_of_it(
    several: Dashboard,
) -> None:
    """A figure of a person's own may be of any trace, and of another one at each move."""
    live = several.page.locator(".ex-live")
    live.scroll_into_view_if_needed()
    switch, lines = (
        live.get_by_role("checkbox", name="flat"),
        live.locator(".ex-chart-plot .js-line"),
    )
    for layer in ("scatterlayer", "polarlayer", "scatterlayer"):
        expect(live.locator(f".ex-chart-plot .{layer} .js-line")).to_have_count(1)
        expect(lines).to_have_count(1)
        switch.click()


IN_WINDOW = """() => {
  const header = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .ex-header');
  const { top } = header.getBoundingClientRect();
  return top >= 0 && top < window.innerHeight / 2;
}"""


def show(page: Page, name: str) -> Locator:
    """Opens a notebook from the list of files, or its tab; its panel."""
    page.locator(".jp-DirListing-itemText", has_text=name).dblclick()
    shown = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    expect(shown.locator(".jp-Toolbar-kernelName")).to_have_text("Python 3 (ipykernel)")
    page.wait_for_selector("text='Python 3 (ipykernel) | Idle'")
    return shown


def write_depth(page: Page, shown: Locator, layers: int) -> None:
    entry = shown.locator(".ex-panel:not(.ex-race) [data-field=n_layers] .ex-entry").first
    entry.fill(str(layers))
    entry.press("Tab")
    page.wait_for_function(ALL_DRAWN, arg=layers)


def test_notebooks_of_one_window_run_all_and_need_nothing_of_each_other(
    several: Dashboard, folder: Path, laboratory: Laboratory
) -> None:
    """Run All ends with the page in a small window until somebody scrolls: JupyterLab goes on to
    the last cell, and the page grows above the window when its charts come.

    The notebooks share the script that the first one's kernel brought; each goes on when the
    other's kernel is another."""
    page, own = several.page, laboratory.fresh().rpartition("/")[2]
    page.set_viewport_size({"width": 1280, "height": 680})
    shown = show(page, own)
    choose(page, "Run", "Run All Cells")
    shown.locator(".ex-chart-plot:not([data-drawn='0'])").first.wait_for(
        state="attached", timeout=3 * PATIENCE
    )
    page.wait_for_selector("text='Python 3 (ipykernel) | Idle'")
    page.wait_for_function(IN_WINDOW)
    shown.locator(".ex-header").hover()
    page.mouse.wheel(0, 1500)
    page.wait_for_function(f"() => !({IN_WINDOW})()")
    page.wait_for_timeout(500)
    assert not page.evaluate(IN_WINDOW), "a person's scrolling is left alone"
    page.set_viewport_size({"width": 1440, "height": 1000})

    page.wait_for_function(ALL_DRAWN, arg=12)
    write_depth(page, shown, 5)
    shown = show(page, "several")
    choose(page, "Kernel", "Restart Kernel and Run All Cells…")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    expect(shown.get_by_role("tab", name="Race")).to_have_attribute("aria-selected", "true")
    shown.get_by_role("tab", name="Explore").click()
    page.wait_for_function(ALL_DRAWN, arg=4)
    write_depth(page, shown, 6)
    show(page, own)
    page.wait_for_function(ALL_DRAWN, arg=5)
    page.keyboard.press("Control+s")
    wait_until_saved(page, folder / "notebooks" / own)
    page.reload()  # the kernels go on, and with them the pages
    show(page, own)
    page.wait_for_function(ALL_DRAWN, arg=5)
