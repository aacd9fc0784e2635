"""How well the verdict on an untrained model predicts who does not train, and which bounds training
asks for.

    python -m benchmarks.verdicts  # on docs/training.csv: seconds
    python -m benchmarks.verdicts --others
        # trains designs that are not in it as well: some ten minutes

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

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.table import OUTPUT, RATE, SIZES, STEPS, WARMUP, Case, text, trained
from explorer import Config, Profile, measure, predict
from explorer.config import preset
from explorer.diagnosis import LEAST_DIFFERENCE, RULES, alike, diagnose, token_difference
from explorer_race.tasks import Task

LEAVES = 0.3
"""Nats below the unigram level: what one calls to train."""
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "Post-LN, init variance 0.01": {"norm_placement": "post", "init_variance": 0.01},
    "Post-LN, init variance 10": {"norm_placement": "post", "init_variance": 10.0},
    "Post-LN, α = 0.1": {"norm_placement": "post", "alpha": 0.1},
    "Post-LN, α = 0.3": {"norm_placement": "post", "alpha": 0.3},
    "Post-LN, 4 x + F(x)": {"norm_placement": "post", "residual": "scaled_skip", "alpha": 4.0},
    "Post-LN, QK-norm": {"norm_placement": "post", "qk_norm": True},
    "Post-LN, MLPs only": {"norm_placement": "post", "attention": "none"},
    "Pre-LN, init variance 0.01": {"init_variance": 0.01},
    "Pre-LN, init variance 10": {"init_variance": 10.0},
    "Pre-LN, no √d": {"attention_scale": "none"},
    "Pre-LN, no √d, init variance 4": {"attention_scale": "none", "init_variance": 4.0},
    "Pre-LN, α = 4": {"alpha": 4.0},
    "Pre-LN, added logits": {"residual_attention": "scores"},
    "Pre-LN, no residual": {"residual": "absent"},
    "Pre-LN, x / 2 + F(x)": {"residual": "scaled_skip", "alpha": 0.5},
    "no norm": {"norm_placement": "none"},
    "no norm, init variance 0.1": {"norm_placement": "none", "init_variance": 0.1},
    "no norm, α = 0.3": {"norm_placement": "none", "alpha": 0.3},
    "no norm, 1/√(2N)": {"norm_placement": "none", "residual": "inverse_sqrt_depth"},
}
OTHER_DEPTHS = (8, 24)


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


def others() -> Iterable[Seen]:
    """Trains designs that are not in the table, with one seed."""
    for depth in OTHER_DEPTHS:
        for name, choices in OTHERS.items():
            config = Config(**{**SIZES, **choices}, n_layers=depth)
            losses = {
                warmup: trained(config, Case(name, warmup, depth, 0))[1] for warmup in (1, WARMUP)
            }
            unigram = text(0).levels.unigram
            yield seen(name, config, {warmup: unigram - loss for warmup, loss in losses.items()})


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


def report(rows: Sequence[Seen], *, fit: bool) -> None:
    """The scores as a table, and who is misjudged."""
    print(
        f"{'warm-up':>8} {'bad':>6} {'bad or warning':>15}"
        + f" {'bound':>6} {'design left out':>16}" * fit
    )
    for warmup, words in ((1, "none"), (WARMUP, f"{WARMUP}")):
        stalls = [row.stalls(warmup) for row in rows]
        scores = [
            balanced([row.severity in told for row in rows], stalls)
            for told in (("bad",), ("bad", "warning"))
        ]
        chosen = ""
        if fit:
            limit = spared(rows) if warmup == WARMUP else bound(rows, warmup)
            chosen = f" {limit:>6.2f} {left_out(rows, warmup):>16.3f}"
        print(f"{words:>8} {scores[0]:>6.3f} {scores[1]:>15.3f}{chosen}")
    for warmup, words, told in (
        (1, "no", ("bad", "warning")),
        (WARMUP, f"{WARMUP} steps of", ("bad",)),
    ):
        wrong = [row for row in rows if (row.severity in told) != row.stalls(warmup)]
        names = ", ".join(f"{row.design} {row.n_layers} ({row.gains[warmup]:.2f})" for row in wrong)
        print(f"misjudged, {words} warm-up (nats below the unigram level): {names or 'none'}")


def main() -> None:
    """Prints the scores."""
    parser = argparse.ArgumentParser(description="what the verdict predicts")
    parser.add_argument(
        "--others", action="store_true", help="train designs that are not in the table, too"
    )
    print(f"{OUTPUT.name}: Adam at {RATE}, {STEPS} steps; bounds in use: {LEAST_DIFFERENCE}")
    rows = from_table()
    report(rows, fit=True)
    if parser.parse_args().others:
        rows = list(others())
        print(f"{len(rows)} that are not in it:")
        report(rows, fit=False)


if __name__ == "__main__":
    main()
