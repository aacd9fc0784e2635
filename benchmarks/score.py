"""How well an untrained model predicts whether it trains: fitted on one half of the trials, scored on the other.

The score is the balanced accuracy: the mean of two shares predicted rightly, of the designs that did not train and of
those that did. Precision and recall are of "does not train".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.designs import random_design
from explorer.trials import WEIGHTS, Trial, chance, predicted, terms, trials

RIDGE = 0.3
"""Weight of the squares of the fitted numbers: they stay finite where a half is told apart without a mistake."""
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class Score(NamedTuple):
    """Of a forecast of who does not train."""

    balanced: float
    precision: float
    recall: float
    wrong: tuple[Trial, ...]


def scored(rows: Sequence[Trial], told: Callable[[Trial], bool]) -> Score:
    """Scores a forecast of who does not train."""
    stalls, failing = np.array([not one.trained for one in rows]), np.array([told(one) for one in rows])
    right = int((stalls & failing).sum())
    recall, kept = right / stalls.sum(), (~failing & ~stalls).sum() / (~stalls).sum()
    return Score(float(recall + kept) / 2, right / max(1, int(failing.sum())), float(recall),
                 tuple(itertools.compress(rows, stalls != failing)))


def by_verdict(one: Trial) -> bool:
    """As the verdict says: bad does not train, a warning does not train without warm-up."""
    return one.verdict == "bad" or (one.verdict == "warning" and one.warmup == 1)


def by_chance(one: Trial) -> bool:
    """Where the chance to train is less than one in two."""
    return chance(one.evidence) < 0.5


def by_prediction(one: Trial) -> bool:
    """The same, with the evidence of theory where theory has it, as the page does."""
    return chance(predicted(random_design(one.number)) or one.evidence) < 0.5


class Bounds(NamedTuple):
    """A design does not train where its gradient is larger, or one of the others smaller."""

    gradient: float
    difference: float
    entropy: float

    def __call__(self, one: Trial) -> bool:
        shown = one.evidence
        return (shown.gradient > self.gradient or shown.difference < self.difference or shown.entropy < self.entropy)


def halves() -> tuple[list[Trial], list[Trial]]:
    """The half that is fitted on, and the other."""
    return [one for one in trials() if one.fitted], [one for one in trials() if not one.fitted]


def fitted_bounds(rows: Sequence[Trial]) -> Bounds:
    """The bounds with the best balanced accuracy; of several the loosest, in the middle of their gaps."""
    table = np.array([one.evidence[:3] for one in rows])  # [row, quantity]
    grids = [_middles(values) for values in table.T]
    signs = np.array([1.0, -1.0, -1.0])
    stalls = np.array([not one.trained for one in rows])
    best, found = -1.0, Bounds(math.inf, 0.0, 0.0)
    for limits in itertools.product(*grids):
        failing = ((table - limits) * signs > 0).any(axis=1)
        score = failing[stalls].mean() + (~failing[~stalls]).mean()
        if score > best + 1e-9:
            best, found = score, Bounds(*map(float, limits))
    return found


def _middles(values: np.ndarray) -> np.ndarray:
    """Some forty bounds between the values, by ratio."""
    edges = np.unique(np.maximum(values, 1e-6))
    middles = np.sqrt(edges[1:] * edges[:-1])
    return middles[:: max(1, len(middles) // 40)]


def fitted_weights(rows: Sequence[Trial]) -> dict[str, float]:
    """The weights of `chance`: the maximum of the likelihood, less the squares of the weights times `RIDGE` / 2."""
    table = np.array([list(terms(one.evidence).values()) for one in rows])  # [row, term]
    trained = np.array([one.trained for one in rows])

    def loss(weights: np.ndarray) -> float:
        z = table @ weights
        return float(np.logaddexp(0, np.where(trained, -z, z)).sum() + RIDGE / 2 * (weights[1:] ** 2).sum())

    return dict(zip(WEIGHTS, map(float, minimize(loss, np.zeros(len(WEIGHTS))).x), strict=True))


def calibration(rows: Sequence[Trial]) -> list[tuple[float, float, int, float, float]]:
    """Of the trials within each bin of the chance: its edges, how many, the mean chance, and the share that trained."""
    chances, trained = np.array([chance(one.evidence) for one in rows]), np.array([one.trained for one in rows])
    found = []
    for low, high in itertools.pairwise(BINS):
        here = (chances >= low) & ((chances < high) | (high == 1))
        found.append((low, high, int(here.sum()), float(chances[here].mean()), float(trained[here].mean())))
    return found


def by_rule(rows: Sequence[Trial]) -> dict[str, tuple[int, int]]:
    """Rule of the diagnosis to how many trials it found something in, and how many of those trained."""
    names = dict.fromkeys(name for one in rows for name in one.rules)
    fired: Mapping[str, list[Trial]] = {name: [one for one in rows if name in one.rules] for name in names}
    return {name: (len(those), sum(one.trained for one in those)) for name, those in fired.items()}


def forecasts() -> dict[str, Callable[[Trial], bool]]:
    """Who does not train, predicted in four ways."""
    return {"verdict": by_verdict, "bounds, fitted": fitted_bounds(halves()[0]), "chance below one half": by_chance,
            "the same, predicted where theory covers the gradients": by_prediction}


def report() -> None:
    """Prints the scores, as the tables of docs/trainability.md."""
    fit, other = halves()
    for words, half in (("fitted on", fit), ("scored on", other)):
        print(f"{words} {len(half)} trials, of which {sum(one.trained for one in half)} trained")
    print("\n| forecast | balanced accuracy | precision | recall |\n|---|---|---|---|")
    for name, told in forecasts().items():
        print(f"| {name} | {' | '.join(f'{number:.2f}' for number in scored(other, told)[:3])} |")
    print("the same on the half that was fitted on:",
          {name: round(scored(fit, told).balanced, 2) for name, told in forecasts().items()})
    print("\n| chance | trials | mean chance | trained |\n|---|---|---|---|")
    for low, high, count, mean, share in calibration(other):
        print(f"| {low:g} to {high:g} | {count} | {mean:.2f} | {share:.2f} |")
    print("\n| rule | found something in | of which trained |\n|---|---|---|")
    for name, (fired, trained) in by_rule(trials()).items():
        print(f"| `{name}` | {fired} | {trained} |")
    print("\n", fitted_bounds(fit), "\nweights fitted:", fitted_weights(fit))
    for name, told in forecasts().items():
        print(f"\nmisjudged by {name}:")
        for one in scored(other, told).wrong:
            print(f"  {one.number} {'trained' if one.trained else 'did not train'}, warm-up {one.warmup}: {one.design}")


if __name__ == "__main__":
    report()
