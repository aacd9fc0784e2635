"""The contenders of the next race, as a person sees and changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import traitlets

from explorer.app.explore.pins import swatch
from explorer.app.race.lineup import USUAL, Lineup, LineupError, recipe_words
from explorer.app.widgets.chips import ChipBox
from explorer.app.widgets.source import source
from explorer.config import Config
from explorer.presets import PRESETS, preset
from explorer.training.recipe import Recipe

HEADING, WHILE = "Contenders", "Contenders of the next race"
LONGEST_MESSAGE = 1000
"""Letters of a name that are read: a browser can send any number."""


class ContenderBox(ChipBox):
    """Names, swatches, buttons, and a list to add from; knows nothing of what a contender is.

    Traits:
        entries: `[{number, name, about, selected, hue, symbol, dash}]`.
        choices: what can be added, `[{group, value, label}]`.
        heading: the list's title.

    A click is a message, `["add", "preset:rezero"]`, `["edit", 3]`, `["remove", 3]` or `["name", 3, "Slow"]`.
    """

    _esm = source("widgets/moves.js", "widgets/marks.js", "race/contenders.js")
    _css = source("explore/pins.css", "race/contenders.css")
    entries = traitlets.List(traitlets.Dict()).tag(sync=True)
    choices = traitlets.List(traitlets.Dict()).tag(sync=True)
    heading = traitlets.Unicode(HEADING).tag(sync=True)


class Contenders:
    """Operations on the lineup of a panel. Callers must hold the panel's lock.

    Args:
        lineup: who runs.
        box: their widget, whose clicks come to `obey`.
        on_select: called when another contender's recipe is to be shown, or its name has changed.
    """

    def __init__(self, lineup: Lineup, box: ContenderBox, on_select: Callable[[Contenders], None]) -> None:
        self.lineup, self.box, self._on_select = lineup, box, on_select
        self.selected = next((entry.number for entry in lineup), 0)
        self.pinned: Mapping[str, tuple[str, Config]] = {}
        self.welcome(())

    def welcome(self, designs: Sequence[tuple[str, Config]]) -> None:
        """Offers designs, by name, beside the named ones."""
        self.pinned = {f"pin:{number}": design for number, design in enumerate(designs)}
        ours = [{"group": "Explore page", "value": key, "label": name} for key, (name, _) in self.pinned.items()]
        named = [
            {"group": "Named designs", "value": f"preset:{name}", "label": row.title} for name, row in PRESETS.items()
        ]
        self.box.choices = [*named, *ours]
        self.follow()

    def obey(self, content: object) -> None:
        """Handles a click in a browser; messages that make no sense are ignored."""
        try:
            said = self._change(content)
        except LineupError as error:
            said = str(error)
        self.follow()
        self.box.answer(said)

    def _change(self, content: object) -> str:
        match content:
            case ["add", str() as key]:
                return self._add(key)
            case ["edit", int() as number] if number in self.lineup:
                self.selected = number
            case ["remove", int() as number] if number in self.lineup:
                return self._remove(number)
            case ["name", int() as number, str() as text] if number in self.lineup:
                return self.lineup.rename(number, text[:LONGEST_MESSAGE])
        return ""

    def _add(self, key: str) -> str:
        """Adds a contender with the usual recipe, and shows it."""
        name = key.removeprefix("preset:")
        if key in self.pinned:
            entry = self.lineup.add(*self.pinned[key], USUAL, sized=True)
        elif name != key and name in PRESETS:
            entry = self.lineup.add(PRESETS[name].title, preset(name), USUAL)
        else:
            return ""
        self.selected = entry.number
        return f"Added “{self.lineup.names()[entry.number]}”; its recipe is shown below."

    def _remove(self, number: int) -> str:
        name = self.lineup.names()[number]
        self.lineup.remove(number)
        if number == self.selected:
            self.selected = next((entry.number for entry in self.lineup), 0)
        return f"Removed “{name}”."

    def train(self, recipe: Recipe) -> None:
        """Gives the selected contender another recipe."""
        if self.selected in self.lineup and self.lineup[self.selected].recipe != recipe:
            self.lineup.train(self.selected, recipe)
            self.follow()

    def follow(self) -> None:
        """Updates the list in the browser."""
        names = self.lineup.names()
        self.box.entries = [
            {
                "number": entry.number, "name": names[entry.number], "about": recipe_words(entry.recipe),
                "selected": entry.number == self.selected, **swatch(design),
            }
            for entry, design in zip(self.lineup, self.lineup.designs(), strict=True)
        ]
        self._on_select(self)
