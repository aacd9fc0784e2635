"""What an open page keeps: the browser's heap, nodes and listeners and the kernel's memory after
many moves and tabs.

    python -m benchmarks.lasting

Nothing may be left of a move, so every figure ought to be after the last hundred moves what it was
after the first."""

from __future__ import annotations

from collections.abc import Callable

import psutil
from playwright.sync_api import CDPSession, Page, sync_playwright

from benchmarks.page import QUIET, SETTLED, SHOWN, program, served
from explorer.app.roster import MOST

MOVES, SAMPLES = 100, 4
"""Moves between two samples; the first hundred are the warm-up."""
ROUNDS = 3
"""Times that every tab is opened between two samples."""
PINS = "&".join(f"pin=pre_ln,alpha:{1 - number / 10:g}" for number in range(1, MOST))
"""As many designs as can be pinned."""
COUNTED = {"JSHeapUsedSize": "heap MB", "Nodes": "nodes", "JSEventListeners": "listeners"}

DRAG = f"""async (moves) => {{
  {SETTLED}
  const slider = document.querySelector('[data-field=init_variance] input[type=range]');
  for (let move = 0; move < moves; move += 1) {{
    slider.value = 1 + move % Number(slider.max - 1);
    for (const kind of ['input', 'change']) slider.dispatchEvent(new Event(kind, {{ bubbles: true }}));
    await new Promise((go) => setTimeout(go, 150));
  }}
  while (!settled()) await new Promise((go) => setTimeout(go, 50));
  await new Promise((go) => setTimeout(go, 500));
}}"""
"""Moves of a slider that is let go each time, so that a measurement begins and the next move stops
it; then, rest."""
MEASURED = """(designs) => {
  const traces = document.querySelector('.ex-chart-plot')?._fullData ?? [];
  return traces.filter((trace) => trace.mode === 'markers').length >= designs;
}"""
"""So many designs have dots: a pinned one is measured while nothing moves."""
TABS = """async (rounds) => {
  const tabs = [...document.querySelectorAll('.ex-tabs button')];
  for (let round = 0; round < rounds; round += 1) for (const tab of [...tabs.slice(1), tabs[0]]) {
    tab.click();
    await new Promise((go) => setTimeout(go, 400));
  }
  await new Promise((go) => setTimeout(go, 2000));
}"""


def kernel() -> float:
    """Megabytes that the largest kernel of the server holds: the page's, as those that wait have
    measured nothing."""
    found = [
        process
        for process in psutil.Process().children(recursive=True)
        if any("ipykernel" in word for word in process.cmdline())
    ]
    return max(process.memory_info().rss for process in found) / 1e6


def sample(session: CDPSession) -> dict[str, float]:
    """Figures after the garbage was collected."""
    session.send("HeapProfiler.collectGarbage")
    held = {row["name"]: row["value"] for row in session.send("Performance.getMetrics")["metrics"]}
    found = {words: held[name] for name, words in COUNTED.items()}
    return found | {"heap MB": found["heap MB"] / 1e6, "kernel MB": kernel()}


def watched(page: Page, act: Callable[[], object]) -> list[dict[str, float]]:
    """A sample after each of a few actions."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    found = []
    for _ in range(SAMPLES):
        act()
        found.append(sample(session))
    return found


def main() -> None:
    """Prints a line a figure."""
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        acts: dict[str, tuple[str, str, int]] = {
            f"{MOVES} moves": ("", DRAG, MOVES),
            f"{MOVES} moves, {MOST - 1} pins": (f"?{PINS}", DRAG, MOVES),
            f"all tabs {ROUNDS} times": ("", TABS, ROUNDS),
        }
        for name, (query, script, count) in acts.items():
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.goto(address + query)
            page.wait_for_function(MEASURED, arg=1 + query.count("pin="), timeout=120_000)
            page.wait_for_function(SHOWN, timeout=120_000)
            found = watched(
                page, lambda page=page, script=script, count=count: page.evaluate(script, count)
            )  # type: ignore[misc]
            for figure in found[0]:
                print(
                    f"{name:22} {figure:10}", *(f"{one[figure]:9.1f}" for one in found), flush=True
                )
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
