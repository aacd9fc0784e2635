"""The page in Firefox, driven over WebDriver BiDi, for what browsers may do differently; skipped
without one."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from explorer_serve.kernels import GRACE

from .dashboard import BEFORE, CHARTS, SETTLED
from .test_stories import COVERED, IN_VIEW
from .visitor import processes, seconds_until_gone

PROGRAMS = ("firefox-esr", "firefox")
PATIENCE = 60.0
"""Seconds for anything to happen."""
KERNEL = r"""() => document.documentElement.outerHTML.match(/"kernelId": "([\w-]+)"/)[1]"""
EXPLAINS = """([title, words]) => [...document.querySelectorAll('.ex-chart')].find(
  (chart) => chart.querySelector('.ex-chart-title').textContent === title
).querySelector('.ex-chart-why').textContent.includes(words)"""
UNDERLINES = """() => [...new Set([...document.querySelectorAll('.ex-term')].map((term) => {
  const { textDecorationLine, textDecorationStyle } = getComputedStyle(term);
  return `${textDecorationLine} ${textDecorationStyle}`;
}))]"""
DRAWN = """(tab) => {
  const seen = (within, names) => [...within.querySelectorAll(names)].filter((node) => node.checkVisibility());
  const panel = seen(document, '.ex-panel').find((node) => node.querySelector('h2').textContent === tab);
  const plots = panel ? seen(panel, '.ex-chart-plot') : [];
  return plots.length > 0 && plots.every((plot) => plot.querySelector('.trace, .hm'));
}"""
CLICKED = """(words) => {
  const buttons = [...document.querySelectorAll('button')].filter((button) => button.checkVisibility());
  const button = buttons.find((button) => button.textContent === words)
    ?? buttons.find((button) => button.textContent.startsWith(words));
  button?.click();
  return Boolean(button);
}"""


class Firefox:
    """A tab, over the socket of a WebDriver BiDi session."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.count = socket, 0
        self.complaints: list[str] = []
        self.tell("session.new", capabilities={})
        self.tell("session.subscribe", events=["log.entryAdded"])
        self.tell("script.addPreloadScript", functionDeclaration=f"() => {{ {BEFORE} }}")
        self.tab = self.tell("browsingContext.getTree")["contexts"][0]["context"]

    def tell(self, method: str, **params: Any) -> Any:
        """Sends a command; its result."""
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv(timeout=PATIENCE))).get("id") != self.count:
            if answer["params"]["level"] == "error":
                self.complaints.append(str(answer["params"]["text"]))
        assert answer["type"] == "success", answer
        return answer["result"]

    def resize(self, width: int, height: int) -> None:
        self.tell(
            "browsingContext.setViewport",
            context=self.tab,
            viewport={"width": width, "height": height},
        )

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """The result of a function on the page."""
        call = f"Promise.resolve(({function})({json.dumps(argument)})).then((it) => JSON.stringify(it ?? null))"
        answer = self.tell(
            "script.evaluate", expression=call, target={"context": self.tab}, awaitPromise=True
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def until(self, function: str, argument: Any = None) -> None:
        """Waits for a function on the page to be true."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(function, argument):
            assert time.monotonic() < deadline, f"{function}\n{argument}"
            time.sleep(0.05)

    def click(self, words: str) -> None:
        """Clicks the button, visible now or soon, that has some words or else begins with them."""
        self.until(CLICKED, words)


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not program:
        pytest.skip(f"no Firefox: none of {', '.join(PROGRAMS)} is on the PATH")
    profile = tmp_path_factory.mktemp("firefox")
    command = [
        program,
        "--headless",
        "--no-remote",
        "--profile",
        str(profile),
        "--remote-debugging-port",
        "0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(f"ws://127.0.0.1:{_port(profile)}/session", max_size=None) as socket:
            yield Firefox(socket)
    finally:
        process.terminate()
        process.wait()


def _port(profile: Path) -> int:
    """The port at which Firefox listens, which it writes into its profile."""
    deadline = time.monotonic() + PATIENCE
    while not (file := profile / "WebDriverBiDiServer.json").exists() or not file.read_text():
        assert time.monotonic() < deadline, "Firefox does not listen"
        time.sleep(0.1)
    return int(json.loads(file.read_text())["ws_port"])


@pytest.fixture
def page(firefox: Firefox, voila: str) -> Iterator[Firefox]:
    """The page of somebody who was here before, opened anew; its console must stay free of
    errors."""
    firefox.resize(1440, 900)
    firefox.tell("browsingContext.navigate", context=firefox.tab, url=voila, wait="complete")
    firefox.until(SETTLED, [0] * len(CHARTS))
    yield firefox
    assert firefox.complaints == []


def test_a_page_that_is_left_gives_its_kernel_back(firefox: Firefox, voila: str) -> None:
    """And with it the processors: a kernel that only lost its page computes until nobody can come
    back.

    It goes at once where Firefox says goodbye, and after some seconds where that is lost: then the
    connection, which Firefox closes as one that is left, tells it."""
    firefox.tell("browsingContext.navigate", context=firefox.tab, url=voila, wait="complete")
    firefox.until(SETTLED, [0] * len(CHARTS))
    kernel = firefox.evaluate(KERNEL)
    assert processes(kernel)
    firefox.tell(
        "browsingContext.navigate", context=firefox.tab, url="about:blank", wait="complete"
    )
    assert seconds_until_gone(kernel) < GRACE / 2


def test_every_tab_fits_the_window_and_draws(page: Firefox) -> None:
    for size in ((1440, 900), (390, 844)):
        page.resize(*size)
        for tab in ("Map", "Race", "Your model", "Explore"):
            page.click(tab)
            page.until(DRAWN, tab)
            assert page.evaluate("() => document.querySelector('.ex-root').scrollWidth") <= size[0]


def test_a_story_has_its_chart_in_view_and_covers_the_answer(page: Firefox) -> None:
    """And the line below a chart is of the design that is drawn, its symbols underlined by dots."""
    page.resize(390, 844)
    page.click("Stories")
    page.click("Why deep Post-LN")
    page.until(IN_VIEW, True)
    page.until(EXPLAINS, ["Gradient by layer", "(1 + χ / ql−1)"])
    page.click("Next")
    page.until(COVERED, True)
    page.until(IN_VIEW, True)
    page.click("Skip")
    page.until(COVERED, False)
    page.until(IN_VIEW, True)
    page.until(EXPLAINS, ["Gradient by layer", "(1 + χ) / q, q of the sum before its norm"])
    assert page.evaluate(UNDERLINES) == ["underline dotted"]
