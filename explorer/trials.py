"""Trials: random designs that were trained, and how many of those like a given one did train.

`trials` reads the table, made by `python -m benchmarks.trainability`; `evidence` is what an untrained model shows,
`chance` the chance that follows from it, and `likeness` counts the trials with a similar chance.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.diagnosis import token_difference
from explorer.diagnosis.reading import by_layer, weight_gradients
from explorer.profile import MATRICES, Array, Profile
from explorer.schemes.placement import PLACEMENTS
from explorer.theory import predict
from explorer.training.tasks import Task

TABLE = Path(__file__).with_name("trials.csv")
SIZES: Mapping[str, int] = MappingProxyType({"d_model": 32, "n_heads": 2, "mlp_ratio": 2, "n_ctx": 32, "batch_size": 8})
"""The one size of all trials."""
STEPS, WARMUP, RATE = 200, 100, 3e-3
LEAVES = 0.3
"""A design trained if its held-out loss after the last step was so many nats or more below the unigram level."""
FREE = frozenset({*SIZES, "n_kv_heads", "head_size", "input", "input_correlation", "loss", "causal", "n_seeds", "seed"})
"""Fields that the trials fix, whatever a design has there."""
NEAREST = 40
"""Number of trials that are counted: the ones of the most similar chance."""
GRADIENT, DIFFERENCE = (1e-6, 1e9), 1e-6
"""Bounds of the gradient's norm, beyond which it has died out or is not finite; least difference of tokens."""
LARGEST, LEAST = 1e4, 0.01
"""Bounds of a gradient, and of the remaining difference of tokens, beyond which worse no longer counts."""
WEIGHTS: Mapping[str, float] = MappingProxyType({
    "one": 2.65, "gradient": -1.54, "difference": -1.59, "entropy": -2.72, "pointwise": -2.03,
})
"""Fitted on the trials with an even number: `python -m benchmarks.trainability --score`."""


class Evidence(NamedTuple):
    """Numbers of an untrained model at the size of the trials, from which to predict whether it trains."""

    gradient: float
    """Norm of the training loss's gradient by all matrices of the layers, root mean square over seeds; at most
    1e9, which stands for what is not finite as well, and at least 1e-6."""
    difference: float
    """The least share of the tokens' difference at the input that is left at any depth; at least 1e-6."""
    entropy: float
    """The least entropy of attention in any layer, as a share of the uniform one; 1 without attention, 0 where it is
    not finite."""
    pointwise: float
    """1 where a function of each coordinate stands in the norms' place, else 0."""


class Trial(NamedTuple):
    """A row of the table."""

    number: int
    design: Mapping[str, Any]
    """The fields in which it differs from the plain one of these sizes."""
    warmup: int
    """Steps; 1 is none."""
    trained: bool
    verdict: str
    """Severity of the first finding before the first step."""
    rules: tuple[str, ...]
    """Rules of the diagnosis that found something."""
    evidence: Evidence

    @property
    def fitted(self) -> bool:
        """Whether it is of the half that `chance` and the bounds were fitted on; the scores are of the other half."""
        return self.number % 2 == 0


class Likeness(NamedTuple):
    """The trials most like a design."""

    trained: int
    of: int

    def __str__(self) -> str:
        return f"Of {self.of} random designs like this {self.trained or 'none'} trained."


@cache
def trials() -> tuple[Trial, ...]:
    """Every trial, by number."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(Trial(int(row["number"]), json.loads(row["design"]), int(row["warmup"]), row["trained"] == "1",
                           row["verdict"], tuple(row["rules"].split()),
                           Evidence(*(float(row[name]) for name in Evidence._fields))) for row in csv.DictReader(file))


def evidence(profile: Profile) -> Evidence:
    """The evidence in a profile, mean over seeds and heads; finite, whatever the profile is."""
    config = profile.config
    with np.errstate(all="ignore"):
        squares = [np.square(values).sum(axis=1) for site, values in weight_gradients(profile).items()
                   if site in MATRICES]  # [site][seed]
        gradient = float(np.sqrt(np.sum(squares, axis=0).mean())) if squares else 0.0
        entropy = by_layer(profile, "attention_entropy_normalized", "pattern")
    return Evidence(
        gradient=float(np.clip(gradient, *GRADIENT)) if np.isfinite(gradient) else GRADIENT[1],
        difference=_least(token_difference(profile), DIFFERENCE),
        entropy=_least(entropy, 0.0),
        pointwise=float(config is not None and config.design.point != ""
                        and PLACEMENTS[config.norm_placement].normalizes),
    )


def _least(values: Array, floor: float) -> float:
    """The least value between a floor and 1; 1 where there are none, and the floor where one is not finite."""
    least = float(values.min(initial=1.0))
    return max(floor, least) if np.isfinite(least) else floor


def predicted(config: Config) -> Evidence | None:
    """The evidence in a predicted profile; None where theory lacks a gradient, and a model must be measured."""
    profile = predict(config)
    gradients = weight_gradients(profile).values()
    return evidence(profile) if gradients and all(np.isfinite(values).all() for values in gradients) else None


def terms(evidence: Evidence) -> dict[str, float]:
    """The numbers that are weighed, each 0 where it says nothing against the design."""
    return {
        "one": 1.0,
        "gradient": math.log10(min(max(evidence.gradient, 1.0), LARGEST)),
        "difference": -math.log10(max(evidence.difference, LEAST)),
        "entropy": 1 - evidence.entropy,
        "pointwise": evidence.pointwise,
    }


def odds(evidence: Evidence) -> float:
    """Logarithm of the odds that a design trains: a logistic regression on four numbers."""
    return sum(WEIGHTS[name] * value for name, value in terms(evidence).items())


def chance(evidence: Evidence) -> float:
    """The chance that a design trains, 0 to 1, with warm-up or without."""
    return 1 / (1 + math.exp(-odds(evidence)))


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
