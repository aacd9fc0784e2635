"""torch is not imported in a page's kernel, whatever a person opens: workers compute."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from linked import state
from playwright.sync_api import Browser, expect

from .dashboard import KERNEL, Dashboard
from .test_race import SIZES, Track
from .visitor import processes, serving

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


def has_torch(process: int) -> bool:
    """Whether a process has loaded torch's libraries."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not list a process's libraries in a file"
)
def test_torch_is_in_no_kernel_whatever_is_opened(browser: Browser, voila: str) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    track = Track(visit)
    page.goto(f"{voila}/{SMALL}")
    visit.wait_until_drawn()
    with visit.redrawn():
        assert page.evaluate(MOVE_ALL) > 10
    page.get_by_role("tab", name="Map", exact=True).click()
    expect(page.locator(".ex-map .ex-status")).to_have_attribute("data-state", "idle")
    page.get_by_role("tab", name="Race", exact=True).click()
    track.adding.wait_for()
    track.panel.locator("details").evaluate_all(
        "(folds) => folds.forEach((fold) => { fold.open = true; })"
    )
    for field, text in (SIZES | {"steps": "12"}).items():
        track.write(field, text)
    track.press("Start")
    expect(track.said).to_have_text("Finished at step 12 of 12")
    page.get_by_role("tab", name="Your model", exact=True).click()
    page.locator(".ex-status:visible", has_text="This is an example").wait_for()
    page.get_by_role("tab", name="Learn", exact=True).click()
    page.locator(".ex-lesson-cards").wait_for()
    (kernel,) = processes(page.evaluate(KERNEL))
    assert not has_torch(kernel.pid)
    assert kernel.memory_full_info().uss < 100e6, "a kernel has for itself what others have, too"
    assert any(has_torch(child.pid) for child in serving(voila).children()), "workers have it"
    visit.must_be_clean()
    page.close()
