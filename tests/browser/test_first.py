"""The first picture in the browser: it has the room of all that comes, and looks as inert as it
is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route

from .dashboard import BEFORE, Dashboard, wait_until_still

MOST = 0.1
"""Shift of the layout that is still good, https://web.dev/articles/cls."""
SHIFTS = """globalThis.shifts = [];
new PerformanceObserver((list) => shifts.push(...list.getEntries().map(({ value, startTime, sources }) => ({
  value, time: startTime,
  nodes: sources.map(({ node, previousRect, currentRect }) => (
    [node?.className ?? node?.nodeName, previousRect.y, currentRect.y])),
})))).observe({ type: 'layout-shift', buffered: true });"""
PLACES = """(page) => ['.ex-header', '.ex-dare-box', '.ex-side', '.ex-charts'].map((part) => {
  const node = document.querySelector(`${page} ${part}`);
  return node?.checkVisibility() ? Math.round(node.getBoundingClientRect().top) : null;
})"""
FRONT_END = "**/voila.js"


@pytest.fixture(scope="module")
def comer(browser: Browser, voila: str) -> Iterator[Dashboard]:
    """Somebody whose browser forgets the page, and comes again."""
    page = browser.new_page()
    page.add_init_script(SHIFTS)
    page.goto(f"{voila}/robots.txt")
    yield Dashboard(page, "voila", first=True)
    page.close()


@pytest.mark.parametrize(
    ("width", "height", "been_here"),
    [
        (1440, 1000, False),
        (1920, 1080, True),
        (390, 844, False),
    ],
)
def test_nothing_moves_when_the_page_takes_the_pictures_place(
    comer: Dashboard,
    voila: str,
    width: int,
    height: int,
    been_here: bool,
) -> None:
    visit, page = comer, comer.page
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("localStorage.clear()")
    if been_here:
        page.evaluate(BEFORE)
    held: list[Route] = []
    # The front end draws the page, which takes the picture's place: it waits until that was read.
    # (playwright accepts no builtin method, such as `held.append`.)
    page.route(FRONT_END, lambda route: held.append(route), times=1)
    page.goto(voila, wait_until="commit")
    page.wait_for_selector("#ex-first svg")
    picture = page.evaluate(PLACES, "#ex-first")
    assert (picture[1] is None) == been_here
    assert not page.query_selector("#ex-first :is(input, select)")
    page.wait_for_function("document.querySelector('script[src$=\"voila.js\"]')")
    held[0].continue_()
    visit.wait_until_drawn()
    wait_until_still(page)
    shifts: list[dict[str, Any]] = page.evaluate("shifts")
    assert sum(shift["value"] for shift in shifts) < MOST, shifts
    live = page.evaluate(PLACES, ".ex-root")
    for now, before in zip(live[:3], picture, strict=False):  # the rows of the page, from above
        assert (now is None) == (before is None), (live, picture)
        assert now is None or abs(now - before) < 5, (live, picture)
    if been_here:  # else the dare is above them, until it is closed
        assert live[3] is None or live[3] < height / 2, (
            "the charts begin in the upper half of the window"
        )
    # left, the page writes no more of itself into the browser's memory
    page.goto(f"{voila}/robots.txt")
    visit.must_be_clean()
