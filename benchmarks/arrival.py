"""How a visit begins, in Chromium through Voilà: when the page's parts are there, and what its
websocket carries.

Two servers, one that starts a kernel for each visitor and one with a kernel that waits for them,
are visited in turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

from playwright.sync_api import Browser, WebSocket, sync_playwright

from benchmarks.page import QUIET, program, served

ROUNDS = 3
REST = 15.0
"""Seconds before each visit, in which the next kernel gets warm and the last one ends."""
LIMITS = {"cold": 5.0, "preheated": 2.0}
"""Seconds from the address to the dots of every chart that has some."""
MEGABYTES_LIMIT = 1.6
DOTTED = 5
"""Charts of the first page that have lines and dots."""

MARKS = f"""
window.arrived = {{}};
const mark = (name, there) => {{ if (there) window.arrived[name] ??= performance.now() / 1000; }};
const having = (what) => document.querySelectorAll(`.ex-root .ex-chart-plot:has(${{what}})`).length;
new MutationObserver(() => {{
  mark('picture', document.querySelector('#ex-first svg'));
  mark('widgets', document.querySelector('.ex-root .ex-chart-plot'));
  mark('chart', having('.main-svg'));
  mark('lines', having('.js-line') >= {DOTTED});
  mark('dots', having('.points path') >= {DOTTED});
  mark('idle', document.querySelector('.ex-root .ex-status[data-state=idle]'));
  mark('uncovered', document.querySelector('.ex-root') && !document.querySelector('#ex-first'));
}}).observe(document, {{ childList: true, subtree: true, attributes: true }});
"""
"""Notes in each page when its parts are first there, in seconds from its address."""
ALL = "() => ['dots', 'idle', 'uncovered'].every((name) => name in window.arrived)"
LOADED = """() => {
  const [{ responseStart, responseEnd }] = performance.getEntriesByType('navigation');
  const files = performance.getEntriesByType('resource');
  const plotly = files.find(({ name }) => name.includes('plotly'))?.responseEnd ?? 0;
  const bytes = files.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
  return { ...window.arrived, 'first byte': responseStart / 1000, 'Python ready': responseEnd / 1000,
           'plotly.js': plotly / 1000, 'megabytes over http': bytes / 1e6 };
}"""
IMPORTED = """
import time
begun = time.perf_counter()
import explorer as ex
ex.dashboard
imported = time.perf_counter()
ex.dashboard()
built = time.perf_counter()
import os, sys
print(imported - begun, built - imported, 'torch' in sys.modules, flush=True)
os._exit(0)
"""


def visit(browser: Browser, address: str) -> dict[str, float]:
    """Seconds from the address to each part of the page, and megabytes that came for it, in a
    browser's first visit."""
    carried: list[int] = []

    def listen(channel: WebSocket) -> None:
        for event in ("framereceived", "framesent"):
            channel.on(event, lambda frame: carried.append(len(frame)))  # type: ignore[call-overload]

    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.add_init_script(MARKS)
    page.on("websocket", listen)
    page.goto(address, wait_until="commit")
    page.wait_for_function(ALL, timeout=120_000)
    found: dict[str, float] = page.evaluate(LOADED)
    context.close()
    return found | {"megabytes": sum(carried) / 1e6}


def middle(visits: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure, in the order in which they came."""
    found = list(visits)
    figures = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return dict(
        sorted(figures.items(), key=lambda figure: (figure[0].startswith("megabytes"), figure[1]))
    )


def imports() -> dict[str, float]:
    """Seconds that a new process takes to import the page, and to build it."""
    told = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    ).stdout.split()
    return {
        "seconds_to_import": float(told[0]),
        "seconds_to_build": float(told[1]),
        "torch": float(told[2] == "True"),
    }


def main() -> dict[str, dict[str, float]]:
    """The median timeline of each kind of visit; its dots and its websocket have limits."""
    visits: dict[str, list[dict[str, float]]] = {name: [] for name in LIMITS}
    with (
        served("--preheat", "0") as cold,
        served("--preheat", "1") as preheated,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        for _ in range(ROUNDS):
            for name, address in (("cold", cold), ("preheated", preheated)):
                time.sleep(REST)
                visits[name].append(visit(browser, address))
        browser.close()
    return {"imports": imports()} | {
        f"arrival, {name}": (found := middle(visits[name]))
        | {
            "seconds": found["dots"],
            "limit_seconds": limit,
            "limit_megabytes": MEGABYTES_LIMIT,
        }
        for name, limit in LIMITS.items()
    }


if __name__ == "__main__":
    from benchmarks.results import table

    print(table(main()))
