"""The sentence on random designs like the one shown: where it stands, when it is found, and what keeps it away."""

from __future__ import annotations

import re

import pytest
from explored import SMALL, Open, opened

from explorer.app.dashboard import trials
from explorer.app.explore.similar import KEPT, SimilarDesigns
from explorer.app.widgets.verdict import WITHHELD
from explorer.config import Config, preset
from explorer.diagnosis import Finding
from explorer.stopping import Stopped

open_panel = pytest.fixture(opened)
TWO = [Finding("bad", "First.", "Its evidence."), Finding("good", "Second.", "Another.")]


def test_the_sentence_stands_after_the_evidence_of_the_first_finding_alone(open_panel: Open) -> None:
    page = open_panel(diagnose=lambda profile: TWO, trials=lambda config, stop: f"{config.n_layers} layers.")
    page.until("idle")
    assert [one["evidence"] for one in page.panel.verdict.findings] == ["Its evidence. 2 layers.", "Another."]
    page.set(n_layers=3)
    page.until("idle", "3 layers")
    assert page.panel.verdict.findings[0]["evidence"] == "Its evidence. 3 layers."
    page.panel.remedies.judge(None)
    assert page.panel.verdict.findings == [WITHHELD]


def test_a_count_that_fails_says_so_and_the_measurement_stands(open_panel: Open) -> None:
    def broken(config: Config, stop: object) -> str:
        raise MemoryError("no room")

    page = open_panel(diagnose=lambda profile: TWO, trials=broken)
    page.until("idle")
    evidence = page.panel.verdict.findings[0]["evidence"]
    assert evidence.endswith("No training results for similar designs: MemoryError: no room.")


def test_it_is_found_once_and_given_up_when_the_design_has_changed() -> None:
    asked: list[int] = []

    def count(config: Config, stop: object) -> str:
        asked.append(config.seed)
        if config.seed == 7:
            raise Stopped
        return f"seed {config.seed}"

    similar = SimilarDesigns(count)
    for seed in (0, 0, *range(1, KEPT)):
        similar.find(SMALL.replace(seed=seed if seed != 7 else 1000), lambda: False)
    assert asked.count(0) == 1
    with pytest.raises(Stopped):
        similar.find(SMALL.replace(seed=7), lambda: True)
    assert similar.words(SMALL.replace(seed=7)) == ""
    similar.find(SMALL.replace(seed=2000), lambda: False)
    assert similar.words(SMALL) == "", "the oldest makes room"
    assert similar.words(SMALL.replace(seed=2000)) == "seed 2000"


def test_the_page_counts_trials_like_the_design_and_none_beyond_them() -> None:
    said = trials(Config(n_layers=2, d_model=64), lambda: False)
    assert re.fullmatch(r"Of 40 random designs like this (\d+) trained\.", said)
    assert trials(Config(n_layers=100), lambda: False) == ""
    assert trials(Config(n_layers=2, d_model=128, n_ctx=16, seed=7), lambda: True) == said, "measured at one size"
    with pytest.raises(Stopped):
        trials(preset("mhc", n_layers=2), lambda: True)  # theory lacks a gradient of it: it is measured


def test_the_dots_do_not_wait_for_the_trials(open_panel: Open) -> None:
    """While they are looked up the charts show what was measured, and the verdict is still the earlier one's."""
    seen: list[tuple[int, bool, str]] = []

    def look(config: Config, stop: object) -> str:
        if config.n_layers == 3:
            chart, verdict = page.panel.charts["second_moment"], page.panel.verdict
            seen.append((len(page.drawn()), chart.stale, verdict.findings[0]["evidence"]))
        return f"{config.n_layers} layers."

    page = open_panel(diagnose=lambda profile: TWO, trials=look)
    page.until("idle")
    page.set(n_layers=3)
    page.until("idle", "3 layers")
    assert seen == [(7, False, "Its evidence. 2 layers.")]
    assert page.panel.verdict.findings[0]["evidence"] == "Its evidence. 3 layers."
    assert page.stale() == {False}
