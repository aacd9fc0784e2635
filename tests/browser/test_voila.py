"""What Voilà's visitors get beside the page itself: their system's colors, a note at the start, a
word at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, WebSocketRoute, expect

from .conftest import SHAKEN, Laboratory, open_in_voila
from .dashboard import LATE, PATIENCE, Dashboard

BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def visit(browser: Browser, voila: str) -> Iterator[Dashboard]:
    """A visit of its own, by somebody whose system is dark."""
    page = browser.new_page(color_scheme="dark", viewport={"width": 1200, "height": 900})
    visit = Dashboard(page, "voila")
    page.goto(voila, wait_until="commit")
    # the theory's numbers, before any of the page
    page.wait_for_selector("#ex-first .ex-status >> text=prediction for the default design")
    visit.wait_until_drawn()
    yield visit
    page.close()


def test_only_the_page_is_left_once_it_is_there(visit: Dashboard) -> None:
    assert visit.page.title() == "Transformer Signal Explorer"
    assert visit.page.locator("#loading, #ex-first").count() == 0
    assert not visit.page.locator("#ex-notice").is_visible()
    assert "Run All Cells" not in visit.page.locator("body").inner_text(), (
        "cells for the notebook's readers are shown"
    )
    visit.must_be_clean()


def test_voila_makes_no_still(visit: Dashboard) -> None:
    """Nobody sees it there, and it took a kernel's first half second and 15 MB."""
    expect(visit.page.locator(".ex-still")).to_have_count(0)


def test_colors_follow_the_system_even_while_the_page_is_open(visit: Dashboard) -> None:
    surface = "() => getComputedStyle(document.querySelector('.ex-root')).backgroundColor"
    dark = visit.page.evaluate(BACKGROUND)
    assert dark == visit.page.evaluate(surface)
    visit.page.emulate_media(color_scheme="light")
    light = visit.page.evaluate(BACKGROUND)
    assert light == visit.page.evaluate(surface)
    assert sum(_channels(light)) > 3 * 200 > 3 * 50 > sum(_channels(dark))


def _channels(color: str) -> list[int]:
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.mark.parametrize("answered", [True, False])
def test_what_a_page_misses_while_it_is_put_together_is_told_again(
    browser: Browser,
    voila: str,
    answered: bool,
) -> None:
    """On a slow way, results overtake the page that they are for; here, all that do are lost.

    And a kernel that is too busy to tell of all widgets at once is asked, after some seconds, for
    each of them."""
    shown = False

    def relay(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def to_kernel(message: str | bytes) -> None:
            nonlocal shown
            shown = shown or '"shown"' in words(message)
            if answered or "request_states" not in words(message):
                server.send(message)

        def to_page(message: str | bytes) -> None:
            told = words(message)
            asked_for = '"_model_module"' in told  # a whole widget
            if shown or asked_for or '"parts"' not in told:
                socket.send(message)

        socket.on_message(to_kernel)
        server.on_message(to_page)

    page = browser.new_page()
    visit = Dashboard(page, "voila")
    page.route_web_socket("**/channels*", relay)
    page.goto(voila)
    visit.wait_until_drawn()
    assert shown
    assert visit.said == "Measured 12 layers of width 256"
    assert visit.dots("Second moment")["x"][-1] == 12
    visit.must_be_clean()
    page.close()


def test_a_page_whose_widgets_load_late_hears_the_kernel(browser: Browser, voila: str) -> None:
    """anywidget, which is the same in JupyterLab, refuses what the kernel sends to a widget that
    took more than two seconds to load; here, no time."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.add_init_script("""
      const timeout = AbortSignal.timeout.bind(AbortSignal);
      AbortSignal.timeout = (time) => timeout(time === 2000 ? 0 : time);
    """)
    refused: list[str] = []
    page.on("pageerror", lambda error: str(error) == LATE and refused.append(str(error)))
    page.goto(voila)
    visit.wait_until_drawn()
    assert refused
    with visit.redrawn():
        visit.write("n_layers", "5")
    assert visit.said == "Measured 5 layers of width 256"
    assert visit.dots("Second moment")["x"][-1] == 5
    visit.must_be_clean()
    page.close()


@pytest.fixture(scope="module")
def narrow(browser: Browser, voila: str) -> Iterator[Dashboard]:
    """A page without room for charts, whose visitor asks for another template and theme."""
    page = browser.new_page(viewport={"width": 60, "height": 900})
    visit = Dashboard(page, "voila")
    open_in_voila(page, f"{voila}/?template=reveal&theme=dark")
    yield visit
    visit.must_be_clean()
    page.close()


@pytest.mark.parametrize("served", [True, False])
def test_plotly_comes_from_the_server_or_else_from_the_kernel(
    browser: Browser, voila: str, served: bool
) -> None:
    """Never from both; and the copy of somebody else on the page stays theirs."""
    page = browser.new_page()
    visit = Dashboard(page, "voila")
    page.add_init_script("window.Plotly = 'theirs'")
    sizes: list[int] = []
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))),
    )
    asked: list[str | None] = []
    page.on(
        "response",
        lambda answer: (
            "/voila/plotly-" in answer.url and asked.append(answer.headers.get("cache-control"))
        ),
    )
    if not served:
        page.route("**/voila/plotly-*.js", lambda route: route.fulfill(status=404))
    page.goto(voila)
    visit.wait_until_drawn()
    assert page.evaluate("() => window.Plotly") == "theirs"
    assert [size > 1_400_000 for size in sizes].count(True) == (0 if served else 1)
    if served:
        assert asked == ["public, max-age=31536000, immutable"]
        # all states in one message; what comes late is told again
        assert sum(sizes) < (700_000 if SHAKEN else 520_000)
        visit.must_be_clean()
    else:
        assert all("404" in words for words in visit.complaints)
    page.close()


def test_the_kernel_is_told_which_charts_are_on_the_screen(browser: Browser, voila: str) -> None:
    """The others are not made while a slider is dragged."""
    # too narrow for small pictures, which rest, too
    page = browser.new_page(viewport={"width": 900, "height": 700})
    visit = Dashboard(page, "voila")
    sent: list[bytes] = []
    page.on(
        "websocket",
        lambda socket: socket.on(
            "framesent",
            lambda frame: sent.append(frame if isinstance(frame, bytes) else frame.encode()),
        ),
    )

    def told(words: bytes) -> int:
        return sum(words in frame for frame in sent)

    page.goto(voila)
    visit.wait_until_drawn()
    plots = page.locator(".ex-chart-plot")
    away = plots.evaluate_all(
        "(all) => all.filter((plot) => plot.getBoundingClientRect().top > innerHeight).length"
    )
    # none, unless a chart moved onto the screen while the page was put together
    before = told(b'["seen",true]')
    assert told(b'["seen",false]') - before == away > 0
    assert not any(b'"bdata"' in frame for frame in sent), "a figure goes one way"
    plots.last.scroll_into_view_if_needed()
    end = time.monotonic() + PATIENCE / 1000
    while told(b'["seen",true]') == before and time.monotonic() < end:
        page.wait_for_timeout(50)
    assert told(b'["seen",true]') > before
    visit.must_be_clean()
    page.close()


def test_a_visitor_cannot_choose_what_the_server_renders(narrow: Dashboard, voila: str) -> None:
    assert narrow.page.title() == "Transformer Signal Explorer"
    assert narrow.page.locator("link[href*='voila/templates/explorer/']").count() > 0
    answer = narrow.page.request.get(f"{voila}/voila/files/explorer.ipynb")
    assert answer.status == 403


def test_charts_without_room_wait_for_it(narrow: Dashboard) -> None:
    narrow.page.wait_for_selector(".ex-status[data-state=idle]", state="attached")
    narrow.page.wait_for_function("() => document.querySelectorAll('.ex-chart-plot').length === 6")
    assert not any(narrow.drawn())
    narrow.page.set_viewport_size({"width": 390, "height": 844})
    narrow.wait_until_drawn()


def words(message: str | bytes) -> str:
    """What a message says beside its buffers."""
    return message if isinstance(message, str) else message.decode(errors="ignore")


def test_page_shows_where_voila_is_an_extension_of_a_notebook_server(
    browser: Browser,
    laboratory: Laboratory,
) -> None:
    """As on Binder, and as JupyterLab's own preview has it."""
    page = browser.new_page()
    visit = Dashboard(page, "voila")
    page.goto(f"{laboratory.address}/voila/render/explorer.ipynb")
    visit.wait_until_drawn()
    assert page.title() == "Transformer Signal Explorer"
    assert page.locator("link[href*='voila/templates/explorer/']").count() > 0
    visit.must_be_clean()
    page.close()
