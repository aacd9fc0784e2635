"""How many trials like a design trained."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.training.tasks import Task
from explorer.trials.chance import odds
from explorer.trials.evidence import Evidence
from explorer.trials.table import SIZES, WARMUP, trials

NEAREST = 40
"""Trials that are counted: those of the most similar chance."""
FREE = frozenset({*SIZES, "n_kv_heads", "head_size", "input", "input_correlation", "loss", "causal", "n_seeds", "seed"})
"""Fields that the trials fix, whatever a design has there."""


class Likeness(NamedTuple):
    """The trials most like a design."""

    trained: int
    count: int
    trained_warmed: int
    """Of those with warm-up."""
    warmed: int

    def __str__(self) -> str:
        return f"Of {self.count} random designs like this {self.trained or 'none'} trained."


def as_trained(config: Config) -> Config | None:
    """A design at the size and on the text of the trials; None where it has what none of them has."""
    few = {"n_kv_heads": min(config.n_kv_heads, 1), "head_size": 0, "n_seeds": 4, "seed": 0}
    within = limits()
    for field, value in config:
        if field in FREE or value == Config.specs()[field].default:
            continue
        if field not in within or not _within(value, within[field]):
            return None
    try:
        return Task().fit(config.replace(**SIZES, **few))
    except ConfigError:
        return None


@cache
def limits() -> dict[str, tuple[object, ...]]:
    """Field to the values that trials have: the lowest and the highest number, or every choice."""
    found: dict[str, set[object]] = {}
    for trial in trials():
        for field, value in trial.design.items():
            found.setdefault(field, {Config.specs()[field].default}).add(value)
    return {field: tuple(sorted(values, key=str) if isinstance(next(iter(values)), str | bool) else
                         (min(values), max(values)))
            for field, values in found.items()}


def _within(value: object, allowed: tuple[object, ...]) -> bool:
    if isinstance(value, str | bool):
        return value in allowed
    return bool(allowed[0] <= value <= allowed[1])


@cache
def _known() -> tuple[np.ndarray, ...]:
    every = trials()
    return (np.array([odds(one.evidence) for one in every]), np.array([one.trained for one in every]),
            np.array([one.warmup > 1 for one in every]))


def likeness(evidence: Evidence) -> Likeness:
    """The trials whose chance is nearest to that of a design with this evidence."""
    known, trained, warmed = _known()
    near = np.argsort(np.abs(known - odds(evidence)), kind="stable")[:NEAREST]
    return Likeness(int(trained[near].sum()), len(near), int((trained & warmed)[near].sum()), int(warmed[near].sum()))
