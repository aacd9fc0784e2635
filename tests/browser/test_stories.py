"""Stories in the browser: a dare on the first visit; a story that is walked to a question, and
answered by a line that is drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from explorer.app.stories.story import STORIES

from .axe import look
from .dashboard import Dashboard, first_visit, wait_until_still
from .test_silence import Line

HEIGHTS = "() => [...document.querySelectorAll('.ex-guess-point input')].map((input) => Number(input.value))"
SEEN = """(node) => {
  const { top, bottom } = node.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
}"""
DATA = """() => {
  const plots = [...document.querySelectorAll('.ex-chart-plot')];
  const plot = plots.find((one) => one.closest('figure').textContent.startsWith('Attention entropy'));
  return plot._fullData.map((trace) => trace.name);
}"""

IN_VIEW = """(looks) => {
  const shown = (names) => [...document.querySelectorAll(names)].find((node) => node.checkVisibility());
  const box = (node) => node.getBoundingClientRect();
  const look = shown('.ex-cell.ex-looked, .ex-looked > .ex-verdict');
  const act = shown('.ex-guess-below .ex-primary') ?? shown('.ex-told .ex-primary');
  const status = shown('.ex-status'); // not there while a panel opens
  if (!act || Boolean(look) !== looks || looks && (!status || box(look).bottom > box(status).top)) return false;
  if (looks && box(look).top < box(shown('.ex-told')).bottom) return false;
  const { x, y, width, height } = box(act);
  return document.elementFromPoint(x + width / 2, y + height / 2) === act;
}"""
"""The chart, or the verdict, lies whole between the strip and the status line; the button of the
step can be hit.

A step whose subject is a whole tab frames nothing.
"""
COVERED = """(wanted) => [...document.querySelectorAll('.ex-cell:not(.ex-looked) .ex-chart-plot')].every((plot) => {
  const cover = 'Withheld until you answer.';
  const said = plot.querySelector('.main-svg')?.ariaLabel === cover;
  const seen = plot.querySelector('.annotation-text')?.textContent === cover;
  const empty = !plot.querySelector('.trace, .heatmaplayer .hm');
  return !plot.checkVisibility() || ((said && seen && empty) === wanted && said === seen && plot.offsetHeight > 60);
})"""


@pytest.fixture(scope="module")
def first(browser: Browser, voila: str) -> Iterator[Dashboard]:
    with first_visit(browser, voila, height=1000) as visit:
        yield visit


def press(visit: Dashboard, name: str) -> None:
    strips = visit.page.locator(".ex-stories, .ex-dare-box")
    strips.get_by_role("button", name=name).click()


def told(visit: Dashboard) -> Locator:
    return visit.page.locator(".ex-told h2")


def test_a_first_visit_is_dared_and_closes_it_for_good(first: Dashboard) -> None:
    page = first.page
    card = page.locator(".ex-dare-box")
    switch = card.get_by_role("switch", name="Remove the √d")
    expect(switch).not_to_be_checked()
    expect(card.locator("[role=status]")).to_have_text("predicted: 0.89 · measured: 0.89")
    assert look(page, ()) == ""
    expect(card.get_by_role("button")).to_have_text(["Close"])
    switch.press("Space")
    expect(switch).to_be_checked()
    expect(card.locator("[role=status]")).to_have_text("predicted: 0.14 · measured: 0.14")
    page.wait_for_function("() => location.search === '?attention_scale=none'")
    assert look(page, ()) == ""
    page.keyboard.press("Control+z")
    expect(switch).not_to_be_checked()
    page.keyboard.press("Space")
    expect(switch).to_be_checked()
    page.wait_for_function("() => location.search === '?attention_scale=none'")
    page.reload()  # the dare's design is no link that somebody followed
    page.wait_for_function("() => location.search === ''")
    first.wait_until_drawn()
    expect(switch).not_to_be_checked()
    switch.press("Space")
    expect(switch).to_be_checked()
    press(first, "Next dare")
    expect(card.get_by_role("switch", name="Weights twice as large")).to_be_focused()
    page.wait_for_function("() => location.search === ''")
    page.set_viewport_size({"width": 390, "height": 844})
    assert look(page, ()) == ""
    assert page.evaluate("document.querySelector('.ex-root').scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 1000})
    press(first, "Close")
    expect(card).to_be_hidden()
    page.reload()
    first.wait_until_drawn()
    expect(card).to_have_count(0)
    page.locator(".ex-tool", has_text="Stories").click()
    expect(page.locator(".ex-story").first).to_be_focused()
    expect(page.locator(".ex-story:visible")).to_have_count(6)
    assert look(page, ()) == ""


def test_a_line_is_drawn_by_mouse_and_keyboard_and_revealed(first: Dashboard) -> None:
    page = first.page
    first.page.locator(".ex-story").first.press("Enter")
    expect(told(first)).to_have_text("The forgotten √d · 1 of 5")
    with first.redrawn():
        press(first, "Next")
    expect(told(first)).to_have_text("The forgotten √d · 2 of 5")
    page.wait_for_function("() => location.search === '?story=root_d&step=2&attention_scale=none'")
    assert page.evaluate(DATA) == ["uniform", "one-hot"]
    reveal = page.get_by_role("button", name="Reveal")
    expect(reveal).to_be_disabled()
    press(first, "Look at: Attention entropy")
    page.wait_for_function(SEEN, arg=page.locator(".ex-cell.ex-looked").element_handle())
    expect(page.get_by_role("slider", name="Guess at layer").first).to_be_focused()
    wait_until_still(page)  # it glides there
    box = page.locator(".ex-guess").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.1 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.99 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
    page.mouse.up()
    drawn = page.evaluate(HEIGHTS)
    assert drawn == sorted(drawn, reverse=True)
    assert drawn[0] > 0.8 > 0.4 > drawn[-1]
    points = page.get_by_role("slider", name="Guess at layer")
    points.last.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(HEIGHTS) == [*drawn[:-1], 0.02]
    assert look(first.page, ()) == ""
    with first.redrawn():
        reveal.click()
    expect(page.locator(".ex-guess-below")).to_contain_text("On average your line is off by 0.")
    expect(page.locator(".ex-told [role=status]")).to_contain_text("theory's by 0.00")
    assert {"your guess", "measured", "predicted"} <= set(page.evaluate(DATA))


def test_back_of_the_browser_goes_a_step_back_and_leave_keeps_the_page(first: Dashboard) -> None:
    page = first.page
    press(first, "Next")
    expect(told(first)).to_have_text("The forgotten √d · 3 of 5")
    # a message of its own
    page.wait_for_function("() => new URLSearchParams(location.search).get('step') === '3'")
    page.go_back()
    expect(told(first)).to_have_text("The forgotten √d · 2 of 5")
    press(first, "Leave")
    expect(told(first)).to_be_hidden()
    page.wait_for_function("() => location.search === '?attention_scale=none'")


def test_an_answer_is_chosen_on_a_narrow_page(first: Dashboard) -> None:
    page = first.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".ex-tool", has_text="Stories").click()
    press(first, "A thousand layers")
    expect(told(first)).to_have_text("A thousand layers · 1 of 4")
    with first.redrawn():
        press(first, "Next")
    page.get_by_role("radio", name="It grows faster, but stays finite").check()
    assert look(first.page, ()) == ""
    page.locator(".ex-choices").get_by_role("button", name="Reveal").click()
    expect(page.locator(".ex-told [role=status]")).to_contain_text(
        "Not so. The right answer: it stops being finite"
    )
    assert page.evaluate("document.querySelector('.ex-root').scrollWidth") <= 390


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_each_step_has_its_chart_and_its_button_in_view_and_covers_the_answer(
    first: Dashboard, size: tuple[int, int]
) -> None:
    """In stories that together look at each chart, a verdict and two tabs."""
    page = first.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    for story in map(STORIES.__getitem__, ("root_d", "warmup", "mup")):
        page.locator(".ex-tool", has_text="Stories").click()
        press(first, story.title)
        for number, step in enumerate(story.steps, 1):
            expect(told(first)).to_have_text(f"{story.title} · {number} of {len(story.steps)}")
            page.wait_for_function(IN_VIEW, arg=bool(step.look_at))
            if step.question:
                page.wait_for_function(COVERED, arg=True)
                page.get_by_role("button", name="Skip", exact=True).click()
                expect(page.locator(".ex-told [role=status]")).to_have_text(step.question.reveal)
                page.wait_for_function(COVERED, arg=False)
                page.wait_for_function(IN_VIEW, arg=bool(step.look_at))
            # from where the next chart is out of view
            far = "0" if number % 2 else "node.scrollHeight"
            page.locator("#rendered_cells").evaluate(f"(node) => node.scrollTo(0, {far})")
            press(first, "Next" if number < len(story.steps) else "Done")
    assert page.evaluate("document.querySelector('.ex-root').scrollWidth") <= size[0]


def test_next_shows_as_pressed_and_is_sent_once_while_the_kernel_is_busy(
    browser: Browser, voila: str
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit, line = Dashboard(page, "voila"), Line(page)
    page.goto(f"{voila}/?story=root_d&step=1")
    visit.wait_until_drawn()
    button, finding = (
        page.locator(".ex-told .ex-primary"),
        page.locator(".ex-verdict .ex-finding").first,
    )
    expect(button).to_have_text("Next")
    expect(finding).to_be_visible()
    line.cut = True
    for _ in range(3):
        button.click()
    expect(button).to_have_attribute("aria-busy", "true")
    expect(finding).to_be_hidden()
    line.mend()
    expect(told(visit)).to_have_text("The forgotten √d · 2 of 5")
    expect(page.locator(".ex-told [aria-busy]")).to_have_count(0)
    page.wait_for_function("() => !document.querySelector('[data-unanswered]')")
    expect(told(visit)).to_have_text("The forgotten √d · 2 of 5")
    expect(finding).to_be_visible()
    visit.must_be_clean()
    page.close()
