"""The menu with its choice of colors, the search over the controls, and a chart on the full
screen."""

from __future__ import annotations

from playwright.sync_api import expect

from .axe import look
from .dashboard import Dashboard, wait_until_still


def test_colors_are_chosen_and_kept(visit: Dashboard) -> None:
    page = visit.page
    for words, scheme, size in (("Projector", "light", "14px"), ("Dark", "dark", "13px")):
        page.get_by_role("button", name="Menu").click()
        page.get_by_label("Colors").select_option(words)
        page.keyboard.press("Escape")
        wait_until_still(page)
        expect(page.locator(".ex-root")).to_have_css("color-scheme", scheme)
        expect(page.locator(".xtick text").first).to_have_css("font-size", size)
        assert look(page, ("Explore",)) == ""
    page.reload()
    visit.wait_until_drawn()
    expect(page.locator(".ex-root")).to_have_css("color-scheme", "dark")
    page.get_by_role("button", name="Menu").click()
    page.get_by_label("Colors").select_option("As the system")
    page.keyboard.press("Escape")
    expect(page.locator(".ex-root")).to_have_css("color-scheme", "light")
    visit.must_be_clean()


def test_a_control_is_found_by_its_words_and_those_of_its_options(visit: Dashboard) -> None:
    entry = visit.page.get_by_label("Find a control")
    for words, field in (
        ("rotary", "position"),
        ("cap", "logit_cap"),
        ("gpt-oss", "sink"),
        ("mup", "parametrization"),
    ):
        entry.fill(words)
        expect(visit.control(field)).to_be_visible()
        expect(visit.control("batch_size")).to_be_hidden()
    expect(visit.control("n_layers")).to_be_visible()
    entry.fill("rms")
    with visit.redrawn():
        visit.choose("norm", "rms")
    expect(visit.control("norm")).to_be_visible()
    entry.fill("marmalade")
    expect(visit.page.get_by_text("No control has these words.")).to_be_visible()
    entry.fill("")
    expect(visit.page.locator("details.ex-section[open]")).to_have_count(0)
    visit.reset()
    visit.must_be_clean()


def test_a_chart_fills_the_screen(visit: Dashboard) -> None:
    page, button = visit.page, visit.page.locator(".ex-chart").first.get_by_title("Full screen")
    small = page.locator(".ex-chart-plot").first.bounding_box()
    button.press("Enter")
    page.wait_for_function("() => document.fullscreenElement?.matches('.ex-chart')")
    wait_until_still(page)
    large = page.locator(".ex-chart-plot").first.bounding_box()
    assert small is not None
    assert large is not None
    assert large["height"] > 2 * small["height"]
    button.press("Enter")
    page.wait_for_function("() => !document.fullscreenElement")
    wait_until_still(page)
    assert page.locator(".ex-chart-plot").first.bounding_box() == small
    visit.must_be_clean()
