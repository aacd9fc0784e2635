"""A saved race that is opened on the page: it stands where it stood, goes on as if nothing had been, or is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest
from handed import bring
from here import held
from raced import LONG, SMALL, Open, Page, lineup, opened

from explorer import preset, text
from explorer.app.race.racefile import LARGEST_BYTES
from explorer.training.archive import to_bytes
from explorer.training.race import Contender, Race
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task


@pytest.fixture
def open_race() -> Iterator[Open]:
    yield from opened()


def send(page: Page, raw: bytes, name: str = "race.zip") -> list[int]:
    return bring(page.panel.file, name, raw, part=300_000)


def paused(page: Page) -> bytes:
    with held():
        page.press("start")
        page.wait_for_a_table()
        page.press("pause")
        page.until("paused", "Paused")
    return page.saved


def test_a_paused_race_stands_where_it_stood_and_goes_on_bit_for_bit(open_race: Open) -> None:
    first = open_race(lineup("post_ln", "rezero", warmup=5, optimizer="radam"), steps=60, every=7)
    raw = paused(first)
    first.press("resume")
    first.until("idle", "Finished")
    again = open_race(steps=3)
    answers = send(again, raw)
    assert answers[0] == 0
    assert answers[-1] == len(raw)
    again.until("paused", "Paused")
    panel = again.panel
    assert panel.race is not None
    assert panel.race.step < 60
    assert again.enabled == {"resume", "stop"}
    assert not panel.bar.losing, "the file has it all"
    assert panel.controls.config.model_dump() == first.panel.controls.config.model_dump()
    assert again.names == first.names
    assert [one.recipe for one in panel.preparation.lineup] == [one.recipe for one in first.panel.preparation.lineup]
    assert [row["name"] for row in panel.gallery.standings.rows] == first.names
    assert panel.file.said.startswith("Opened, at step ")
    assert again.points().keys() == first.points().keys()
    again.press("resume")
    again.until("idle", "Finished")
    assert first.panel.race is not None
    pd.testing.assert_frame_equal(panel.race.frame(), first.panel.race.frame(), check_exact=True)


def test_a_race_that_stands_within_a_round_is_at_one_step_everywhere(open_race: Open) -> None:
    task, asked = Task(), iter(range(4))
    contenders = [Contender(name, task.fit(preset(name, **SMALL)), Recipe()) for name in ("post_ln", "pre_ln")]
    race = Race(contenders, task, 10, 1).run(lambda: next(asked) == 3)  # two steps of the first, one of the second
    assert [runner.step for runner in race.runners] == [2, 1]
    page = open_race()
    send(page, to_bytes(race))
    page.until("paused", "Paused")
    panel = page.panel
    assert panel.file.said == "Opened, at step 2 of 10."
    assert panel.status.detail == "at step 2 of 10"
    assert panel.gallery.standings.title == "At step 2"


def test_a_finished_race_with_a_text_of_its_own(open_race: Open) -> None:
    own = text.encode("".join(text.prose().vocabulary[code] for code in text.prose().codes[:60_000]))
    page = open_race()
    page.panel.preparation.text.take(own)
    page.run()
    again = open_race()
    send(again, page.saved)
    again.until("idle", "Finished at step 12 of 12")
    assert again.enabled == {"start"}
    assert again.panel.preparation.text.text is not None
    again.run()
    pd.testing.assert_frame_equal(again.panel.race.frame(), page.panel.race.frame())  # type: ignore[union-attr]


def test_no_file_is_taken_while_a_race_runs(open_race: Open) -> None:
    page = open_race()
    page.run()
    raw = page.saved
    page.set(steps=LONG)
    page.press("start")
    assert send(page, raw) == [-1]
    assert page.panel.file.refused
    assert page.panel.file.said.startswith("Stop the race of this page first")
    page.press("stop")
    page.until("idle", "Stopped")
    send(page, raw)
    page.until("idle", "Finished at step 12")


def too_many() -> bytes:
    config = Task().fit(lineup().designs()[1].config.replace(**SMALL))  # type: ignore[union-attr]
    return to_bytes(Race([Contender(f"number {number}", config, Recipe()) for number in range(7)], Task(), 2))


def test_what_is_no_race_is_refused_and_the_one_on_the_page_stays(open_race: Open) -> None:
    page = open_race()
    page.run()
    race, raw = page.panel.race, page.saved
    for bad, words in ((raw[:-100], "race must be a file that save wrote; got 'race.zip'"), (b"no zip", "race must be"),
                       (too_many(), "race.zip must have at most 6 contenders to be shown; got 7")):
        send(page, bad)
        page.until("refused", f"Refused: {words}")
        assert page.panel.file.refused
        assert page.panel.race is race
        assert page.panel.saves.offers("race")
    page.run()


def test_sizes_are_refused_before_a_byte_is_sent(open_race: Open) -> None:
    page = open_race()
    entry = page.panel.file
    for size in (LARGEST_BYTES + 1, 0, -5):
        assert entry._begin("race.zip", size) == -1
        assert entry.refused
    assert "race.zip must have at most 100.0 MB to be sent" in entry.said


def test_parts_that_do_not_follow_end_the_file(open_race: Open) -> None:
    page = open_race()
    entry, sent = page.panel.file, []
    entry.send = lambda content, buffers=None: sent.append(content["got"])  # type: ignore[method-assign]
    for message, buffers in (
        (["part", 0], [b"a"]), (["begin", "a", 10], []), (["part", 5], [b"a"]), (["part", 0], [b"a"]),
        (["begin", "a", 10], []), (["part", 0], [b"12345"]), (["part", 5], [b"123456"]),
        (["begin", "a", "10"], []), (["part", None], [b"a"]), ("begin", []), (["file", "a"], [b"a"]), (["other"], []),
    ):
        entry.handle(message, buffers)
    assert sent == [-1, 0, -1, -1, 0, 5, -1]
    assert page.panel.status.state == "idle"
