"""The Race panel without a browser: it runs, pauses, goes on, stops, starts again and refuses, free
all the while."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from handed import handed
from raced import LONG, SMALL, Open, Page, lineup, opened

from explorer.app.sentences import model_words
from explorer.choices import ConfigError
from explorer.config import preset
from explorer.figures.palette import HUES
from explorer.tasks.pool import KILLED
from explorer_race.page.lineup import Contender, Plan
from explorer_race.page.panel import Leg
from explorer_race.page.preparation import HEADING, WHILE_RUNNING
from explorer_race.recipe import Recipe


@pytest.fixture
def open_apart() -> Iterator[Open]:
    yield from opened(apart=True)


def test_nothing_runs_until_it_is_started(page: Page) -> None:
    assert (page.status.state, page.status.text) == ("idle", "Ready")
    assert page.enabled == {"start"}
    assert page.worker.computations == 0
    assert page.gallery.box.hidden


def test_a_race_ends_with_charts_a_table_and_a_verdict(page: Page) -> None:
    page.run()
    assert page.status.text == "Finished at step 12 of 12"
    assert not page.gallery.box.hidden
    assert page.waiting.hidden
    assert all(chart.figure["data"] and not chart.stale for chart in page.gallery.charts)
    race, rows = page.race, page.gallery.standings.rows
    losses = {one.name: one.final_loss for one in race.verdict()}
    assert [row["name"] for row in rows] == sorted(losses, key=lambda name: losses[name]), (
        "the best first"
    )
    assert [row["cells"][0] for row in rows] == [f"{losses[row['name']]:.3f}" for row in rows]
    assert {row["name"]: row["hue"] for row in rows} == {"Post-LN": HUES[0], "Pre-LN": HUES[1]}
    for chart in page.gallery.curves.values():
        assert {one["name"]: one["hue"] for one in chart.designs} == {
            "Post-LN": HUES[0],
            "Pre-LN": HUES[1],
        }
        assert all(
            one["about"].startswith(model_words(race.runners[0].config)) for one in chart.designs
        )
    assert [[one["name"] for one in chart.designs] for chart in page.gallery.maps] == [
        ["Post-LN"],
        ["Pre-LN"],
    ]
    (finding,) = page.gallery.verdict.findings
    assert finding["meaning"].startswith(f"“{rows[0]['name']}” is best at ")
    assert page.enabled == {"start"}


def test_the_race_is_the_one_that_the_controls_say(open_race: Open) -> None:
    page = open_race(lineup("rezero", warmup=3), kind="masked_character", seed=5)
    page.set(n_layers=3, steps=5, every=2)
    page.prescribe(learning_rate=0.01)
    page.run()
    race = page.race
    (contender,) = race.contenders
    config = preset("rezero", **{**SMALL, "n_layers": 3, "seed": 5})
    assert contender == ("ReZero", race.task.fit(config), Recipe(warmup=3, learning_rate=0.01))
    assert (race.task.kind, race.task.seed, race.steps, race.every) == ("masked_character", 5, 5, 2)


def test_curves_grow_while_it_runs_and_stop_stops_it(open_race: Open) -> None:
    page = open_race(steps=LONG)
    assert not page.saves.offers("race"), "there is none to be saved"
    page.press("start")
    assert page.enabled == {"pause", "stop"}
    page.wait_for_a_table()
    assert not page.saves.offers("race"), "it runs"
    before = page.points()
    page.wait(lambda: page.points() != before)
    assert page.status.text == "Training 2 contenders"
    assert "of 100,000" in page.status.detail
    page.stop()
    assert page.gallery.standings.title == "Verdict"
    assert page.enabled == {"start"}
    assert page.saves.offers("race")


def test_a_pause_loses_nothing(open_race: Open) -> None:
    page, other = open_race(steps=LONG), open_race(steps=LONG)
    page.begin()
    page.press("pause")
    page.until("paused", "Paused")
    assert page.enabled == {"resume", "stop"}
    assert page.status.fraction >= 0
    race = page.panel.race
    assert race is not None
    paused = race.step
    page.press("resume")
    page.wait(lambda: page.status.state == "computing" and race.step > paused + 1)
    page.stop()
    assert page.panel.race is race
    assert race.runners[0].step > paused
    other.press("start")
    other.wait(lambda: other.panel.race is not None and other.panel.race.step > paused + 1)
    other.press("stop")
    other.until("idle", "Stopped")
    assert other.panel.race is not None
    assert [one.history.losses[: paused + 2] for one in race.runners] == [
        one.history.losses[: paused + 2] for one in other.panel.race.runners
    ]


def test_a_press_that_comes_as_the_race_ends_means_nothing(open_race: Open) -> None:
    page = open_race(steps=2)
    page.run()
    for verb in ("pause", "stop", "resume"):
        page.press(verb)  # which was on its way while the end was drawn
        assert page.status.text == "Finished at step 2 of 2"
    assert page.enabled == {"start"}


def test_a_paused_race_can_be_ended(running: Page) -> None:
    running.press("pause")
    running.until("paused", "Paused")
    assert running.gallery.standings.title.startswith("At step ")
    assert running.gallery.verdict.findings == []
    running.stop()
    assert running.gallery.verdict.findings


def test_a_stop_before_the_first_step_is_obeyed(open_race: Open) -> None:
    page = open_race(steps=LONG)
    page.press("start")
    page.stop()
    assert len(page.gallery.standings.rows) == 2


def test_another_race_replaces_the_finished_one(page: Page) -> None:
    page.run()
    first = page.panel.race
    stale: list[bool] = []
    page.gallery.charts[0].observe(lambda change: stale.append(change["new"]), names="stale")
    page.ask("remove", 1)
    page.run()
    assert stale == [True, False], "the old curves are marked until there are new ones"
    assert page.panel.race is not first
    assert [row["name"] for row in page.gallery.standings.rows] == ["Pre-LN"]
    assert page.gallery.standings.rows[0]["hue"] == HUES[1], "a hue stays with its contender"


def test_controls_are_for_the_next_race(open_race: Open) -> None:
    page = open_race(steps=LONG)
    box = page.preparation.contenders
    assert box.heading == HEADING
    page.begin()
    assert box.heading == WHILE_RUNNING
    assert "next race" in page.bar.note
    page.set(n_layers=9, steps=7)
    page.ask("remove", 1)
    page.set(n_heads=5)  # refused, and no matter now
    assert page.status.state == "computing"
    page.stop()
    race = page.race
    assert ([one.config.n_layers for one in race.contenders], race.steps) == ([2, 2], LONG)
    page.press("start")
    page.until("refused", "Refused: Width must be divisible by Heads; got 32 and 5.")
    page.status.handle("action", [])
    page.until("idle", "Ready")
    assert page.controls.config.steps == 7


def test_one_that_diverges_is_told_and_comes_last(open_race: Open) -> None:
    wild = lineup()
    wild.add(
        Contender(
            preset("plain_stack", init_variance=10.0),
            base="Plain stack",
            recipe=Recipe(optimizer="sgd", learning_rate=100.0),
        )
    )
    page = open_race(wild)
    page.run()
    last = page.gallery.standings.rows[-1]
    assert last["name"] == "Plain stack"
    loss, _, diverged, _ = last["cells"]
    assert loss == "none"
    assert diverged.startswith("at step ")
    assert last["out"]
    (finding,) = page.gallery.verdict.findings
    assert finding["severity"] == "warning"
    assert "Diverged: “Plain stack”." in finding["evidence"]
    marks = [trace["name"] for trace in page.gallery.curves["training_loss"].figure["data"]]
    assert any(name.startswith("Plain stack, diverged at step ") for name in marks)


def test_all_that_diverge_end_the_race(open_race: Open) -> None:
    page = open_race(lineup("plain_stack", optimizer="sgd", learning_rate=100.0), steps=LONG)
    page.run("Finished at step ")
    (finding,) = page.gallery.verdict.findings
    assert (finding["severity"], finding["meaning"]) == ("bad", "Every contender diverged.")


# --- refusals -------------------------------------------------------------------------------------


def test_what_the_engine_refuses_is_told_in_a_sentence(open_race: Open) -> None:
    page = open_race(lineup("pre_ln", alpha_schedule="ramp"))
    page.press("start")
    page.until(
        "refused", "Refused: α schedule must be learned where the residual has no α to learn"
    )
    assert page.status.text.endswith("(Pre-LN).")
    assert page.enabled == {"start"}
    page.preparation.recipe.set_state({"values": Recipe().model_dump()})
    page.run()


def test_a_value_out_of_bounds_is_refused_at_once_and_can_be_undone(page: Page) -> None:
    page.set(steps=0)
    page.until("refused", "Refused: Steps must be a whole number between 1 and 100000; got 0.")
    page.press("start")
    page.until("refused")
    page.status.handle("action", [])
    page.until("idle", "Ready")
    assert page.controls.values["steps"] == 12


def test_a_race_of_nobody_is_refused(open_race: Open) -> None:
    page = open_race(lineup("pre_ln"))
    page.ask("remove", 1)
    page.until("refused", "Refused: a race needs a contender; add one.")
    page.press("start")
    page.until("refused")
    page.ask("add", "preset:rezero")
    page.until("idle", "Ready")
    assert page.names == ["ReZero"]


def test_what_cannot_be_done_now_is_not(page: Page) -> None:
    for verb in ("pause", "resume", "stop", "explode", None, ["start"]):
        page.bar.handle(verb, [])
    assert page.worker.computations == 0
    assert page.status.text == "Ready"


def test_an_exception_is_told_and_the_next_race_runs(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("explorer_race.history.packed", lambda *_: b"no race")
        page.press("start")
        page.until("failed", "ValueError: ")
        assert page.status.text.endswith(". Press Start to run the race again.")
        assert page.enabled == {"start"}
        assert not any(chart.stale for chart in page.gallery.charts)
    page.press("start")
    page.wait(lambda: page.status.text.startswith("Finished"))


def newest_worker() -> psutil.Process:
    """The process of the race that was started last."""
    return max(psutil.Process().children(), key=lambda process: process.create_time())


def test_a_worker_that_dies_ends_the_race_in_a_sentence_and_its_numbers_stay(
    open_apart: Open,
) -> None:
    page = open_apart()
    page.run()
    page.set(steps=LONG)
    page.press("start")
    page.wait(lambda: page.panel.race is not None and page.panel.race.step > 20)
    newest_worker().kill()
    page.until("failed", f"RuntimeError: {KILLED}. Press Start to run the race again.")
    assert page.enabled == {"start"}
    assert page.points()
    [(about, content)] = handed(page.saves, "numbers")
    assert about["file"] == "race.csv"
    assert content.count(b"\n") > 100
    assert handed(page.saves, "race") == []
    assert page.saves.note == (
        "Refused: race must have come to a stop, and be small enough, to be saved whole; "
        "got numbers alone."
    )
    page.set(steps=3)
    page.press("start")
    page.wait(lambda: page.status.text == "Finished at step 3 of 3")


def test_a_race_that_is_too_large_to_be_sent_can_be_stopped_but_not_paused(
    open_race: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_race(steps=LONG)
    monkeypatch.setattr("explorer_race.page.panel.MOST_DATA", 1000)
    page.press("start")
    assert page.enabled == {"stop"}
    assert page.bar.note.endswith(" This one is too large to be paused or saved.")
    page.stop()


def test_more_steps_than_the_server_allows_are_refused(
    open_race: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPLORER_RACE_STEPS", "2000")
    page = open_race(steps=2000)
    page.set(steps=2001)
    assert page.status.text == "Refused: Steps must be at most 2000 on this server; got 2001."
    page.status.handle("action")
    assert page.status.text == "Ready"
    monkeypatch.setenv("EXPLORER_RACE_STEPS", "10")  # fewer than every race begins with
    with pytest.raises(ConfigError, match="steps must be at most 500 on this server; got 501"):
        Plan(steps=501)


def test_a_race_stands_still_when_its_time_is_up_and_goes_on(
    open_race: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPLORER_RACE_SECONDS", "1")
    page = open_race(steps=LONG)
    assert not Leg(page.panel.preparation.start()).is_over, "its time has not begun"
    page.press("start")
    page.until("paused", "Paused")
    assert page.status.detail.endswith("its time on this server is up. Press Resume to go on.")
    assert page.panel.race is not None
    before = page.panel.race.step
    assert 0 < before < LONG
    page.press("resume")
    page.until("paused", "Paused")
    assert before < page.panel.race.step < LONG
    page.stop()


def test_close_ends_a_race_that_runs(running: Page) -> None:
    running.close()
    assert not running.worker.alive
