"""A kernel that does not answer: the page says so, no longer vouches for what it shows, and
recovers by itself."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

from .conftest import HOSTS, SHAKEN
from .dashboard import Dashboard
from .visitor import processes

ATTEMPTS = 8
"""Of a drag, one of which must be answered in time."""
RESTARTED = "Kernel restarted: run this cell again"
SHOWN_STALE = """() => {
  const plots = [...document.querySelectorAll('.ex-chart-plot')].filter((plot) => plot.checkVisibility());
  const faint = plots.every((plot) => getComputedStyle(plot).opacity === '0.4');
  const said = [...document.querySelectorAll('.ex-chart-stale')].filter((mark) => mark.checkVisibility()).length;
  return plots.length > 0 && faint && said >= plots.length && getComputedStyle(
    document.querySelector('.ex-verdict')).opacity === '0.55';
}"""
FRESH = """() => [...document.querySelectorAll('.ex-chart-plot')].filter((plot) => plot.checkVisibility()).every(
  (plot) => getComputedStyle(plot).opacity === '1')
  && !document.querySelector('[data-silent], [data-unanswered]')"""
WATCH = """() => {
  globalThis.silences = [];
  const root = document.querySelector('.ex-root');
  new MutationObserver(() => silences.push(root.hasAttribute('data-silent'))).observe(
    root, { attributeFilter: ['data-silent'] });
}"""
MOVED = """(field) => {
  const slider = document.querySelector(`[data-field=${field}] input[type=range]`);
  const begun = performance.now();
  slider.value = Number(slider.value) + 1;
  for (const name of ['input', 'change']) slider.dispatchEvent(new Event(name, { bubbles: true }));
  return new Promise((tell) => {
    const look = () => {
      const [status, after] = [document.querySelector('.ex-status'), performance.now() - begun];
      if (status.dataset.state === 'idle' && after < 4000) return requestAnimationFrame(look);
      return tell([status.dataset.state, status.querySelector('.ex-status-text').textContent, after]);
    };
    look();
  });
}"""
"""Moves a slider a step; the status that comes next, in words, and after how many milliseconds."""


class Line:
    """The way between a page and its kernel, which can be cut; `kernel` is its id."""

    def __init__(self, page: Page) -> None:
        self.cut, self.held, self.kernel = False, [], ""
        page.route_web_socket("**/channels*", self._relay)

    def _relay(self, socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        found = re.search(r"kernels/([\w-]+)/", socket.url)
        assert found
        self.kernel = found[1]
        for one, other in ((socket, server), (server, socket)):
            one.on_message(
                lambda message, to=other: (
                    self.held.append((to, message)) if self.cut else to.send(message)
                )
            )

    def mend(self) -> None:
        self.cut = False
        while self.held:
            to, message = self.held.pop(0)
            to.send(message)


@contextmanager
def stopped(kernel: str) -> Iterator[None]:
    """A kernel that gets no processor."""
    found = [process for process in processes(kernel) if process.is_running()]
    assert found
    for process in found:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)


@pytest.fixture(scope="module", params=HOSTS)
def wired(request: pytest.FixtureRequest, browser: Browser) -> Iterator[tuple[Dashboard, Line]]:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit, line = Dashboard(page, request.param), Line(page)
    HOSTS[request.param](page, request.getfixturevalue(request.param))
    visit.wait_until_drawn()
    yield visit, line
    page.close()


@contextmanager
def unanswered(line: Line, harm: str) -> Iterator[None]:
    if harm == "stopped":
        with stopped(line.kernel):
            yield
        return
    line.cut = True
    try:
        yield
    finally:
        line.mend()


@pytest.mark.parametrize("wired", ["voila"], indirect=True)
@pytest.mark.parametrize("harm", ["stopped", "offline"])
def test_a_slider_that_nobody_hears_leaves_nothing_that_looks_measured(
    wired: tuple[Dashboard, Line], harm: str
) -> None:
    """Neither a stopped kernel nor one without a network; and then somebody answers."""
    visit, line = wired
    page, status = visit.page, visit.page.locator(".ex-status-text")
    with unanswered(line, harm):
        state, said, after = page.evaluate(MOVED, "n_layers")
        assert (state, said) == ("stale", "Waiting for Python")
        assert 250 < after < 2000
        page.wait_for_function(SHOWN_STALE, timeout=2000)
        expect(status).to_have_text("Python does not answer", timeout=10_000)
        assert visit.state == "stale"
        assert page.evaluate(SHOWN_STALE)
    depth = int(visit.entry("n_layers").input_value())
    expect(status).to_have_text(f"Measured {depth} layers of width 256")
    page.wait_for_function(FRESH)
    assert visit.state == "idle"
    assert visit.dots("Second moment")["x"][-1] == depth
    visit.must_be_clean()


@pytest.mark.parametrize("wired", ["voila"], indirect=True)
def test_a_slider_that_is_answered_in_time_does_not_blink(wired: tuple[Dashboard, Line]) -> None:
    """Where others keep the processor busy, an answer may be late: then it is tried again."""
    visit, _ = wired
    visit.page.evaluate(WATCH)
    for _ in range(1 if SHAKEN else ATTEMPTS):
        visit.page.evaluate("silences.length = 0")
        with visit.redrawn():
            visit.press("init_variance", "ArrowRight", times=4)
        if not (blinks := visit.page.evaluate("silences")):
            break
    assert SHAKEN or not blinks
    visit.must_be_clean()


# to wait for Python is the page's own affair
@pytest.mark.parametrize("wired", ["voila"], indirect=True)
@pytest.mark.parametrize("act", ["a button", "a chosen design", "a tab"])
def test_whatever_a_person_does_is_unanswered(wired: tuple[Dashboard, Line], act: str) -> None:
    visit, line = wired
    page = visit.page
    with unanswered(line, "stopped"):
        if act == "a button":
            page.get_by_role("button", name="Menu").click()
            page.get_by_role("button", name="Reset all").click()
        elif act == "a tab":
            page.get_by_role("tab", name="Race", exact=True).click()
        else:
            visit.choose("preset", "post_ln")
        expect(page.locator(".ex-status-text")).to_have_text(
            re.compile("Waiting for Python|Python does not answer")
        )
        page.wait_for_function(SHOWN_STALE, timeout=2000)
    page.get_by_role("tab", name="Explore", exact=True).click()
    page.wait_for_function(FRESH)
    visit.must_be_clean()


@pytest.mark.parametrize("wired", ["lab"], indirect=True)
def test_a_restarted_kernel_leaves_one_sentence(wired: tuple[Dashboard, Line]) -> None:
    """The last test: the kernel is restarted as a person does it, the page is run again, and the
    kernel is killed."""
    visit, line = wired
    page = visit.page
    gone = page.locator(".ex-root.jupyter-widgets-disconnected")
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Restart Kernel…")).click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    must_be_one_sentence(gone)
    for number in range(2):
        page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").nth(number).click()
        page.keyboard.press("Shift+Enter")
    expect(gone).to_have_count(0)
    visit.wait_until_drawn()
    for process in processes(line.kernel):
        process.kill()
    must_be_one_sentence(gone)


def must_be_one_sentence(gone: Locator) -> None:
    """All that is left of a page without its kernel."""
    gone.wait_for()
    assert gone.evaluate("(node) => getComputedStyle(node, '::before').content") == f'"{RESTARTED}"'
    assert gone.locator("*:visible").count() == 0
    assert 20 < gone.evaluate("(node) => node.offsetHeight") < 80
