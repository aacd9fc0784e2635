"""Symbols that open their row, the whole glossary, and links from a caption to its lesson and its
paper."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from explorer.glossary import TERMS

from .axe import look
from .dashboard import Dashboard, wait_until_still

NESTED = ":is(label, summary, button, option, [role=option]) .ex-term"
STOPS = """() => [...document.querySelectorAll(':is(.ex-control, .ex-chart-words):has(.ex-term)')].map((part) => (
  [...part.querySelectorAll('.ex-term')].filter((term) => term.tabIndex === 0).length))"""
COVERED = """() => [...document.querySelectorAll('.ex-usual > span')].filter((usual) => {
  const { left, right, top } = usual.getBoundingClientRect();
  const box = usual.parentElement.getBoundingClientRect();
  if (top >= box.bottom || getComputedStyle(usual).visibility === 'hidden') return false; // wrapped out of sight
  return left < box.left || [...usual.closest('.ex-head').querySelectorAll('.ex-to-map, .ex-reset:not(.ex-hidden)')]
    .some((button) => button.getBoundingClientRect().left < right);
}).map((usual) => usual.textContent)"""
"""Usual values that are cut, or that a button covers."""
WITHIN = """(card) => {
  const { left, right, top, bottom } = card.getBoundingClientRect();
  return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight;
}"""


@pytest.fixture
def card(visit: Dashboard) -> Locator:
    """What a symbol opens."""
    visit.page.set_viewport_size({"width": 1440, "height": 1000})
    visit.page.get_by_role("tab", name="Explore", exact=True).click()
    unfold(visit)
    return visit.page.locator(".ex-term-card")


def unfold(visit: Dashboard) -> None:
    """Opens the reasons below the charts, where most symbols stand; and makes pictures large enough
    to have some."""
    while (small := visit.page.locator(".ex-enlarge[aria-pressed=false]:visible")).count():
        small.first.click()
    visit.page.locator(".ex-chart-why").evaluate_all(
        "(folds) => folds.forEach((fold) => { fold.open = true; })"
    )
    visit.page.locator(".ex-chart-why .ex-term").first.wait_for()


def figure(visit: Dashboard, title: str) -> Locator:
    return visit.page.locator("figure.ex-chart").filter(
        has=visit.page.get_by_role("heading", name=title, exact=True)
    )


def test_a_symbol_opens_its_row_by_keyboard_and_escape_gives_the_focus_back(
    visit: Dashboard, card: Locator
) -> None:
    term = (
        figure(visit, "Token correlation")
        .locator(".ex-chart-why .ex-term")
        .filter(has_text="ρ")
        .first
    )
    term.focus()
    visit.page.keyboard.press("Enter")
    expect(card).to_be_visible()
    expect(card).to_be_focused()
    expect(term).to_have_attribute("aria-expanded", "true")
    assert next(row for row in TERMS if row.symbol == "ρ").words in card.inner_text()
    expect(card.get_by_role("link", name="Dong et al. 2021")).to_have_attribute(
        "href", "https://arxiv.org/abs/2103.03404"
    )
    visit.page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(term).to_be_focused()
    expect(term).to_have_attribute("aria-expanded", "false")
    visit.must_be_clean()


def test_one_row_is_open_at_a_time_and_a_click_elsewhere_closes_it(
    visit: Dashboard, card: Locator
) -> None:
    terms = figure(visit, "Second moment").locator(
        ".ex-chart-caption .ex-term, .ex-chart-why .ex-term"
    )
    terms.nth(0).click()
    expect(card).to_have_attribute("aria-label", "Second moment")
    visit.page.locator("[data-field=n_layers] .ex-term").click()
    expect(card).to_have_count(1)
    expect(card).to_have_attribute("aria-label", "Layers")
    visit.page.locator("[data-field=n_layers] .ex-term").click()
    expect(card).to_have_count(0)
    # a "?": its symbol stands in the label
    visit.page.locator("[data-field=alpha] .ex-term").click()
    expect(card).to_have_attribute("aria-label", "Residual α")
    visit.page.locator(".ex-header h1").click()
    expect(card).to_have_count(0)


@pytest.mark.parametrize("width", [1440, 390])
def test_what_opens_stands_within_the_window(visit: Dashboard, card: Locator, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 800})
    wait_until_still(visit.page)
    terms, opened = visit.page.locator(".ex-term"), 0
    for index in range(0, terms.count(), 9):
        term = terms.nth(index)
        # asked anew each time: on a phone, scrolling to a symbol folds others away
        if term.is_visible():
            term.click()
            assert card.evaluate(WITHIN), term.inner_text()
            visit.page.keyboard.press("Escape")
            opened += 1
    assert opened > 2


def test_the_symbols_of_a_text_are_one_stop_of_the_keyboard(
    visit: Dashboard, card: Locator
) -> None:
    page, terms = visit.page, figure(visit, "Second moment").locator(".ex-term")
    assert max(page.evaluate(STOPS)) == 1
    terms.first.focus()
    for place in (*range(1, terms.count()), 0):
        page.keyboard.press("ArrowRight")
        expect(terms.nth(place)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(terms.last).to_be_focused()
    assert max(page.evaluate(STOPS)) == 1
    page.keyboard.press("Tab")
    lesson = figure(visit, "Second moment").get_by_role(
        "link", name="Lesson: Variance of a residual stream"
    )
    expect(lesson).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(terms.last).to_be_focused()


@pytest.mark.parametrize(("width", "part"), [(1440, ".ex-main"), (390, ".ex-verdict")])
def test_the_first_stop_skips_to_the_results(
    visit: Dashboard, card: Locator, width: int, part: str
) -> None:
    page, skip = visit.page, visit.page.get_by_role("button", name="Skip to the results")
    page.set_viewport_size({"width": width, "height": 800})
    assert skip.evaluate(
        "(node) => node === document.querySelector('.ex-root').querySelector('a, button, input')"
    )
    skip.focus()
    assert skip.evaluate(WITHIN)
    page.keyboard.press("Enter")
    expect(
        page.locator(f".ex-explore > .ex-main{part}, .ex-explore > .ex-main {part}")
    ).to_be_focused()
    page.keyboard.press("Tab")
    if part == ".ex-main":  # on a phone it is the verdict, and the stack comes later
        expect(page.get_by_role("slider", name="Layer of the diagram")).to_be_focused()
        page.keyboard.press("Tab")
    expect(page.locator(".ex-finding summary").first).to_be_focused()


def test_no_symbol_is_a_button_within_another(visit: Dashboard, card: Locator) -> None:
    assert visit.page.locator(".ex-term").count() > 20
    assert visit.page.locator(NESTED).count() == 0


def test_all_rows_open_from_the_header_and_from_a_symbol(visit: Dashboard, card: Locator) -> None:
    dialog = visit.page.get_by_role("dialog", name="Glossary")
    visit.page.get_by_role("button", name="Menu").click()
    visit.page.get_by_role("button", name="Glossary").click()
    expect(dialog.locator("dt")).to_have_count(len(TERMS))
    visit.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    visit.page.locator("[data-field=attention_scale] .ex-term").first.click()
    card.get_by_role("button", name="All symbols").click()
    expect(dialog.locator("dt", has_text="Divisor of the logits")).to_be_in_viewport()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_axe_finds_nothing_in_what_opens(visit: Dashboard, card: Locator) -> None:
    page, dialog = visit.page, "dialog, [role=dialog]"
    glossary, menu = (page.get_by_role("button", name=name) for name in ("Glossary", "Menu"))
    for buttons in ([page.locator(".ex-chart-why .ex-term").first], [menu], [menu, glossary]):
        for button in buttons:
            button.click()
        page.get_by_role("dialog").wait_for()
        assert look(page, (), dialog) == ""
        page.emulate_media(color_scheme="dark")
        assert look(page, (), dialog, runOnly=["color-contrast"]) == ""
        page.emulate_media(color_scheme="light")
        page.keyboard.press("Escape")


def test_the_usual_values_of_a_control_show_when_it_is_pointed_at(
    visit: Dashboard, card: Locator
) -> None:
    control = visit.control("n_layers")
    before = control.bounding_box()
    expect(control.locator(".ex-usual")).to_be_hidden()
    control.hover()
    expect(control.locator(".ex-usual")).to_have_text("usual 12–126")
    expect(control.locator(".ex-usual")).to_be_visible()
    assert control.bounding_box() == before, "the column becomes longer"
    assert control.locator(".ex-usual").evaluate(
        "(node) => node.scrollWidth <= node.clientWidth"
    ), "it is cut off"
    with visit.redrawn():
        visit.write("init_variance", "0.00865964")
    assert visit.entry("init_variance").evaluate(
        "(node) => node.scrollWidth <= node.clientWidth"
    ), "a number is cut"
    visit.control("init_variance").hover()
    assert visit.page.evaluate(COVERED) == []
    visit.reset()
    said = re.compile(r"Usual: 12–126: GPT-2 small to Llama 3 405B\.$")
    expect(visit.slider("n_layers")).to_have_attribute("aria-description", said)


def test_a_caption_leads_to_its_lesson_and_its_paper(visit: Dashboard) -> None:
    unfold(visit)
    caption = figure(visit, "Attention entropy").locator(".ex-chart-why")
    paper = caption.get_by_role("link", name="Zhai et al. 2023")
    assert (
        paper.get_attribute("href"),
        paper.get_attribute("target"),
        paper.get_attribute("rel"),
    ) == ("https://arxiv.org/abs/2303.06296", "_blank", "noopener noreferrer")
    with visit.page.expect_popup() as opened:
        caption.get_by_role("link", name="Lesson: Why divide by √d").click()
    lesson = opened.value
    lesson.get_by_role("heading", name="Why divide by √d").wait_for()
    lesson.get_by_role("link", name="Transformer Signal Explorer").click()
    lesson.get_by_role("tab", name="Explore").wait_for()
    lesson.close()
    visit.must_be_clean()
