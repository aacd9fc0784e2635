"""Whether random designs train, beside what their untrained models show: is the verdict right?

    python -m benchmarks.trainability
        # goes on with the table until it is whole: about an hour of processor
    python -m benchmarks.trainability --measure
        # once more what the untrained models show, after a change to a rule
    python -m benchmarks.trainability --score  # how well the verdict predicts what training did

Each of `COUNT` random designs (`benchmarks.designs`) learns the next character of the prose that
ships with Python, as the designs of `docs/training.csv` do: Adam at 0.003 for 200 steps, width 32,
2 heads, 8 sequences of 32 characters, and by a coin 100 steps of warm-up or none. The rule, fixed
before anything was trained: a design **trained** if its held-out loss after the last step is at
least 0.3 nats below the unigram level. What did not stay finite did not train.

The trainings are cells of a sweep, handed to its workers: a process for each processor. A row is
one design: the fields in which it differs from the plain one, what training made of it, and what
was seen before the first step: the verdict, and the rules that found something. It is written when
it is finished, so that the command can be stopped and started again.

The score is the balanced accuracy: the mean of two shares of right forecasts, of the designs that
did not train and of those that did. Precision and recall are of "does not train"."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.designs import choices, random_design
from benchmarks.verdicts import balanced
from explorer import Config, measure
from explorer.diagnosis import RULES, diagnose
from explorer.sweeping.cell import Cell, Found
from explorer.sweeping.workers import Outside, run
from explorer.text import prose
from explorer_race.cells import Training
from explorer_race.race import Contender
from explorer_race.recipe import Recipe
from explorer_race.runner import Runner
from explorer_race.tasks import Task, of_prose

TABLE = Path(__file__).with_name("trials.csv")
COUNT = 320
STEPS, WARMUP, RATE = 200, 100, 3e-3
LEAVES = 0.3
"""A design trained if its held-out loss after the last step was so many nats or more below the
unigram level."""
FAR = 2
"""The loss before the first step, over a uniform guess's, beyond which `by_loss` says that a design
does not train. It stands in a gap: no random design starts between 1.53 and 2.07, and no named one
with 6 layers beyond 1.21."""
COLUMNS = (
    "number",
    "warmup",
    "design",
    "final_loss",
    "failure",
    "trained",
    "verdict",
    "rules",
    "first_loss",
)


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
    return {
        "verdict": diagnose(profile)[0].severity,
        "rules": " ".join(fired),
        "first_loss": f"{first_loss(config):.6g}",
    }


def first_loss(config: Config) -> float:
    """The held-out loss before the first step."""
    data = of_prose(Task(), config.n_ctx, config.batch_size)
    return Runner(Contender("", config), data, STEPS, torch.device("cpu")).held_out_loss()


def name_of(rule: Callable[..., Any]) -> str:
    """The name of a rule; of one for several states, with its state."""
    if isinstance(rule, partial):
        return f"{rule.func.__name__}:{rule.args[0]}"
    return rule.__name__


def row(number: int, found: Found) -> dict[str, Any]:
    """A design and what was found of it, as a row of the table."""
    drop = found.numbers.get("loss_drop", math.nan)
    return {
        "number": number,
        "warmup": warmup_of(number),
        "design": json.dumps(choices(random_design(number))),
        "final_loss": f"{found.numbers.get('held_out_loss', math.nan):.6g}",
        "failure": found.failure,
        "trained": int(not isinstance(drop, list) and drop >= LEAVES),
        **shown(random_design(number)),
    }


def read(path: Path = TABLE) -> list[dict[str, str]]:
    """The table so far."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(rows: Iterable[Mapping[str, Any]], path: Path = TABLE) -> None:
    """The table, by number. All rows are there before the file is opened: one that fails leaves it
    as it was."""
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

    run(
        [(list(cells), Outside(max((one.memory for one in cells), default=0.0)))],
        lambda: False,
        done,
    )


class Trial(NamedTuple):
    """A row of the table, as far as it is scored."""

    number: int
    warmup: int
    """Steps; 1 is none."""
    trained: bool
    verdict: str
    """Severity of the first finding before the first step."""
    rules: tuple[str, ...] = ()
    """Rules of the diagnosis that found something."""
    first_loss: float = 0.0
    """Held out, before the first step."""


def trials() -> list[Trial]:
    """Every trial, by number."""
    return [
        Trial(
            int(one["number"]),
            int(one["warmup"]),
            one["trained"] == "1",
            one["verdict"],
            tuple(one["rules"].split()),
            float(one["first_loss"]),
        )
        for one in read()
    ]


class Score(NamedTuple):
    """Score of a forecast of which designs do not train."""

    balanced: float
    precision: float
    recall: float
    wrong: tuple[Trial, ...]


def by_verdict(one: Trial) -> bool:
    """Whether the verdict says that a design does not train: "bad" does, and a warning where there
    is no warm-up."""
    return one.verdict == "bad" or (one.verdict == "warning" and one.warmup == 1)


def by_loss(one: Trial) -> bool:
    """The verdict's forecast, or that of a loss which starts far above a uniform guess's."""
    uniform = math.log(len(prose().vocabulary))
    return by_verdict(one) or not one.first_loss <= FAR * uniform


def scored(rows: Sequence[Trial], forecast: Callable[[Trial], bool] = by_verdict) -> Score:
    """Scores a forecast of which designs do not train."""
    stalls, failing = (
        np.array([not one.trained for one in rows]),
        np.array([forecast(one) for one in rows]),
    )
    right = int((stalls & failing).sum())
    return Score(
        balanced(failing, stalls),
        right / max(1, int(failing.sum())),
        right / int(stalls.sum()),
        tuple(itertools.compress(rows, stalls != failing)),
    )


FORECASTS = {"verdict": by_verdict, "verdict, or a loss that starts far off": by_loss}


def by_rule(rows: Sequence[Trial]) -> dict[str, tuple[int, int]]:
    """Rule of the diagnosis to how many trials it found something in, and how many of those
    trained."""
    names = dict.fromkeys(name for one in rows for name in one.rules)
    fired: Mapping[str, list[Trial]] = {
        name: [one for one in rows if name in one.rules] for name in names
    }
    return {name: (len(those), sum(one.trained for one in those)) for name, those in fired.items()}


def report() -> None:
    """Prints the scores, as the tables of docs/trainability.md."""
    rows, designs = trials(), {int(one["number"]): one["design"] for one in read()}
    score = scored(rows)
    print(f"{len(rows)} trials, of which {sum(one.trained for one in rows)} trained")
    print("\n| forecast | balanced accuracy | precision | recall |\n|---|---|---|---|")
    for name, forecast in FORECASTS.items():
        numbers = " | ".join(f"{number:.2f}" for number in scored(rows, forecast)[:3])
        print(f"| {name} | {numbers} |")
    print("\n| rule | found something in | of which trained |\n|---|---|---|")
    for name, (fired, trained) in by_rule(rows).items():
        print(f"| `{name}` | {fired} | {trained} |")
    print("\nmisjudged:")
    for one in score.wrong:
        print(
            f"  {one.number} {'trained' if one.trained else 'did not train'}, warm-up {one.warmup}: "
            f"{designs[one.number]}"
        )


def main() -> None:
    """Trains, measures again, or scores."""
    parser = argparse.ArgumentParser(description="is the verdict right?")
    parser.add_argument(
        "--measure", action="store_true", help="only what the untrained models show"
    )
    parser.add_argument("--score", action="store_true", help="only the scores")
    asked = parser.parse_args()
    if asked.measure:
        write({**one, **shown(random_design(int(one["number"])))} for one in read())
    elif not asked.score:
        train()
    report()


if __name__ == "__main__":
    main()
