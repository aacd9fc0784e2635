"""How many trials like a design trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.training.tasks import Task
from explorer.trials.chance import odds
from explorer.trials.evidence import Evidence
from explorer.trials.table import SIZES, trials

NEAREST = 40
"""Number of trials that are counted: the ones of the most similar chance."""
FREE = frozenset({*SIZES, "n_kv_heads", "head_size", "input", "input_correlation", "loss", "causal", "n_seeds", "seed"})
"""Fields that the trials fix, whatever a design has there."""


class Likeness(NamedTuple):
    """The trials most like a design."""

    trained: int
    of: int

    def __str__(self) -> str:
        return f"Of {self.of} random designs like this {self.trained or 'none'} trained."


def as_trained(config: Config) -> Config | None:
    """A design at the size and on the text of the trials; None where it has what none of them has."""
    if not all(within(field, value) for field, value in config if field not in FREE):
        return None
    try:
        return Task().fit(config.replace(**SIZES, n_kv_heads=min(config.n_kv_heads, 1), head_size=0, n_seeds=4, seed=0))
    except ConfigError:
        return None


def within(field: str, value: Any) -> bool:
    """Whether trials have a value: one of them this choice, or numbers on both sides of it."""
    known = values().get(field, frozenset({Config.specs()[field].default}))
    return value in known or (not isinstance(value, str | bool) and min(known) <= value <= max(known))


@cache
def values() -> Mapping[str, frozenset[Any]]:
    """Field to all its values in the trials, its default among them."""
    by_field: dict[str, set[Any]] = {}
    for trial in trials():
        for field, value in trial.design.items():
            by_field.setdefault(field, {Config.specs()[field].default}).add(value)
    return {field: frozenset(known) for field, known in by_field.items()}


@cache
def _known() -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The odds of every trial, and whether it trained."""
    return np.array([odds(trial.evidence) for trial in trials()]), np.array([trial.trained for trial in trials()])


def likeness(evidence: Evidence) -> Likeness:
    """The trials whose chance is nearest to that of a design with this evidence."""
    known, trained = _known()
    near = np.argsort(np.abs(known - odds(evidence)), kind="stable")[:NEAREST]
    return Likeness(int(trained[near].sum()), len(near))
