"""Saving a race that is not running: a file that the browser downloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import anywidget
import traitlets

from explorer.app.widgets.source import source
from explorer.choices import ConfigError

if TYPE_CHECKING:
    from explorer.training.race import Race

MOST = 200_000_000
"""Bytes that are sent through a browser's connection at once."""


def numbers(race: Race) -> bytes:
    """The tidy frame, as text."""
    return race.frame().to_csv(index=False).encode()


def whole(race: Race) -> bytes:
    """All of the race. Torch is there already: the race has run."""
    from explorer.training.archive import to_bytes

    return to_bytes(race)


class Kind(NamedTuple):
    """One of the files there are."""

    label: str
    about: str
    """Its content, in words."""
    file: str
    media: str
    write: Callable[[Race], bytes]


KINDS: Mapping[str, Kind] = MappingProxyType({
    "numbers": Kind("Save numbers (CSV)", "Every reading of the instruments, one number a row",
                    "race.csv", "text/csv", numbers),
    "race": Kind("Save race", "Text, settings, numbers, weights and optimizers; load it in Python to continue the race",
                 "race.zip", "application/zip", whole),
})
"""By name, in the order of their buttons."""


class Saves(anywidget.AnyWidget):
    """A button for each kind of file, and a line.

    Traits:
        kinds: `[{name, label, title}]`.
        enabled: whether there is something that stands still.
        said: what came of the last press; `refused` if nothing did.

    A press is the name of a kind; its answer is a message `{file, media}` with the file's bytes beside it.

    Args:
        race: the race, which stands still until this thread lets go; it may refuse by a `ConfigError`.
        on_saved: called when all of the race was handed over.
    """

    _esm = source("widgets/marks.js", "race/saves.js")
    kinds = traitlets.List(traitlets.Dict()).tag(sync=True)
    enabled = traitlets.Bool(False).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)

    def __init__(self, race: Callable[[], Race], on_saved: Callable[[], None] = lambda: None) -> None:
        kinds = [{"name": name, "label": kind.label, "title": kind.about} for name, kind in KINDS.items()]
        super().__init__(kinds=kinds)
        self._race, self._on_saved = race, on_saved
        self.on_msg(self._take)

    def offer(self, *, enabled: bool) -> None:
        """Enables or disables the buttons, and removes the last message."""
        with self.hold_sync():
            self.enabled, self.said, self.refused = enabled, "", False

    def _take(self, _: object, name: object, __: object) -> None:
        """Handles a press in a browser, which may come late."""
        if self.enabled and isinstance(name, str) and name in KINDS:
            self._hand_over(KINDS[name])

    def _hand_over(self, kind: Kind) -> None:
        try:
            content = kind.write(self._race())
            if len(content) > MOST:
                raise ConfigError(f"{kind.file} must have at most {size_words(MOST)} to go through a browser; "
                                  f"got {size_words(len(content))}")
        except ConfigError as error:
            self._tell(f"Refused: {error}.", refused=True)
            return
        self.send({"file": kind.file, "media": kind.media}, [content])
        self._tell(f"Saved {kind.file}, {size_words(len(content))}.")
        if kind is KINDS["race"]:
            self._on_saved()

    def _tell(self, words: str, *, refused: bool = False) -> None:
        with self.hold_sync():
            self.said, self.refused = words, refused


def size_words(count: int) -> str:
    """'31 kB' or '2.4 MB'."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"
