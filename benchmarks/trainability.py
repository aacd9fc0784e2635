"""Whether random designs train, beside what their untrained models show: is the verdict right?

    python -m benchmarks.trainability            # goes on with the table until it is whole: some 40 minutes on one core

Each of `COUNT` random designs (`benchmarks.designs`) learns the next character of the prose that ships with Python, as
the designs of `docs/training.csv` do: Adam at 0.003 for 200 steps, width 32, 2 heads, 8 sequences of 32 characters,
and by a coin 100 steps of warm-up or none. The rule, fixed before anything was trained: a design **trained** if its
held-out loss after the last step is at least 0.3 nats below the unigram level. What did not stay finite did not train.

A row is one design: the fields in which it differs from the plain one, what training made of it, and what the verdict
and the ends of the untrained model's profile were. It is written when it is finished, so that the command can be
stopped and started again.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.designs import choices, random_design
from benchmarks.table import WARMUP, Case, text, trained
from benchmarks.verdicts import LEAVES
from explorer import Config, measure
from explorer.diagnosis import RULES, diagnose
from explorer.figures.ends import ENDS, endings

COUNT = 400
OUTPUT = Path(__file__).parent.parent / "docs" / "trainability.csv"
COLUMNS = ("number", "warmup", "design", "final_loss", "retired_at", "reason", "trained", "seconds", "verdict", "rules",
           *ENDS)


def warmup_of(number: int) -> int:
    """Steps of warm-up of a design; 1 is none."""
    return (1, WARMUP)[int(np.random.default_rng([0, number, 1]).integers(2))]


def shown(config: Config) -> dict[str, Any]:
    """What the untrained model shows: the verdict, the rules that found something, and the ends of its profile."""
    profile = measure(config)
    with np.errstate(all="ignore"):
        fired = [rule.__name__ for rule in RULES if rule(profile) is not None]
    ends = {name: f"{one.middle:.6g}" for name, one in endings(profile).items()}
    return {"verdict": diagnose(profile)[0].severity, "rules": " ".join(fired), **ends}


def row(number: int) -> dict[str, Any]:
    """Trains a design, as a row of the table."""
    begun, config, warmup = time.process_time(), random_design(number), warmup_of(number)
    runner, loss = trained(config, Case(str(number), warmup, config.n_layers, 0))
    return {
        "number": number, "warmup": warmup, "design": json.dumps(choices(config)), "final_loss": f"{loss:.6g}",
        "retired_at": runner.step if runner.retired else "", "reason": runner.retired,
        "trained": int(text(0).levels.unigram - loss >= LEAVES), "seconds": f"{time.process_time() - begun:.1f}",
        **shown(config),
    }


def read(path: Path = OUTPUT) -> list[dict[str, str]]:
    """The table so far."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(found: Mapping[str, Any], path: Path = OUTPUT) -> None:
    """One more row."""
    fresh = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerow(found)


def main() -> None:
    """Trains what is missing."""
    there = {int(one["number"]) for one in read()}
    for number in (one for one in range(COUNT) if one not in there):
        append(row(number))
        print(f"\r{number + 1} of {COUNT} designs", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
