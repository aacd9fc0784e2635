"""The page as a person has it: controls to move, charts to read, a status line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

PATIENCE = 60_000
"""Milliseconds for anything to happen, on a machine that is busy with something else."""

CHARTS = (
    "Second moment",
    "Gradient by layer",
    "Attention entropy",
    "Token correlation",
    "Gradient by matrix",
    "Attention pattern",
)

ERROR = "[data-mime-type='application/vnd.jupyter.error'], [data-mime-type='application/vnd.jupyter.stderr']"
"""Where a cell's failure is shown instead of the page."""
BEFORE = """try {
  localStorage.setItem('transformer-signal-explorer: stories were offered', '1');
} catch { /* a page without an address */ }"""
"""What a browser remembers that was here before: it is offered no stories, unless a page is opened
as its `first`."""
KERNEL = "async () => (await window.jupyterapp.widgetManagerPromise.promise).kernel.id"
"""In Voilà, the id of the page's kernel."""
DRAWN = "() => [...document.querySelectorAll('.ex-chart-plot')].map((plot) => Number(plot.dataset.drawn))"
SETTLED = """(before) => {
  const plots = [...document.querySelectorAll('.ex-chart-plot')];
  const drawn = plots.map((plot) => Number(plot.dataset.drawn));
  const calm = plots.length === before.length
    && drawn.every((count) => count > 0)
    && drawn.some((count, index) => count > before[index])
    && !document.querySelector('[data-unanswered], .ex-chart-is-stale, .ex-chart-plot[data-waits]')
    && document.querySelector('.ex-status').dataset.state === 'idle';
  const now = calm ? String(drawn) : '';
  if (now !== window.calmAt?.drawn) window.calmAt = { drawn: now, since: performance.now() };
  return calm && performance.now() - window.calmAt.since > 200;
}"""
"""At rest: something was drawn since (not all charts need be: a change may leave one as it was),
nothing is stale, and no chart was drawn for 200 ms."""
STILL = """() => {
  const boxes = [...document.querySelectorAll('.ex-root, .ex-root *')].map((part) => part.getBoundingClientRect());
  const now = boxes.map(({ x, y, right, bottom }) => [x, y, right, bottom]).join();
  if (now !== window.stillAt?.now) window.stillAt = { now, looks: 0, since: performance.now() };
  window.stillAt.looks += 1;
  return window.stillAt.looks > 10 && performance.now() - window.stillAt.since > 300;
}"""
"""Nothing has moved or grown for 300 ms, in which it was looked at ten times: a browser that is
busy looks seldom."""
DOTS = """(title) => {
  const heading = [...document.querySelectorAll('.ex-chart-title')].find((node) => node.textContent === title);
  const traces = heading.closest('figure').querySelector('.ex-chart-plot')._fullData;
  const dots = traces.find((trace) => trace.mode === 'markers');
  return { x: [...dots.x], y: [...dots.y], spread: [...dots.customdata].map((ends) => [...ends].slice(0, 2)) };
}"""
"""plotly unpacks typed arrays into its own copy of the data, `_fullData`."""


LATE = "[anywidget] Failed to initialize model."
"""What anywidget says of a widget that took two seconds to load, as any may where the machine is
busy."""


def wait_until_still(page: Page) -> None:
    """Until a window that was resized, or a page that was scrolled, has found its new form."""
    page.evaluate("() => { window.stillAt = null; }")
    page.wait_for_function(STILL)


class Dashboard:
    """Drives one open page, and keeps what its console and its network should not have said."""

    def __init__(self, page: Page, host: str, *, first: bool = False) -> None:
        self.page, self.host = page, host
        if not first:
            page.add_init_script(BEFORE)
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._hear)
        page.on(
            "pageerror",
            lambda error: str(error) == LATE or self.complaints.append(f"uncaught: {error}"),
        )
        page.on("request", self._watch)
        page.on("websocket", lambda socket: self._check(socket.url))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text} ({message.location['url']})")

    def _watch(self, request: Request) -> None:
        self._check(request.url)

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "localhost":
            self.complaints.append(f"asked another host: {url}")

    def must_be_clean(self) -> None:
        complaints, self.complaints = self.complaints, []
        assert not complaints, "\n".join(complaints)

    # --- reading ----------------------------------------------------------------------------------

    @property
    def state(self) -> str | None:
        return self.page.locator(".ex-status").get_attribute("data-state")

    @property
    def said(self) -> str:
        return self.page.locator(".ex-status-text").inner_text()

    def drawn(self) -> list[int]:
        """How often each chart was drawn."""
        counts: list[int] = self.page.evaluate(DRAWN)
        return counts

    def dots(self, title: str) -> dict[str, Any]:
        """The measured dots of a chart: x, y and the spread [low, high] over seeds."""
        found: dict[str, Any] = self.page.evaluate(DOTS, title)
        return found

    # --- waiting ----------------------------------------------------------------------------------

    def wait_until_drawn(self) -> None:
        """Until every chart shows the first measurement."""
        self.page.wait_for_selector(f".ex-root, {ERROR}")
        assert self.page.locator(ERROR).count() == 0, self.page.locator(ERROR).first.inner_text()
        self.page.wait_for_function(SETTLED, arg=[0] * len(CHARTS))

    @contextmanager
    def redrawn(self) -> Iterator[None]:
        """After the block something must be drawn anew and the page be at rest."""
        before = self.drawn()
        yield
        self.page.wait_for_function(SETTLED, arg=before)

    def wait_for_state(self, state: str) -> None:
        self.page.wait_for_selector(f".ex-status[data-state={state}]")

    # --- touching ---------------------------------------------------------------------------------

    def control(self, field: str) -> Locator:
        return self.page.locator(f"[data-field={field}]")

    def slider(self, field: str) -> Locator:
        return self.control(field).locator("input[type=range]")

    def entry(self, field: str) -> Locator:
        return self.control(field).locator("input.ex-entry")

    def press(self, field: str, key: str, times: int = 1) -> None:
        """Presses a key on a slider, as fast as it goes."""
        self.slider(field).focus()
        for _ in range(times):
            self.page.keyboard.press(key)

    def write(self, field: str, text: str) -> None:
        """Writes into the entry beside a slider, and leaves it."""
        self.entry(field).fill(text)
        self.entry(field).press("Tab")

    def choose(self, field: str, value: str) -> None:
        """Picks one value of a choice: from its list, with or without a search, or by clicking its
        segment."""
        if (searched := self.control(field).locator("input[role=combobox]")).count():
            searched.click()
            self.control(field).locator(f"[data-value={value}]").click()
            return
        if (listed := self.control(field).locator("select")).count():
            listed.select_option(value)
            return
        radio = self.control(field).locator(f"input[value={value}]")
        self.control(field).locator(f"label[for='{radio.get_attribute('id')}']").click()

    def reset(self) -> None:
        """No design pinned and every control at its default, by the buttons a person has."""
        pins = self.page.locator(".ex-pin:not(.ex-contender)")  # those of a race stay
        # All in one step: a pin that the test before had just removed may go between a count and a
        # click.
        pins.locator("[data-verb=remove]").evaluate_all(
            "(buttons) => buttons.forEach((button) => button.click())"
        )
        expect(pins).to_have_count(0)
        # a control of the Map or of a race is answered by no drawing of Explore's charts
        explore = self.page.locator(".ex-panel:not(.ex-map, .ex-race)")
        buttons = explore.locator(".ex-reset:not(.ex-hidden)")
        while buttons.count():
            with self.redrawn():
                buttons.first.evaluate("(button) => button.click()")  # also those in folded groups


@contextmanager
def first_visit(browser: Browser, address: str, height: int) -> Iterator[Dashboard]:
    """The page, drawn, as somebody has it who was never here, in a window 1440 pixels wide."""
    page = browser.new_page(viewport={"width": 1440, "height": height})
    visit = Dashboard(page, "voila", first=True)
    page.goto(address)
    visit.wait_until_drawn()
    yield visit
    visit.must_be_clean()
    page.close()
