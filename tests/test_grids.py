"""Grids of the site's live figures: settings with both ends, and stored numbers as the lessons
compute them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import nbformat
import pytest

import explorer as ex
from benchmarks.grids import (
    FOLDER,
    LIVE,
    difference,
    drawing,
    grid,
    live_calls,
    live_cells,
    values_of,
)
from benchmarks.lessons import LESSONS
from explorer.lessons.settings import settings_of

STALE = "run `python -m benchmarks.grids {}`"


def changed(record: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A record with changes, as `live.js` makes it."""
    copy = record | changes
    for key, value in changes.items():
        if isinstance(value, dict):
            copy[key] = changed(record.get(key) or {}, value)
    return {key: value for key, value in copy.items() if value is not None}


def stored(lesson: Path) -> list[dict[str, Any]]:
    """The stored figures of a lesson."""
    return list(json.loads((FOLDER / f"{lesson.stem}.json").read_text(encoding="utf-8")))


def states(changes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The drawings that changes lead to, from none."""
    return list(accumulate(changes, changed, initial={}))[1:]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_has_the_grid_of_each_of_its_live_figures(lesson: Path) -> None:
    cells = [cell for cell in live_cells(lesson) if LIVE in cell]
    assert [figure["cell"] for figure in stored(lesson)] == cells, STALE.format(lesson.stem)


@pytest.mark.parametrize("number", [1, 4, 6, 7])
def test_a_grid_has_the_numbers_of_its_lesson(number: int) -> None:
    lesson = LESSONS[number - 1]
    for (function, settings), figure in zip(live_calls(lesson), stored(lesson), strict=True):
        values, all_states = grid(settings), states(figure["changes"])
        for place in (0, -1):  # the first and the last setting
            setting = {name: options[place] for name, options in values.items()}
            expected = drawing(function, setting)
            state = all_states[place]
            assert state["sentence"] == expected["sentence"], STALE.format(lesson.stem)
            for name, trace in expected["traces"].items():
                y = pytest.approx(trace["y"], rel=1e-3, abs=1e-9)
                assert state["traces"][name]["y"] == y, STALE.format(lesson.stem)


def test_values_of_a_setting_have_both_ends_and_the_default() -> None:
    def draw(**settings):
        return settings

    controls = {"depth": ex.slider(1, 48, 2), "few": ex.slider(1, 2, 1)}
    specs = settings_of(draw, {**controls, "norm": ("pre", "post"), "biased": False}).specs()
    assert values_of(specs["depth"], 3) == [1, 2, 48]
    assert values_of(specs["norm"], 3) == ["pre", "post"]
    assert values_of(specs["biased"], 3) == [False, True]
    assert values_of(specs["few"], 3) == [1, 2]


def test_changes_lead_from_one_record_to_the_next() -> None:
    before = {"traces": {"0": {"y": [1, 2], "x": [0]}, "1": {"y": [3]}}, "sentence": "a"}
    after = {"traces": {"0": {"y": [1, 5], "x": [0]}}, "sentence": "a"}
    changes = difference(before, after)
    assert changes == {"traces": {"0": {"y": [1, 5]}, "1": None}}
    assert changed(before, changes) == after


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_chinese_figure_has_other_words_and_the_same_numbers(lesson: Path) -> None:
    chinese = json.loads((FOLDER / "zh" / f"{lesson.stem}.json").read_text(encoding="utf-8"))
    for figure, words in zip(stored(lesson), chinese, strict=True):
        assert len(words["labels"]) == len(figure["controls"])
        assert len(words["words"]) == len(figure["changes"])
        for change in words["words"]:
            for trace in (change.get("traces") or {}).values():
                assert not (trace or {}).keys() & {"x", "y", "z"}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_chinese_text_names_controls_as_they_are_labeled(lesson: Path) -> None:
    chinese = nbformat.read(lesson.parent / "zh" / lesson.name, as_version=4)
    texts = [cell.source for cell in chinese.cells if cell.cell_type == "markdown"]
    lines = [line for text in texts for line in text.splitlines()]
    of_lesson = [line for line in lines if "在页面上" not in line]  # the page itself is English
    words = json.loads((FOLDER / "zh" / f"{lesson.stem}.json").read_text(encoding="utf-8"))
    for figure, translated in zip(stored(lesson), words, strict=True):
        for control, label in zip(figure["controls"], translated["labels"], strict=True):
            if label != control["label"]:
                named = [line for line in of_lesson if f"*{control['label']}*" in line]
                assert not named, f"it is called {label}"
