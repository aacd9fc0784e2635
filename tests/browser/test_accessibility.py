"""The whole page as axe sees it, every tab of it, but for what plotly draws inside a chart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from explorer.app.dashboard import PANELS
from explorer.labs.table import LABS

from .dashboard import Dashboard
from .test_labs import HOMES

WITHOUT_DRAWINGS = """() => {
  window.drawings = [...document.querySelectorAll('.ex-chart-plot')].map((plot) => {
    const drawing = document.createDocumentFragment();
    drawing.append(...plot.childNodes);
    return () => plot.append(drawing);
  });
}"""
"""Takes out what plotly has drawn, whose thousands of nodes axe would walk through to leave them out."""
WITH_DRAWINGS = "() => window.drawings.forEach((put_back) => put_back())"
SHARED = """() => {
  const nodes = [...document.querySelectorAll('.ex-root [id]:not(.ex-chart-plot *)')];
  const group = (radio) => radio.closest('[role=radiogroup]').getAttribute('aria-labelledby');
  const radios = [...document.querySelectorAll('.ex-root input[type=radio]')];
  const pairs = new Set(radios.map((radio) => `${radio.name} of ${group(radio)}`));
  const twice = (names) => names.filter((name, index) => names.indexOf(name) < index);
  return [...twice(nodes.map((node) => node.id)), ...twice([...pairs].map((pair) => pair.split(' ')[0]))];
}"""
"""Ids that several nodes have, and names that several groups of radio buttons have. (plotly's own ids are its own.)"""


@pytest.fixture(scope="module")
def page(browser: Browser, voila: str) -> Iterator[Page]:
    """A page with every tab open, a design pinned and every fold unfolded."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(voila)
    visit.wait_until_drawn()
    page.get_by_role("button", name="Pin the current design").click()
    page.get_by_role("button", name="Sweep Init variance").click()
    page.locator(".ex-sweep-card .ex-chart").wait_for()
    for name, row in LABS.items():
        page.get_by_role("tab", name=HOMES[name], exact=True).click()
        page.get_by_role("tab", name=row.title, exact=True).click()
        expect(page.locator(".ex-labs > .ex-panel:visible .ex-chart-plot")).to_have_count(len(row.plots))
        if HOMES[name] == PANELS["training"].title:  # it would be at work all the time
            page.locator(".ex-labs > .ex-panel:visible").get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("tab", name=PANELS["map"].title, exact=True).click()
    page.locator(".ex-map .ex-chart-plot .main-svg").first.wait_for()
    page.locator(".ex-map").get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("tab", name=PANELS["race"].title, exact=True).click()
    page.get_by_role("button", name="Start", exact=True).wait_for()
    page.get_by_role("tab", name=PANELS["yours"].title, exact=True).click()
    page.get_by_text("This is an example").wait_for()
    page.locator("details").evaluate_all("(folds) => folds.forEach((fold) => { fold.open = true; })")
    page.locator(".ex-more:not([hidden])").evaluate_all("(buttons) => buttons.forEach((button) => button.click())")
    yield page
    visit.must_be_clean()
    page.close()


def tabs() -> list[tuple[str, ...]]:
    """Which tabs to press to see each part of the page."""
    labs = [(HOMES[name], row.title) for name, row in LABS.items()]
    first, last = ([(PANELS[name].title,) for name in names] for names in (("explore", "map"), ("race", "yours")))
    return [*first, *labs, *last]


def look(page: Page, path: tuple[str, ...], **options: object) -> str:
    """What axe has to say of the page in these tabs; empty where it has nothing."""
    for title in path:
        page.get_by_role("tab", name=title, exact=True).click()
    page.evaluate(WITHOUT_DRAWINGS)
    found = Axe().run(page, {"exclude": [[".ex-chart-plot"]]}, {"resultTypes": ["violations"], **options})
    page.evaluate(WITH_DRAWINGS)
    return str(found.generate_report()) if found.violations_count else ""


@pytest.mark.parametrize("path", tabs(), ids="/".join)
def test_axe_finds_nothing(page: Page, path: tuple[str, ...]) -> None:
    assert look(page, path) == ""


def test_axe_finds_nothing_in_a_list_that_is_searched(page: Page) -> None:
    page.get_by_role("tab", name=PANELS["explore"].title, exact=True).click()
    search = page.locator("[data-field=preset] input:visible")  # the map has one as well
    search.click()
    for query in ("", "norm", "no such design"):
        search.fill(query)
        assert look(page, ()) == "", query
    page.emulate_media(color_scheme="dark")
    assert look(page, (), runOnly=["color-contrast"]) == ""
    page.emulate_media(color_scheme="light")
    page.keyboard.press("Escape")


@pytest.mark.parametrize("path", [tabs()[0], tabs()[1], tabs()[2], tabs()[-1]], ids="/".join)
def test_there_is_enough_contrast_in_the_dark(page: Page, path: tuple[str, ...]) -> None:
    page.emulate_media(color_scheme="dark")
    assert look(page, path, runOnly=["color-contrast"]) == ""
    page.emulate_media(color_scheme="light")


def test_no_id_and_no_group_of_radio_buttons_is_there_twice(page: Page) -> None:
    assert page.evaluate(SHARED) == []


RAW = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector('.ex-root'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { data, parentElement } = walker.currentNode;
    if (/[\\p{L}]_[\\p{L}(]|\\^/u.test(data) && !parentElement.closest('code, style')) found.push(data);
  }
  return found;
}"""
"""Text, in legends and lists too, in which a formula stands as it was typed: W_Q, 2^(−l/2)."""


def test_formulas_are_typeset(page: Page) -> None:
    for residual in ("t_fixup", "deepnorm", "scaled_init"):  # whose lines have powers and matrices
        page.get_by_role("tab", name=PANELS["explore"].title, exact=True).click()
        page.locator("[data-field=residual] select").first.select_option(residual)
        expect(page.locator("[data-field=residual] .ex-hint").first.locator("sub, sup")).not_to_have_count(0)
    for path in tabs():
        for title in path:
            page.get_by_role("tab", name=title, exact=True).click()
        assert page.evaluate(RAW) == [], path
