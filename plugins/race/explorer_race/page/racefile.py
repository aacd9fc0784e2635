"""Files of a race: the buttons that save it, and the stored race that the panel opens with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from explorer.app.home import csv
from explorer.app.widgets.buttons import ButtonRow, button
from explorer.app.widgets.files import File
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.figures.palette import LegendEntry
from explorer_race.figures import Course, Track
from explorer_race.history import History, Line, Outcome, Record
from explorer_race.page.lineup import Contender, Lineup, Plan
from explorer_race.recipe import Recipe
from explorer_race.tasks import Levels


class Saves(ButtonRow):
    """A button for each file, and a line that says the result of the last press.

    Args:
        race: the race, which stands still until this thread lets go; it may refuse by a
            `ConfigError`.
        on_saved: called when all of the race was handed over.
    """

    def __init__(self, race: Callable[[], Record], on_saved: Callable[[], None]) -> None:
        super().__init__("Save", self._save, links=True)
        self._on_saved = on_saved
        self._files = {
            "numbers": File(
                "Save numbers (CSV)",
                "Every reading of the instruments, one number a row",
                "race.csv",
                "text/csv",
                lambda: csv(race().frame()),
            ),
            "race": File(
                "Save race",
                "Text, settings, numbers, weights and optimizers; load it in Python to continue "
                "the race",
                "race.zip",
                "application/zip",
                lambda: whole(race()),
            ),
        }

    def offer(self, *, enabled: bool) -> None:
        """Enables or disables the buttons; if that is a change, the last message is removed."""
        if self.buttons and self.offers("race") == enabled:
            return
        self.buttons = [
            button(name, file.label, enabled=enabled, title=file.words)
            for name, file in self._files.items()
        ]
        self.note, self.refused = "", False

    def _save(self, name: str) -> None:
        """Handles a press in a browser, which may come late."""
        if not self.offers(name):
            return
        try:
            self.note, self.refused = self._files[name].hand_to(self), False
        except ConfigError as error:
            self.note, self.refused = f"Refused: {error}.", True
        else:
            if name == "race":
                self._on_saved()


def whole(race: Record) -> bytes:
    """All of the race.

    Raises:
        ConfigError: it is not there.
    """
    if not race.archive:
        raise ConfigError(
            "race must have come to a stop, and be small enough, to be saved whole; got numbers alone"
        )
    return race.archive


# The first line-up's numbers, which come with the package; `python -m benchmarks.sample` runs that
# race and stores it.


SAMPLE = Path(__file__).with_name("sample.json")
FLOATS = ("final_loss", "ratio_first", "ratio_last")
"""Fields of an outcome that may be nan, which JSON has not."""


class Sample(NamedTuple):
    """A stored race."""

    version: str
    """Version of the package that ran it."""
    course: Course
    outcomes: tuple[Outcome, ...]
    lines: dict[str, Line]
    """Text of each contender at the end."""


def stored() -> Sample:
    """The stored race."""
    content = json.loads(SAMPLE.read_text(encoding="utf-8"))
    lineup, plan = Lineup(), Plan(**content["plan"])
    lineup.restore(
        [
            Contender(
                **row | {"config": Config(**row["config"]), "recipe": Recipe(**row["recipe"])}
            )
            for row in content["contenders"]
        ]
    )
    outcomes = tuple(
        Outcome(**values | {name: np.nan for name in FLOATS if values[name] is None})
        for values in content["outcomes"]
    )
    tracks = [
        Track(
            _sized(design, plan),
            _history(numbers),
            outcome.steps,
            outcome.reason,
            outcome.final_loss,
        )
        for design, numbers, outcome in zip(
            lineup.designs().values(), content["histories"], outcomes, strict=True
        )
    ]
    lines = {
        track.design.label: Line(*words)
        for track, words in zip(tracks, content["lines"], strict=True)
    }
    return Sample(
        content["version"],
        Course(tuple(tracks), plan.steps, Levels(*content["levels"])),
        outcomes,
        lines,
    )


def _sized(design: LegendEntry, plan: Plan) -> LegendEntry:
    """A design as it raced."""
    return replace(
        design, config=design.config and plan.task.fit(plan.sized(design.config, own=False))
    )


def _history(packed: Mapping[str, Any]) -> History:
    history = History()
    history.losses, history.steps = packed["losses"], packed["steps"]
    for statistic, site, values in packed["values"]:
        history.values[statistic, site] = list(np.array(values, dtype=np.float64))
    return history
