"""How fast the page answers, in Chromium through Voilà: from a slider's move to the first dots, and
to the last chart.

The bare passes that the limits are made of are timed in the same run, between the moves.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright

from benchmarks.overhead import bare, seconds
from explorer import Config
from explorer.measuring.sharing import shares, torch_threads
from explorer.model import Transformer
from explorer.model.batch import Batch, draw

# the tests know how to start it
from tests.browser.conftest import PROGRAMS, server

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
MOVES = 15
DESIGNS = {
    "(12, 256)": (Config(), ""),
    "(100, 64)": (
        Config(n_layers=100, d_model=64, n_heads=2, n_ctx=32),
        "?n_layers=100&d_model=64&n_heads=2&n_ctx=32",
    ),
}
"""Layers and width to a design and its link."""
SLACK, FIRST_SLACK = 0.100, 0.060
"""Seconds that the page may take on top of the passes of all seeds, and of one."""
BUSY, BUSY_LIMIT = 2, 5.0

SETTLED = """
  const plots = [...document.querySelectorAll('.ex-chart-plot')];
  const settled = () => !document.querySelector('.ex-chart-is-stale')
    && document.querySelector('.ex-status')?.dataset.state === 'idle';
"""
SHOWN = f"() => {{ {SETTLED} return plots.length > 0 && plots.every((plot) => plot.dataset.drawn > 0) && settled(); }}"
MOVE = f"""async () => {{
  {SETTLED}
  const before = plots.map((plot) => Number(plot.dataset.drawn));
  const dots = () => plots.map((plot) => [...plot.querySelectorAll('.points path')].map((dot) => dot.outerHTML).join());
  const earlier = dots();
  const start = performance.now();
  const seen = plots.filter((plot) => {{
    const {{ top, bottom }} = plot.getBoundingClientRect();
    return top < innerHeight && bottom > 0;
  }});
  let first = 0, last = start, near = start, verdict = 0;
  const watch = new MutationObserver((changes) => {{
    last = performance.now();
    if (changes.some((change) => seen.includes(change.target))) near = last;
    const old = plots.map((plot) => plot.closest('.ex-chart').matches('.ex-chart-is-stale')); // dots on another axis
    if (!first && dots().some((now, index) => !old[index] && now !== earlier[index])) first = last;
  }});
  plots.forEach((plot) => watch.observe(plot, {{ attributes: true, attributeFilter: ['data-drawn'] }}));
  const slider = document.querySelector('[data-field=init_variance] input[type=range]');
  slider.value = Number(slider.value) + 1;
  slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
  const all = () => plots.every((plot, index) => Number(plot.dataset.drawn) > before[index]);
  while (!(verdict && all() && performance.now() - last > 250)) {{
    await new Promise((go) => setTimeout(go, 10));
    if (!settled()) verdict = 0;
    else if (first) verdict ||= performance.now();
  }}
  watch.disconnect();
  const ends = Object.entries({{ first, near, last, verdict }});
  return Object.fromEntries(ends.map(([name, at]) => [name, (at - start) / 1000]));
}}"""
"""One step of the init variance, which changes every chart; seconds until dots of it were on one of
them, until the last of those that can be seen was drawn, and the last of all, and until the verdict
was there."""


def models(config: Config) -> list[tuple[Transformer, Batch]]:
    """Model and batch of each of a config's seeds."""
    seeds = range(config.seed, config.seed + config.n_seeds)
    return [(Transformer(config, seed), draw(config, seed)) for seed in seeds]


def program() -> str:
    """The browser.

    Raises:
        SystemExit: there is none.
    """
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise SystemExit(
            f"the page's benchmarks need a browser: one of {', '.join(PROGRAMS)} on the PATH"
        )
    return found


@contextmanager
def served(*options: str) -> Iterator[str]:
    """The page on a free port; gives its address."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server(["serve", *options], Path(folder) / "log") as address,
    ):
        yield f"{address}/"


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other work on the machine: processes that never rest."""
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def moves(page: Page, count: int, config: Config) -> dict[str, float]:
    """Median seconds of that many moves of a slider, see `MOVE`, and of the bare passes `one` and
    `all`.

    The passes have the threads that `measure` gives them, side by side as there.
    """
    built = models(config)
    workers, threads = shares(config, torch.device("cpu"))
    with torch_threads(threads), ThreadPoolExecutor(workers) as pool:
        rows = [
            page.evaluate(MOVE)
            | {
                "one": seconds(lambda: bare(*built[0])),
                "all": seconds(lambda: list(pool.map(lambda pair: bare(*pair), built))),
            }
            for _ in range(count + 1)
        ]
    # the first warms up
    return {name: statistics.median(row[name] for row in rows[1:]) for name in rows[0]}


def main() -> dict[str, dict[str, float]]:
    """What was timed to its figures; limits among them."""
    found: dict[str, dict[str, float]] = {}
    with served("--preheat", "0") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        for name, (config, link) in DESIGNS.items():
            page.goto(address + link)
            page.wait_for_function(SHOWN, timeout=120_000)
            quiet = moves(page, MOVES, config)
            found[f"slider to first dots {name}"] = {
                "bare_seconds": quiet["one"],
                "seconds": quiet["first"],
                "limit_seconds": quiet["one"] + FIRST_SLACK,
            }
            for words, key in (("the charts on the screen", "near"), ("all charts", "last")):
                found[f"slider to {words} {name}"] = {
                    "bare_seconds": quiet["all"],
                    "seconds": quiet[key],
                    "limit_seconds": quiet["all"] + SLACK,
                }
            found[f"slider to verdict {name}"] = {"verdict_seconds": quiet["verdict"]}
        page.goto(address)
        page.wait_for_function(SHOWN, timeout=120_000)
        usual = moves(page, MOVES, Config())["last"]
        with busy(BUSY):
            crowded = moves(page, MOVES, Config())["last"]
        browser.close()
    found[f"slider to all charts, {BUSY} busy processes"] = {
        "seconds": crowded,
        "ratio": crowded / usual,
        "limit": BUSY_LIMIT,
    }
    return found


if __name__ == "__main__":
    from benchmarks.results import table

    print(table(main()))
