"""The race that the panel opens with: the first line-up's numbers, which come with the package. No torch.

`python -m benchmarks.sample` runs that race and stores it, as far as the pictures show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from explorer.app.race.lineup import Contender, Lineup, Plan
from explorer.config import Config
from explorer.figures.palette import LegendEntry
from explorer.figures.race import Course, Track
from explorer.training.history import History, Line, Outcome
from explorer.training.recipe import Recipe
from explorer.training.tasks import Levels

FILE = Path(__file__).with_name("sample.json")
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
    content = json.loads(FILE.read_text(encoding="utf-8"))
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
