"""`Board`: the designs that are pinned for comparison, each with its name, its hue and its profiles. No widgets.

A pin keeps its hue for as long as it is there, whatever becomes of the others; a hue that is free again may be given
to the next one. The first hue belongs to the current design, and no pin ever has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from explorer.app.named import LONGEST_NAME, name_of, tidied
from explorer.config import Config
from explorer.figures.palette import HUES, Design
from explorer.profile import Profile

NOW = 0
"""The current design's place among the hues."""
MOST = len(HUES)
"""Designs that are compared at most, the current one among them."""


class PinError(ValueError):
    """A pin was refused; the message is one sentence."""


@dataclass(frozen=True)
class Pin:
    """One pinned design."""

    number: int
    """Identifier for the browser; counts up, never used twice."""
    index: int
    """Its hue, symbol and dash."""
    name: str
    config: Config
    predicted: Profile | None = None
    measured: Profile | None = None
    trouble: str = ""
    """The reason why it cannot be measured; empty while it may be."""
    visible: bool = True

    @property
    def design(self) -> Design:
        """Its marks."""
        return Design(self.index, self.config, self.name)

    @property
    def profiles(self) -> list[Profile]:
        """Profiles to draw: the theory's line, the dots."""
        return [profile for profile in (self.predicted, self.measured) if profile is not None]


class Board:
    """The pins, in the order they came."""

    def __init__(self) -> None:
        self._pins: dict[int, Pin] = {}
        self._last = 0

    def __iter__(self) -> Iterator[Pin]:
        return iter(tuple(self._pins.values()))

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, number: object) -> bool:
        return number in self._pins

    def __getitem__(self, number: int) -> Pin:
        return self._pins[number]

    def name_for(self, config: Config) -> str:
        """Name of a design beside the pins; the pin's name if it is pinned."""
        held = self.holder(config)
        return held.name if held else name_of(config, [(pin.name, pin.config) for pin in self])

    def holder(self, config: Config) -> Pin | None:
        """The pin of a config, if there is one."""
        return next((pin for pin in self if pin.config == config), None)

    def add(self, config: Config, predicted: Profile | None, measured: Profile | None) -> Pin:
        """Pins a design.

        Raises:
            PinError: it is pinned already, or there is no hue left.
        """
        if held := self.holder(config):
            raise PinError(f"This design is pinned already, as {quoted(held.name)}.")
        free = sorted(set(range(NOW + 1, MOST)) - {pin.index for pin in self})
        if not free:
            raise PinError(f"At most {MOST} designs are compared, this one and {MOST - 1} pins: remove one first.")
        self._last += 1
        pin = Pin(self._last, free[0], self.name_for(config), config, predicted, measured and _slim(measured))
        self._pins[pin.number] = pin
        return pin

    def rename(self, number: int, text: str) -> str:
        """Gives a pin another name.

        Returns:
            What there is to say about it; empty when the name is taken as it was given.
        Raises:
            PinError: the name is empty, or another pin's.
        """
        pin = self._pins[number]
        name = tidied(text)
        if not name:
            raise PinError(f"A design needs a name; this one keeps {quoted(pin.name)}.")
        cut = name[:LONGEST_NAME].rstrip()
        if any(other.name == cut and other is not pin for other in self):
            raise PinError(f"Another pin is called {quoted(cut)}; this one keeps {quoted(pin.name)}.")
        self._pins[number] = replace(pin, name=cut)
        return f"Names have at most {LONGEST_NAME} letters: cut to {quoted(cut)}." if cut != name else ""

    def show(self, number: int, visible: bool) -> None:
        """Draws a pin, or leaves it out."""
        self._pins[number] = replace(self._pins[number], visible=visible)

    def remove(self, number: int) -> Pin:
        """Removes a pin; its hue is free again."""
        return self._pins.pop(number)

    def waiting(self) -> Config | None:
        """The first pinned config with neither a measurement nor a reason why it has none."""
        return next((pin.config for pin in self if pin.measured is None and not pin.trouble), None)

    def fill(self, config: Config, measured: Profile | None, trouble: str = "") -> bool:
        """Gives a measurement, or the reason for its absence, to the pin that waits for it; False when none does."""
        pin = self.holder(config)
        if pin is None or pin.measured is not None:
            return False
        self._pins[pin.number] = replace(pin, measured=measured and _slim(measured), trouble=trouble)
        return True


def quoted(name: str) -> str:
    """A name within a sentence."""
    return f"“{name}”"


def _slim(profile: Profile) -> Profile:
    """Without its attention pattern, which is only ever shown of the current design."""
    return replace(profile, pattern=None, pattern_of=None)
