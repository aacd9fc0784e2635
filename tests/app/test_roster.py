"""The pinned designs, without a page: hues stay, names are minded, what is refused is refused in
words."""

from __future__ import annotations

import pytest

from explorer.app.explore.pins import Pins
from explorer.app.roster import Entry, RosterError
from explorer.app.sentences import LONGEST_NAME
from explorer.config import Config

CONFIGS = [Config(n_layers=layers) for layers in range(1, 8)]


def full() -> Pins:
    pins = Pins()
    for config in CONFIGS[:5]:
        pins.add(Entry(config))
    return pins


def test_each_pin_has_a_hue_of_its_own_and_none_has_that_of_the_current_design() -> None:
    assert [pin.index for pin in full()] == [1, 2, 3, 4, 5]
    assert len({design.hue for design in full().designs().values()}) == 5


def test_a_seventh_design_is_refused_in_words() -> None:
    pins = full()
    with pytest.raises(
        RosterError, match="At most 6 designs are compared, this one and 5 pins: remove one first"
    ):
        pins.add(Entry(CONFIGS[5]))
    assert len(pins) == 5


def test_the_same_design_twice_is_refused_in_words() -> None:
    pins = full()
    with pytest.raises(RosterError, match="pinned already, as “Pre-LN, depth 2”"):
        pins.add(Entry(Config(n_layers=2)))


def test_hiding_and_removing_recolor_nobody_and_a_free_hue_is_used_again() -> None:
    pins = full()
    pins.obey(["hide", 3])
    pins.remove(2)
    assert {pin.number: pin.index for pin in pins} == {1: 1, 3: 3, 4: 4, 5: 5}
    new = pins.add(Entry(CONFIGS[6]))
    assert (new.number, new.index) == (6, 2)
    assert {pin.number: pin.index for pin in pins} == {1: 1, 3: 3, 4: 4, 5: 5, 6: 2}


def test_names_are_trimmed_and_cut_in_words() -> None:
    pins = full()
    assert pins.rename(1, "  my \t design\n") == ""
    assert pins[1].name == "my design"
    assert pins.rename(1, "w" * 41) == f"Names have at most 40 letters: cut to “{'w' * 40}”."
    assert pins[1].name == "w" * LONGEST_NAME
    assert pins.rename(1, "w" * 40) == "", "its own name is free to it"


@pytest.mark.parametrize("empty", ["", "   ", "\t\n", "\u200b\u200b", "\x00"])
def test_an_empty_name_is_refused_in_words(empty: str) -> None:
    pins = full()
    with pytest.raises(RosterError, match="A design needs a name; this one keeps “Pre-LN”"):
        pins.rename(1, empty)
    assert pins[1].name == "Pre-LN"


def test_two_pins_cannot_have_one_name() -> None:
    pins = full()
    with pytest.raises(
        RosterError, match="Another pin is called “Pre-LN”; this one keeps “Pre-LN, depth 2”"
    ):
        pins.rename(2, "Pre-LN ")
