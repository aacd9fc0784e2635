"""The first seeds' dots on the Explore panel, moves that find it drawing, and a slider that is
dragged."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from explored import SMALL, Open, Page, as_the_page, expected, opened, plain, some
from numpy.testing import assert_allclose, assert_array_equal
from watched import WAIT

from explorer.app.explore.question import Choose
from explorer.app.widgets import controls
from explorer.app.widgets.parts import LOCK
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.measuring import Stopped, measure
from explorer.profile import Profile
from explorer.theory import predict
from explorer.vocabulary import geometric_mean

open_panel = pytest.fixture(name="open_panel")(opened)
FOUR = SMALL.replace(n_seeds=4)


class Seeds:
    """A measurement that hands over seeds when it is told to: those of `parts`, of any design but
    the first."""

    def __init__(self, *parts: tuple[int, float]) -> None:
        self.parts, self.begun = parts, list[Config]()
        self.handed_over, self.may_end = threading.Event(), threading.Event()

    def __call__(
        self, config: Config, stop: Any, progress: Any, pattern_of: Any, on_seed: Any
    ) -> Profile:
        self.begun.append(config)
        whole = measure(config, stop, progress, pattern_of, lambda partial: None)
        if len(self.begun) > 1:
            for count, seconds in self.parts:
                on_seed(some(whole, count, seconds))
            self.handed_over.set()
            while not self.may_end.wait(0.01):
                if stop():
                    raise Stopped
                progress(0.5)
        return whole

    def moved(self, page: Page, **values: object) -> None:
        """A move, until its first seeds were handed over."""
        page.set(**values)
        assert self.handed_over.wait(WAIT)


def line(page: Page, axis: str) -> np.ndarray:
    """The theory's line: the last of those that are drawn."""
    traces = page.charts["second_moment"].figure["data"]
    return plain([trace[axis] for trace in traces if trace["mode"] == "lines"][-1])


def first(config: Config, count: int = 1) -> np.ndarray:
    return np.asarray(
        geometric_mean(as_the_page(config).stream("second_moment")[1][:count]), dtype=np.float32
    )


def test_the_first_seed_is_drawn_and_everything_else_waits_for_the_whole(open_panel: Open) -> None:
    seeds = Seeds((1, 1.0))
    page = open_panel(
        FOUR,
        seeds,
        predict=predict,
        diagnose=lambda profile: [
            Finding("good", f"{len(profile.seeds)} of {profile.config}.", "", "")
        ],
    )
    seeds.moved(page, n_layers=3)
    after, chart, panel = FOUR.replace(n_layers=3), page.charts["second_moment"], page.panel
    assert_array_equal(page.drawn(), first(after))
    assert not np.allclose(page.drawn(), expected(after))
    assert {one.stale for one in panel.charts.values()} == {False}
    assert panel.verdict.stale
    assert panel.verdict.findings[0]["meaning"] == f"4 of {FOUR}."
    assert chart.badge == ""
    assert panel.status.state == "computing"
    assert page.comes(lambda: panel.status.detail == "50 % of 4 seeds · the charts show 1 of them")
    assert panel.comparison.box.marks[0].startswith("● measured, 1 seed")
    panel.comparison.box.handle(["pin"], [])
    (pin,) = panel.comparison.pins
    assert (pin.config, panel.schedule.known(after).measured) == (after, None)
    assert {
        len(profile.seeds) for _, profile in panel._drawn() if profile.origin == "measured"
    } == {4}
    seeds.may_end.set()
    page.until("idle", "Measured 3 layers")
    assert_allclose(page.drawn(), expected(after))
    assert chart.badge != ""
    assert panel.verdict.findings[0]["meaning"] == f"4 of {after}."
    found = panel.schedule.known(after).measured
    assert found is not None
    assert found.seeds == (0, 1, 2, 3)
    assert panel.worker.computations == 2


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (((1, 0.01),), 0),
        (((1, 1.0), (2, 1.1)), 1),
        (((1, 1.0), (2, 2.0)), 2),
        (((1, 0.1), (2, 0.2)), 1),
        (((3, 0.2),), 0),
        (((1, 1.0), (2, 1.1), (3, 2.0)), 3),
    ],
    ids=[
        "all are there soon",
        "two at once",
        "one after the other",
        "quick",
        "the last comes soon",
        "pairs",
    ],
)
def test_no_more_drawings_than_are_useful(
    open_panel: Open, parts: tuple[tuple[int, float], ...], shown: int
) -> None:
    seeds = Seeds(*parts)
    page = open_panel(FOUR, seeds)
    before = page.drawn()
    seeds.moved(page, init_variance=2.0)
    wanted = first(FOUR.replace(init_variance=2.0), shown) if shown else before
    assert_allclose(page.drawn(), wanted, rtol=1e-6)


@pytest.mark.parametrize("end", ["refused", "stale"])
def test_what_interrupts_it_brings_the_last_whole_measurement_back(
    open_panel: Open, end: str
) -> None:
    seeds = Seeds((1, 1.0))
    page = open_panel(FOUR, seeds, predict=predict)
    seeds.moved(page, n_layers=3)
    assert len(page.drawn()) == 7
    if end == "refused":
        page.set(d_model=17)
    else:
        page.status.handle("action")
    page.until(end)
    assert_allclose(page.drawn(), expected(FOUR))
    assert page.stale() == {True}
    assert page.charts["second_moment"].badge != ""


def test_a_question_withholds_it(open_panel: Open) -> None:
    seeds = Seeds((1, 1.0))
    page = open_panel(FOUR, seeds)
    config = FOUR.replace(n_layers=3)
    with LOCK:
        page.controls.apply({"n_layers": 3})
        page.panel.ask(
            Choose("Which?", "token_correlation", (0, 1), "One.", options=("One", "Other")), config
        )
    assert seeds.handed_over.wait(WAIT)
    charts = page.charts.values()
    assert not [
        trace
        for chart in charts
        for trace in chart.figure["data"]
        if trace.get("mode") == "markers"
    ]


def test_another_head_leaves_the_dots_of_all_seeds(open_panel: Open) -> None:
    seeds = Seeds((1, 1.0))
    page = open_panel(FOUR, seeds)
    page.pattern.set_state({"values": {"layer": 2, "head": 1}})
    assert seeds.handed_over.wait(WAIT)
    assert_allclose(page.drawn(), expected(FOUR))


class Slow:
    """A chart that, once it is told to, takes until it may end."""

    def __init__(self, page: Page, name: str) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        page.charts[name].observe(self._draw, names="figure")

    def _draw(self, _: object) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.may_end.wait(WAIT)


@pytest.mark.parametrize("move", [{"n_layers": 4}, {"d_model": 17}], ids=["accepted", "refused"])
def test_a_drawing_is_given_up_for_the_next_move(open_panel: Open, move: dict[str, object]) -> None:
    page = open_panel(FOUR, measure)
    slow = Slow(page, "gradient_by_layer")
    page.set(n_layers=3)
    assert slow.begun.wait(WAIT)
    events: list[str] = []
    page.charts["token_correlation"].observe(lambda _: events.append("drawn"), names="figure")
    page.status.observe(lambda change: events.append(change.new), names="text")
    mover = threading.Thread(target=page.set, kwargs=move)
    mover.start()
    assert page.comes(lambda: page.schedule.interrupted)
    slow.may_end.set()
    mover.join(WAIT)
    refused = "d_model" in move
    page.until("refused" if refused else "idle", "Width" if refused else "Measured 4 layers")
    at = next(
        index for index, event in enumerate(events) if event.startswith(("Refused", "Measuring 4"))
    )
    assert "drawn" not in events[:at], "the move was taken before the next chart was drawn"
    names, count = ("second_moment", "token_correlation"), 7 if refused else 9
    assert page.comes(lambda: {len(page.drawn(name)) for name in names} == {count}), (
        "drawn after the words"
    )
    assert page.stale() == {refused}


@pytest.fixture
def long_drag(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every two moves are of one drag, until `DRAG` is 0."""
    monkeypatch.setattr(controls, "DRAG", 1e6)
    return monkeypatch


def test_a_dragged_slider_is_measured_when_it_rests_and_a_single_move_at_once(
    open_panel: Open, long_drag: pytest.MonkeyPatch
) -> None:
    seeds = Seeds()
    page = open_panel(SMALL, seeds)
    page.set(n_layers=3)
    assert seeds.handed_over.wait(WAIT), "a single move is not held"
    for layers in range(4, 20):
        page.set(n_layers=layers)
    worker = page.worker
    assert page.comes(lambda: [job.config.n_layers for job in worker._running] == [19]), (
        "the newest is the worker's"
    )
    assert worker.computations == 2
    page.status.handle("action")
    page.until("stale")  # also while it is held
    page.set(n_layers=20)
    page.set(n_layers=21)
    assert [config.n_layers for config in seeds.begun if config.n_layers < 20] == [2, 3]
    long_drag.setattr(controls, "DRAG", 0.0)
    seeds.may_end.set()
    page.until("idle", "Measured 21 layers")
    assert seeds.begun[-1].n_layers == 21


def test_dots_that_are_known_wait_as_well_until_a_slider_rests(
    open_panel: Open, long_drag: pytest.MonkeyPatch
) -> None:
    seeds = Seeds()
    seeds.may_end.set()
    page = open_panel(SMALL, seeds, predict=predict)
    for layers in (3, 4):
        page.choose(f"Measured {layers}", n_layers=layers)
    seeds.may_end.clear()
    for layers in (5, 6, 3, 4, 3):  # 5 is a single move, with which the drag begins
        page.set(n_layers=layers)
    assert page.status.state == "computing"
    assert len(page.drawn()) == 2 * 4 + 1
    long_drag.setattr(controls, "DRAG", 0.0)
    page.until("idle", "Measured 3 layers")
    assert len(page.drawn()) == 2 * 3 + 1
    assert [config.n_layers for config in seeds.begun] in ([2, 3, 4, 5], [2, 3, 4]), (
        "nothing was measured on the way"
    )


def test_a_slider_that_comes_back_shows_the_line_of_where_it_is_without_asking_the_theory_again(
    open_panel: Open, long_drag: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    seeds = Seeds()
    seeds.may_end.set()

    def told(config: Config) -> Profile | None:
        asked.append(config.n_layers)
        return predict(config)

    page = open_panel(SMALL, seeds, predict=told)
    seeds.may_end.clear()
    for layers in (3, 4, 5, 4, 3, 5):
        page.set(n_layers=layers)
        if layers != 3 or 5 in asked:  # at the drag's first move there is nothing to go ahead of
            assert np.max(line(page, "x")) == layers
    assert asked == [SMALL.n_layers, 3, 4, 5]
    long_drag.setattr(controls, "DRAG", 0.0)
    seeds.may_end.set()


@pytest.mark.parametrize("end", ["idle", "refused", "stale"])
def test_a_chart_that_nobody_sees_is_drawn_when_the_slider_rests(
    open_panel: Open, long_drag: pytest.MonkeyPatch, end: str
) -> None:
    seeds = Seeds()
    seeds.may_end.set()
    page = open_panel(SMALL, seeds, predict=predict)
    charts = page.charts
    seen, unseen = charts["second_moment"], charts["token_correlation"]
    unseen.handle(["seen", False], [])  # as a browser says it
    before = len(page.drawn()), len(page.drawn("token_correlation"))
    page.choose("Measured 3", n_layers=3)
    alone = unseen.figure
    seeds.may_end.clear()
    assert len(page.drawn("token_correlation")) > before[1], "a single move draws them all"
    for layers in (4, 5, 6):
        before_move = seen.figure
        page.set(n_layers=layers)
        assert seen.figure != before_move or layers == 4, (
            "at the first move there may be nothing to draw ahead of"
        )
    assert unseen.figure == alone
    if end == "refused":
        page.set(d_model=17)
    elif end == "stale":
        page.status.handle("action")
    long_drag.setattr(controls, "DRAG", 0.0)
    if end == "idle":
        seeds.may_end.set()
    page.until(end)
    assert page.comes(lambda: unseen.figure != alone or end != "idle")
    drawn = {len(page.drawn(name)) for name in ("second_moment", "token_correlation")}
    seeds.may_end.set()
    assert drawn == {13 if end == "idle" else 7}
    assert page.stale() == {end != "idle"}
