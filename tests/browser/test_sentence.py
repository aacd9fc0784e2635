"""A person's sentence: typed on the page, part of its link, its characters and words on the
pattern's axes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from .dashboard import Dashboard, wait_until_still

SMALL = "?n_layers=1&d_model=32&n_heads=2&batch_size=1&n_seeds=1&input=sentence&sentence="
HOSTILE = "<img src=x onerror=hacked=1> &"
TICKS = """(name) => [...[...document.querySelectorAll('.ex-chart')]
  .find((chart) => chart.textContent.includes('Attention pattern')).querySelectorAll(`.${name}tick text`)]"""
WORDS = f"(name) => ({TICKS})(name).map((tick) => tick.textContent)"
LINKED = "(wanted) => new URLSearchParams(location.search).get('sentence') === wanted"
CUT = f"""() => [...({TICKS})('x'), ...({TICKS})('y')].filter((tick) => {{
  const inner = tick.getBoundingClientRect(), outer = tick.closest('.ex-chart-plot').getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right || inner.top < outer.top || inner.bottom > outer.bottom;
}}).map((tick) => tick.textContent)"""


@pytest.fixture(scope="module")
def written(browser: Browser, voila: str) -> Iterator[Dashboard]:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/{SMALL}to+be")
    visit.wait_until_drawn()
    yield visit
    visit.must_be_clean()
    page.close()


def words(visit: Dashboard) -> list[str]:
    """Labels of the keys' axis; the queries' axis must have the same."""
    across, down = visit.page.evaluate(WORDS, "x"), visit.page.evaluate(WORDS, "y")
    assert across == down
    found: list[str] = across
    return found


def write(visit: Dashboard, sentence: str) -> None:
    visit.page.locator("details[data-section='Input and loss']").evaluate(
        "(fold) => { fold.open = true; }"
    )
    with visit.redrawn():
        visit.write("sentence", sentence)


def test_a_link_brings_its_sentence_and_a_short_one_has_a_label_for_each_character(
    written: Dashboard,
) -> None:
    expect(written.entry("sentence")).to_have_value("to be")
    assert words(written) == ["t", "o", "␣", "b", "e"]
    expect(written.entry("n_ctx").first).to_have_value("5")
    expect(written.entry("n_ctx").first).to_be_disabled()


def test_what_is_typed_is_in_the_link_and_on_the_axes(written: Dashboard) -> None:
    write(written, "12, or so they say: 3")
    written.page.wait_for_function(LINKED, arg="12, or so they say: 3")
    assert words(written) == ["12,", "or", "so", "they", "say:", "3"]
    write(written, "12")  # digits are characters, too
    assert words(written) == ["1", "2"]


def test_a_sentence_that_is_refused_says_why_and_leaves_the_charts(written: Dashboard) -> None:
    write(written, "that is it")
    written.write("sentence", "x")
    written.wait_for_state("refused")
    rule = "Sentence must be a text of 2 to 32 printable characters; got 'x'"
    expect(written.page.locator(".ex-status")).to_contain_text(rule)
    assert words(written) == [*"that␣is␣it"]
    write(written, "that is that")


def test_a_sentence_is_no_markup(written: Dashboard) -> None:
    write(written, HOSTILE)
    assert words(written) == ["<img", "src=x", "onerro", "r=hack", "ed=1>", "&"]
    written.page.get_by_role("button", name="Pin the current design").click()
    write(written, f"{HOSTILE} ")
    assert not written.page.evaluate(
        "document.querySelector('img[src=x], [onerror]') || window.hacked"
    )


@pytest.mark.parametrize("sentence", ["W" * 32, "the cat sat on the mat", "我喜欢猫，猫也喜欢我"])
def test_no_label_is_cut_on_a_phone(written: Dashboard, sentence: str) -> None:
    written.page.set_viewport_size({"width": 390, "height": 844})
    wait_until_still(written.page)
    write(written, sentence)
    written.page.get_by_role("heading", name="Attention pattern").scroll_into_view_if_needed()
    wait_until_still(written.page)
    assert len(words(written)) > 4
    assert written.page.evaluate(CUT) == []
