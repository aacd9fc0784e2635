"""Steps back and forth, with a clock of their own."""

from __future__ import annotations

from typing import Any

from explorer.app.page import MOST, QUIET, ExplorePart, Page, Undo, differing
from explorer.config import Config
from explorer_race.page.lineup import RacePart


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def page(tab: str = "explore", **fields: Any) -> Page:
    return Page(tab, {"explore": ExplorePart(Config(**fields)), "race": RacePart()})


def test_a_drag_is_one_step() -> None:
    clock = Clock()
    undo = Undo(page(), clock)
    for layers in range(2, 9):
        undo.note(page(n_layers=layers))
        clock.now += QUIET / 2
    assert undo.back() == page()
    assert undo.forth() == page(n_layers=8)


def test_other_fields_and_later_changes_are_steps_of_their_own() -> None:
    clock = Clock()
    undo = Undo(page(), clock)
    undo.note(page(n_layers=2))
    undo.note(page(n_layers=2, alpha=0.5))
    clock.now += QUIET
    undo.note(page(n_layers=2, alpha=0.6))
    undo.note(page(n_layers=2, alpha=0.6))
    assert [undo.back() for _ in range(4)] == [
        page(n_layers=2, alpha=0.5),
        page(n_layers=2),
        page(),
        page(),
    ]


def test_a_change_after_a_step_back_forgets_what_came_after() -> None:
    undo = Undo(page())
    steps = [page(n_layers=2), page(alpha=0.5), page(d_model=64)]
    for step in steps:
        undo.note(step)
    undo.back()
    undo.note(page(causal=True))
    assert (list(undo.future), list(undo.past)) == ([], [page(), *steps[:2]])


def test_a_tab_that_is_opened_and_left_at_once_is_two_steps() -> None:
    undo = Undo(page(), Clock())
    for tab in ("race", "explore"):
        undo.note(page(tab))
    assert list(undo.past) == [page(), page("race")]


def test_steps_are_limited() -> None:
    clock = Clock()
    undo = Undo(page(), clock)
    for number in range(MOST + 9):
        undo.note(page(n_layers=number + 1))
        clock.now += QUIET
    assert len(undo.past) == MOST


def test_the_fields_that_differ() -> None:
    design, tab = "panels.explore.design", page("race", n_layers=2, alpha=0.5)
    assert differing(page(), tab) == {"open", f"{design}.n_layers", f"{design}.alpha"}
    assert differing(page(), Page("explore", {})) == {"panels"}
    assert differing(tab, tab) == frozenset()
