"""Whether random designs train, beside what their untrained models show: is the verdict right?

    python -m benchmarks.trainability            # goes on with the table until it is whole: about an hour of processor
    python -m benchmarks.trainability --measure  # once more what the untrained models show, after a change to a rule
    python -m benchmarks.trainability --score    # how well that predicts what training did: seconds

Each of `COUNT` random designs (`benchmarks.designs`) learns the next character of the prose that ships with Python, as
the designs of `docs/training.csv` do: Adam at 0.003 for 200 steps, width 32, 2 heads, 8 sequences of 32 characters,
and by a coin 100 steps of warm-up or none. The rule, fixed before anything was trained: a design **trained** if its
held-out loss after the last step is at least 0.3 nats below the unigram level. What did not stay finite did not train.

The trainings are cells of a sweep, handed to its workers: a process for each processor. A row is one design: the fields
in which it differs from the plain one, what training made of it, and what was seen before the first step: the verdict,
the rules that found something, the evidence that `trials` weighs, and the end values. It is written when it is
finished, so that the command can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.designs import choices, random_design
from benchmarks.score import report
from explorer import Config, measure
from explorer.diagnosis import RULES, diagnose
from explorer.ends import ENDS, endings
from explorer.sweeping.cell import Cell, Found, Training
from explorer.sweeping.workers import Outside, run
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task
from explorer.trials import LEAVES, RATE, STEPS, TABLE, WARMUP, Evidence, evidence

COUNT = 320
SHOWN = ("verdict", "rules", *Evidence._fields, *(name for name in ENDS if not name.startswith("output")))
"""Columns on the untrained models, which have no readout."""
COLUMNS = ("number", "warmup", "design", "final_loss", "failure", "trained", *SHOWN)


def warmup_of(number: int) -> int:
    """Steps of warm-up of a design; 1 is none."""
    return (1, WARMUP)[int(np.random.default_rng([0, number, 1]).integers(2))]


def cell(number: int) -> Cell:
    """The training of a design, as a sweep's."""
    recipe = Recipe(learning_rate=RATE, warmup=warmup_of(number))
    return Cell("trained", random_design(number), (), Training(recipe, Task(), STEPS))


def shown(config: Config) -> dict[str, str]:
    """What the untrained model shows."""
    profile = measure(config)
    with np.errstate(all="ignore"):
        fired = [name_of(rule) for rule in RULES if rule(profile) is not None]
    ends = {name: one.middle for name, one in endings(profile).items() if name in SHOWN}
    numbers = {**evidence(profile)._asdict(), **ends}
    return {"verdict": diagnose(profile)[0].severity, "rules": " ".join(fired),
            **{name: f"{value:.6g}" for name, value in numbers.items()}}


def name_of(rule: Callable[..., Any]) -> str:
    """The name of a rule; of one for several states, with its state."""
    if isinstance(rule, partial):
        return f"{rule.func.__name__}:{rule.args[0]}"
    return rule.__name__


def row(number: int, found: Found) -> dict[str, Any]:
    """A design and what was found of it, as a row of the table."""
    drop = found.numbers.get("loss_drop", math.nan)
    return {
        "number": number, "warmup": warmup_of(number), "design": json.dumps(choices(random_design(number))),
        "final_loss": f"{found.numbers.get('held_out_loss', math.nan):.6g}", "failure": found.failure,
        "trained": int(not isinstance(drop, list) and drop >= LEAVES), **shown(random_design(number)),
    }


def read(path: Path = TABLE) -> list[dict[str, str]]:
    """The table so far."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(rows: Iterable[Mapping[str, Any]], path: Path = TABLE) -> None:
    """The table, by number. All rows are there before the file is opened: one that fails leaves it as it was."""
    ordered = sorted(rows, key=lambda one: int(one["number"]))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(ordered)


def train() -> None:
    """Trains what is missing."""
    there = {int(one["number"]) for one in read()}
    cells = {cell(number): number for number in range(COUNT) if number not in there}

    def done(one: Cell, found: Found) -> None:
        write([*read(), row(cells[one], found)])
        print(f"\r{len(read())} of {COUNT} designs", end="", file=sys.stderr, flush=True)

    run([(list(cells), Outside(max((one.memory for one in cells), default=0.0)))], lambda: False, done)


def main() -> None:
    """Trains, measures again, or scores."""
    parser = argparse.ArgumentParser(description="is the verdict right?")
    parser.add_argument("--measure", action="store_true", help="only what the untrained models show")
    parser.add_argument("--score", action="store_true", help="only the scores")
    asked = parser.parse_args()
    if asked.measure:
        write({**one, **shown(random_design(int(one["number"])))} for one in read())
    elif not asked.score:
        train()
    report()


if __name__ == "__main__":
    main()
