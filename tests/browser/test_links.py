"""The page as a link, in the browser: the address follows, Back leads back, and nothing in a link
is markup."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from explorer.figures import FIGURES

from .axe import look
from .dashboard import CHARTS, Dashboard, wait_until_still

sys.path.append(str(Path(__file__).parents[1] / "app"))  # whose broken links serve here too
from test_link import fuzzed

START = "?design=post_ln&n_layers=3&d_model=32&n_heads=2&n_ctx=16"
SEARCH = "(wanted) => location.search === wanted"
GO = """(link) => {
  history.replaceState(null, '', location.pathname + link);
  window.dispatchEvent(new PopStateEvent('popstate'));
}"""
"""What happens when a person goes back to an entry of the history that has this link."""
BACK = """async (times) => {
  for (let time = 0; time < times; time += 1) {
    history.back();
    await new Promise((go) => addEventListener('popstate', go, { once: true }));
  }
}"""
ANSWERED = "() => !document.querySelector('[data-unanswered]')"
STORED = (
    "() => localStorage.getItem('transformer-signal-explorer: the last page here')?.includes('=5&')"
)
EMBED = """(address) => {
  const frame = document.createElement('iframe');
  Object.assign(frame, { src: address, title: 'lesson', width: 900, height: 700 });
  document.body.replaceChildren(frame);
}"""
NEW = "() => !document.querySelector('img[src=x], [onerror]') && !window.hacked"


@pytest.fixture(scope="module")
def linked(browser: Browser, voila: str) -> Iterator[Dashboard]:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(voila + "/" + START + "&bogus=<img src=x onerror=hacked=1>")
    visit.wait_until_drawn()
    yield visit
    visit.must_be_clean()
    page.close()


def depth(visit: Dashboard) -> Locator:
    """The entry on Explore: the race has one too."""
    return visit.entry("n_layers").first


def test_a_link_is_restored_and_what_it_ignored_is_said(linked: Dashboard) -> None:
    assert linked.said == "Measured 3 layers of width 32"
    said = linked.page.locator(".ex-header-said")
    expect(said).to_contain_text("Ignored in the link: 'bogus' is not a part of a link.")
    linked.page.wait_for_function(SEARCH, arg=START)


def test_the_address_follows_and_back_and_undo_lead_back(linked: Dashboard) -> None:
    page = linked.page
    entries = page.evaluate("history.length")
    with linked.redrawn():
        linked.write("n_layers", "4")
    page.wait_for_function(SEARCH, arg=START.replace("=3&", "=4&"))
    assert page.evaluate("history.length") == entries, "a moved slider is no entry of the history"
    page.get_by_role("tab", name="Race").click()
    page.wait_for_function("() => location.search.includes('tab=race')")
    page.go_back()
    page.wait_for_function("() => !location.search.includes('tab=race')")
    expect(page.locator(".ex-header [role=tab][aria-selected=true]")).to_have_text("Explore")
    page.keyboard.press("Control+z")
    expect(page.locator(".ex-header [role=tab][aria-selected=true]")).to_have_text("Race")
    page.locator(".ex-tool", has_text="Undo").click()
    page.locator(".ex-tool", has_text="Undo").click()
    page.wait_for_function(SEARCH, arg=START)
    page.keyboard.press("Control+Shift+z")
    page.wait_for_function(SEARCH, arg=START.replace("=3&", "=4&"))
    expect(depth(linked)).to_have_value("4")


def test_eleven_quick_backs_end_where_they_lead(linked: Dashboard) -> None:
    page, chosen = linked.page, linked.page.locator(".ex-header [role=tab][aria-selected=true]")
    page.evaluate(GO, START)
    expect(chosen).to_have_text("Explore")
    page.wait_for_function(SEARCH, arg=START)
    for name in ("Race", "Explore") * 5 + ("Race",):
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_function(
            "(race) => location.search.includes('tab=race') === race", arg=name == "Race"
        )
    entries = page.evaluate("history.length")
    page.evaluate(BACK, 11)
    page.wait_for_function(ANSWERED)
    page.wait_for_timeout(500)  # longer than an address is written late
    assert page.evaluate("[location.search, history.length]") == [START, entries]
    expect(chosen).to_have_text("Explore")
    page.go_forward()
    expect(chosen).to_have_text("Race")
    page.go_back()
    page.wait_for_function(SEARCH, arg=START)


def test_share_gives_the_address_and_takes_another(linked: Dashboard) -> None:
    page = linked.page
    other = page.get_by_label("Another link")
    for layers in ("5", "3"):
        link = START.replace("n_layers=3", f"n_layers={layers}")
        page.locator(".ex-tool", has_text="Share").click()
        page.wait_for_function(
            "() => document.querySelector('.ex-link-text').value === location.href"
        )
        page.get_by_role("button", name="Copy: Link to this page").click()
        expect(page.locator(".ex-share [role=status]").first).not_to_be_empty()
        other.fill(link)
        other.press("Enter")
        page.wait_for_function(SEARCH, arg=link)
        expect(depth(linked)).to_have_value(layers)


def test_share_gives_a_link_for_a_lesson_a_frame_and_a_code(
    linked: Dashboard, browser: Browser
) -> None:
    page, share = linked.page, linked.page.get_by_role("dialog", name="Share this page")
    page.locator(".ex-tool", has_text="Share").click()
    share.get_by_role("button", name="For a lesson").click()
    bar = page.get_by_role("group", name="Choose what stays")
    expect(bar.get_by_role("button", name="Done")).to_be_focused()
    expect(page.get_by_role("checkbox", name="stays", checked=False)).to_have_count(0)
    assert look(page, ()) == ""
    page.keyboard.press("Escape")
    expect(bar).to_have_count(0)
    page.locator(".ex-tool", has_text="Share").click()
    share.get_by_role("button", name="For a lesson").click()
    bar.get_by_role("button", name="Controls: none").click()
    page.get_by_role("checkbox", name="Depth stays").click()
    page.get_by_role("checkbox", name="Token correlation stays").press("Space")
    for tab in ("Map", "Race", "Learn", "Your model"):
        page.get_by_role("checkbox", name=f"{tab} stays").click()
    explore = page.get_by_role("checkbox", name="Explore stays")
    explore.click()  # the last one stays
    expect(explore).to_be_checked()
    bar.get_by_role("button", name="Done").click()
    address = share.get_by_label("Link to this page").first
    charts = ",".join(name for name in FIGURES if name != "token_correlation")
    expect(address).to_have_value(f"{page.url}&panels=explore&charts={charts}&show=n_layers")
    link = address.input_value()
    frame = share.get_by_label("Code of a frame with this page").first.input_value()
    share.get_by_role("button", name="QR code").click()
    image = share.locator(".ex-share-code svg")
    image.wait_for()
    assert image.evaluate("(svg) => svg.outerHTML").count("<path") > 0
    assert html.unescape(frame).split('"')[1] == f"{link}&embed=1"
    page.keyboard.press("Escape")
    fresh = browser.new_page()
    fresh.goto(link)
    fresh.locator("[data-field=n_layers]").wait_for()
    expect(fresh.get_by_role("tab")).to_have_count(0)  # a single one has no bar
    expect(fresh.locator("[data-field=d_model]")).to_have_count(0)
    expect(fresh.locator(".ex-chart-title:visible", has_text="Token correlation")).to_have_count(0)
    fresh.goto(html.unescape(frame).split('"')[1])
    fresh.locator("[data-field=n_layers]").wait_for()
    expect(fresh.locator(".ex-header")).to_be_hidden()
    fresh.close()


@pytest.mark.parametrize(
    ("charts", "next_below"),
    [
        ("token_correlation,attention_pattern", ".ex-cell:visible"),
        ("none", ".ex-side"),
    ],
)
def test_a_phone_has_the_first_chart_that_a_link_shows_below_the_verdict(
    linked: Dashboard,
    charts: str,
    next_below: str,
) -> None:
    page = linked.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate(GO, f"{START}&charts={charts}")
    page.wait_for_function(
        "() => document.querySelectorAll('.ex-cell').length"
        " > [...document.querySelectorAll('.ex-cell')].filter((cell) => cell.offsetHeight).length"
    )
    expect(page.locator(".ex-cell:visible")).to_have_count(0 if charts == "none" else 2)
    wait_until_still(page)
    above = page.locator(".ex-verdict:visible").first.bounding_box()
    below = page.locator(next_below).first.bounding_box()
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.evaluate(GO, START)
    expect(page.locator(".ex-explore .ex-cell:visible")).to_have_count(len(CHARTS))
    assert above
    assert below
    assert 0 <= below["y"] - above["y"] - above["height"] < 20


def test_broken_links_end_on_a_page_that_works(linked: Dashboard) -> None:
    page = linked.page
    for link in fuzzed(30, seed=1):
        page.evaluate(
            GO,
            "?" + "".join(letter for letter in link if letter.isprintable() and letter not in "#?"),
        )
    page.evaluate(GO, START)
    expect(depth(linked)).to_have_value("3")
    page.wait_for_function("() => document.querySelector('.ex-status').dataset.state === 'idle'")
    assert page.evaluate(NEW)


def test_a_reload_and_a_second_visit(linked: Dashboard, voila: str) -> None:
    page = linked.page
    page.evaluate(GO, START.replace("=3&", "=5&"))
    expect(depth(linked)).to_have_value("5")
    page.wait_for_function(STORED)
    # a late answer may have put another one there
    page.wait_for_function(SEARCH, arg=START.replace("=3&", "=5&"))
    page.reload()
    linked.wait_until_drawn()
    expect(depth(linked)).to_have_value("5")
    page.goto(voila)
    page.get_by_role("button", name="Go on where you left off").click()
    expect(depth(linked)).to_have_value("5")


def test_the_title_follows_the_tab(linked: Dashboard) -> None:
    page, name = linked.page, "Transformer Signal Explorer"
    page.evaluate(GO, START)
    for tab, title in (("Map", f"Map · {name}"), ("Race", f"Race · {name}"), ("Explore", name)):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page).to_have_title(title)


def test_a_page_within_another_shows_what_its_link_says(linked: Dashboard, voila: str) -> None:
    """The last test: the frame takes the page's place."""
    page = linked.page
    lesson = f"{voila}/?embed=1&show=depth&n_layers=2&d_model=16&n_heads=2"
    page.evaluate(EMBED, lesson)
    frame = page.frame_locator("iframe")
    expect(frame.locator(".ex-control[data-field=n_layers]")).to_be_visible()
    expect(frame.locator(".ex-header")).to_be_hidden()
    assert frame.locator(".ex-side .ex-control:visible").count() == 1
