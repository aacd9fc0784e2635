"""Saving a race that is not running: a file that the browser downloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from explorer.app.race.buttons import ButtonRow, button
from explorer.app.widgets.handing import hand_over, size_words
from explorer.choices import ConfigError

if TYPE_CHECKING:
    from explorer.training.race import Race


def numbers(race: Race) -> bytes:
    """The tidy frame, as text."""
    return race.frame().to_csv(index=False).encode()


def whole(race: Race) -> bytes:
    """All of the race. Torch is there already: the race has run."""
    from explorer.training.archive import to_bytes

    return to_bytes(race)


class File(NamedTuple):
    """One of the files there are."""

    label: str
    title: str
    """Its content, in words."""
    name: str
    media: str
    write: Callable[[Race], bytes]


FILES: Mapping[str, File] = MappingProxyType({
    "numbers": File("Save numbers (CSV)", "Every reading of the instruments, one number a row",
                    "race.csv", "text/csv", numbers),
    "race": File("Save race", "Text, settings, numbers, weights and optimizers; load it in Python to continue the race",
                 "race.zip", "application/zip", whole),
})
"""Files by name, in the order of their buttons."""


class Saves(ButtonRow):
    """A button for each file, and a line that says the result of the last press.

    Args:
        race: the race, which stands still until this thread lets go; it may refuse by a `ConfigError`.
        on_saved: called when all of the race was handed over.
    """

    def __init__(self, race: Callable[[], Race], on_saved: Callable[[], None]) -> None:
        super().__init__("Save", self._save, links=True)
        self._race, self._on_saved = race, on_saved

    def offer(self, *, enabled: bool) -> None:
        """Enables or disables the buttons; if that is a change, the last message is removed."""
        if self.buttons and self.offers("race") == enabled:
            return
        self.buttons = [button(name, file.label, enabled=enabled, title=file.title) for name, file in FILES.items()]
        self.note, self.refused = "", False

    def _save(self, name: str) -> None:
        """Handles a press in a browser, which may come late."""
        if not self.offers(name):
            return
        file = FILES[name]
        try:
            content = file.write(self._race())
            hand_over(self, file.name, file.media, content)
        except ConfigError as error:
            self.note, self.refused = f"Refused: {error}.", True
            return
        self.note, self.refused = f"Saved {file.name}, {size_words(len(content))}.", False
        if name == "race":
            self._on_saved()
