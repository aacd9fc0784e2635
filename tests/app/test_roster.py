"""The pinned designs, without a page: hues stay, names are minded, what is refused is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.app.explore.pins import Pin, Pins
from explorer.app.roster import RosterError
from explorer.app.sentences import LONGEST_NAME
from explorer.config import Config
from explorer.profile import Profile

CONFIGS = [Config(n_layers=layers) for layers in range(1, 8)]


def measured(config: Config) -> Profile:
    pattern = np.eye(2)
    return Profile("measured", {}, config, seeds=(0,), pattern=pattern, pattern_of=(1, 0))


def full() -> Pins:
    pins = Pins()
    for config in CONFIGS[:5]:
        pins.add(Pin(config, measured=measured(config)))
    return pins


def test_each_pin_has_a_hue_of_its_own_and_none_has_that_of_the_current_design() -> None:
    assert [pin.index for pin in full()] == [1, 2, 3, 4, 5]
    assert len({design.hue for design in full().designs().values()}) == 5


def test_a_seventh_design_is_refused_in_words() -> None:
    pins = full()
    with pytest.raises(RosterError, match="At most 6 designs are compared, this one and 5 pins: remove one first"):
        pins.add(Pin(CONFIGS[5]))
    assert len(pins) == 5


def test_the_same_design_twice_is_refused_in_words() -> None:
    pins = full()
    with pytest.raises(RosterError, match="pinned already, as “Pre-LN, depth 2”"):
        pins.add(Pin(Config(n_layers=2)))


def test_hiding_and_removing_recolor_nobody_and_a_free_hue_is_used_again() -> None:
    pins = full()
    pins.obey(["hide", 3])
    pins.remove(2)
    assert {pin.number: pin.index for pin in pins} == {1: 1, 3: 3, 4: 4, 5: 5}
    new = pins.add(Pin(CONFIGS[6]))
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
    with pytest.raises(RosterError, match="Another pin is called “Pre-LN”; this one keeps “Pre-LN, depth 2”"):
        pins.rename(2, "Pre-LN ")


def test_a_pattern_is_not_kept() -> None:
    assert [pin.measured.pattern for pin in full() if pin.measured] == [None] * 5


def test_a_pin_waits_until_its_measurement_or_the_reason_why_there_is_none() -> None:
    pins = Pins()
    for config in CONFIGS[:3]:
        pins.add(Pin(config))
    assert pins.unmeasured() == list(CONFIGS[:3])
    assert pins.fill(CONFIGS[0], measured(CONFIGS[0]))
    assert not pins.fill(CONFIGS[0], measured(CONFIGS[0])), "kept is kept"
    assert not pins.fill(CONFIGS[6], measured(CONFIGS[6])), "nobody asked"
    assert pins.fill(CONFIGS[1], None, "MemoryError: too deep")
    assert pins.unmeasured() == [CONFIGS[2]]
    assert pins.fill(CONFIGS[1], measured(CONFIGS[1])), "it may come later all the same"
    assert pins[2].trouble == ""
