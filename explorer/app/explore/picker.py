"""The list of named designs above the controls. It follows them: it shows which one they make, or that it is none."""

from __future__ import annotations

from collections.abc import Callable

from explorer.app.named import changes_to, matching
from explorer.app.widgets.controls import ControlBox, choice
from explorer.config import Config
from explorer.presets import PRESETS

FIELD, CUSTOM = "preset", "custom"


class Picker(ControlBox):
    """A select.

    Args:
        config: what it starts with.
        on_pick: called with the changes that make the chosen design of any config.
    """

    def __init__(self, config: Config, on_pick: Callable[[dict[str, object]], None] = lambda changes: None) -> None:
        super().__init__(label="Named design", sections=[{"title": "", "fields": [_field()]}])
        self._on_pick = on_pick
        self.follow(config)
        self.observe(self._read, names="values")

    def follow(self, config: Config) -> None:
        """Shows the preset that a config is."""
        self._shown = matching(config) or CUSTOM
        self.values = {FIELD: self._shown}

    def _read(self, _: object = None) -> None:
        """Reads a person's choice; ignored when it names no preset."""
        wanted = self.values.get(FIELD)
        if isinstance(wanted, str) and wanted in PRESETS and wanted != self._shown:
            self._on_pick(changes_to(wanted))  # which calls `follow` when it is obeyed
        self.values = {FIELD: self._shown}


def _field() -> dict[str, object]:
    """The list; the line below it has the design's words, its differences from the paper, and the source."""
    options = [
        {"value": name, "label": row.title, "formula": row.words,
         "source": ". ".join(filter(None, (row.source, row.differs)))}
        for name, row in PRESETS.items()
    ]
    none = {"value": CUSTOM, "label": "custom", "formula": "None of the named designs."}
    return choice(FIELD, "Design", "A named design: sets every choice but sizes, input, loss and seeds.",
                  [none, *options], matching(Config()))
