"""The Map panel in Voilà: a link opens it, cells come, stop and go on, and a click puts a cell's
design on Explore.

Each test opens a page of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from linked import state
from playwright.sync_api import Browser, Locator, expect

from .dashboard import Dashboard, wait_until_still

PAGE = "?tab=map&n_layers=2&d_model=16&n_heads=2&n_ctx=8"
VARIED = {
    "norm_placement": "none",
    "d_model": 128,
    "n_heads": 2,
    "n_ctx": 64,
    "batch_size": 2,
    "n_seeds": 4,
}
PLAN = {"x_count": 8, "y_to": 12, "y_count": 12}


def linked(**plan: object) -> str:
    """The link of a map whose plan differs so."""
    return PAGE + state(map={"design": VARIED, "plan": PLAN | plan})


MEASURED = linked(y_count=6)
"""The theory's cells, and then measured ones."""
ALPHA = linked(compute="theory", x="alpha", x_from=0, x_to=1.5)
"""The theory's cells alone, over residual α."""
DOTS = """() => {
  const traces = document.querySelector('.ex-map .ex-chart-plot')._fullData ?? [];
  const dots = traces.find((trace) => trace.mode === 'markers' && trace.name === 'measured');
  return dots ? dots.x.length : 0;
}"""
CELL = """([x, y]) => {
  const plot = document.querySelector('.ex-map .ex-chart-plot');
  const { xaxis, yaxis } = plot._fullLayout;
  const box = plot.getBoundingClientRect();
  return [box.left + xaxis._offset + xaxis.d2p(x), box.top + yaxis._offset + yaxis.d2p(y)];
}"""
"""Where a point of the chart is on the screen."""


WHOLE = """([field, count]) => {
  const plot = document.querySelector('.ex-map .ex-chart-plot');
  const cells = (plot._fullData ?? []).find((trace) => trace.type === 'heatmap');
  const values = cells ? [...cells.z].flatMap((row) => [...row]) : [];
  return !('waits' in plot.dataset) && plot._fullLayout.xaxis.title.text.includes(field)
    && values.filter(Number.isFinite).length === count;
}"""
"""Whether the plot itself has so many cells over a field: the status may say so before the browser
has drawn them."""

Open = Callable[[str], Dashboard]


@pytest.fixture
def open_map(browser: Browser, voila: str) -> Iterator[Open]:
    """Opens a link with a map."""
    visits: list[Dashboard] = []

    def opened(link: str) -> Dashboard:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visits.append(Dashboard(page, "voila"))
        page.goto(f"{voila}/{link}")
        page.locator(".ex-map .main-svg").first.wait_for()
        return visits[-1]

    yield opened
    for visit in visits:
        visit.must_be_clean()
        visit.page.close()


def status(visit: Dashboard) -> Locator:
    return visit.page.locator(".ex-map .ex-status")


def press(visit: Dashboard, name: str) -> None:
    status(visit).get_by_role("button", name=name, exact=True).click()


def test_theory_then_dots_until_somebody_stops_and_another_field_has_its_range(
    open_map: Open,
) -> None:
    visit = open_map(MEASURED)
    page = visit.page
    expect(page.locator(".ex-map .ex-chart-title")).to_have_text(
        "Second moment over init variance and depth"
    )
    page.wait_for_function(f"() => ({DOTS})() > 4")
    press(visit, "Stop")
    expect(status(visit)).to_have_attribute("data-state", "paused")
    expect(status(visit)).to_contain_text(re.compile(r"Stopped.*of 96 cells"))
    found = page.evaluate(DOTS)
    assert 4 < found < 48
    press(visit, "Resume")
    page.wait_for_function(f"() => ({DOTS})() > {found}")
    expect(status(visit)).to_have_attribute("data-state", "idle")
    expect(status(visit)).to_contain_text("Measured 8 × 6 cells")
    page.wait_for_function(f"() => ({DOTS})() === 48")

    page.locator(".ex-map").locator("[data-field=compute] label", has_text="theory").click()
    page.locator(".ex-map [data-field=x] select").select_option("alpha")
    expect(page.locator(".ex-map [data-field=x_to] input")).to_have_value("1.5")
    expect(page.locator(".ex-map .ex-chart-title")).to_have_text(
        "Second moment over residual α and depth"
    )
    entry = page.locator(".ex-map [data-field=x_from] input")
    entry.fill("7")
    entry.press("Enter")
    expect(status(visit)).to_contain_text(
        "Refused: Across from must be a finite number between 0 and 4"
    )
    press(visit, "Undo")
    expect(entry).to_have_value("0")
    expect(status(visit)).to_contain_text("Predicted 8 × 6 cells")


def test_a_reload_computes_the_same_and_a_click_puts_a_cell_s_design_on_explore(
    open_map: Open,
) -> None:
    """From where undo leads back."""
    visit = open_map(ALPHA)
    page = visit.page
    page.wait_for_function(WHOLE, arg=["α", 96])
    page.reload()
    expect(page.locator(".ex-map .ex-chart-title")).to_have_text(
        "Second moment over residual α and depth"
    )
    expect(status(visit)).to_contain_text("Predicted 8 × 12 cells")
    page.wait_for_function(WHOLE, arg=["α", 96])
    x, y = page.evaluate(CELL, [0.86, 12])
    page.mouse.move(x, y)
    page.locator(".ex-map .hoverlayer .hovertext").wait_for()
    page.mouse.click(x, y)
    tab = page.locator(".ex-header [role=tab][aria-selected=true]").first
    expect(tab).to_have_text("Explore")
    expect(visit.entry("alpha").first).to_have_value("0.857")
    expect(visit.entry("n_layers").first).to_have_value("12")
    page.locator(".ex-tool", has_text="Undo").click()
    expect(tab).to_have_text("Map")
    page.wait_for_function(
        """() => {
          const link = decodeURIComponent(location.search);
          return link.includes('"x":"alpha"') && link.includes('tab=map');
        }"""
    )


EXPLORE = "?n_layers=2&d_model=16&n_heads=2&n_ctx=8&batch_size=1&n_seeds=2"
POINTS = """() => {
  const plot = document.querySelector('.ex-map .ex-chart-plot');
  const dots = (plot?._fullData ?? []).find((trace) => trace.name === 'measured');
  return dots && !('waits' in plot.dataset) ? dots.x.length : 0;
}"""
FIRST_DOT = """() => {
  const plot = document.querySelector('.ex-map .ex-chart-plot');
  const { xaxis, yaxis } = plot._fullLayout;
  const { x, y } = plot._fullData.find((trace) => trace.name === 'measured');
  const box = plot.getBoundingClientRect();
  return [box.x + xaxis._offset + xaxis.d2p(x[0]), box.y + yaxis._offset + yaxis.d2p(y[0])];
}"""


def test_a_button_beside_a_slider_opens_a_map_of_one_axis(browser: Browser, voila: str) -> None:
    """By keyboard; its selectors of the second axis are not there, and a dot is a way back."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/{EXPLORE}")
    visit.wait_until_drawn()
    with visit.redrawn():  # a slider that was used has the button
        visit.press("alpha", "ArrowRight")
    page.get_by_role("button", name="Map over Residual α").press("Enter")
    tab = page.locator(".ex-header [role=tab][aria-selected=true]").first
    expect(tab).to_have_text("Map")
    expect(tab).to_be_focused()
    expect(page.locator(".ex-map .ex-chart-title")).to_have_text("Second moment over residual α")
    expect(page.locator(".ex-map [data-field=y] select")).to_have_value("none")
    for part in ("from", "to", "count"):
        expect(page.locator(f".ex-map [data-field=x_{part}]")).to_be_visible()
        expect(page.locator(f".ex-map [data-field=y_{part}]")).to_be_hidden()
    expect(status(visit)).to_contain_text("Measured 24 cells")
    page.wait_for_function(f"() => ({POINTS})() === 24")
    legend = page.locator(".ex-map .legendtext")
    expect(legend).to_have_text(["predicted", "measured"])
    wait_until_still(page)  # a click into a chart that is being drawn is lost
    page.mouse.click(*page.evaluate(FIRST_DOT))
    expect(tab).to_have_text("Explore")
    expect(visit.entry("alpha").first).to_have_value("0")
    page.get_by_role("tab", name="Map", exact=True).click()
    select = page.locator(".ex-map [data-field=y] select")
    expect(select).to_be_visible()  # the panel is shown when the kernel has answered
    select.focus()
    select.select_option("n_layers")
    expect(page.locator(".ex-map [data-field=y_to]")).to_be_visible()
    expect(select).to_be_focused()
    visit.must_be_clean()
    page.close()
