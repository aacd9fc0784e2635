"""How often the picture is new while a slider is dragged, in Chromium through Voilà and through
JupyterLab."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, ViewportSize, sync_playwright

from benchmarks.page import QUIET, SHOWN, program, served
from explorer_serve.start import notebooks

# the tests know how to open it
from tests.browser.conftest import (
    forget_runs,
    jupyterlab,
    open_in_lab,
    server,
)

FIELDS = ("init_variance", "n_layers", "alpha")
DEEP, DEEP_FIELDS = "?n_layers=500&d_model=64&n_heads=2&n_ctx=32", ("init_variance", "n_layers")
"""Link of a design of 500 layers, and what is dragged there."""
REACH, ALL = 2, 1000
"""Steps that the depth is dragged to either side: from 12 layers to 6 and 24, from 500 to 256 and
768; all steps of any other field."""
VIEWPORT = ViewportSize(width=1440, height=1000)
SECONDS = 5.0
LEAST = 20.0
"""Updates a second of every chart that can be seen."""
DRAG = """async ([field, seconds, reach]) => {
  const seen = () => [...document.querySelectorAll('.ex-chart-plot')].filter((plot) => {
    const { top, bottom, width } = plot.getBoundingClientRect();
    return width > 0 && top < innerHeight && bottom > 0;
  });
  document.querySelector('.ex-charts').scrollIntoView(); // or some are half hidden, and now and then wholly
  await new Promise((go) => setTimeout(go, 500));
  const plots = seen();
  const count = () => plots.map((plot) => Number(plot.dataset.drawn));
  const slider = document.querySelector(`[data-field=${field}] input[type=range]`);
  const first = slider.value, before = count(), start = performance.now();
  let step = 1, frames = 0, longest = 0, last = start;
  while (last - start < seconds * 1000) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    [longest, last, frames] = [Math.max(longest, now - last), now, frames + 1];
    const next = Number(slider.value) + step;
    if (next > slider.max || next < 0 || Math.abs(next - first) > reach) step = -step;
    slider.value = Number(slider.value) + step;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
  }
  const drawn = count().map((now, at) => now - before[at]);
  const most = Math.max(...drawn);
  const rates = drawn.filter((times) => times > most / 10).map((times) => times / (last - start) * 1000);
  slider.value = first;
  for (const name of ['input', 'change']) slider.dispatchEvent(new Event(name, { bubbles: true }));
  const [slowest, fastest] = [Math.min(...rates), Math.max(...rates)];
  return { charts: rates.length, slowest, fastest, frames: frames / (last - start) * 1000, longest };
}"""
"""The slider moves by a step a frame, to its end and back, and in the end to where it was: the next
field is dragged in the same design. A chart whose figure seldom changes does not count."""


@contextmanager
def opened(page: Page, host: str, link: str = "") -> Iterator[None]:
    """The page in Voilà, with a link's design, or in JupyterLab, once it shows its first
    measurement."""
    if host == "voila":
        with served("--preheat", "0") as address:
            page.goto(f"{address}{link}")
            page.wait_for_function(SHOWN, timeout=120_000)
            yield
        return
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name))
        arguments, places = jupyterlab(folder)
        with server(arguments, folder / "log", **places) as address:
            open_in_lab(page, f"{address}/lab/tree/explorer.ipynb")
            page.wait_for_function(SHOWN, timeout=120_000)
            yield


def copied(folder: Path) -> Path:
    """A folder with a copy of the notebooks: JupyterLab saves what it shows."""
    shutil.copytree(notebooks(), folder / "notebooks")
    forget_runs(folder / "notebooks" / "explorer.ipynb")
    return folder


def drags(page: Page, fields: Sequence[str] = FIELDS) -> dict[str, dict[str, float]]:
    """By field: updates a second of the chart that has the fewest and of that with the most,
    frames, longest frame."""
    found = {}
    for field in fields:
        reach = REACH if field == "n_layers" else ALL
        page.evaluate(DRAG, [field, 1.0, reach])  # to warm up
        page.wait_for_function(SHOWN, timeout=120_000)
        seen: dict[str, Any] = page.evaluate(DRAG, [field, SECONDS, reach])
        page.wait_for_function(SHOWN, timeout=120_000)
        found[field] = {
            "charts": seen["charts"],
            "updates_a_second": seen["slowest"],
            "least_updates_a_second": LEAST,
            "most_of_a_chart": seen["fastest"],
            "frames_a_second": seen["frames"],
            "longest_frame_ms": seen["longest"],
        }
    return found


def main() -> dict[str, dict[str, float]]:
    """What was dragged to its figures; the least that it should be among them."""
    results: dict[str, dict[str, float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        for host in ("voila", "lab"):
            page = browser.new_page(viewport=VIEWPORT)
            with opened(page, host):
                results |= {
                    f"dragging {field}, {host}": figures for field, figures in drags(page).items()
                }
            page.close()
        page = browser.new_page(viewport=VIEWPORT)
        with opened(page, "voila", DEEP):
            results |= {
                f"dragging {field}, 500 layers, voila": figures
                for field, figures in drags(page, DEEP_FIELDS).items()
            }
        browser.close()
    return results


if __name__ == "__main__":
    from benchmarks.results import table

    print(table(main()))
