"""What a browser's message changes comes back together; what Python changes, and other threads, go their own ways."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from explored import SMALL, opened
from ipywidgets import Widget

from explorer.app.widgets.chart import Chart
from explorer.app.widgets.runtime import PageWidget, Runtime, one_message
from explorer.theory import predict

open_panel = pytest.fixture(opened)


@pytest.fixture
def sent(monkeypatch):
    """What reaches the kernel's socket, in order: `(widget, message)`."""
    messages: list[tuple[Widget, dict[str, Any]]] = []
    monkeypatch.setattr(Widget, "_send", lambda widget, message, buffers=None: messages.append((widget, message)))
    return messages


def message(widget: PageWidget, **state: object) -> None:
    """A browser sets traits."""
    data = {"method": "update", "state": state, "buffer_paths": []}
    widget._handle_msg({"content": {"data": data}, "buffers": []})


def test_all_charts_of_a_move_and_the_status_line_are_one_message(open_panel, sent):
    page = open_panel(predict=predict)
    page.until("idle")
    panel = page.panel
    for value in (1.5, 2.0):
        sent.clear()
        message(panel.controls, values={**panel.controls.values, "init_variance": value})
        widgets = [widget for widget, _ in sent]
        assert not any(isinstance(widget, Chart) for widget in widgets[:widgets.index(Runtime.shared())])
        states = sent[widgets.index(Runtime.shared())][1]["content"]["states"]
        assert {chart.model_id for chart in panel.charts.values()} <= states.keys()
        assert panel.status.model_id in states
        page.until("idle")
    assert states[panel.status.model_id]["text"] == panel.status.text.replace("Measured", "Measuring")
    assert panel.controls.config == SMALL.replace(init_variance=2.0)


def test_what_python_sets_is_sent_as_it_is(open_panel, sent):
    page = open_panel(predict=predict)
    page.until("idle")
    sent.clear()
    page.panel.controls.apply({"init_variance": 1.5})
    assert Runtime.shared() not in [widget for widget, _ in sent]
    assert any(isinstance(widget, Chart) for widget, _ in sent)


class Telling(PageWidget):
    """Does `act` when a browser's message comes."""

    def __init__(self, act) -> None:
        super().__init__()
        self._act = act

    def set_state(self, _: object) -> None:
        self._act()


def test_a_widgets_own_message_comes_after_what_was_set_before_it_and_before_what_is_set_after(sent):
    one, other = Chart(), Chart()

    def act():
        with one_message():
            one.title, other.title = "First", "Other"
            one.send("custom")
            one.title = "Second"

    telling = Telling(act)
    sent.clear()
    message(telling)
    seen = [(widget, message.get("state") or message.get("content")) for widget, message in sent
            if widget in (one, other, Runtime.shared())]
    last = {"states": {other.model_id: {"title": "Other"}, one.model_id: {"title": "Second"}}}
    assert seen == [(one, {"title": "First"}), (one, "custom"), (Runtime.shared(), last)]


def test_a_failure_leaves_nothing_unsent_and_another_thread_waits_for_nobody(sent):
    one, other = Chart(), Chart()

    def act():
        with suppress(ZeroDivisionError), one_message():
            one.title = "Said"
            thread = threading.Thread(target=lambda: other.set_trait("title", "At once"))
            thread.start()
            thread.join()
            assert sent[-1] == (other, {"method": "update", "state": {"title": "At once"}, "buffer_paths": []})
            raise ZeroDivisionError

    message(Telling(act))
    assert sent[-1][1]["content"] == {"states": {one.model_id: {"title": "Said"}}}
    one.title = "Later"
    assert sent[-1][0] is one, "what Python sets afterwards is sent as it is"


def test_nothing_changed_is_no_message(sent):
    def act():
        with one_message():
            pass

    message(Telling(act))
    assert Runtime.shared() not in [widget for widget, _ in sent]
