"""How fast the page answers, in Chromium through Voilà: from a slider's move to the last chart redrawn."""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, WebSocket, sync_playwright

from benchmarks.overhead import bare, seconds
from explorer import Config
from explorer.batch import draw
from explorer.model import Transformer

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
MOVES = 15
SLACK = 0.100
"""Seconds that the page may take on top of the passes."""
BUSY, BUSY_LIMIT = 2, 5.0
MEGABYTES_LIMIT = 2.0

SETTLED = """
  const plots = [...document.querySelectorAll('.ex-chart-plot')];
  const settled = () => !document.querySelector('.ex-chart-is-stale')
    && document.querySelector('.ex-status')?.dataset.state === 'idle';
"""
SHOWN = f"() => {{ {SETTLED} return plots.length > 0 && plots.every((plot) => plot.dataset.drawn > 0) && settled(); }}"
MOVE = f"""async () => {{
  {SETTLED}
  const before = plots.map((plot) => Number(plot.dataset.drawn));
  const start = performance.now();
  let last = start;
  const watch = new MutationObserver(() => {{ last = performance.now(); }});
  plots.forEach((plot) => watch.observe(plot, {{ attributes: true, attributeFilter: ['data-drawn'] }}));
  const slider = document.querySelector('[data-field=init_variance] input[type=range]');
  slider.value = Number(slider.value) + 1;
  slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
  const all = () => plots.every((plot, index) => Number(plot.dataset.drawn) > before[index]);
  while (!(all() && settled() && performance.now() - last > 250)) await new Promise((go) => setTimeout(go, 25));
  watch.disconnect();
  return (last - start) / 1000;
}}"""
"""One step of the init variance, which changes every chart; seconds until the last of them was drawn."""


def passes(config: Config, rounds: int = 9) -> float:
    """Median seconds of the bare forward and backward passes of a config: one for each of its seeds."""
    seeds = range(config.seed, config.seed + config.n_seeds)
    models = [(Transformer(config, seed), draw(config, seed)) for seed in seeds]
    return statistics.median(seconds(lambda: [bare(*pair) for pair in models]) for _ in range(rounds + 1))


def program() -> str:
    """The browser.

    Raises:
        SystemExit: there is none.
    """
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise SystemExit(f"the page's benchmarks need a browser: one of {', '.join(PROGRAMS)} on the PATH")
    return found


@contextmanager
def served() -> Iterator[str]:
    """The page on a free port; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "explorer", "serve", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101 (for the type checker: it is a pipe)
        server.stdout.readline()  # it says where
        yield f"http://localhost:{port}/"
        server.terminate()


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other work on the machine: processes that never rest."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def first_visit(page: Page, address: str) -> dict[str, float]:
    """Opens the page and counts what its websocket carries until every chart shows."""
    carried = [0]
    begun: list[float] = []

    def count(frame: str | bytes) -> None:
        begun.append(time.perf_counter())
        carried[0] += len(frame)

    def listen(channel: WebSocket) -> None:
        channel.on("framereceived", count)
        channel.on("framesent", count)

    page.on("websocket", listen)
    opened = time.perf_counter()
    page.goto(address)
    page.wait_for_function(SHOWN, timeout=120_000)
    shown = time.perf_counter()
    return {
        "megabytes": carried[0] / 1e6,
        "limit_megabytes": MEGABYTES_LIMIT,
        "seconds_from_first_message": shown - begun[0],
        "seconds_from_address": shown - opened,
    }


def moves(page: Page, count: int) -> float:
    """Median seconds of that many moves of a slider, after one to warm up."""
    move: Callable[[], float] = lambda: page.evaluate(MOVE)  # noqa: E731
    move()
    return statistics.median(move() for _ in range(count))


def main() -> dict[str, dict[str, float]]:
    """What was timed to its figures; limits among them."""
    bare_seconds = passes(Config())
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visit = first_visit(page, address)
        quiet = moves(page, MOVES)
        with busy(BUSY):
            crowded = moves(page, MOVES)
        browser.close()
    return {
        "first visit": visit,
        "slider to all charts": {
            "bare_seconds": bare_seconds, "seconds": quiet, "limit_seconds": bare_seconds + SLACK,
        },
        f"slider to all charts, {BUSY} busy processes": {
            "seconds": crowded, "ratio": crowded / quiet, "limit": BUSY_LIMIT,
        },
    }
