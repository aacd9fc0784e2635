"""Files of a race: the buttons that save it, the entry that opens one, and the stored one that the panel opens with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from explorer.app.race.lineup import OWN, Contender, Lineup, Plan, RacePart
from explorer.app.race.preparation import Start
from explorer.app.roster import MOST
from explorer.app.widgets.buttons import ButtonRow, button
from explorer.app.widgets.files import File, FileEntry
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.figures.palette import LegendEntry
from explorer.figures.race import CURVES, Course, Track
from explorer.figures.race_maps import MAPS, layer_map
from explorer.stopping import Stop
from explorer.training.history import History, Line, Outcome, Record, Terms, load
from explorer.training.recipe import Recipe
from explorer.training.tasks import Levels

LARGEST_BYTES = 100_000_000
"""Largest file: two minutes at the rate at which a server lets a visitor send."""
NOTE = "A race that was saved here or in Python opens where it stood, and goes on."


class RaceFile(FileEntry):
    """The entry.

    Args:
        refusal: says why no race can be opened now; empty when one can.
        take: is given the name and the bytes.
    """

    def __init__(self, refusal: Callable[[], str], take: Callable[[str, bytes], None]) -> None:
        super().__init__(label="Open a saved race", about="File of a saved race", accept=".zip,application/zip",
                         said=NOTE, most=LARGEST_BYTES)
        self._refusal, self._receive = refusal, take

    def refusal(self) -> str:
        """The reason why no race can be opened now."""
        return self._refusal()

    def receive(self, name: str, raw: bytes) -> None:
        """Hands the file on."""
        if refusal := self.refusal():
            self.refuse(refusal)
        else:
            self.said = f"Reading {name} …"
            self._receive(name, raw)


def opened(raw: bytes, name: str, stop: Stop) -> tuple[Record, Start]:
    """Has a race read, and draws it once, so that a file with strange numbers is refused here; gives its start, too.

    Raises:
        ConfigError: it is no race, or none that this page can show and run.
    """
    race = load(raw, name, stop)
    if len(race.runners) > MOST:
        raise ConfigError(f"{name} must have at most {MOST} contenders to be shown; got {len(race.runners)}")
    start = start_of(race.terms)
    try:
        course = Course.of(race, start.designs, race.outcomes)
        for curve in CURVES:
            curve.draw(course)
        for row in MAPS.values():
            layer_map(course, 0, row)
    except Exception as error:  # noqa: BLE001 - numbers from anybody
        raise ConfigError(f"{name} must have the readings of a race; got others ({type(error).__name__})") from None
    return race, start


def start_of(terms: Terms) -> Start:
    """Everything that a race starts with, as the controls have it.

    Raises:
        ConfigError: its size is none that the page's controls have.
    """
    configs = [config for _, config, _ in terms.contenders]
    first = configs[0]
    plan = Plan(
        **terms.task.model_dump() | {name: getattr(first, name) for name in (*OWN, "n_ctx", "batch_size")},
        steps=terms.steps, every=terms.every, spectra=terms.spectra, positions=terms.positions,
        own_size=any(getattr(config, name) != getattr(first, name) for config in configs for name in OWN),
    )
    designs = tuple(LegendEntry(place, config, name) for place, (name, config, _) in enumerate(terms.contenders))
    return Start(designs, tuple(recipe for *_, recipe in terms.contenders), plan, terms.text)


def part_of(start: Start) -> RacePart:
    """The choices that start such a race."""
    return RacePart(tuple(
        Contender(design.config, design.label, index=design.index, recipe=recipe, sized=True)
        for design, recipe in zip(start.designs, start.recipes, strict=True) if design.config), start.plan)


class Saves(ButtonRow):
    """A button for each file, and a line that says the result of the last press.

    Args:
        race: the race, which stands still until this thread lets go; it may refuse by a `ConfigError`.
        on_saved: called when all of the race was handed over.
    """

    def __init__(self, race: Callable[[], Record], on_saved: Callable[[], None]) -> None:
        super().__init__("Save", self._save, links=True)
        self._on_saved = on_saved
        self._files = {
            "numbers": File("Save numbers (CSV)", "Every reading of the instruments, one number a row", "race.csv",
                            "text/csv", lambda: race().frame().to_csv(index=False)),
            "race": File("Save race", "Text, settings, numbers, weights and optimizers; load it in Python to continue "
                         "the race", "race.zip", "application/zip", lambda: whole(race())),
        }

    def offer(self, *, enabled: bool) -> None:
        """Enables or disables the buttons; if that is a change, the last message is removed."""
        if self.buttons and self.offers("race") == enabled:
            return
        self.buttons = [button(name, file.label, enabled=enabled, title=file.words)
                        for name, file in self._files.items()]
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
        raise ConfigError("race must have come to a stop, and be small enough, to be saved whole; got numbers alone")
    return race.archive


# The first line-up's numbers, which come with the package; `python -m benchmarks.sample` runs that race and stores it.


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
    lineup.restore([Contender(**row | {"config": Config(**row["config"]), "recipe": Recipe(**row["recipe"])})
                    for row in content["contenders"]])
    outcomes = tuple(Outcome(**values | {name: np.nan for name in FLOATS if values[name] is None})
                     for values in content["outcomes"])
    tracks = [
        Track(_sized(design, plan), _history(numbers), outcome.steps, outcome.reason, outcome.final_loss)
        for design, numbers, outcome in zip(lineup.designs().values(), content["histories"], outcomes, strict=True)
    ]
    lines = {track.design.label: Line(*words) for track, words in zip(tracks, content["lines"], strict=True)}
    return Sample(content["version"], Course(tuple(tracks), plan.steps, Levels(*content["levels"])), outcomes, lines)


def _sized(design: LegendEntry, plan: Plan) -> LegendEntry:
    """A design as it raced."""
    return replace(design, config=design.config and plan.task.fit(plan.sized(design.config, own=False)))


def _history(packed: Mapping[str, Any]) -> History:
    history = History()
    history.losses, history.steps = packed["losses"], packed["steps"]
    for statistic, site, values in packed["values"]:
        history.values[statistic, site] = list(np.array(values, dtype=np.float64))
    return history
