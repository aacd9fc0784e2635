"""Rude visitors of a real server, over real websockets: each is turned away, and nobody else notices."""

from __future__ import annotations

import json
import struct
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

import explorer

from .conftest import open_in_voila, server
from .dashboard import Dashboard
from .test_race import CURVE, Track
from .visitor import (
    SOON,
    answers,
    arrive,
    enter,
    frame,
    get,
    kernels,
    message,
    processes,
    received,
    seconds_until_gone,
    turned_away,
)

GRACE = 4
"""Seconds that kernels of these tests wait for their pages."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("visits") / "log"


@pytest.fixture(scope="module")
def address(log: Path) -> Iterator[str]:
    """A server of this file's own, since some of it might go down; it looks at its kernels every second."""
    with server(["serve"], log, EXPLORER_GRACE_SECONDS=str(GRACE), EXPLORER_LOOK_SECONDS="1") as running:
        yield running


@pytest.fixture(scope="module")
def polite(address: str) -> Iterator[ClientConnection]:
    """A visit that lasts through all of this file's attacks, of somebody polite."""
    with enter(address, arrive(address)) as visit:
        yield visit
        assert answers(visit), "somebody polite was disturbed"


@pytest.fixture(scope="module")
def rude_kernels() -> list[str]:
    """Kernels of somebody rude, the last of which may still be there."""
    return []


@pytest.fixture
def kernel(address: str, polite: ClientConnection, rude_kernels: list[str]) -> str:
    """The kernel of somebody rude; another one where it has ended, as any does without a page."""
    try:
        with enter(address, rude_kernels[-1]):
            pass  # it waits for its page from now on
    except (IndexError, InvalidStatus):
        rude_kernels.append(arrive(address))
    return rude_kernels[-1]


def test_kernel_that_waits_for_a_visitor_outlives_the_grace(address: str) -> None:
    """The first test: nobody has come yet."""
    end = time.monotonic() + SOON
    while not (waiting := kernels(address)) and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(GRACE + 4)
    assert processes(arrive(address))[0].pid in waiting


def test_threads_of_a_kernel_share_what_they_have_freed(kernel: str) -> None:
    assert processes(kernel)[0].environ()["MALLOC_ARENA_MAX"] == "2"


WHOLE = message("kernel_info_request", {})
RUDE: dict[str, bytes | str] = {
    "a number of parts without end": b"\xff" * 64,
    "two million parts": struct.pack("<Q", 2_000_000) + bytes(64),
    "no parts": bytes(64),
    "nothing": b"",
    "an offset beyond the end": struct.pack("<7Q", 6, 56, 61, 63, 65, 67, 2**40) + b"shell{}{}{}{}",
    "offsets that go back": struct.pack("<7Q", 6, 56, 61, 60, 65, 67, 69) + b"shell{}{}{}{}",
    "cut off": WHOLE[:-1],
    "more than it says": WHOLE + b"{}",
    "a header that is no JSON": frame(b"{", b"{}", b"{}", b"{}"),
    "a header that is no object": frame(b"[]", b"{}", b"{}", b"{}"),
    "a header without a type": frame(b"{}", b"{}", b"{}", b"{}"),
    "a header of many brackets": frame(b"[" * 200_000, b"{}", b"{}", b"{}"),
    "a channel that nobody knows": message("comm_msg", {}, channel=b"iopub"),
    "text": "\xff" * 64,
    "JSON of the older protocol": json.dumps({"header": {"msg_type": "comm_msg"}, "channel": "shell"}),
}


@pytest.mark.parametrize("rude", RUDE.values(), ids=RUDE)
def test_frame_that_is_no_message_ends_its_connection_only(address: str, kernel: str, rude: bytes | str) -> None:
    with enter(address, kernel) as visit:
        visit.send(rude)
        assert turned_away(visit) == 1003
    with enter(address, kernel) as next_visit:
        assert answers(next_visit)


@pytest.mark.parametrize(("size", "count", "code"), [(8_000_000, 1, 1009), (4_000_000, 8, 1008), (100, 40_000, 1008)])
def test_who_sends_too_much_is_turned_away(address: str, kernel: str, size: int, count: int, code: int) -> None:
    with enter(address, kernel) as visit:
        sent = message("comm_msg", {"comm_id": "x" * size, "data": {}})
        with suppress(ConnectionClosed):  # it may be closed while we still send
            for _ in range(count):
                visit.send(sent)
        assert turned_away(visit) == code
    with enter(address, kernel) as next_visit:
        assert answers(next_visit)


@pytest.mark.parametrize("protocols", [(), ("another",)])
def test_client_without_the_protocol_is_refused_at_the_handshake(
    address: str, kernel: str, protocols: tuple[str, ...],
) -> None:
    with pytest.raises(InvalidStatus) as refusal, enter(address, kernel, protocols):
        pass
    assert refusal.value.response.status_code == 400


@pytest.fixture(scope="module")
def visit_after(browser: Browser, address: str, polite: ClientConnection) -> Iterator[Dashboard]:
    """A page that comes after somebody rude."""
    with enter(address, arrive(address)) as rude:
        rude.send(b"\xff" * 64)
        assert turned_away(rude) == 1003
    page = browser.new_page()
    visit = Dashboard(page, "voila")
    open_in_voila(page, address)
    visit.wait_until_drawn()
    yield visit
    page.close()


def test_next_visitor_still_gets_a_page(visit_after: Dashboard) -> None:
    visit_after.must_be_clean()


def test_more_visitors_than_warm_kernels_each_have_one_of_their_own(address: str) -> None:
    """At once: the pool holds one kernel; the others get theirs as before, and all end when nobody comes.

    Also that of a page that never came: the first.
    """
    def visit(number: int) -> str:
        kernel = arrive(address)
        if number > 0:
            with enter(address, kernel) as entered:
                assert answers(entered)
        return kernel

    with ThreadPoolExecutor() as visitors:
        kernels = list(visitors.map(visit, range(3)))
    assert len(set(kernels)) == 3
    assert all(seconds_until_gone(kernel) < SOON for kernel in kernels)


TROUBLE = {
    "an unknown target": ("comm_open", {"comm_id": "a", "target_name": "nothing", "data": {}}),
    "an unknown widget": ("comm_open", {
        "comm_id": "b", "target_name": "jupyter.widget", "data": {"state": {"_model_name": "Nothing"}},
    }),
    "an unknown comm": ("comm_msg", {"comm_id": "c", "data": {}}),
    "a comm without an id": ("comm_msg", {"data": {}}),
    "no content": ("comm_info_request", []),
}


@pytest.mark.parametrize(("kind", "content"), TROUBLE.values(), ids=TROUBLE)
def test_no_traceback_leaves_the_server(address: str, kernel: str, kind: str, content: object) -> None:
    with enter(address, kernel) as visit:
        visit.send(message(kind, content))
        visit.send(message("kernel_info_request", {}))
        must_be_silent_of_the_server(received(visit, "kernel_info_reply"))


def test_no_traceback_of_a_widget_leaves_the_server(address: str, kernel: str) -> None:
    """A new slider, and then values that raise in the kernel: in its validation, and in what follows a message."""
    with enter(address, kernel) as visit:
        comm = str(uuid.uuid4())
        state = {"_model_module": "@jupyter-widgets/controls", "_model_module_version": "2.0.0",
                 "_model_name": "IntSliderModel", "_view_module": "@jupyter-widgets/controls",
                 "_view_module_version": "2.0.0", "_view_name": "IntSliderView"}
        visit.send(message("comm_open", {
            "comm_id": comm, "target_name": "jupyter.widget", "data": {"state": state}}))
        for data in (
            {"method": "update", "state": {"value": "no number"}},
            {"method": "update", "state": {"layout": "IPY_MODEL_nothing"}},
            {"method": "update", "buffer_paths": [["a", "b"]], "state": {}},
            {"method": "update"},
            [],
        ):
            visit.send(message("comm_msg", {"comm_id": comm, "data": data}))
        visit.send(message("kernel_info_request", {}))
        must_be_silent_of_the_server(received(visit, "kernel_info_reply"))


PLACES = ("Traceback", "site-packages", str(Path(explorer.__file__).parent), f"{Path.home()}/", sys.prefix)
"""What tells of the machine."""


def must_be_silent_of_the_server(told: list[str]) -> None:
    assert [text for text in told for place in PLACES if place in text] == []


@pytest.mark.parametrize("path", ["/", "/voila/files/explorer.ipynb", "/voila/templates/..%2f..", "/api/kernels/a",
                                  "/voila/plotly-000000000000.js"])
def test_pages_of_the_server_name_no_place_on_it(address: str, path: str) -> None:
    must_be_silent_of_the_server([get(address, path)])


def test_kernel_waits_for_a_page_whose_network_failed(address: str) -> None:
    kernel = arrive(address)
    for _ in range(2):
        with enter(address, kernel):
            pass
    with enter(address, kernel) as visit:
        assert answers(visit)
        time.sleep(GRACE + 3)
        assert answers(visit), "the kernel of an open page has ended"
    assert seconds_until_gone(kernel) < SOON


def test_page_that_comes_back_while_its_kernel_ends_is_turned_away(address: str) -> None:
    """And does not wait a minute for it: the server has seen by then that the kernel was killed."""
    kernel = arrive(address)
    for process in processes(kernel):
        process.kill()
    with pytest.raises(InvalidStatus) as refusal, enter(address, kernel):
        pass
    assert refusal.value.response.status_code == 404


ASKING = """() => window.addEventListener("beforeunload", (event) => {
  event.preventDefault();
  event.returnValue = "stay";
})"""
"""Makes a page ask whether it may be left."""
KERNEL = "async () => (await window.jupyterapp.widgetManagerPromise.promise).kernel.id"


def test_reload_ends_the_old_kernel_and_staying_does_not(visit_after: Dashboard, log: Path) -> None:
    """A page may ask before it is left. Voilà lets go of the kernel before the answer is known."""
    visit, page = visit_after, visit_after.page
    kernel = page.evaluate(KERNEL)
    page.evaluate(ASKING)
    page.locator("h1").click()  # a page that nobody has touched may not ask
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.once("dialog", stay)
    page.evaluate("() => { setTimeout(() => location.reload()); }")
    page.wait_for_timeout(1000 * (GRACE + 3))
    assert asked == ["beforeunload"]
    assert len(processes(kernel)) == 1
    visit.reset()
    page.once("dialog", lambda dialog: dialog.accept())
    page.reload()
    visit.wait_until_drawn()
    assert page.evaluate(KERNEL) != kernel
    assert seconds_until_gone(kernel) < GRACE
    visit.must_be_clean()
    assert "shutdown" not in log.read_text()


def test_kernel_that_computes_ends_with_its_page(visit_after: Dashboard) -> None:
    """The last test: the page is closed."""
    page, track = visit_after.page, Track(visit_after)
    kernel = page.evaluate(KERNEL)
    page.get_by_role("tab", name="Race").click()
    track.write("steps", "100000")
    track.press("Start")
    page.wait_for_function("(curves) => Object.keys(eval(curves)('Training loss')).length > 0", arg=CURVE)
    page.close()
    assert seconds_until_gone(kernel) < SOON
