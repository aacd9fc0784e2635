"""The race that the panel opens with: the first line-up's numbers, which come with the package. No torch.

`python -m benchmarks.sample` runs that race and stores it. Of the instruments, what the pictures show is kept, to three
digits: of several heads the median, and of a layer's matrices the norm of their gradients and the median of their
updates, each in the place of the first matrix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from explorer.app.race.lineup import Lineup, Plan
from explorer.app.widgets.record import changed
from explorer.figures.palette import Design
from explorer.figures.race import Course, Track
from explorer.profile import MATRICES, STREAM, Array
from explorer.training.history import History
from explorer.training.outcome import Line, Outcome
from explorer.training.tasks import Levels

if TYPE_CHECKING:
    from explorer.training.race import Race

FILE = Path(__file__).with_name("sample.json")
HEADS = ("pattern", "attn_scores")
LEFT_OUT = ("attention_entropy", "attention_max")
"""Statistics that no picture shows."""

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


def packed(race: Race, lineup: Lineup, plan: Plan, version: str) -> dict[str, Any]:
    """A race as plain values, with the line-up and the plan that it was started from."""
    from explorer.training.writing import line

    return {
        "version": version, "contenders": lineup.state(), "plan": changed(plan), "levels": list(race.levels),
        "outcomes": [{name: None if part != part else part for name, part in outcome._asdict().items()}
                     for outcome in race.verdict()],
        "lines": [list(line(runner)) for runner in race.runners],
        "histories": [_packed(history) for history in race.histories.values()],
    }


def stored() -> Sample:
    """The stored race."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    lineup, plan = Lineup(), Plan(**content["plan"])
    lineup.restore(content["contenders"])
    outcomes = tuple(Outcome(**values | {name: np.nan for name in FLOATS if values[name] is None})
                     for values in content["outcomes"])
    tracks = [
        Track(_sized(design, plan), _history(numbers), outcome.steps, outcome.reason, outcome.final_loss)
        for design, numbers, outcome in zip(lineup.designs().values(), content["histories"], outcomes, strict=True)
    ]
    lines = {track.design.label: Line(*words) for track, words in zip(tracks, content["lines"], strict=True)}
    return Sample(content["version"], Course(tuple(tracks), plan.steps, Levels(*content["levels"])), outcomes, lines)


def _sized(design: Design, plan: Plan) -> Design:
    """A design as it raced."""
    return replace(design, config=design.config and plan.task.fit(plan.sized(design.config, own=False)))


def _packed(history: History) -> dict[str, Any]:
    kept = {key: np.stack(values) for key, values in history.values.items()
            if key[0] not in LEFT_OUT and (key[0] == "alpha" or key[1] in ("", *STREAM, *HEADS))}
    kept["parameter_gradient", MATRICES[0]] = history.layer_gradient()[1]
    kept["update_ratio", MATRICES[0]] = np.median(history.matrices("update_ratio")[1], axis=0)
    return {
        "losses": _digits(np.array(history.losses), 4), "steps": history.steps,
        "values": [[*key, _digits(np.median(values, axis=2) if values.ndim == 3 else values, 3)]
                   for key, values in kept.items()],
    }


def _digits(values: Array, digits: int) -> Any:
    """Values to so many digits, as lists; None where there is no number."""
    if values.ndim:
        return [_digits(part, digits) for part in values]
    short = float(f"{values:.{digits}g}")
    return None if np.isnan(short) else int(short) if short.is_integer() else short


def _history(packed: Mapping[str, Any]) -> History:
    history = History()
    history.losses, history.steps = packed["losses"], packed["steps"]
    for statistic, site, values in packed["values"]:
        history.values[statistic, site] = list(np.array(values, dtype=np.float64))
    return history
