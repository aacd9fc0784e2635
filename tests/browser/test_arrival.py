"""A page whose controls do not come: it is loaded again, once, and then says why they do not, with
a button."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

import explorer_serve
from explorer.app.widgets.runtime import KEY, LATE, STUB, WITHOUT_SCRIPT

SOON = 90_000
"""Milliseconds in which a page that is loaded twice has said what it lacks."""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that was not opened yet."""
    page = browser.new_page()
    yield page
    page.close()


def passed_on(route: Route) -> None:
    """The page as it is, but from a place that the browser does not know: it opens no WebSocket
    from there."""
    route.fulfill(response=route.fetch(timeout=SOON))


def cut_off(route: Route) -> None:
    """The page as far as its cells."""
    answer = route.fetch(timeout=SOON)
    html = answer.text()
    route.fulfill(response=answer, body=html[: html.index('id="rendered_cells"') + 300])


def must_say(page: Page, notice: Locator, sentence: str) -> None:
    """Until the page says so; a second of waiting is ten on its clock."""
    end = time.monotonic() + SOON / 1000
    while sentence not in (notice.text_content() or "") and time.monotonic() < end:
        page.wait_for_timeout(1000)
        page.clock.run_for(9000)
    expect(notice).to_contain_text(sentence)


MISSING: dict[str, tuple[str, Callable[[Route], None], str]] = {
    "no script": (
        "**/voila.js",
        lambda route: route.abort(),
        "A script of this page did not load.",
    ),
    "half a page": ("/", cut_off, "The page did not load to its end."),
    "no websocket": (
        "/",
        passed_on,
        "This page could not open a WebSocket to its server. A proxy in between may not",
    ),
}


@pytest.mark.parametrize(("path", "harm", "sentence"), MISSING.values(), ids=MISSING)
def test_a_page_without_controls_is_loaded_again_and_then_says_why(
    page: Page,
    voila: str,
    path: str,
    harm: Callable[[Route], None],
    sentence: str,
) -> None:
    loaded: list[str] = []
    page.on(
        "request",
        lambda request: loaded.append(request.url) if request.is_navigation_request() else None,
    )
    where = f"{voila}/" if path == "/" else path
    page.route(where, harm)
    page.clock.install()
    page.goto(voila)
    notice = page.locator("#ex-notice")
    must_say(page, notice, sentence)
    assert len(loaded) == 2


WITHOUT_MODEL = """addEventListener('DOMContentLoaded', () => {
  if (window.name === 'known') return;
  for (const script of document.querySelectorAll('script[type$=json]')) {
    script.textContent = script.textContent.replaceAll(/("model_id": ?")[^"]+/g, '$1nobody');
  }
})"""
"""Has a page show a widget that Python does not know."""


def test_a_page_whose_widget_python_does_not_know_says_so_until_it_is_loaded_again(
    page: Page, voila: str
) -> None:
    page.add_init_script(WITHOUT_MODEL)
    page.clock.install()
    page.goto(voila)
    notice = page.locator("#ex-notice")
    must_say(page, notice, "The controls of this page could not be drawn.")
    page.evaluate("() => { window.name = 'known'; }")
    notice.get_by_role("button", name="Reload").click()
    expect(page.locator(".ex-root .ex-status")).to_contain_text("Measured", timeout=SOON)
    expect(notice).to_be_hidden()


def test_a_page_that_failed_once_comes_by_itself(page: Page, voila: str) -> None:
    """And may fail once again later: the try counts for one arrival."""
    for _ in range(2):
        page.route("**/voila.js", lambda route: route.abort(), times=1)
        page.goto(voila)
        expect(page.locator(".ex-root .ex-status")).to_contain_text("Measured", timeout=SOON)
        expect(page.locator("#ex-notice")).to_be_hidden()
        page.wait_for_function("() => Object.values(sessionStorage).every((note) => !note)")


RENDERS = """async ([stub, layout]) => {
  const module = await import(`data:text/javascript,${encodeURIComponent(stub)}`);
  const state = { layout };
  if (layout instanceof Object) layout.on = () => {};
  module.default().render({ model: { get: (name) => state[name] }, el: document.body });
}"""
BRINGS_SCRIPT = """(key) => globalThis[Symbol.for("transformer-signal-explorer")][key].resolve(
  () => (el) => el.append("drawn"))"""


@pytest.mark.parametrize(("layout", "patience"), [({}, 1000 * LATE), (None, 0), ("IPY_MODEL_1", 0)])
def test_a_place_that_brings_no_script_for_the_page_says_so_until_one_comes(
    browser: Browser,
    layout: object,
    patience: int,
) -> None:
    """As marimo, which loads the script of the widget that is shown and of no other, and has no
    layouts of widgets."""
    page = browser.new_page()
    page.clock.install()
    page.evaluate(RENDERS, [STUB, layout])
    if patience:
        page.clock.fast_forward(patience - 1000)
        expect(page.locator("body")).to_be_empty()
    page.clock.fast_forward(1000)
    expect(page.locator("body")).to_have_text(WITHOUT_SCRIPT)
    page.evaluate(BRINGS_SCRIPT, KEY)
    expect(page.locator("body")).to_have_text("drawn")
    page.close()


SCRIPT = Path(explorer_serve.__file__).parent / "jupyter/voila/templates/explorer/static/page.js"
PAUSE = 5.0
"""Seconds between two parts of a page; its script looks for the kernel every two."""


class Slow(BaseHTTPRequestHandler):
    """Sends a page whose configuration comes in two parts, as a busy server or a slow network sends
    it."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.path == "/":
            script = f"<script data-kernels='/api/kernels/'>{SCRIPT.read_text(encoding='utf-8')}</script>"
            body = "<p id='loading'></p><div id='ex-notice' hidden><span></span><button></button></div>"
            self.wfile.write(
                f"<body>{body}{script}<script id='jupyter-config-data' type='application/json'>".encode()
            )
            self.wfile.flush()
            time.sleep(PAUSE)
            self.wfile.write(
                f"{json.dumps({'kernelId': 'ours'})}</script><p data-end></p>".encode()
            )

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_page_that_comes_in_parts_asks_for_its_kernel_once_it_knows_it(browser: Browser) -> None:
    Slow.asked = []
    slow = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=slow.serve_forever, daemon=True).start()
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"http://127.0.0.1:{slow.server_port}/")
    page.wait_for_timeout(3000)
    page.close()
    slow.shutdown()
    slow.server_close()
    assert errors == []
    assert "/api/kernels/ours" in Slow.asked
