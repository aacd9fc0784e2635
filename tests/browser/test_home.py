"""What is taken home from the page in Voilà, and a race that comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect

import explorer as ex
from explorer_race.archive import load

from .dashboard import Dashboard
from .test_race import SIZES, Track

READ = """() => {
  const field = document.querySelector('.ex-home textarea');
  return field.offsetParent ? field.value : '';
}"""


def saved(page: Page, folder: Path, press: str) -> Path:
    """The file that a button's press saves."""
    with page.expect_download() as told:
        page.get_by_role("button", name=press, exact=True).first.click()
    told.value.save_as(folder / told.value.suggested_filename)
    return folder / told.value.suggested_filename


@pytest.fixture(scope="module")
def page(visit: Dashboard) -> Iterator[Page]:
    visit.wait_until_drawn()
    yield visit.page
    visit.must_be_clean()


def test_a_chart_s_menu_saves_a_page(
    page: Page,
    browser: Browser,
    tmp_path: Path,
) -> None:
    opener = page.get_by_role("button", name="Save the chart").first
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Save as PNG").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Save as PNG").first).to_be_hidden()
    expect(opener).to_be_focused()
    opener.click()
    alone = browser.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    file = saved(page, tmp_path, "Save as HTML")
    alone.goto(file.as_uri())
    alone.locator(".main-svg").first.wait_for()
    assert asked == [file.as_uri()]
    expect(alone.get_by_role("heading", name="Second moment")).to_be_visible()
    expect(alone.get_by_text("12 layers of width 256")).to_be_visible()
    for scheme, fill in (("dark", "rgb(232, 235, 240)"), ("light", "rgb(27, 31, 36)")):
        alone.emulate_media(color_scheme=scheme)
        expect(alone.locator(".xtick text").first).to_have_css("fill", fill)
    alone.close()


def test_the_fold_shows_and_saves(page: Page, tmp_path: Path) -> None:
    page.locator(".ex-home summary").first.click()
    page.get_by_role("button", name="Show Python").first.click()
    page.wait_for_function(f"() => ({READ})().includes('design = ex.Config()')")
    text = page.evaluate(READ)
    assert saved(page, tmp_path, "Save Python").read_text() == text
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.locator(".ex-home [role=status]").first).to_have_text("Copied.")
    assert page.evaluate("() => navigator.clipboard.readText()") == text
    numbers = pd.read_csv(saved(page, tmp_path, "Save Numbers (CSV)"))
    measured = numbers[(numbers.origin == "measured") & (numbers.statistic == "second_moment")]
    values = ex.measure(ex.Config())["second_moment", "resid_post"].ravel()
    assert measured[measured.site == "resid_post"].value.tolist() == pytest.approx(
        values.tolist(), rel=1e-15
    )
    page.locator(".ex-home button[aria-expanded=true]").first.click()
    page.wait_for_function(f"() => ({READ})() === ''")


def racing(visit: Dashboard) -> Track:
    """The Race panel of a page, once it is there."""
    visit.page.get_by_role("tab", name="Race", exact=True).click()
    track = Track(visit)
    track.panel.get_by_role("button", name="Start", exact=True).wait_for()
    return track


def test_a_paused_race_that_is_saved_goes_on_in_python_as_on_the_page(
    page: Page,
    visit: Dashboard,
    tmp_path: Path,
) -> None:
    file, track = tmp_path / "race.zip", racing(visit)
    page.locator(".ex-race.ex-panel details").evaluate_all(
        "(all) => all.forEach((it) => { it.open = true; })"
    )
    track.leave("Pre-LN", "ReZero")
    for field, words in (SIZES | {"steps": "300"}).items():
        track.write(field, words)
    track.press("Start")
    expect(page.locator(".ex-race .ex-status-detail")).to_contain_text(re.compile("step [1-9]"))
    track.press("Pause")
    expect(track.said).to_have_text("Paused")
    saved(page, tmp_path, "Save race")
    stood = load(file)
    assert 0 < stood.step < 300
    assert sorted(track.rows()) == sorted(one.name for one in stood.contenders)
    track.press("Resume")
    expect(track.said).to_have_text("Finished at step 300 of 300")
    saved(page, tmp_path, "Save race")
    pd.testing.assert_frame_equal(load(file).frame(), stood.run().frame(), check_exact=True)
