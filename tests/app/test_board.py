"""The pinned designs, without a page: hues stay, names are minded, what is refused is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.app.explore.board import Board, PinError
from explorer.app.named import LONGEST_NAME
from explorer.config import Config
from explorer.profile import Profile

CONFIGS = [Config(n_layers=layers) for layers in range(1, 8)]


def measured(config: Config) -> Profile:
    pattern = np.eye(2)
    return Profile("measured", {}, config, seeds=(0,), pattern=pattern, pattern_of=(1, 0))


def full() -> Board:
    board = Board()
    for config in CONFIGS[:5]:
        board.add(config, None, measured(config))
    return board


def test_each_pin_has_a_hue_of_its_own_and_none_has_that_of_the_current_design() -> None:
    assert [pin.index for pin in full()] == [1, 2, 3, 4, 5]
    assert len({pin.design.hue for pin in full()}) == 5


def test_a_seventh_design_is_refused_in_words() -> None:
    board = full()
    with pytest.raises(PinError, match="At most 6 designs are compared, this one and 5 pins: remove one first"):
        board.add(CONFIGS[5], None, None)
    assert len(board) == 5


def test_the_same_design_twice_is_refused_in_words() -> None:
    board = full()
    with pytest.raises(PinError, match="pinned already, as “Pre-LN, depth 2”"):
        board.add(Config(n_layers=2), None, None)


def test_hiding_and_removing_recolor_nobody_and_a_free_hue_is_used_again() -> None:
    board = full()
    board.show(3, visible=False)
    board.remove(2)
    assert {pin.number: pin.index for pin in board} == {1: 1, 3: 3, 4: 4, 5: 5}
    new = board.add(CONFIGS[6], None, None)
    assert (new.number, new.index) == (6, 2)
    assert {pin.number: pin.index for pin in board} == {1: 1, 3: 3, 4: 4, 5: 5, 6: 2}


def test_names_are_trimmed_and_cut_in_words() -> None:
    board = full()
    assert board.rename(1, "  my \t design\n") == ""
    assert board[1].name == "my design"
    assert board.rename(1, "w" * 41) == f"Names have at most 40 letters: cut to “{'w' * 40}”."
    assert board[1].name == "w" * LONGEST_NAME
    assert board.rename(1, "w" * 40) == "", "its own name is free to it"


@pytest.mark.parametrize("empty", ["", "   ", "\t\n", "\u200b\u200b", "\x00"])
def test_an_empty_name_is_refused_in_words(empty: str) -> None:
    board = full()
    with pytest.raises(PinError, match="A design needs a name; this one keeps “Pre-LN”"):
        board.rename(1, empty)
    assert board[1].name == "Pre-LN"


def test_two_pins_cannot_have_one_name() -> None:
    board = full()
    with pytest.raises(PinError, match="Another pin is called “Pre-LN”; this one keeps “Pre-LN, depth 2”"):
        board.rename(2, "Pre-LN ")


def test_a_pattern_is_not_kept() -> None:
    assert [pin.measured.pattern for pin in full() if pin.measured] == [None] * 5


def test_a_pin_waits_until_its_measurement_or_the_reason_why_there_is_none() -> None:
    board = Board()
    for config in CONFIGS[:3]:
        board.add(config, None, None)
    assert board.waiting() == CONFIGS[0]
    assert board.fill(CONFIGS[0], measured(CONFIGS[0]))
    assert not board.fill(CONFIGS[0], measured(CONFIGS[0])), "kept is kept"
    assert not board.fill(CONFIGS[6], measured(CONFIGS[6])), "nobody asked"
    assert board.fill(CONFIGS[1], None, "MemoryError: too deep")
    assert board.waiting() == CONFIGS[2]
    assert board.fill(CONFIGS[1], measured(CONFIGS[1])), "it may come later all the same"
    assert board[2].trouble == ""
