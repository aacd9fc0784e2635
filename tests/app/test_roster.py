"""The pinned designs, without a page: hues stay, names are minded, what is refused is refused in
words."""

from __future__ import annotations

import pytest

from explorer.app.explore.pins import Pins
from explorer.app.roster import Entry, RosterError
from explorer.app.sentences import LONGEST_NAME
from explorer.config import Config


def full() -> Pins:
    pins = Pins()
    for layers in (1, 2):
        pins.add(Entry(Config(n_layers=layers)))
    return pins


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
