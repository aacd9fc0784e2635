"""The README's pictures, taken of the page itself, each by its link.

    make screenshots

Serves the page on a free port, opens each link in headless Chromium, waits until nothing moves, and writes docs/*.png.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
STARTUP, PATIENCE = 60.0, 180_000
"""Seconds until the server listens, and milliseconds until a page is at rest."""
SETTLED = """() => {
  const status = [...document.querySelectorAll('.ex-status')].find((node) => node.checkVisibility());
  const plots = [...document.querySelectorAll('.ex-chart-plot')].filter((node) => node.checkVisibility());
  const drawn = plots.map((plot) => plot.dataset.drawn).join();
  const calm = status?.dataset.state === 'idle' && !/(^|,)0/.test(drawn);
  const now = calm ? drawn : '';
  if (now !== window.calmAt?.now) window.calmAt = { now, since: performance.now() };
  return calm && performance.now() - window.calmAt.since > 1500;
}"""
"""Nothing computes, and no chart in sight was drawn for a while."""


class Picture(NamedTuple):
    """A picture, and the page that it shows."""

    name: str
    link: str
    height: int
    width: int = 1440


PICTURES = (
    Picture("page", "?design=llama3&pin=gpt2&pin=deepnorm&pin=post_ln&v=1", 1340),
    Picture("your_model", "?tab=yours&v=1", 1000),
)


@contextmanager
def served() -> Iterator[str]:
    """Address of the page, for as long as the block runs.

    Raises:
        RuntimeError: the server does not start.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "explorer", "serve", "--no-browser", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + STARTUP
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("localhost", port), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                yield f"http://localhost:{port}/"
                return
        raise RuntimeError(f"the page must listen within {STARTUP:g} s; it does not")
    finally:
        process.terminate()
        process.wait(timeout=30)


def take(page: Page, address: str, picture: Picture) -> Path:
    """Writes a picture, and gives its path."""
    page.set_viewport_size({"width": picture.width, "height": picture.height})
    page.goto(address + picture.link)
    page.wait_for_function(SETTLED, timeout=PATIENCE)
    path = DOCS / f"{picture.name}.png"
    page.screenshot(path=path)
    return path


def main() -> None:
    """Takes all pictures."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        sys.exit(f"a browser is needed: one of {', '.join(PROGRAMS)}")
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        for picture in PICTURES:
            page = browser.new_page(color_scheme="light")
            print(take(page, address, picture))
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
