"""The whole page, every tab of it, as axe sees it, but for what plotly draws inside a chart; and
what its kernel has loaded by then.

Lessons are looked at by their own tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked import state
from playwright.sync_api import Browser, Page, expect

from explorer.app.tabs import tabs

from .axe import RAW, SHARED, look
from .dashboard import KERNEL, Dashboard
from .test_race import SIZES, Track
from .visitor import processes, serving

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
SMALL = "?n_layers=2&d_model=16&n_heads=2&n_ctx=16" + state(
    map={
        "design": {"d_model": 16, "n_heads": 2, "n_ctx": 16},
        "plan": {"x_count": 6, "y_to": 6, "y_count": 6},
    }
)
"""Designs that are computed at once."""
MOVE_ALL = """async () => {
  const panel = document.querySelector('.ex-explore');
  panel.querySelectorAll('details').forEach((fold) => { fold.open = true; });
  const sliders = [...panel.querySelectorAll('[data-field] input[type=range]')];
  for (const slider of sliders) {
    const before = slider.value;
    for (const value of [Number(before) + (before < slider.max ? 1 : -1), before]) {
      slider.value = value;
      for (const name of ['input', 'change']) slider.dispatchEvent(new Event(name, { bubbles: true }));
      await new Promise((go) => setTimeout(go, 100));
    }
  }
  return sliders.length;
}"""
"""Moves every slider of Explore a step, and back: a step alone may be refused, and those after it
with it."""


@pytest.fixture(scope="module")
def visit(browser: Browser, voila: str) -> Iterator[Dashboard]:
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
    yield visit
    visit.must_be_clean()
    page.close()


@pytest.fixture(scope="module")
def page(visit: Dashboard) -> Page:
    return visit.page


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


def has_torch(process: int) -> bool:
    """Whether a process has loaded torch's libraries."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not list a process's libraries in a file"
)
def test_torch_is_in_no_kernel_whatever_is_opened(visit: Dashboard, voila: str) -> None:
    """Workers compute, also while sliders are moved and a race is run."""
    page, track = visit.page, Track(visit)
    page.get_by_role("tab", name=tabs()["explore"].title, exact=True).click()
    assert page.evaluate(MOVE_ALL) > 10
    page.wait_for_function("() => !document.querySelector('[data-unanswered]')")
    page.get_by_role("tab", name=tabs()["race"].title, exact=True).click()
    for field, text in (SIZES | {"steps": "12"}).items():
        track.write(field, text)
    track.press("Start")
    expect(track.said).to_have_text("Finished at step 12 of 12")
    (kernel,) = processes(page.evaluate(KERNEL))
    assert not has_torch(kernel.pid)
    assert kernel.memory_full_info().uss < 100e6, "a kernel has for itself what others have, too"
    assert any(has_torch(child.pid) for child in serving(voila).children()), "workers have it"
