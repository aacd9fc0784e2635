"""`Pins`: the designs that are pinned for comparison, each with its profiles. No widgets.

The first hue belongs to the current design, and no pin ever has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from explorer.app.roster import MOST, Entry, Roster, RosterError, quoted
from explorer.app.sentences import name_of
from explorer.config import Config
from explorer.profile import Profile

NOW = 0
"""The current design's place among the hues."""


@dataclass(frozen=True)
class Pin(Entry):
    """One pinned design."""

    predicted: Profile | None = None
    measured: Profile | None = None
    trouble: str = ""
    """The reason why it cannot be measured; empty while it may be."""

    @property
    def profiles(self) -> list[Profile]:
        """Profiles to draw: the theory's line, the dots."""
        return [profile for profile in (self.predicted, self.measured) if profile is not None]


class Pins(Roster[Pin]):
    """The pins. Each design is there once, and is named when it comes; the name stays."""

    entry = Pin
    noun = "pin"
    full = f"At most {MOST} designs are compared, this one and {MOST - 1} pins: remove one first."
    first = NOW + 1

    def name_for(self, config: Config) -> str:
        """Name of a design beside the pins; the pin's name if it is pinned."""
        held = self.holder(config)
        return held.name if held else name_of(config, [(pin.name, pin.config) for pin in self])

    def holder(self, config: Config) -> Pin | None:
        """The pin of a config, if there is one."""
        return next((pin for pin in self if pin.config == config), None)

    def add(self, entry: Pin) -> Pin:
        """Pins a design.

        Raises:
            RosterError: it is pinned already, or there is no hue left.
        """
        if held := self.holder(entry.config):
            raise RosterError(f"This design is pinned already, as {quoted(held.name)}.")
        name = entry.name or self.name_for(entry.config)
        return super().add(replace(entry, name=name, measured=_without_pattern(entry.measured)))

    def restore(self, entries: Iterable[Pin]) -> list[str]:
        """Replaces all pins; what is known of a design that was pinned before is kept."""
        known = {pin.config: pin for pin in self}
        sentences = super().restore(entries)
        for pin in self:
            if before := known.get(pin.config):
                self.change(pin.number, predicted=before.predicted, measured=before.measured, trouble=before.trouble)
        return sentences

    def unmeasured(self) -> list[Config]:
        """The pinned configs with neither a measurement nor a reason why they have none."""
        return [pin.config for pin in self if pin.measured is None and not pin.trouble]

    def fill(self, config: Config, measured: Profile | None, trouble: str = "") -> bool:
        """Gives a measurement, or the reason for its absence, to the pin that waits for it; False when none does."""
        pin = self.holder(config)
        if pin is None or pin.measured is not None:
            return False
        self.change(pin.number, measured=_without_pattern(measured), trouble=trouble)
        return True


def _without_pattern(profile: Profile | None) -> Profile | None:
    """A profile without its attention pattern, which is only ever shown of the current design."""
    return profile and replace(profile, pattern=None, pattern_of=None)
