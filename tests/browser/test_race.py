"""A race as a person runs it in the page that Voilà serves: start, watch the curves grow, stop,
start another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pandas as pd
import pytest
from playwright.sync_api import Locator, expect

from explorer_race.archive import load

from .dashboard import Dashboard

CURVE = """(title) => {
  const race = document.querySelector('.ex-race.ex-panel');
  const heading = [...race.querySelectorAll('.ex-chart-title')].find((node) => node.textContent === title);
  const traces = heading?.closest('figure').querySelector('.ex-chart-plot')._fullData ?? [];
  const curves = traces.filter((trace) => trace.line && trace.hoverinfo !== 'skip');
  const about = ({ x, line }) => ({ length: x.length, last: x[x.length - 1], hue: line.color });
  return Object.fromEntries(curves.map((trace) => [trace.name, about(trace)]));
}"""
"""Each contender's curve on a chart: its points, its last step and its hue."""
GROWN = f"""([title, before, names]) => {{
  const now = ({CURVE})(title);
  return names.every((name) => now[name] && now[name].last > (before[name]?.last ?? -1));
}}"""
AT = f"""([title, steps]) => {{
  const now = ({CURVE})(title);
  const wanted = Object.entries(steps);
  return Object.keys(now).length === wanted.length && wanted.every(([name, step]) => now[name]?.last === step);
}}"""
PLACE = "(node) => node.getBoundingClientRect().top - node.closest('.ex-contenders').getBoundingClientRect().top"
"""Where something is in the list of contenders, however far the page is scrolled."""
LINED_UP = "(chips) => chips.map((chip) => [chip.innerText, chip.querySelector('input').value])"
START: list[list[str]] = []
"""The contenders with which a test began: the next one lines up anew only where that test has
changed them."""
HOLD = """() => {
  const { send } = WebSocket.prototype;
  const held = [];
  WebSocket.prototype.send = function hold(data) { held.push([this, data]); };
  globalThis.release = () => {
    WebSocket.prototype.send = send;
    for (const [socket, data] of held) send.call(socket, data);
  };
}"""
"""Has a slow network: what the page sends stays in the browser until `release()`."""
SIZES = {"n_layers": "2", "d_model": "32", "n_ctx": "16", "batch_size": "4"}


class Track:
    """The Race panel of an open page."""

    def __init__(self, visit: Dashboard) -> None:
        self.visit, self.page = visit, visit.page
        self.panel = self.page.locator(".ex-race.ex-panel")
        self.said = self.panel.locator(".ex-status-text")
        self.chips = self.panel.locator(".ex-contender")
        self.adding = self.panel.get_by_role("button", name="Add the chosen design as a contender")

    def entry(self, field: str) -> Locator:
        return self.panel.locator(f"[data-field={field}] input.ex-entry")

    def write(self, field: str, text: str) -> None:
        self.entry(field).fill(text)
        self.entry(field).press("Tab")

    def press(self, words: str) -> None:
        self.panel.get_by_role("button", name=words, exact=True).click()

    def leave(self, *names: str) -> None:
        """Removes every contender but these."""
        keep = self.page.get_by_role(
            "button", name=re.compile(f"^Remove ({'|'.join(map(re.escape, names))})$")
        )
        others = self.chips.filter(has_not=keep) if names else self.chips
        while left := others.count():  # one at a time: who is left may be called otherwise then
            others.first.get_by_role("button", name="Remove").click()
            expect(others).to_have_count(left - 1)

    def add(self, value: str) -> None:
        before = self.chips.count()
        self.panel.get_by_role("combobox", name="Design to add").click()
        self.panel.locator(f".ex-add [data-value='{value}']").click()
        self.adding.click()
        expect(self.chips).to_have_count(before + 1)

    def curves(self, title: str = "Training loss") -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = self.page.evaluate(CURVE, title)
        return found

    def wait_until_grown(
        self, names: list[str], before: dict[str, dict[str, object]] | None = None
    ) -> None:
        self.page.wait_for_function(GROWN, arg=["Training loss", before or {}, names])

    def wait_until_at(self, steps: dict[str, int]) -> None:
        """Until these curves and no others end at their steps: a chart is drawn some time after the
        words are."""
        self.page.wait_for_function(AT, arg=["Training loss", steps])

    def rows(self) -> list[str]:
        return self.panel.locator(".ex-standings tbody th").all_inner_texts()


@pytest.fixture(scope="module")
def visit(visit: Dashboard) -> Dashboard:
    """The page with its Race panel open, every fold unfolded."""
    page = visit.page
    page.get_by_role("tab", name="Race", exact=True).click()
    page.get_by_role("button", name="Start", exact=True).wait_for()
    page.locator(".ex-race.ex-panel details").evaluate_all(
        "(folds) => folds.forEach((fold) => { fold.open = true; })"
    )
    return visit


@pytest.fixture
def track(visit: Dashboard) -> Iterator[Track]:
    """The panel with two small contenders and a race that ends only when it is stopped; left with
    none running."""
    track = Track(visit)
    if track.chips.evaluate_all(LINED_UP) != START:
        track.leave()
        for design in ("post_ln", "pre_ln"):
            track.add(f"preset:{design}")
    for field, text in (SIZES | {"steps": "100000"}).items():
        if track.entry(field).input_value() != text:
            track.write(field, text)
    START[:] = track.chips.evaluate_all(LINED_UP)
    yield track
    if track.panel.get_by_role("button", name="Stop", exact=True).is_enabled():
        track.press("Stop")
        expect(track.said).to_contain_text("Stopped")
    visit.must_be_clean()


def test_the_button_that_adds_stays_under_the_pointer(track: Track) -> None:
    place = track.adding.evaluate(PLACE)
    track.add("preset:rezero")
    assert track.adding.evaluate(PLACE) == place, "pressed again at once, it would be missed"
    track.leave("Post-LN")
    assert track.adding.evaluate(PLACE) == place


def test_two_curves_grow_until_it_is_stopped_and_another_race_can_be_run(track: Track) -> None:
    track.press("Start")
    both = ["Post-LN", "Pre-LN"]
    track.wait_until_grown(both)
    before = track.curves()
    track.wait_until_grown(both, before)
    assert len({curve["hue"] for curve in before.values()}) == 2
    expect(track.said).to_have_text("Training 2 contenders")
    track.press("Stop")
    expect(track.said).to_contain_text("Stopped at step ")
    assert sorted(track.rows()) == both
    expect(track.panel.get_by_role("region", name="Verdict", exact=True)).to_contain_text(
        "nats a character after"
    )

    hue = track.curves()["Pre-LN"]["hue"]
    track.leave("Pre-LN")
    # A widget has one message on its way at a time: on a slow one, the second of two moves comes
    # after the button, which must not overtake it.
    track.page.evaluate(HOLD)
    track.write("batch_size", "5")
    track.write("steps", "20")
    track.press("Start")
    track.page.wait_for_timeout(300)  # nothing is to be seen of what must not be sent
    track.page.evaluate("release()")
    expect(track.said).to_have_text("Finished at step 20 of 20")
    track.page.wait_for_function(
        "() => document.querySelectorAll('.ex-standings tbody th').length === 1"
    )
    track.wait_until_at({"Pre-LN": 19})
    assert track.curves() == {"Pre-LN": {"length": 20, "last": 19, "hue": hue}}


def test_a_race_is_run_by_keyboard_alone_while_the_page_answers(track: Track) -> None:
    """And whoever closes the page is asked while steps would be lost."""
    both = ["Post-LN", "Pre-LN"]
    track.panel.get_by_role("button", name="Start", exact=True).focus()
    track.page.keyboard.press("Enter")
    pause = track.panel.get_by_role("button", name="Pause", exact=True)
    expect(pause).to_be_focused()  # what has the focus can always be pressed
    expect(track.said).to_have_text("Training 2 contenders")
    must_ask(track)
    track.wait_until_grown(both)
    track.wait_until_grown(both, track.curves())  # who stays has lost nothing
    pause.focus()
    track.page.keyboard.press("Enter")
    expect(track.said).to_have_text("Paused")
    mark = track.panel.locator(".ex-mark")
    expect(mark).to_have_css("background-color", "rgba(0, 0, 0, 0)")  # two bars, not a disk
    expect(mark).to_have_css("border-left-width", "3px")
    must_ask(track)
    stood = track.curves()
    expect(track.panel.get_by_role("button", name="Resume", exact=True)).to_be_enabled()
    track.panel.get_by_role("button", name="Resume", exact=True).focus()
    track.page.keyboard.press("Enter")
    track.wait_until_grown(both, stood)

    track.write("learning_rate", "0.02")
    expect(track.chips.last).to_contain_text("adam 0.02")
    track.panel.get_by_label("Name of the contender Post-LN").fill("Old one")
    track.panel.get_by_label("Name of the contender Post-LN").press("Enter")
    expect(track.panel.get_by_role("button", name="Remove Old one")).to_be_visible()
    assert sorted(track.rows()) == both, "the race that runs is not told"
    track.panel.locator("[data-field=statistic] select").first.select_option("second_moment")
    track.panel.get_by_role(
        "heading", name="Layer by layer: second moment of the stream"
    ).wait_for()
    track.page.get_by_role("tab", name="Explore", exact=True).click()
    explore = track.page.locator(".ex-panel:not(.ex-race)").first
    explore.locator("[data-field=n_layers] input.ex-entry").fill("3")
    explore.locator("[data-field=n_layers] input.ex-entry").press("Tab")
    expect(explore.locator(".ex-status-text")).to_contain_text("Measured 3 layers")
    track.page.get_by_role("tab", name="Race", exact=True).click()
    expect(track.said).to_have_text("Training 2 contenders")
    track.press("Stop")
    expect(track.said).to_contain_text("Stopped")
    left = "() => window.dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert track.page.evaluate(left), "nothing is asked any more"


def must_ask(track: Track) -> None:
    """A reload is asked about, and the person stays."""
    track.page.once("dialog", lambda dialog: dialog.dismiss())
    with track.page.expect_event("dialog", lambda dialog: dialog.type == "beforeunload"):
        track.page.evaluate("() => location.reload()")


def test_a_race_that_has_ended_can_be_saved_and_is_no_wider_than_the_window(
    track: Track, tmp_path: Path
) -> None:
    track.write("steps", "12")
    save = track.panel.get_by_role("group", name="Save", exact=True)
    track.press("Start")
    expect(track.said).to_have_text("Finished at step 12 of 12")
    with track.page.expect_download() as told:
        save.get_by_role("button", name="Save race", exact=True).click()
    told.value.save_as(tmp_path / told.value.suggested_filename)
    expect(save.get_by_role("status")).to_contain_text("Saved race.zip")
    with track.page.expect_download() as told:
        save.get_by_role("button", name="Save numbers (CSV)", exact=True).click()
    numbers = pd.read_csv(told.value.path())
    assert len(numbers) == len(load(tmp_path / "race.zip").frame())
    assert set(numbers["contender"]) == {"Post-LN", "Pre-LN"}
    for width in (1024, 390):
        track.page.set_viewport_size({"width": width, "height": 900})
        track.page.wait_for_function(
            "(width) => document.querySelector('.ex-root').clientWidth <= width", arg=width
        )
        beyond = "() => document.querySelector('.ex-root').scrollWidth - window.innerWidth"
        assert track.page.evaluate(beyond) <= 0, width
    track.page.set_viewport_size({"width": 1440, "height": 1000})


def test_a_text_file_is_taken_or_refused(track: Track) -> None:
    file = track.panel.get_by_label("Text file of your own, UTF-8")
    file.set_input_files(
        {"name": "short.txt", "mimeType": "text/plain", "buffer": b"To be, or not to be."}
    )
    said = track.panel.locator(".ex-side .ex-file [role=status]")
    expect(said).to_contain_text(
        "Refused: short.txt: text must have at least 2,000 characters; got 20"
    )
    prose = "".join(topics.values())[:10_500]
    file.set_input_files({"name": "long.txt", "mimeType": "text/plain", "buffer": prose.encode()})
    expect(said).to_contain_text("The next race learns long.txt, 10,500 characters")
    track.press("Use Python's prose")
    expect(said).to_contain_text("The next race learns Python's own prose")
