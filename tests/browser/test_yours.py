"""The tab for a model that is not ours: a file is drawn beside its twin, or refused in a
sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from explorer_models import example
from explorer_models.probe import probe

from .conftest import Pages, in_voila
from .dashboard import Dashboard

pytestmark = in_voila


@pytest.fixture(scope="module", autouse=True)
def _alone(pages: Pages) -> Iterator[None]:
    """The charts of this tab stay on the page: other files get another one."""
    yield
    pages.close()


@pytest.fixture
def panel(dashboard: Dashboard) -> Locator:
    """The tab, with the example on it."""
    dashboard.page.get_by_role("tab", name="Your model", exact=True).click()
    found = dashboard.page.locator(".ex-panel:visible")
    if (back := found.get_by_role("button", name="Show the example")).is_visible():
        back.click()
    expect(found.locator(".ex-status")).to_contain_text("This is an example")
    return found


def bring(panel: Locator, text: str) -> None:
    entry = panel.get_by_label("Profile of your model, as JSON")
    entry.set_input_files(
        {"name": "mine.json", "mimeType": "application/json", "buffer": text.encode()}
    )


def test_torchs_own_encoder_is_the_example(panel: Locator) -> None:
    expect(panel.locator(".ex-verdict")).to_contain_text(
        "All 12 layers start as copies of one another."
    )
    expect(panel.locator(".ex-verdict code").first).to_contain_text("block.apply(init)")


def test_a_profile_is_drawn_beside_its_twin(panel: Locator) -> None:
    bring(panel, probe(*example.net()).to_json())
    expect(panel.locator(".ex-status")).to_contain_text("This is Net, from mine.json")
    expect(panel.locator(".ex-verdict")).to_contain_text(
        "Layer 8 (blocks.7) has weights unlike its siblings"
    )
    expect(panel).to_contain_text("The lines are its twin's: 12 layers of width 128")
    expect(panel.locator(".ex-chart-plot:visible")).to_have_count(6)


def test_a_file_that_is_no_profile_is_refused(panel: Locator) -> None:
    bring(panel, '{"origin": "<img src=x onerror=alert(1)>"}')
    expect(panel.locator(".ex-file [role=status]")).to_contain_text(
        "Refused: mine.json: a profile must be what"
    )
    expect(panel.locator("img[src=x]")).to_have_count(0)
    expect(panel.locator(".ex-status")).to_contain_text("This is an example")


@pytest.mark.parametrize("width", [390, 1024])
def test_the_panel_is_no_wider_than_the_window(panel: Locator, width: int) -> None:
    panel.page.set_viewport_size({"width": width, "height": 900})
    panel.page.wait_for_function(
        "(width) => document.querySelector('.ex-root').clientWidth <= width", arg=width
    )
    assert (
        panel.page.evaluate(
            "() => document.querySelector('.ex-root').scrollWidth - window.innerWidth"
        )
        <= 0
    )
    panel.page.set_viewport_size({"width": 1440, "height": 1000})
