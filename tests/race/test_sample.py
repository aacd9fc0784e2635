"""The stored race and the set-ups: what the Race panel offers before anything has run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from numpy.testing import assert_allclose
from raced import Open, opened

from benchmarks.sample import packed
from explorer.app.link.state import part_of, plain
from explorer.app.setups import Setup, setups
from explorer.app.tabs import tabs
from explorer_race.history import ON_REQUEST, Line
from explorer_race.maps import MAPS
from explorer_race.page.lineup import WARMUP, Lineup, Plan, first_lineup
from explorer_race.page.panel import RacePanel
from explorer_race.page.racefile import SAMPLE, stored


@pytest.fixture
def open_race() -> Iterator[Open]:
    yield from opened()


@pytest.fixture(scope="module")
def panel() -> Iterator[RacePanel]:
    panel = RacePanel()
    yield panel
    panel.close()


def test_the_stored_race_is_of_the_contenders_that_the_panel_opens_with() -> None:
    sample, plan = stored(), Plan()
    designs = first_lineup().designs().values()
    assert [track.name for track in sample.course.tracks] == [design.heading for design in designs]
    for track, design in zip(sample.course.tracks, designs, strict=True):
        assert design.config
        assert track.design.config == plan.task.fit(plan.sized(design.config, own=False))
        assert (track.step, len(track.history.losses)) == (plan.steps, plan.steps)
    assert SAMPLE.stat().st_size < 150_000


def test_it_shows_that_warm_up_rescues() -> None:
    sample = stored()
    losses = {outcome.name: outcome.final_loss for outcome in sample.outcomes}
    unigram, bigram = sample.course.levels
    assert losses["Post-LN, no warm-up"] > unigram - 0.1 * (unigram - bigram)
    assert losses[f"Post-LN, warm-up {WARMUP}"] < unigram - 0.5 * (unigram - bigram)
    for track in sample.course.tracks:
        for row in MAPS.values():
            values = row.grid(track.history).values
            assert values.size or row.name.startswith("alpha") or row.name in ON_REQUEST, row.name


def test_the_panel_opens_with_it_and_says_so(panel: RacePanel) -> None:
    assert "A stored race" in panel.waiting.value
    assert "version" not in panel.waiting.value, (
        "the package's own, of which only its numbers matter"
    )
    assert all(chart.figure["data"] for chart in panel.gallery.charts)
    assert len(panel.gallery.standings.rows) == len(stored().outcomes)
    assert (panel.race, panel.worker.computations) == (None, 0)
    assert not any(button["enabled"] for button in panel.saves.buttons), (
        "it is nobody's race to save"
    )


@pytest.mark.parametrize("panel", ["map", "race"])
def test_the_settings_of_each_set_up_are_understood(panel: str) -> None:
    for row in setups(panel).values():
        assert part_of(panel, dict(row.state), tabs()[panel]) == (row.part, []), row.name


@pytest.mark.parametrize("row", setups("race").values(), ids=setups("race"))
def test_a_set_up_is_a_line_up_that_can_be_started(panel: RacePanel, row: Setup) -> None:
    panel.setups.handle(row.name, [])
    assert panel.setups.note == row.words
    assert panel.preparation.refusal == ""
    panel.preparation.restore(row.part)
    start = panel.preparation.start()
    assert start.plan == row.part.plan
    for design, recipe in zip(start.designs, start.recipes, strict=True):
        assert design.config
        recipe.check(design.config, design.label)  # raises where a choice can do nothing
    assert len({design.label for design in start.designs}) == 4
    assert panel.part.contenders == row.part.contenders


def test_what_is_no_set_up_is_ignored(panel: RacePanel) -> None:
    before = panel.part
    for message in ("<b>", "", None, 3, ["depth"]):
        panel.setups.handle(message, [])
    assert panel.part == before


def test_a_race_replaces_it_and_each_contender_has_written(open_race: Open) -> None:
    page = open_race()
    page.panel._show_sample()
    page.run()
    rows = page.gallery.standings.rows
    assert {row["name"] for row in rows} == {"Post-LN", "Pre-LN"}
    assert all(row["given"] and row["written"] for row in rows)
    assert page.waiting.hidden


def test_numbers_survive_to_three_digits(
    open_race: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_race()
    page.run()
    race = page.race
    file = tmp_path / "sample.json"
    lineup, plan = page.preparation.lineup, page.controls.config
    file.write_text(
        json.dumps(packed(race, Lineup(), plan, "1.2"), allow_nan=False), encoding="utf-8"
    )
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "contenders": plain(lineup.entries)}))
    monkeypatch.setattr("explorer_race.page.racefile.SAMPLE", file)
    sample = stored()
    assert sample.version == "1.2"
    assert all(isinstance(line, Line) for line in sample.lines.values())
    for track, runner in zip(sample.course.tracks, race.runners, strict=True):
        assert_allclose(track.history.losses, runner.history.losses, rtol=5e-4)
        for row in MAPS.values():
            assert_allclose(
                row.grid(track.history).values,
                row.grid(runner.history).values,
                rtol=5e-3,
                err_msg=row.name,
            )
        assert_allclose(
            track.history.gradient_ratio()[1], runner.history.gradient_ratio()[1], rtol=1e-2
        )
