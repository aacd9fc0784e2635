"""Sweeping a slider without a browser: clicks in, lines and dots out, through the real theory and
the real model."""

from __future__ import annotations

import importlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from explored import SMALL, Open, Page, opened, plain
from watched import WAIT

from explorer.app.explore import sweep as card
from explorer.app.explore.sweep import Row, anchored
from explorer.app.link.state import part_of, write
from explorer.app.page import ExplorePart
from explorer.app.widgets.parts import LOCK
from explorer.app.widgets.slider_steps import slider_steps, sliders, thinned
from explorer.config import Config
from explorer.figures.palette import HUES
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.stopping import Stopped
from explorer.sweeping.grid import coarse_to_fine
from explorer.sweeping.workers import Here
from explorer.theory import predict

open_panel = pytest.fixture(name="open_panel")(opened)
TINY = SMALL.replace(n_seeds=1, n_ctx=4)


@pytest.fixture
def measured_by(
    monkeypatch: pytest.MonkeyPatch, open_panel: Open
) -> Callable[[Callable[..., Profile]], Page]:
    """Opens a page whose panel and sweep both measure by some function."""

    def opens(function: Callable[..., Profile]) -> Page:
        monkeypatch.setattr(importlib.import_module("explorer.measuring"), "measure", function)
        monkeypatch.setattr(card, "Outside", lambda **_: Here())
        return open_panel(TINY, measure=function, predict=predict)

    return opens


Measured = Callable[[Callable[..., Profile]], Page]


def send(page: Page, message: object) -> None:
    """What a button beside a slider sends."""
    page.panel.controls.handle(message, [])


def traces(page: Page) -> dict[str, dict[str, Any]]:
    sweep = page.panel.sweep
    return (
        {trace["name"]: trace for trace in sweep.chart.figure.get("data", [])}
        if sweep.field
        else {}
    )


def measured(page: Page, name: str = "measured") -> dict[float, float]:
    """Dots by the value of the field; empty before there are any."""
    trace = traces(page).get(name, {"x": [], "y": []})
    return dict(zip(plain(trace["x"]).tolist(), plain(trace["y"]).tolist(), strict=True))


def complete(page: Page) -> bool:
    """Whether every dot of the sweep that the controls ask for is there, or said to be missing."""
    with LOCK:
        sweep = page.panel.sweep
        return (
            bool(sweep.field and traces(page))
            and not sweep.chart.stale
            and sweep.bar.progress == ""
        )


def swept(page: Page, field: str) -> Page:
    page.until("idle")
    send(page, ["sweep", field])
    assert page.comes(lambda: complete(page))
    return page


def last(config: Config) -> float:
    return float(measure(config)["second_moment", "resid_post"][:, -1].mean())


def test_points_come_coarse_to_fine_and_span_the_slider() -> None:
    assert [*coarse_to_fine(9)] == [0, 8, 4, 2, 6, 1, 3, 5, 7]
    assert [[*coarse_to_fine(count)] for count in range(4)] == [[], [0], [0, 1], [0, 2, 1]]
    assert thinned(range(201), 41) == list(range(0, 201, 5))
    assert thinned([1, 2, 3], 41) == [1, 2, 3]
    for field, spec in sliders(Config).items():
        values = Row(SMALL, field, "predicted").values
        assert (values[0], values[-1]) == (spec.low, spec.high)
        assert len(values) <= 41
        assert {*values} <= {*slider_steps(spec)}
        assert {*Row(SMALL, field, "measured").values} <= {*values}


def test_designs_that_differ_in_the_swept_field_alone_have_the_same_sweep() -> None:
    for field in sliders(Config):
        own = anchored(TINY, field)
        assert own.model_dump(exclude={field}) == TINY.model_dump(exclude={field})
        assert own == anchored(own, field)
    assert (
        anchored(TINY.replace(alpha=0.37), "alpha")
        == anchored(TINY, "alpha")
        != anchored(TINY, "n_layers")
    )


def test_lines_are_predictions_and_dots_measurements_of_the_last_layer(open_panel: Open) -> None:
    page = swept(open_panel(TINY, predict=predict), "init_variance")
    line, dots = traces(page)["predicted"], measured(page)
    x, y = plain(line["x"]), plain(line["y"])
    assert (len(x), len(dots)) == (41, 11)
    assert [x[0], x[-1]] == pytest.approx([1e-3, 1e3])
    expected = [
        predict(TINY.replace(init_variance=value))["second_moment", "resid_post"][0, -1]
        for value in thinned(slider_steps(sliders(Config)["init_variance"]), 41)
    ]
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    for value, q in dots.items():
        assert q == pytest.approx(last(TINY.replace(init_variance=float(f"{value:.6g}"))), rel=1e-4)
    chart = page.panel.sweep.chart
    assert chart.title == "Sweep: init variance"
    assert "at 0.001" in chart.description
    assert plain(traces(page)["now"]["x"]).tolist() == [1.0] * 3
    page.panel.sweep.statistics.set_state({"values": {"sweep_statistic": "logit_std"}})
    logits = measure(TINY.replace(init_variance=1000.0))["logit_std", "attn_scores"][:, -1]
    assert max(measured(page).values()) == pytest.approx(float(np.median(logits)), rel=1e-4)


def test_a_refused_value_is_a_gap_with_its_reason(open_panel: Open) -> None:
    page = swept(open_panel(TINY, predict=predict), "n_heads")
    assert list(measured(page)) == [1, 2, 4, 8, 16]
    gaps = np.isnan(plain(traces(page)["predicted"]["y"]))
    assert plain(traces(page)["predicted"]["x"])[gaps].tolist() == [32, 64]
    assert page.panel.sweep.bar.notes == [
        "Left out at heads 32, 64: Width must be divisible by Heads; got 16 and 32."
    ]


def test_the_swept_slider_moves_the_mark_alone_and_others_take_the_sweep_along(
    measured_by: Measured,
) -> None:
    asked: Counter[Config] = Counter()

    def counted(config: Config, *rest: Any, **others: Any) -> Profile:
        asked[config] += 1
        return measure(config, *rest, **others)

    page = swept(measured_by(counted), "alpha")
    worker, before = page.panel.sweep.worker, measured(page)
    page.set(alpha=0.37)
    page.until("idle")
    assert plain(traces(page)["now"]["x"]).tolist() == [0.37] * 3
    assert worker.computations == 1
    assert measured(page) == before
    page.set(alpha=0.37, n_layers=3)
    assert page.comes(lambda: complete(page) and measured(page) != before)
    assert measured(page)[4.0] == pytest.approx(last(TINY.replace(n_layers=3, alpha=4.0)), rel=1e-4)
    page.set(alpha=0.37, n_layers=2)
    assert page.comes(lambda: complete(page) and measured(page) == before)
    assert asked[TINY.replace(alpha=4.0)] == 1, "kept"


def test_a_click_on_a_dot_sets_the_slider_and_another_message_does_nothing(
    open_panel: Open,
) -> None:
    config = TINY.replace(init_variance=2.0)  # of which no message is a value
    page = swept(open_panel(config, predict=predict), "init_variance")
    sweep = page.panel.sweep
    for nonsense in (
        None,
        "pick",
        [],
        ["pick"],
        ["pick", "1"],
        ["pick", None],
        ["pick", True],
        ["pick", math.nan],
        ["pick", math.inf],
        ["pick", -1],
        ["pick", 1e9],
        ["pick", [1]],
        ["sweep"],
        ["sweep", 3],
        {},
        ["sweep", "norm"],
        ["sweep", "seed"],
        ["sweep", "<b>"],
        ["close"],
        ["sweep", "alpha", 1],
    ):
        sweep.chart.handle(nonsense, [])
        sweep.bar.handle(nonsense, [])
        send(page, nonsense)
    assert (sweep.field, page.panel.controls.config) == ("init_variance", config)
    sweep.chart.handle(["pick", float(np.float32(0.001))], [])
    assert page.panel.controls.config.init_variance == 0.001
    page.until("idle")
    assert worker_is_alive(page)


def worker_is_alive(page: Page) -> bool:
    return page.panel.sweep.worker is not None and page.panel.sweep.worker.alive


def test_closing_ends_the_thread_and_a_second_press_closes(open_panel: Open) -> None:
    page = swept(open_panel(TINY, predict=predict), "alpha")
    worker, card, bar = page.panel.sweep.worker, page.panel.sweep.card, page.panel.sweep.bar
    assert page.panel.controls.sweeping == "alpha"
    bar.handle("close", [])
    assert page.comes(lambda: not worker.alive)
    assert (card.children, card.hidden, page.panel.controls.sweeping) == ((), True, "")
    swept(page, "alpha")
    worker = page.panel.sweep.worker
    send(page, ["sweep", "alpha"])
    assert page.comes(lambda: not worker.alive)
    swept(page, "alpha")
    worker = page.panel.sweep.worker
    page.panel.close()
    assert page.comes(lambda: not worker.alive)


def test_the_panel_goes_first(measured_by: Measured) -> None:
    """While it measures, no dot is begun; a dot that is being measured is abandoned and done
    again."""
    may_end, dot_begun, held, log = (
        threading.Event(),
        threading.Event(),
        TINY.replace(n_layers=3),
        [],
    )

    def slow(config: Config, stop: Any, *rest: Any, **others: Any) -> Profile:
        log.append(config)
        if config == held:
            assert may_end.wait(WAIT)
        if config == TINY.replace(alpha=0.0) and not dot_begun.is_set():
            dot_begun.set()
            while not stop():
                time.sleep(0.001)
            raise InterruptedError
        return measure(config, stop, *rest, **others)

    page = measured_by(slow)
    page.until("idle")
    send(page, ["sweep", "alpha"])
    assert dot_begun.wait(WAIT)
    page.set(n_layers=3)
    assert page.comes(lambda: held in log and not page.panel.sweep.chart.stale)
    assert log == [TINY, TINY.replace(alpha=0.0), held], (
        "the line of the next sweep is there, and no dot"
    )
    assert measured(page) == {}
    may_end.set()
    assert page.comes(lambda: complete(page))
    assert len(measured(page)) == 11
    page.set(n_layers=2)
    assert page.comes(
        lambda: complete(page) and measured(page).get(0.0) == pytest.approx(1.0, abs=0.5)
    )
    assert log.count(TINY.replace(alpha=0.0)) == 2, "abandoned once"


def test_a_dot_makes_way_for_the_panel_and_is_done_again(measured_by: Measured) -> None:
    dot, now, begun, log = TINY.replace(alpha=0.0), TINY.replace(alpha=0.37), threading.Event(), []

    def slow(config: Config, stop: Any, *rest: Any, **others: Any) -> Profile:
        log.append(config)
        if config == dot and not begun.is_set():
            begun.set()
            while not stop():
                time.sleep(0.001)
            raise Stopped
        return measure(config, stop, *rest, **others)

    page = measured_by(slow)
    page.until("idle")
    send(page, ["sweep", "alpha"])
    assert begun.wait(WAIT)
    page.set(alpha=0.37)
    assert page.comes(lambda: complete(page))
    assert log.count(dot) == 2
    assert log.index(dot) < log.index(now) < len(log) - log[::-1].index(dot) - 1
    assert page.panel.sweep.bar.notes == []


@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [
        ("LONGEST", -1.0, "takes over -1 s"),
        ("MOST_BYTES", 0.0, "needs 0.3 GB of memory"),
        ("machine_memory", lambda: 0.0, "needs 0.3 GB of memory"),
    ],
)
def test_points_that_cost_too_much_are_left_out_with_a_note(
    open_panel: Open, monkeypatch: pytest.MonkeyPatch, limit: str, value: Any, words: str
) -> None:
    monkeypatch.setattr(card, limit, value)
    page = swept(open_panel(TINY, predict=predict), "alpha")
    assert measured(page) == {}
    (note,) = page.panel.sweep.bar.notes
    assert note == f"Not measured at residual α 0, 0.4, 0.8, 1.2 and 7 more: {words}."


def test_a_point_that_breaks_is_left_out_and_the_others_are_there(measured_by: Measured) -> None:
    def breaks(config: Config, *rest: Any, **others: Any) -> Profile:
        if config.alpha == 4.0:
            raise MemoryError("no room")
        return measure(config, *rest, **others)

    page = swept(measured_by(breaks), "alpha")
    assert len(measured(page)) == 10
    assert page.panel.sweep.bar.notes == ["Not measured at residual α 4: MemoryError: no room."]


def test_pins_are_drawn_as_lines_in_their_hues(open_panel: Open) -> None:
    page = open_panel(TINY, predict=predict)
    page.until("idle")
    page.panel.comparison.box.handle(["pin"], [])
    page.set(norm_placement="post")
    swept(page, "alpha")
    assert traces(page)["Pre-LN, predicted"]["line"]["color"] == HUES[1]
    assert len(measured(page, "now, measured")) == 11
    page.panel.comparison.box.handle(["remove", 1], [])
    assert page.comes(lambda: "Pre-LN, predicted" not in traces(page) and complete(page))
    assert len(measured(page)) == 11


def test_a_sweep_is_part_of_the_record(open_panel: Open) -> None:
    page = swept(open_panel(TINY, predict=predict), "alpha")
    page.panel.sweep.statistics.set_state({"values": {"sweep_statistic": "token_correlation"}})
    kept = page.panel.part
    assert kept.sweep == ("alpha", "token_correlation")
    page.panel.restore(kept._replace(sweep=None))
    assert page.panel.part.sweep is None
    other = open_panel(predict=predict)
    other.panel.restore(kept)
    assert other.panel.part == kept
    assert other.comes(lambda: complete(other) and len(measured(other)) == 11)


def test_a_link_carries_the_sweep() -> None:
    part = ExplorePart(sweep=("n_layers", "logit_std"))
    state = write({"explore": part})
    assert part_of("explore", state["explore"]) == (part, [])
