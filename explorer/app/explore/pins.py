"""`Pins`: the designs that are pinned for comparison, and `Known`, their profiles. No widgets.

The first hue belongs to the current design, and no pin ever has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from explorer.app.roster import MOST, Entry, Roster, RosterError, quoted
from explorer.app.sentences import name_of
from explorer.config import Config
from explorer.profile import Profile

NOW = 0
"""The current design's place among the hues."""


class Known(NamedTuple):
    """Prediction and measurement of a design, as far as there are any."""

    predicted: Profile | None = None
    measured: Profile | None = None
    trouble: str = ""
    """The reason why it cannot be measured; empty while it may be."""

    @property
    def profiles(self) -> list[Profile]:
        """Profiles to draw: the theory's line, the dots."""
        return [profile for profile in (self.predicted, self.measured) if profile is not None]


class Pins(Roster[Entry]):
    """The pins. Each design is there once, and is named when it comes; the name stays."""

    entry = Entry
    noun = "pin"
    full = f"At most {MOST} designs are compared, this one and {MOST - 1} pins: remove one first."
    first = NOW + 1

    def name_for(self, config: Config) -> str:
        """Name of a design beside the pins; the pin's name if it is pinned."""
        held = self.holder(config)
        return held.name if held else name_of(config, [(pin.name, pin.config) for pin in self])

    def holder(self, config: Config) -> Entry | None:
        """The pin of a config, if there is one."""
        return next((pin for pin in self if pin.config == config), None)

    def add(self, entry: Entry) -> Entry:
        """Pins a design.

        Raises:
            RosterError: it is pinned already, or there is no hue left.
        """
        if held := self.holder(entry.config):
            raise RosterError(f"This design is pinned already, as {quoted(held.name)}.")
        return super().add(replace(entry, name=entry.name or self.name_for(entry.config)))
