"""How well the verdict on an untrained model predicts who does not train, and which bounds training
asks for.

    python -m benchmarks.verdicts  # on docs/training.csv: seconds

Every design of the table is measured as it was trained, and diagnosed. It did not train where the
held-out loss, mean over seeds, ended less than `LEAVES` nats below the unigram level. "Bad" says:
does not train, whatever the warm-up; "bad or warning": does not train without warm-up. The score is
the balanced accuracy: the mean of two shares predicted rightly, of those who did not train and of
those who did. The last column leaves out one design at a time, at all its depths, and predicts it
by the others' bounds.

The bounds of `LEAST_DIFFERENCE` stand in the middle of a gap. That without warm-up has the best
score. That with warm-up, below which a verdict is "bad", is below every design that trained with
warm-up, in the gap to the next that did not: a design that needs warm-up is not one that does not
train. It is chosen on theory's shares. Those of four seeds have a standard error of 0.04, as wide
as the gap: of Admin's 24 layers four sets of seeds have 0.45, 0.31, 0.26 and 0.43, and theory 0.33.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.table import OUTPUT, RATE, SIZES, STEPS, WARMUP
from explorer import Config, Profile, measure, predict
from explorer.config import preset
from explorer.diagnosis import LEAST_DIFFERENCE, RULES, alike, diagnose, token_difference
from explorer_race.tasks import Task

LEAVES = 0.3
"""Nats below the unigram level: what one calls to train."""


class Seen(NamedTuple):
    """A design at one depth: what the rules find, and what training did."""

    design: str
    n_layers: int
    severity: str
    else_bad: bool
    """Whether a rule other than `alike` calls it bad."""
    kept: float
    """The least share of what tells tokens apart."""
    gains: Mapping[int, float]
    """Warm-up to the nats below the unigram level; minus infinity where it diverged."""
    expected: float = 1.0
    """`kept` as theory has it; 1 where it does not."""

    def stalls(self, warmup: int) -> bool:
        """Whether it did not train."""
        return not self.gains[warmup] >= LEAVES


def seen(design: str, config: Config, gains: Mapping[int, float]) -> Seen:
    """Measures and diagnoses a design."""
    fitted = Task().fit(config)
    profile: Profile = measure(fitted)
    measured, expected = (
        float(token_difference(one).min(initial=1.0))
        for one in (profile, predict(fitted, backward=False))
    )
    found = [rule(profile) for rule in RULES if rule is not alike]
    return Seen(
        design,
        config.n_layers,
        diagnose(profile)[0].severity,
        any(one is not None and one.severity == "bad" for one in found),
        measured,
        gains,
        expected,
    )


def from_table() -> list[Seen]:
    """Every design of docs/training.csv."""
    gains: defaultdict[tuple[str, int], defaultdict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            gain = float(row["unigram"]) - float(row["final_loss"] or "inf")
            gains[row["design"], int(row["n_layers"])][int(row["warmup"])].append(gain)
    return [
        seen(
            design,
            preset(design, n_layers=depth, **SIZES),
            {warmup: float(np.mean(values)) for warmup, values in by_warmup.items()},
        )
        for (design, depth), by_warmup in gains.items()
    ]


def balanced(predicted: ArrayLike, stalls: ArrayLike) -> float:
    """Balanced accuracy."""
    told, true = np.array(predicted), np.array(stalls)
    return float((told[true].mean() + (~told[~true]).mean()) / 2)


def bound(rows: Sequence[Seen], warmup: int) -> float:
    """The bound on what must be kept with the best balanced accuracy: the middle, by ratio, of the
    widest best gap."""
    stalls = [row.stalls(warmup) for row in rows]
    edges = np.unique([*(max(row.kept, 1e-3) for row in rows), 1.0])
    middles = np.sqrt(edges[1:] * edges[:-1])
    scores = np.array(
        [
            balanced([row.else_bad or row.kept < middle for row in rows], stalls)
            for middle in middles
        ]
    )
    best = np.flatnonzero(scores >= scores.max() - 1e-9)
    return float(middles[best[np.argmax((edges[1:] / edges[:-1])[best])]])


def spared(rows: Sequence[Seen]) -> float:
    """The bound below which no design trained with warm-up: the middle, by ratio, of the gap to the
    next that did not."""
    least = min(row.expected for row in rows if not row.stalls(WARMUP))
    below = max(row.expected for row in rows if row.stalls(WARMUP) and row.expected < least)
    return math.sqrt(least * max(below, 1e-3))


def left_out(rows: Sequence[Seen], warmup: int) -> float:
    """Balanced accuracy where each design is predicted by the bound that all others ask for."""
    predicted = []
    for row in rows:
        others = [other for other in rows if other.design != row.design]
        limit = spared(others) if warmup == WARMUP else bound(others, warmup)
        predicted.append(row.else_bad or row.kept < limit)
    return balanced(predicted, [row.stalls(warmup) for row in rows])


def report(rows: Sequence[Seen]) -> None:
    """The scores as a table, and who is misjudged."""
    print(f"{'warm-up':>8} {'bad':>6} {'bad or warning':>15} {'bound':>6} {'design left out':>16}")
    for warmup, words in ((1, "none"), (WARMUP, f"{WARMUP}")):
        stalls = [row.stalls(warmup) for row in rows]
        scores = [
            balanced([row.severity in told for row in rows], stalls)
            for told in (("bad",), ("bad", "warning"))
        ]
        limit = spared(rows) if warmup == WARMUP else bound(rows, warmup)
        print(
            f"{words:>8} {scores[0]:>6.3f} {scores[1]:>15.3f} {limit:>6.2f} "
            f"{left_out(rows, warmup):>16.3f}"
        )
    for warmup, words, told in (
        (1, "no", ("bad", "warning")),
        (WARMUP, f"{WARMUP} steps of", ("bad",)),
    ):
        wrong = [row for row in rows if (row.severity in told) != row.stalls(warmup)]
        names = ", ".join(f"{row.design} {row.n_layers} ({row.gains[warmup]:.2f})" for row in wrong)
        print(f"misjudged, {words} warm-up (nats below the unigram level): {names or 'none'}")


def main() -> None:
    """Prints the scores."""
    print(f"{OUTPUT.name}: Adam at {RATE}, {STEPS} steps; bounds in use: {LEAST_DIFFERENCE}")
    report(from_table())


if __name__ == "__main__":
    main()
