"""Steps back and forth, with a clock of their own."""

from __future__ import annotations

from explorer.app.undo import MOST, QUIET, Undo, differing


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_drag_is_one_step() -> None:
    clock = Clock()
    undo = Undo("", clock)
    for layers in range(2, 9):
        undo.note(f"?n_layers={layers}")
        clock.now += QUIET / 2
    assert undo.back() == ""
    assert undo.forth() == "?n_layers=8"


def test_other_parts_and_later_changes_are_steps_of_their_own() -> None:
    clock = Clock()
    undo = Undo("", clock)
    undo.note("?n_layers=2")
    undo.note("?n_layers=2&alpha=0.5")
    clock.now += QUIET
    undo.note("?n_layers=2&alpha=0.6")
    undo.note("?n_layers=2&alpha=0.6")
    assert [undo.back() for _ in range(4)] == ["?n_layers=2&alpha=0.5", "?n_layers=2", "", ""]


def test_a_change_after_a_step_back_forgets_what_came_after() -> None:
    undo = Undo("")
    for link in ("?a=1", "?b=1", "?c=1"):
        undo.note(link)
    undo.back()
    undo.note("?d=1")
    assert (undo.future, undo.past) == ([], ["", "?a=1", "?b=1"])


def test_a_tab_that_is_opened_and_left_at_once_is_two_steps() -> None:
    undo = Undo("", Clock())
    for link in ("?tab=race", ""):
        undo.note(link)
    assert undo.past == ["", "?tab=race"]


def test_steps_are_limited() -> None:
    undo = Undo("")
    for number in range(MOST + 9):
        undo.note(f"?p{number}=1")
    assert len(undo.past) == MOST


def test_the_parts_that_differ() -> None:
    assert differing("?a=1&pin=x&pin=y&v=1", "?a=2&pin=x&v=1") == {"a", "pin"}
    assert differing("", "?a=1&v=1") == {"a"}
