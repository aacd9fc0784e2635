"""One move from the slider to the verdict, as a timeline of the kernel's threads and of the
browser.

`python -m benchmarks.timeline ['?n_layers=100&d_model=64']` makes some moves, and prints the last:
milliseconds after the slider moved, how long it took, the thread, and what it did."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.page import QUIET, SETTLED, SHOWN, program, served

MOVES = 4
MOVE = f"""async () => {{
  {SETTLED}
  const log = [], note = (words) => log.push([performance.timeOrigin + performance.now(), words]);
  const status = document.querySelector('.ex-status');
  const ends = [...plots.map((plot, index) => [plot, 'data-drawn', () => `chart ${{index + 1}} is on the screen`]),
    [status, 'data-state', () => `the page is ${{status.dataset.state}}`]].map(([node, name, words]) => {{
      const watch = new MutationObserver(() => note(words()));
      watch.observe(node, {{ attributes: true, attributeFilter: [name] }});
      return watch;
    }});
  const slider = document.querySelector('[data-field=init_variance] input[type=range]');
  note('');
  slider.value = Number(slider.value) + 1;
  slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
  await new Promise((go) => setTimeout(go, 500));
  while (!settled()) await new Promise((go) => setTimeout(go, 100));
  await new Promise((go) => setTimeout(go, 500));
  ends.forEach((watch) => watch.disconnect());
  return log;
}}"""
"""Milliseconds since 1970, and words; the first is the move."""


def kernels(folder: Path) -> Iterator[tuple[float, float, str, str]]:
    """Every line that the kernels wrote: when, for how long (ms), thread, words."""
    for file in folder.glob("kernel.*"):
        for line in file.read_text(encoding="utf-8").splitlines():
            start, end, thread, words = line.split("\t")
            yield 1000 * float(start), 1000 * (float(end) - float(start)), thread, words


def main(query: str = "") -> None:
    """Prints the timeline."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EXPLORER_TIMELINE"] = f"{folder}/kernel"
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).with_name("timed")), *sys.path]
        )
        with served("--preheat", "0") as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.goto(address + query)
            page.wait_for_function(SHOWN, timeout=120_000)
            log = [page.evaluate(MOVE) for _ in range(MOVES)][-1]
            browser.close()
        moved, end = log[0][0], log[-1][0]
        rows = [*kernels(Path(folder)), *((at, 0.0, "browser", words) for at, words in log[1:])]
    for at, took, thread, words in sorted(row for row in rows if moved <= row[0] <= end):
        print(f"{at - moved:6.0f} {f'{took:.0f} ms' if took else '':>8}  {thread:18} {words}")


if __name__ == "__main__":
    main(*sys.argv[1:])
