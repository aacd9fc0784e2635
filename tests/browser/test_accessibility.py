"""The whole page as axe sees it, every tab of it, but for what plotly draws inside a chart.

Lessons are looked at by their own tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from explorer.app.tabs import tabs

from .axe import RAW, SHARED, look
from .dashboard import Dashboard
from .test_no_torch import SMALL

MUTE = """() => [...document.querySelectorAll('input[type=range][aria-valuetext]')]
  .filter((range) => !/\\d/.test(range.getAttribute('aria-valuetext'))).map((range) => range.ariaLabel)"""
CONTRAST = """() => {
  const band = getComputedStyle(document.querySelector('.ex-chart .js-fill'));
  const paper = getComputedStyle(document.querySelector('.ex-cell')).backgroundColor;
  const parts = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) + 0.05;
  const below = parts(paper), share = Number(band.fillOpacity);
  const seen = light(parts(band.fill).map((value, at) => share * value + (1 - share) * below[at]));
  return Math.max(seen, light(below)) / Math.min(seen, light(below));
}"""
"""Of a band and the card below it, as WCAG has it."""


@pytest.fixture(scope="module")
def page(browser: Browser, voila: str) -> Iterator[Page]:
    """A page with every tab open, a design pinned and every fold unfolded."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/{SMALL}")
    visit.wait_until_drawn()
    page.get_by_role("button", name="Pin the current design").click()
    page.get_by_role("tab", name=tabs()["lessons"].title, exact=True).click()
    page.locator(".ex-lesson-cards a").first.wait_for()
    page.get_by_role("tab", name=tabs()["map"].title, exact=True).click()
    page.locator(".ex-map .ex-chart-plot .main-svg").first.wait_for()
    expect(page.locator(".ex-map .ex-status")).to_have_attribute("data-state", "idle")
    page.get_by_role("tab", name=tabs()["race"].title, exact=True).click()
    page.get_by_role("button", name="Start", exact=True).wait_for()
    page.get_by_role("tab", name=tabs()["yours"].title, exact=True).click()
    page.get_by_text("This is an example").wait_for()
    page.locator("details").evaluate_all(
        "(folds) => folds.forEach((fold) => { fold.open = true; })"
    )
    page.locator(".ex-more:not([hidden])").evaluate_all(
        "(buttons) => buttons.forEach((button) => button.click())"
    )
    yield page
    visit.must_be_clean()
    page.close()


EXPLORE, MAP, RACE, LESSONS, YOURS = ((panel.title,) for panel in tabs().values())
TABS = [EXPLORE, MAP, RACE, LESSONS, YOURS]
"""Which tabs to press to see each part of the page."""


@pytest.mark.parametrize("path", TABS, ids="/".join)
def test_axe_finds_nothing(page: Page, path: tuple[str, ...]) -> None:
    assert look(page, path) == ""


def test_axe_finds_nothing_in_a_list_that_is_searched(page: Page) -> None:
    page.get_by_role("tab", name=tabs()["explore"].title, exact=True).click()
    within = "[data-field=preset]"
    search = page.locator(f"{within} input:visible")  # the map has one as well
    search.click()
    for query in ("", "norm", "no such design"):
        search.fill(query)
        assert look(page, (), within) == "", query
    page.emulate_media(color_scheme="dark")
    assert look(page, (), within, runOnly=["color-contrast"]) == ""
    page.emulate_media(color_scheme="light")
    page.keyboard.press("Escape")


@pytest.mark.parametrize("path", [EXPLORE, MAP, LESSONS, YOURS], ids="/".join)
def test_there_is_enough_contrast_in_the_dark(page: Page, path: tuple[str, ...]) -> None:
    page.emulate_media(color_scheme="dark")
    assert look(page, path, runOnly=["color-contrast"]) == ""
    page.emulate_media(color_scheme="light")


def test_every_slider_says_a_number(page: Page) -> None:
    assert page.evaluate(MUTE) == []


def test_bands_in_the_dark_stale_dots_and_the_status_in_forced_colors_are_seen(page: Page) -> None:
    page.get_by_role("tab", name=tabs()["explore"].title, exact=True).click()
    light = page.evaluate(CONTRAST)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(CONTRAST) >= light > 1.3
    page.emulate_media(color_scheme="light", forced_colors="active")
    assert (
        page.locator(".ex-as-title select").evaluate("(list) => getComputedStyle(list).appearance")
        == "auto"
    )
    dot, paper = (
        page.locator(part)
        .filter(visible=True)
        .evaluate("(node) => getComputedStyle(node).backgroundColor")
        for part in (".ex-status .ex-mark", ".ex-status")
    )
    assert dot != paper
    page.emulate_media(forced_colors="none")
    chart = page.locator(".ex-chart").first
    chart.evaluate("(node) => node.classList.add('ex-chart-is-stale', 'ex-chart-ahead')")
    expect(chart.locator(".points").last).to_have_css("opacity", "0.4")
    for part in (".js-line", ".ex-chart-plot"):
        assert chart.locator(part).last.evaluate("(node) => getComputedStyle(node).opacity") == "1"
    chart.evaluate("(node) => node.classList.remove('ex-chart-is-stale', 'ex-chart-ahead')")


def test_no_id_and_no_group_of_radio_buttons_is_there_twice(page: Page) -> None:
    assert page.evaluate(SHARED) == []


def test_formulas_are_typeset(page: Page) -> None:
    for residual in ("t_fixup", "deepnorm", "scaled_init"):  # whose lines have powers and matrices
        page.get_by_role("tab", name=tabs()["explore"].title, exact=True).click()
        page.locator("[data-field=residual] select").first.select_option(residual)
        expect(
            page.locator("[data-field=residual] .ex-hint").first.locator("sub, sup")
        ).not_to_have_count(0)
    for path in TABS:
        for title in path:
            page.get_by_role("tab", name=title, exact=True).click()
        assert page.evaluate(RAW) == [], path
