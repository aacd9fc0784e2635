"""The parts of a page are carried by one widget, and what a browser's message changes comes back as
one message."""

from __future__ import annotations

import threading

import pytest
import traitlets
from explored import SMALL

from explorer.app.dashboard import Dashboard
from explorer.app.tabs import tabs
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.parts import PageWidget, Part, prose, together


class Browser:
    """A browser that looks at a page: all that it has of it, by the messages alone."""

    def __init__(self, page: PageWidget, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page, self.number, self.messages = page, 0, []
        monkeypatch.setattr(page, "send", self.receive)
        self.state = page.get_state()["state"]

    def receive(self, message, _=None) -> None:
        self.messages.append(message)
        self.state |= {
            name: message[name] for name in ("sent", "handled", "top") if name in message
        }
        for number, values in message.get("parts", {}).items():
            self.state["parts"].setdefault(number, {}).update(values)

    def act(self, part: Part, verb: str, content: object) -> None:
        self.number += 1
        if verb == "set" and isinstance(content, dict):
            self.state["parts"][part.number] |= content
        self.page._take(self.page, [self.number, part.number, verb, content], [])

    def has_all_of(self, part: Part) -> bool:
        return self.state["parts"][part.number] == part.get_state()


@pytest.fixture
def two(monkeypatch):
    """A page of two charts, and its browser."""
    first, second = Chart(), Chart()
    return first, second, Browser(PageWidget(Part([first, second])), monkeypatch)


def test_a_browser_has_all_of_the_page_after_each_move_by_one_message(monkeypatch):
    page = Dashboard(SMALL, {"explore": tabs()["explore"]})
    panel, browser = page.panels["explore"], Browser(page, monkeypatch)
    panel.worker.close()  # from here on, nothing changes but by this test
    for value in (1.5, 2.0):
        browser.messages.clear()
        browser.act(
            panel.controls, "set", {"values": {**panel.controls.values, "init_variance": value}}
        )
        (message,) = browser.messages
        assert {panel.diagram.number, panel.diagram.stack.number} <= message["parts"].keys()
        assert message["handled"] == browser.number
        assert all(map(browser.has_all_of, page.top.tree()))
    assert panel.controls.config == SMALL.replace(init_variance=2.0)
    page.close()


def test_what_changes_outside_of_a_browsers_message_is_sent_at_once_or_together(two):
    first, second, browser = two
    first.title = "First"
    assert browser.messages[-1]["parts"] == {first.number: {"title": "First", "view": "chart"}}
    with together():
        first.title, second.title, first.stale = "Second", "Other", True
        assert len(browser.messages) == 1
    assert len(browser.messages) == 2
    assert browser.has_all_of(first)
    assert browser.has_all_of(second)


def test_an_equal_value_is_no_message(two):
    first, _, browser = two
    first.title = ""
    with together():
        pass
    assert not browser.messages


def test_what_a_browser_has_set_is_not_sent_back_unless_it_is_changed_again(two):
    first, _, browser = two
    browser.act(first, "set", {"title": "Its own"})
    assert not browser.messages
    first.observe(lambda change: setattr(first, "title", change["new"].upper()), "title")
    browser.act(first, "set", {"title": "small"})
    assert browser.messages[-1]["parts"][first.number]["title"] == "SMALL"


def test_a_parts_own_message_comes_after_what_was_set_before_it(two):
    first, second, browser = two
    first.on_msg(
        lambda *_: (
            setattr(second, "title", "Before"),
            first.send("own"),
            setattr(second, "title", "After"),
        )
    )
    browser.act(first, "act", "anything")
    before, own, after = browser.messages
    assert before["parts"][second.number]["title"] == "Before"
    assert own == {"to": first.number, "content": "own"}
    assert after["parts"][second.number]["title"] == "After"


def test_a_failure_leaves_nothing_unsent_and_another_thread_waits_for_nobody(two):
    first, second, browser = two
    thread = threading.Thread(target=lambda: second.set_trait("title", "At once"))
    try:
        with together():
            first.title = "Said"
            thread.start()
            thread.join()
            assert browser.has_all_of(second)
            first.title = 1
    except traitlets.TraitError:
        pass
    assert browser.has_all_of(first)


def test_a_browser_that_missed_a_message_is_given_all_and_another_one_nothing(two):
    first, _, browser = two
    browser.page._take(browser.page, ["shown", browser.state["sent"]], [])
    assert not browser.messages
    first.title = "Missed"
    browser.page._take(browser.page, ["shown", 0], [])
    assert browser.messages[-1] == browser.page.get_state()["state"]


def test_parts_come_whole_and_go(two):
    first, second, browser = two
    box = Part([late := Chart(title="Late")])
    browser.page.top.children = (first, box)
    assert browser.has_all_of(box)
    assert browser.has_all_of(late)
    assert late.page is browser.page
    browser.messages.clear()
    second.title = "Nobody sees it"
    assert not browser.messages
    browser.act(second, "set", {"title": "Nobody sent it"})  # a browser may say anything
    assert second.title == "Nobody sees it"


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "shown",
        ["shown"],
        ["shown", "0"],
        [1, 2],
        [1, -5, "set", {}],
        [1, [], "set", {}],
        [1, "x", "act", {}],
        [1, None, "act", None],
        {"parts": {}},
    ],
)
def test_a_message_that_is_none_is_ignored(two, message):
    browser = two[-1]
    browser.page._take(browser.page, message, [])
    assert not browser.messages


def test_only_traits_that_a_browser_has_can_be_set_and_only_rightly(two):
    first, _, browser = two
    browser.act(
        first, "set", {"children": [], "page": 1, "seen": False, "on_ask": 0, "title": "Right"}
    )
    browser.act(first, "set", [1])
    assert (first.title, first.seen, first.page) == ("Right", True, browser.page)
    with pytest.raises(traitlets.TraitError, match="badge_tone"):
        browser.act(first, "set", {"badge_tone": "purple"})
    assert first.badge_tone == ""


def test_classes_are_added_once_and_removed():
    words = prose("<b>x_1</b>", "ex-lead").add_class("ex-a").add_class("ex-a")
    assert words.classes == ("ex-words", "ex-lead", "ex-a")
    assert words.remove_class("ex-lead").remove_class("ex-lead").classes == ("ex-words", "ex-a")


def test_a_message_that_overtakes_the_acts_that_wait_is_none_of_them(two):
    first, _, browser = two
    browser.act(first, "set", {"stale": True})
    browser.page._take(browser.page, [0, first.number, "act", ["seen", False]], [])
    assert not first.seen
    assert browser.page.get_state()["state"]["handled"] == browser.number == 1
