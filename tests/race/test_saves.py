"""What is saved from the page: the numbers as a table, the race as a file that loads again; never
of one that runs."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from handed import File, handed
from here import held
from raced import LONG, Open, Page

from explorer.app.widgets import files
from explorer_race.archive import load


@pytest.fixture
def page(open_race: Open) -> Page:
    return open_race()


def asked(page: Page, name: object) -> list[File]:
    """The files that a press sends to the browser."""
    return handed(page.saves, name)


def enabled(page: Page) -> bool:
    return all(button["enabled"] for button in page.saves.buttons)


def test_the_numbers_are_the_tidy_frame(page: Page) -> None:
    page.run()
    [(about, content)] = asked(page, "numbers")
    assert about == {"file": "race.csv", "media": "text/csv"}
    frame = page.race.frame()
    empty = dict.fromkeys(("value", "layer", "head", "position"), "")
    read = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=empty)
    pd.testing.assert_frame_equal(read.astype(frame.dtypes), frame, check_exact=False, rtol=1e-12)
    assert page.saves.note == f"Saved race.csv, {files.size_words(len(content))}."


def test_the_result_of_a_press_stays_while_the_next_race_is_prepared(page: Page) -> None:
    page.run()
    asked(page, "numbers")
    said = page.saves.note
    page.set(steps=0)
    page.until("refused")
    page.set(steps=2)
    page.until("idle", "Ready")
    assert page.saves.note == said != ""
    assert enabled(page)


def test_a_paused_race_is_saved_and_goes_on_from_its_file(open_race: Open, tmp_path: Path) -> None:
    page = open_race(steps=40)
    with held():
        page.press("start")
        page.press("pause")
        page.until("paused", "Paused")
    asked(page, "numbers")
    assert page.bar.losing, "the table alone cannot be run on"
    [(about, content)] = asked(page, "race")
    assert not page.bar.losing
    file = tmp_path / about["file"]
    file.write_bytes(content)
    page.press("resume")
    assert page.bar.losing
    page.until("idle", "Finished")
    assert not page.bar.losing
    assert page.panel.race is not None
    pd.testing.assert_frame_equal(load(file).run().frame(), page.panel.race.frame())


def test_nothing_is_saved_of_a_race_that_runs_or_never_ran(open_race: Open) -> None:
    page = open_race(steps=LONG)
    assert not enabled(page)
    page.press("start")
    assert not enabled(page)
    assert asked(page, "numbers") == []
    page.press("stop")
    page.until("idle", "Stopped")
    assert enabled(page)
    for press in ("weights", 3, None, ["numbers"]):
        assert asked(page, press) == []


def test_what_a_browser_could_not_take_is_refused_in_words(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.run()
    monkeypatch.setattr(files, "MOST", 1_000)
    assert asked(page, "race") == []
    box = page.saves
    assert box.refused
    assert box.note.startswith(
        "Refused: race.zip must have at most 1 kB to go through a browser; got "
    )
    page.press("start")
    page.until("idle", "Finished")
    assert (box.note, box.refused) == ("", False), "that was another race"
