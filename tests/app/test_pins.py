"""Comparing designs on the Explore panel, without a browser: clicks in, figures and words out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from explored import SMALL, Held, Open, Page, expected, opened, plain, theory
from numpy.testing import assert_allclose
from watched import WAIT

from explorer.app.sentences import design_words
from explorer.app.widgets.parts import LOCK
from explorer.figures.palette import HUES
from explorer.measuring import measure
from explorer.vocabulary import geometric_mean

LAYERED = (
    "second_moment",
    "gradient_by_layer",
    "attention_entropy",
    "token_correlation",
    "gradient_by_matrix",
)
POST = SMALL.replace(norm_placement="post")

open_panel = pytest.fixture(name="open_panel")(opened)


@pytest.fixture
def page(open_panel: Open) -> Page:
    return open_panel()


def click(page: Page, *message: object) -> str:
    """What a button sends; gives the answer in words."""
    page.comparison.box.handle(list(message), [])
    return str(page.comparison.box.said)


def pins(page: Page) -> dict[int, dict[str, Any]]:
    return {pin["number"]: pin for pin in page.comparison.box.entries}


def hues(page: Page, chart: str, mode: str) -> list[str]:
    """Colors of the dots ("markers") or lines of a chart, references left out."""
    traces = page.charts[chart].figure["data"]
    if mode == "markers":
        return [trace["marker"]["color"] for trace in traces if trace["mode"] == "markers"]
    return [
        trace["line"]["color"]
        for trace in traces
        if trace["mode"] == "lines" and "fill" not in trace
    ]


def dots(page: Page, hue: str, chart: str = "second_moment") -> np.ndarray:
    traces = page.charts[chart].figure["data"]
    return plain(
        next(t["y"] for t in traces if t["mode"] == "markers" and t["marker"]["color"] == hue)
    )


def test_a_pinned_design_stays_on_every_chart_while_the_controls_move_on(open_panel: Open) -> None:
    page = open_panel(predict=theory)
    assert (
        click(page, "pin")
        == "Pinned as “Pre-LN”: it stays on the charts while the controls move on."
    )
    page.choose(norm_placement="post")
    for chart in LAYERED:
        assert hues(page, chart, "markers") == [HUES[1], HUES[0]]
        assert hues(page, chart, "lines") == [HUES[1], HUES[0]]
    assert_allclose(dots(page, HUES[1]), expected(SMALL))
    assert_allclose(dots(page, HUES[0]), expected(POST))
    names = [
        trace["name"]
        for trace in page.charts["second_moment"].figure["data"]
        if trace["mode"] == "markers"
    ]
    assert names == ["Pre-LN, measured", "Post-LN (now), measured"]
    assert page.comparison.box.now["name"] == "Post-LN"
    assert pins(page)[1]["about"] == "norm placement pre"
    legend = page.charts["second_moment"].designs
    assert [(one["name"], one["hue"]) for one in legend] == [
        ("Pre-LN", HUES[1]),
        ("Post-LN (now)", HUES[0]),
    ]
    assert [one["about"] for one in legend] == [design_words(SMALL), design_words(POST)]
    assert page.charts["attention_pattern"].designs == legend[-1:]
    assert "measured" in page.charts["second_moment"].marks


def test_the_pattern_is_the_current_designs_and_says_so(page: Page) -> None:
    click(page, "pin")
    page.choose(norm_placement="post", init_variance=3.0)
    chart = page.charts["attention_pattern"]
    assert_allclose(
        plain(chart.figure["data"][0]["z"]),
        measure(POST.replace(init_variance=3.0)).pattern,
        rtol=1e-6,
    )
    assert "in the current design" in chart.caption
    click(page, "hide", 1)
    assert "in the current design" not in chart.caption


def test_a_design_alone_is_drawn_as_ever_with_its_pin_or_without(page: Page) -> None:
    before = [trace["name"] for trace in page.charts["gradient_by_matrix"].figure["data"]]
    click(page, "pin")
    assert [trace["name"] for trace in page.charts["gradient_by_matrix"].figure["data"]] == before
    assert hues(page, "second_moment", "markers") == [HUES[0]]
    assert pins(page)[1]["about"] == "same as now"


def test_hiding_and_removing_recolor_nobody_and_a_free_hue_is_used_again(open_panel: Open) -> None:
    page = open_panel(ready=False)
    for variance in (1.0, 2.0, 3.0, 4.0):
        page.set(init_variance=variance)
        wait_for_current(page)
        if variance < 4:
            click(page, "pin")
    assert hues(page, "second_moment", "markers") == [*HUES[1:4], HUES[0]]
    click(page, "hide", 2)
    assert hues(page, "second_moment", "markers") == [HUES[1], HUES[3], HUES[0]]
    assert pins(page)[2]["visible"] is False
    assert click(page, "remove", 1) == "Removed “Pre-LN”."
    assert hues(page, "second_moment", "markers") == [HUES[3], HUES[0]]
    click(page, "show", 2)
    assert hues(page, "second_moment", "markers") == [HUES[2], HUES[3], HUES[0]]
    assert_allclose(dots(page, HUES[2]), expected(SMALL.replace(init_variance=2.0)))
    click(page, "pin")
    assert [pin["hue"] for pin in pins(page).values()] == [HUES[2], HUES[3], HUES[1]]


def wait_for_current(page: Page) -> None:
    """Until what the controls say is what is drawn."""
    page.until("idle")
    assert HUES[0] in hues(page, "second_moment", "markers")


def test_the_seventh_and_the_second_of_a_kind_are_refused_in_words(open_panel: Open) -> None:
    page = open_panel(ready=False)
    for step in range(6):
        page.set(init_variance=1.0 + step)
        wait_for_current(page)
        said = click(page, "pin")
    assert said == "At most 6 designs are compared, this one and 5 pins: remove one first."
    page.set(init_variance=2.0)
    wait_for_current(page)
    assert click(page, "pin") == "This design is pinned already, as “Pre-LN, init variance 2”."
    assert len(pins(page)) == 5
    assert page.worker.computations == 6
    page.set(init_variance=6.0)
    wait_for_current(page)
    assert page.comparison.box.said == "", "old words go when the controls move"
    for chart in LAYERED:
        assert hues(page, chart, "markers") == [*HUES[1:], HUES[0]]


def test_a_name_is_the_persons_in_legend_and_on_hovering_to_the_letter(page: Page) -> None:
    click(page, "pin")
    page.choose(norm_placement="post")
    assert click(page, "name", 1, " <b>%{x}</b> ") == ""
    assert pins(page)[1]["name"] == "<b>%{x}</b>"
    trace = next(t for t in page.charts["second_moment"].figure["data"] if t["mode"] == "markers")
    assert trace["name"] == "&lt;b&gt;%\u200b{x}&lt;/b&gt;, measured"
    assert trace["hovertemplate"].startswith("<b>&lt;b&gt;%\u200b{x}&lt;/b&gt;, measured</b><br>")
    assert " <b>%{x}</b>, measured: " in page.charts["second_moment"].description
    answers = page.comparison.box.answers
    assert click(page, "name", 1, "  ") == "A design needs a name; this one keeps “<b>%{x}</b>”."
    assert page.comparison.box.answers == answers + 1, (
        "so that the browser shows the old name again"
    )


def test_a_pin_can_be_loaded_back_into_the_controls(page: Page) -> None:
    click(page, "pin")
    page.choose(norm_placement="post", n_layers=3)
    assert click(page, "load", 1) == "The controls show “Pre-LN”."
    page.until("idle", "Measured 2 layers")
    assert page.controls.config == SMALL
    assert page.worker.computations == 2
    assert_allclose(dots(page, HUES[0]), expected(SMALL))


def test_what_no_button_sends_changes_nothing(page: Page) -> None:
    click(page, "pin")
    before = page.comparison.box.entries
    for nonsense in (
        None,
        "pin",
        {},
        [],
        ["pin", 1],
        ["hide"],
        ["hide", 2],
        ["hide", "1"],
        ["hide", None],
        ["remove", -1],
        ["name", 1],
        ["name", 1, 3],
        ["name", 9, "x"],
        ["load", 9],
        ["load", [1]],
        [["pin"]],
        ["close", 1],
    ):
        page.comparison.box.handle(nonsense, [])
        assert page.comparison.box.entries == before, nonsense
        assert page.controls.config == SMALL, nonsense
        assert page.status.state == "idle", nonsense


def until_pins(page: Page, there: Any) -> None:
    """Waits for the pins to be as wanted."""
    changed = threading.Event()
    page.comparison.box.observe(lambda _: changed.set(), names="entries")
    while not there(pins(page)):
        assert changed.wait(WAIT), pins(page)
        changed.clear()


def test_a_design_pinned_while_it_is_measured_gets_that_measurement(open_panel: Open) -> None:
    held = Held()
    page = open_panel(measure=held, predict=theory, ready=False)
    assert held.begun.wait(WAIT)
    click(page, "pin")
    assert pins(page)[1]["about"] == "same as now · not measured yet"
    held.may_end.set()
    page.until("idle")
    assert pins(page)[1]["about"] == "same as now"
    page.choose(norm_placement="post")
    assert_allclose(dots(page, HUES[1]), expected(SMALL))
    assert held.asked == [SMALL, POST]


def test_a_pin_that_was_left_too_soon_shows_its_line_and_is_measured_after_the_controls(
    open_panel: Open,
) -> None:
    held = Held()
    page = open_panel(measure=held, predict=theory, ready=False)
    assert held.begun.wait(WAIT)
    click(page, "pin")
    page.set(norm_placement="post")
    assert hues(page, "second_moment", "lines") == [HUES[1], HUES[0]]
    held.may_end.set()
    until_pins(page, lambda found: "not measured" not in found[1]["about"])
    with LOCK:
        assert page.status.state == "idle"
        assert page.status.text == "Measured 2 layers of width 16"
        assert_allclose(dots(page, HUES[1]), expected(SMALL))
        assert_allclose(dots(page, HUES[0]), expected(POST))
    assert held.asked[-2:] == [POST, SMALL]


def test_a_pin_that_cannot_be_measured_says_why_and_holds_up_nobody(open_panel: Open) -> None:
    held = Held()
    held.broken = {SMALL}
    page = open_panel(measure=held, predict=theory, ready=False)
    assert held.begun.wait(WAIT)
    click(page, "pin")
    page.set(init_variance=2.0)
    click(page, "pin")
    page.set(norm_placement="post")
    held.may_end.set()
    until_pins(
        page,
        lambda found: (
            found[1]["about"].endswith("MemoryError: no room")
            and "not measured" not in found[2]["about"]
        ),
    )
    with LOCK:
        assert page.status.state == "idle"
        assert held.asked.count(SMALL) <= 2
    click(page, "pin")
    assert len(pins(page)) == 3


def test_removing_a_pin_that_is_measured_ends_that(open_panel: Open) -> None:
    held = Held()
    held.may_end.set()
    page = open_panel(measure=held, predict=theory)
    held.may_end.clear()
    held.begun.clear()
    page.set(norm_placement="post")
    assert held.begun.wait(WAIT)
    click(page, "pin")
    held.begun.clear()
    page.set(norm_placement="pre")  # from the cache; then it is the pin's turn
    assert held.begun.wait(WAIT)
    held.left.clear()
    click(page, "remove", 1)
    assert held.left.wait(WAIT)
    page.set(n_layers=3)
    held.may_end.set()
    page.until("idle", "Measured 3 layers")
    assert pins(page) == {}
    assert held.abandoned == [POST, POST], "first for the controls, then for its pin"


def test_pins_outlive_refusal_failure_and_stop(open_panel: Open) -> None:
    held = Held()
    held.may_end.set()
    broken = SMALL.replace(n_layers=3)
    held.broken = {broken}
    page = open_panel(measure=held, predict=theory)
    click(page, "pin")
    page.set(d_model=17)
    page.until("refused")
    assert click(page, "pin") == "This design is pinned already, as “Pre-LN”.", (
        "the last accepted one"
    )
    page.set(d_model=16, n_layers=3)
    page.until("failed", "MemoryError: no room")
    click(page, "hide", 1)
    click(page, "show", 1)
    assert page.status.state == "failed"
    held.may_end.clear()
    page.set(n_layers=4)
    page.until("computing")
    page.status.handle("action", [])
    page.until("stale", "Stopped")
    click(page, "name", 1, "kept")
    held.may_end.set()
    page.choose(norm_placement="post", n_layers=2)
    assert_allclose(dots(page, HUES[1]), expected(SMALL))
    assert pins(page)[1]["name"] == "kept"


def test_moving_on_measures_no_pin_again(open_panel: Open) -> None:
    page = open_panel(predict=theory)
    click(page, "pin")
    for step in range(1, 4):
        page.choose(init_variance=1.0 + step)
    click(page, "hide", 1)
    click(page, "show", 1)
    click(page, "name", 1, "first")
    assert page.worker.computations == 4


def test_a_preset_sets_the_design_and_leaves_the_size(open_panel: Open) -> None:
    page = open_panel(SMALL.replace(causal=True, alpha=0.5))
    assert page.named_designs.values == {"preset": "custom"}
    page.named_designs.set_state({"values": {"preset": "post_ln"}})
    page.until("idle")
    assert page.controls.config == POST
    assert page.named_designs.values == {"preset": "post_ln"}
    page.choose(norm_placement="pre")
    assert page.named_designs.values == {"preset": "pre_ln"}
    page.set(d_model=17)
    page.until("refused")
    assert page.named_designs.values == {"preset": "pre_ln"}


def test_one_matrix_is_compared_where_one_is_chosen(page: Page) -> None:
    selection = page.matrix
    assert selection.hidden
    click(page, "pin")
    page.choose(norm_placement="post")
    assert not selection.hidden
    selection.set_state({"values": {"matrix": "W_V"}})
    for hue, config in ((HUES[1], SMALL), (HUES[0], POST)):
        norm = geometric_mean(measure(config)["parameter_gradient", "W_V"])
        assert_allclose(dots(page, hue, "gradient_by_matrix"), norm, rtol=1e-6)
    for nonsense in ("W_X", None, 3, ["W_V"]):
        selection.set_state({"values": {"matrix": nonsense}})
        assert selection.values == {"matrix": "W_V"}
    selection.set_state({"values": {"matrix": "all"}})
    assert dots(page, HUES[0], "gradient_by_matrix")[0] > norm[0]
