"""The Explore panel without a browser: controls in, figures out, through the real model and the
real worker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from explored import SMALL, Held, Open, Page, expected, opened, plain, theory
from numpy.testing import assert_allclose, assert_array_equal
from watched import WAIT

from explorer.app.sentences import marks, residual_words, summary
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.diagnosis.agreement import agreement
from explorer.figures import BY_CHOICE
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.theory import predict
from explorer.theory.solve import solve
from explorer.vocabulary import STATISTICS, geometric_mean

open_panel = pytest.fixture(name="open_panel")(opened)


@pytest.fixture
def page(open_panel: Open) -> Page:
    return open_panel()


def depth_rule(profile: Profile) -> Sequence[Finding]:
    """A finding whose numbers come from the profile."""
    q = geometric_mean(profile.stream("second_moment")[1])
    evidence = f"q is {q[-1]:.2f} at the end."
    if q[-1] > 2:
        return [
            Finding(
                "warning", "The stream grows.", evidence, "Use post", {"norm_placement": "post"}
            )
        ]
    return [Finding("good", "All is well.", evidence, "", {})]


def test_first_measurement_reaches_all_charts(page: Page) -> None:
    assert page.status.text == "Measured 2 layers of width 16"
    assert_allclose(page.drawn(), expected(SMALL))
    assert page.stale() == {False}
    assert all(chart.figure["data"] for chart in page.charts.values())
    assert "seeds 0–1" in page.status.detail


@pytest.mark.parametrize(
    "change",
    [
        {"n_layers": 4},
        {"d_model": 32},
        {"init_variance": 4.0},
        {"norm_placement": "post"},
        {"alpha": 0.5},
    ],
)
def test_each_named_control_redraws_the_charts(page: Page, change: dict[str, Any]) -> None:
    before = page.drawn()
    page.choose(**change)
    after = page.drawn()
    assert before.shape != after.shape or not np.allclose(before, after)
    assert_allclose(after, expected(SMALL.replace(**change)), rtol=1e-6)


def test_the_line_below_a_chart_is_that_of_the_designs_drawn(open_panel: Open) -> None:
    page = open_panel(predict=predict)
    chart = page.charts["gradient_by_layer"]
    assert "/ q_(l−1)" in chart.why
    page.choose(norm_placement="post")
    assert "/ q_(l−1)" not in chart.why
    assert "before its norm" in chart.why
    assert page.charts["second_moment"].why == (
        "Mean of x² over batch, token and coordinate. The norm on each sum resets q to 1."
    )
    page.comparison.box.handle(["pin"], [])
    page.choose(norm_placement="pre")
    assert chart.why == "Mean of (∂L/∂x)² per coordinate, relative to the last layer."
    assert chart.lesson == "09_norm_placement"


def test_attention_scale_redraws_the_entropy(open_panel: Open) -> None:
    page = open_panel(SMALL.replace(d_model=64, n_heads=1, n_ctx=32))
    before = page.drawn("attention_entropy")
    page.choose(attention_scale="none")
    assert page.drawn("attention_entropy")[0] < 0.5 * before[0]


def test_a_refused_value_leaves_the_charts_and_says_that_they_are_stale(page: Page) -> None:
    before = page.drawn()
    page.set(d_model=17)
    page.until("refused", "Refused: Width must be divisible by Heads; got 17 and 2.")
    assert page.stale() == {True}
    assert_array_equal(page.drawn(), before)
    page.choose("Measured 2 layers of width 18", d_model=18)
    assert page.stale() == {False}


def test_undo_takes_a_refused_value_back(page: Page) -> None:
    page.set(n_layers="many")
    page.until("refused")
    assert page.status.action == "Undo"
    page.status.handle("action", [])
    page.until("idle")
    assert page.stale() == {False}
    assert page.controls.values == SMALL.model_dump()
    assert page.worker.computations == 1  # the result was kept


def test_a_measurement_that_ends_after_a_refusal_is_drawn_but_stays_stale(open_panel: Open) -> None:
    may_end = threading.Event()

    def slow(config: Config, *rest: Any) -> Profile:
        assert may_end.wait(WAIT)
        return measure(config, *rest)

    page = open_panel(measure=slow, ready=False)
    page.set(d_model=17)
    page.until("refused")
    may_end.set()
    assert page.comes(lambda: bool(page.charts["attention_pattern"].figure.get("data")))
    page.until("refused")
    assert_allclose(page.drawn(), expected(SMALL))
    assert page.stale() == {True}


def lengths(page: Page) -> set[int]:
    """How many points dots and lines of the second moment have: one number while one design is
    drawn."""
    traces = page.charts["second_moment"].figure["data"]
    return {
        len(plain(trace["x"])) for trace in traces if trace["name"] in ("measured", "predicted")
    }


@pytest.mark.parametrize(
    "ahead", [True, False], ids=["line ahead of its dots", "refused before the line was drawn"]
)
@pytest.mark.parametrize("end", ["refused", "stale", "failed"])
def test_what_interrupts_a_measurement_leaves_one_design_on_the_charts(
    open_panel: Open, ahead: bool, end: str
) -> None:
    held = Held(lambda config: config.n_layers > 2)
    page = open_panel(measure=held, predict=predict)
    one = lengths(page)
    page.set(n_layers=4)
    assert held.begun.wait(WAIT)
    if ahead:
        page.set(n_layers=8)
        assert len(lengths(page)) == 2, "the line goes ahead while a slider is dragged"
    if end == "refused":
        page.set(d_model=17)
    elif end == "stale":
        page.status.handle("action", [])
    else:
        held.broken = {SMALL.replace(n_layers=8)}
        page.set(n_layers=8)
        held.may_end.set()
    page.until(end)
    assert lengths(page) == one
    assert page.stale() == {True}
    assert not any(chart.ahead for chart in page.charts.values())
    assert page.status.detail == "The charts show the last measured design."
    assert page.charts["second_moment"].badge, "of the dots and the line that are drawn"
    held.may_end.set()
    page.choose("Measured 3 layers", n_layers=3, d_model=16)
    assert lengths(page) == {7}
    assert page.stale() == {False}


def test_a_line_is_drawn_ahead_again_after_a_refusal_was_undone(open_panel: Open) -> None:
    held = Held(lambda config: config.n_layers > 2)
    page = open_panel(measure=held, predict=predict)
    page.set(n_layers=3)
    page.set(n_layers=4)
    page.set(d_model=17)
    page.until("refused")
    page.set(d_model=16, n_layers=4)
    page.set(n_layers=5)
    assert len(lengths(page)) == 2
    held.may_end.set()
    page.until("idle", "Measured 5 layers")
    assert lengths(page) == {11}


def test_one_press_fixes_a_refusal(page: Page) -> None:
    page.set(loss="next_token")
    page.until("refused")
    assert page.status.offer == "Set Input to text"
    page.status.handle("offer", [])
    page.until("idle")
    assert page.controls.config == SMALL.replace(loss="next_token", input="text")
    assert page.status.offer == ""


def test_a_design_without_attention_says_so_where_its_charts_would_be(page: Page) -> None:
    assert not page.pattern.hidden
    page.choose(attention="none")
    for name in ("attention_entropy", "attention_pattern"):
        figure = page.charts[name].figure
        assert [note["text"] for note in figure["layout"]["annotations"]] == [
            "This design has no attention."
        ]
        assert not figure["layout"]["xaxis"]["visible"]
    assert page.pattern.hidden
    page.choose(attention="softmax")
    assert not page.pattern.hidden
    assert all(chart.figure["data"] for chart in page.charts.values())


def test_an_exception_shows_its_class_and_message_and_the_next_move_works(open_panel: Open) -> None:
    held = Held(lambda _: False)
    held.broken = {SMALL.replace(n_layers=3)}
    page = open_panel(measure=held)
    before = page.drawn()
    page.set(n_layers=3)
    page.until("failed", "MemoryError: no room")
    assert page.stale() == {True}
    assert_array_equal(page.drawn(), before)
    page.choose("Measured 4 layers", n_layers=4)
    assert page.stale() == {False}


def test_an_exception_of_the_prediction_is_shown_beside_the_measurement(open_panel: Open) -> None:
    def breaks(config: Config) -> Profile:
        if config.n_layers == 3:
            raise ArithmeticError("no such integral")
        return theory(config)

    page = open_panel(predict=breaks)
    page.choose("Measured 3 layers", n_layers=3)
    assert page.status.detail.endswith("no prediction: ArithmeticError: no such integral")
    assert page.stale() == {False}
    traces = page.charts["second_moment"].figure["data"]
    assert "predicted" not in {trace["name"] for trace in traces}
    page.choose("Measured 4 layers", n_layers=4)
    assert "no prediction" not in page.status.detail


def test_moves_while_the_worker_is_busy_cost_one_computation(open_panel: Open) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def deaf(config: Config, *rest: Any) -> Profile:
        begun.set()
        assert may_go_on.wait(WAIT)
        return measure(config, *rest)

    page = open_panel(measure=deaf, ready=False)
    assert begun.wait(WAIT)
    for step in range(1, 41):
        page.set(init_variance=1.0 + step / 10)
    may_go_on.set()
    page.until("idle")
    assert_allclose(page.drawn(), expected(SMALL.replace(init_variance=5.0)))
    assert page.worker.computations == 2


def test_going_back_answers_from_the_cache(open_panel: Open) -> None:
    page = open_panel()
    for layers in (3, 2):
        page.choose(f"Measured {layers} layers", n_layers=layers)
    assert page.worker.computations == 2


def test_lines_move_while_a_slider_is_dragged_and_the_old_dots_wait(open_panel: Open) -> None:
    held = Held(lambda config: config.n_layers > 2)
    page = open_panel(measure=held, predict=theory)
    page.set(n_layers=4)
    page.until("computing")
    first = page.charts["second_moment"].figure["data"]
    assert plain(first[-1]["x"]).max() == 2, "a single move waits for its dots"
    assert not any(chart.ahead for chart in page.charts.values())
    page.set(n_layers=5)
    page.until("computing")
    traces = {trace["name"]: trace for trace in page.charts["second_moment"].figure["data"]}
    line, dots = traces["predicted"], traces["measured"]
    assert [plain(trace["x"]).max() for trace in (line, dots)] == [5, 2]
    assert line["line"]["color"] == dots["marker"]["color"], "a design keeps its hue"
    assert page.stale() == {True}
    assert all(chart.ahead for chart in page.charts.values()), "only the dots are stale"
    held.may_end.set()
    page.until("idle")
    assert len(page.drawn()) == 11


def test_findings_stand_in_the_verdict_and_their_button_applies_the_change(
    open_panel: Open,
) -> None:
    page = open_panel(diagnose=depth_rule)
    (finding,) = page.verdict.findings
    assert (finding["severity"], finding["remedy"]) == ("warning", "Use post")
    page.verdict.handle(0, [])
    page.until("idle")
    assert page.controls.config == SMALL.replace(norm_placement="post")
    assert page.verdict.findings[0]["meaning"] == "All is well."


def test_a_remedy_can_be_taken_back_as_long_as_what_it_set_stands(open_panel: Open) -> None:
    page = open_panel(diagnose=depth_rule)
    verdict = page.verdict
    assert verdict.undo == ""
    verdict.handle(0, [])
    page.until("idle")
    assert verdict.undo == "Use post"
    page.set(n_layers=3)  # another move stays when the remedy goes
    page.until("idle")
    verdict.handle("undo", [])
    page.until("idle")
    assert page.controls.config == SMALL.replace(n_layers=3)
    assert verdict.undo == ""
    verdict.handle(0, [])
    page.until("idle")
    page.choose(norm_placement="peri")
    assert verdict.undo == "", "what it set stands no more"
    verdict.handle("undo", [])
    assert page.controls.config.norm_placement == "peri"


def test_verdict_ignores_what_is_not_one_of_its_buttons(open_panel: Open) -> None:
    page = open_panel(diagnose=lambda profile: [])
    for nonsense in (-1, 7, "0", "undo", None, {"index": 0}, True):
        page.verdict.handle(nonsense, [])
        assert page.controls.config == SMALL, nonsense


def test_layer_and_head_of_the_pattern(page: Page) -> None:
    before = plain(page.charts["attention_pattern"].figure["data"][0]["z"])
    page.pattern.set_state({"values": {"layer": 2, "head": 2}})
    page.until("idle")
    shown = plain(page.charts["attention_pattern"].figure["data"][0]["z"])
    assert_allclose(shown, measure(SMALL, pattern_of=(2, 1)).pattern, rtol=1e-6)
    assert not np.allclose(shown, before)
    page.choose("Measured 1 layer ", n_layers=1)
    assert page.pattern.pattern_of == (1, 1)
    assert page.pattern.values == {"layer": 1, "head": 2}


def test_the_layer_of_a_chart_by_position(page: Page) -> None:
    chart, layer = page.charts["second_moment"], page.layer
    assert layer.hidden
    page.statistic.set_state({"values": {"statistic": "attention_received"}})
    assert (layer.hidden, layer.value) == (False, 0)
    assert "in the last layer" in chart.caption
    before = plain(chart.figure["data"][-1]["y"])
    layer.set_state({"values": {"layer": 1}})
    assert "in layer 1" in chart.caption
    assert not np.allclose(plain(chart.figure["data"][-1]["y"]), before, rtol=1e-3)
    page.choose("Measured 1 layer ", n_layers=1)
    assert "in the last layer" in chart.caption


def test_a_layer_that_there_is_not_is_refused_in_words(page: Page) -> None:
    for values in (
        {"layer": 3, "head": 1},
        {"layer": "x", "head": 1},
        {"layer": 2.5, "head": 1},
        {"layer": True, "head": 2},
        {"head": 1},
    ):
        page.pattern.set_state({"values": values})
        page.until("refused", "Layer must be a whole number between 1 and 2")
        page.status.handle("action", [])
        page.until("idle")
        assert page.pattern.values == {"layer": 1, "head": 1}, values


def test_long_work_shows_progress_and_can_be_stopped(open_panel: Open) -> None:
    stopped = threading.Event()

    def endless(config: Config, stop: Any, progress: Any, *_: Any) -> Profile:
        while not stop():
            progress(0.75)
        stopped.set()
        raise InterruptedError

    page = open_panel(measure=endless, ready=False)
    page.until("computing", "Measuring 2 layers of width 16")
    assert page.comes(lambda: page.status.action == "Stop")
    assert page.status.detail == "75 % of 2 seeds"
    assert page.status.fraction == 0.75
    page.status.handle("action", [])
    page.until("stale", "Stopped")
    assert stopped.wait(WAIT)


def test_what_is_not_finite_is_said_in_words(open_panel: Open) -> None:
    page = open_panel(SMALL.replace(n_layers=200, norm_placement="none", init_variance=1000.0))
    assert "Not finite from layer" in page.status.text
    assert page.stale() == {False}


def test_close_ends_the_thread(open_panel: Open) -> None:
    page = open_panel()
    page.close()
    assert not page.worker.alive
    page.set(n_layers=3)  # a late message does nothing


def test_a_flood_of_wrong_fields_is_refused_shortly(open_panel: Open) -> None:
    page = open_panel()
    page.set(**{f"field_{number}": number for number in range(1000)})
    page.until("refused", "field_0 is not a field")
    assert len(page.status.text) < 500


def test_status_of_a_foreign_profile_and_of_a_prediction() -> None:
    profile = measure(SMALL.replace(n_seeds=1, seed=5))
    text, detail = summary(
        replace(profile, seconds=0.5), replace(profile, origin="predicted", seconds=0.002)
    )
    assert text == "Measured 2 layers of width 16"
    assert detail == "in 0.50 s · seed 5 · theory 2 ms"


def test_the_legend_says_what_dots_and_lines_are() -> None:
    measured = measure(SMALL)
    assert marks([measured]) == ["● measured, 2 seeds; band: smallest to largest"]
    predicted = replace(measured, origin="predicted", seeds=())
    other = replace(measured, seeds=(0, 1, 2, 3, 4))
    assert marks([predicted, other, measured]) == [
        "● measured, 2–5 seeds; band: smallest to largest",
        "— predicted",
    ]
    assert marks([predict(SMALL)]) == ["— predicted; outlined: two of three draws"]
    assert marks([]) == []


def test_the_residual_is_a_formula() -> None:
    assert residual_words(SMALL) == "x + α F(x), α = 1"
    assert residual_words(Config(residual="inverse_depth")) == "x + F(x) / (2N)"


def click(page: Page, name: str, index: int) -> None:
    """What a browser sends when an offer beside a control is clicked."""
    page.controls.handle([name, index], [])


def wait_for_value(page: Page, name: str, before: object) -> float:
    """The value of a control once the theory has changed it."""
    controls, changed = page.controls, threading.Event()
    controls.observe(lambda _: changed.set(), names="notes")
    while controls.values[name] == before or name not in controls.notes:
        assert changed.wait(WAIT)
        changed.clear()
    return float(controls.values[name])


def test_the_theory_makes_a_signal_flat_and_the_measurement_agrees(open_panel: Open) -> None:
    config = SMALL.replace(
        n_layers=6,
        d_model=128,
        n_ctx=16,
        batch_size=4,
        norm_placement="none",
        residual="absent",
        init_variance=2.0,
    )
    page = open_panel(config, predict=predict, solve=solve)
    click(page, "init_variance", 0)
    found = wait_for_value(page, "init_variance", 2.0)
    page.until("idle")
    measured = geometric_mean(
        measure(config.replace(init_variance=found)).stream("second_moment")[1]
    )
    assert measured[-1] == pytest.approx(1, abs=0.35)  # from 2^(number of products) = thousands
    assert "second moment" in page.controls.notes["init_variance"]
    page.choose(init_variance=1.25)
    # the remark was on the value that is gone
    assert "init_variance" not in page.controls.notes


def test_a_trivial_answer_is_called_one_and_a_better_one_can_be_taken(open_panel: Open) -> None:
    page = open_panel(SMALL.replace(n_layers=6, init_variance=2.0), predict=predict, solve=solve)
    controls = page.controls
    before = len(controls.offers["alpha"])
    click(page, "alpha", 0)
    assert wait_for_value(page, "alpha", 1.0) < 0.05
    page.until("idle")
    assert "trivial" in controls.notes["alpha"]
    assert len(controls.offers["alpha"]) == before + 1
    assert len(controls.offers["init_variance"]) == before
    click(page, "alpha", before)
    page.until("idle")
    assert controls.config == SMALL.replace(
        n_layers=6, init_variance=2.0, residual="inverse_sqrt_depth"
    )
    # the answer is gone, and what was offered with it
    assert len(controls.offers["alpha"]) == before
    click(page, "alpha", before)  # a late click on what is no longer offered
    assert page.status.state == "idle"


def test_an_unknown_offer_is_ignored_and_a_failing_theory_is_told(open_panel: Open) -> None:
    def broken(config: Config, vary: str, target: str) -> Any:
        raise ArithmeticError(f"no {target} by {vary}")

    page = open_panel(predict=predict, solve=broken)
    for wrong in ([], "alpha", ["alpha", 7], ["seed", 0], [1, "alpha"], {"alpha": 0}):
        page.controls.handle(wrong, [])
    assert page.status.state == "idle"
    click(page, "alpha", 1)
    page.until("failed", "ArithmeticError: no flat_gradient by alpha")
    page.choose(alpha=0.5)


def test_the_badge_says_how_far_the_dots_lie_from_the_line(open_panel: Open) -> None:
    config = SMALL.replace(d_model=128, n_ctx=16)
    page = open_panel(config, predict=predict)
    chart = page.charts["second_moment"]
    assert chart.badge.endswith("of theory")
    worst = agreement(measure(config), predict(config), "second_moment").worst
    assert 0 < worst < 0.2
    assert page.charts["attention_pattern"].badge == ""


def test_the_first_card_shows_another_statistic_where_one_is_chosen(open_panel: Open) -> None:
    page = open_panel(predict=predict)
    chart, selection = page.charts["second_moment"], page.statistic
    measured, predicted = measure(SMALL), predict(SMALL)
    titles = set()
    text = SMALL.replace(input="text", loss="next_token")
    # these need a readout
    for name in sorted(BY_CHOICE, key=lambda name: "logits" not in STATISTICS[name].sites):
        config = text if "logits" in STATISTICS[name].sites else SMALL
        if page.controls.config != config:
            page.choose(input=config.input, loss=config.loss)
            measured, predicted = measure(config), predict(config)
        selection.set_state({"values": {"statistic": name}})
        row = STATISTICS[name]
        if row.by_position:
            values = row.mean(measured[name])[-1]
        elif config == text:
            values = row.mean(measured[name])
        else:
            values = (
                row.mean(measured.stream(name)[1])
                if row.on_stream
                else np.median(measured[name], axis=(0, 2))
            )
        assert_allclose(page.drawn(), values, rtol=1e-6)
        assert chart.title == BY_CHOICE[name].title
        assert chart.caption.startswith(BY_CHOICE[name].caption)
        assert chart.badge == agreement(measured, predicted, name).words
        titles.add(chart.title)
    assert len(titles) == len(BY_CHOICE)
    page.choose(norm_placement="post")
    assert chart.title == BY_CHOICE[name].title, "another design does not change what is shown"
    part = page.part
    selection.set_state({"values": {"statistic": "second_moment"}})
    assert_allclose(page.drawn(), expected(SMALL.replace(norm_placement="post")), rtol=1e-6)
    page.restore(part)
    assert selection.value == name
    assert chart.title == BY_CHOICE[name].title
