"""The first screen: few words, few stops of the Tab key; more comes once a control was used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from .dashboard import Dashboard, first_visit

MOST_WORDS, MOST_STOPS = 160, 35
"""On the first screen of somebody who was never here, at 1440 × 900."""
WORDS = r"""() => {
  const words = [];
  const walker = document.createTreeWalker(document.querySelector('.ex-root'), NodeFilter.SHOW_TEXT);
  const styles = { visibilityProperty: true, opacityProperty: true };
  const within = (at, box) => at.x > box.left && at.x < box.right && at.y > box.top && at.y < box.bottom;
  const clips = (node) => getComputedStyle(node).overflow !== 'visible';
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.parentElement.checkVisibility(styles)) continue;
    const boxes = [{ left: 0, top: 0, right: innerWidth, bottom: innerHeight }];
    for (let outer = node.parentElement; outer; outer = outer.parentElement) {
      if (clips(outer)) boxes.push(outer.getBoundingClientRect());
    }
    for (const { 0: word, index } of node.data.matchAll(/[\p{L}'’]{2,}/gu)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const { left, right, top, bottom } = range.getBoundingClientRect();
      const middle = { x: (left + right) / 2, y: (top + bottom) / 2 };
      if (boxes.every((box) => within(middle, box))) words.push(word);
    }
  }
  return words;
}"""
"""The words that can be seen: at least two letters, in the window, and within every box that cuts
off what lies outside of it."""
AT_REST = """() => {
  const end = document.querySelector('.ex-status').getBoundingClientRect().top;
  window.atRest = new Set([...document.querySelectorAll('.ex-root *')].filter((node) => {
    const { top, bottom } = node.getBoundingClientRect();
    return (top + bottom) / 2 < end;
  }));
}"""
"""Notes what lies above the status line, before the focus scrolls anything."""
STOP = """() => {
  const node = document.activeElement;
  if (!node.closest('.ex-root')) return null;
  return window.atRest.has(node) ? node.outerHTML.slice(0, 80) : '';
}"""


def stops(page: Page) -> list[str]:
    """The stops of the Tab key on the first screen: counted by pressing it to the page's end."""
    page.evaluate("document.activeElement.blur()")
    page.evaluate(AT_REST)
    reached: list[str] = []
    for _ in range(100):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if reached and stop is None:
            break
        if stop:
            reached.append(stop)
    return reached


@pytest.fixture
def first(browser: Browser, voila: str) -> Iterator[Dashboard]:
    with first_visit(browser, voila, height=900) as visit:
        yield visit


def test_the_first_screen_has_few_words_and_few_stops(first: Dashboard) -> None:
    words = first.page.evaluate(WORDS)
    assert len(words) <= MOST_WORDS, (len(words), words)
    reached = stops(first.page)
    assert len(reached) <= MOST_STOPS, (len(reached), reached)


def test_a_control_that_was_used_offers_more_and_a_toolbar_is_one_stop(first: Dashboard) -> None:
    page, control = first.page, first.control("init_variance")
    expect(control.locator(".ex-offer:visible")).to_have_count(0)
    first.slider("init_variance").focus()
    with first.redrawn():
        page.keyboard.type("2.5\n")
    expect(first.entry("init_variance")).to_have_value("2.5")
    expect(control.get_by_role("button", name="Flat signal")).to_be_visible()
    page.keyboard.press("Tab")
    expect(control.get_by_role("button", name="Flat signal")).to_be_focused()
    tools = page.get_by_role("group", name="Chart: Second moment")
    tools.get_by_role("button", name="Zoom in").focus()
    page.keyboard.press("ArrowRight")
    expect(tools.get_by_role("button", name="Zoom out")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(tools.get_by_role("button", name="Save the chart")).to_be_focused()
