"""How the designs train: each with and without warm-up, at four depths, and its held-out loss
behind the last step.

    python -m benchmarks.table
        # goes on with docs/training.csv until it is whole, on all processors
    python -m benchmarks.table --show  # the table of docs/training.md, to standard output

A row is one training: next character of the prose that ships with Python, Adam at `learning_rate`,
constant or, with warm-up, rising for `warmup` steps. All see the same batches, a seed's.
`final_loss` is the cross-entropy on the held-out characters in nats, empty where the training ended
early: `retired_at` is the step that could not be made, and `reason` says why. `unigram` and
`bigram` are what needs no Transformer. A row is written when it is finished, so that the command
can be stopped and started again. `seconds` is a training's processor time, one thread; their sum
over the number of processors is about how long the whole table takes: some half an hour on two."""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from explorer.config import Config, preset
from explorer.schemes.preset import PRESETS
from explorer_race.recipe import Recipe
from explorer_race.tasks import Data, Task

if TYPE_CHECKING:
    from explorer_race.runner import Runner

SIZES: dict[str, int] = {"d_model": 32, "n_heads": 2, "mlp_ratio": 2, "n_ctx": 32, "batch_size": 8}
STEPS, WARMUP, RATE = 200, 100, 3e-3
DEPTHS = (6, 12, 24, 48)
SEEDS, SHOWN_SEEDS = 3, 8
SHOWN = (
    "post_ln",
    "realformer",
    "bert",
    "gpt2",
    "gemma2",
    "admin",
    "mix_ln",
    "pre_ln",
    "deepnorm",
    "rezero",
    "fixup",
)
"""The designs of docs/training.md."""
OUTPUT = Path(__file__).parent.parent / "docs" / "training.csv"
KEY = ("design", "warmup", "n_layers", "seed")
COLUMNS = (
    *KEY,
    "final_loss",
    "retired_at",
    "reason",
    "unigram",
    "bigram",
    "steps",
    "learning_rate",
    *SIZES,
    "seconds",
)


class Case(NamedTuple):
    """One training."""

    design: str
    warmup: int
    """Steps; 1 is none."""
    n_layers: int
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        """As it stands in the table."""
        return tuple(map(str, self))


def cases() -> Iterator[Case]:
    """Every training of the table; shallow ones first, so that a part of it is a table too."""
    for depth in DEPTHS:
        for seed in range(SHOWN_SEEDS):
            for design in PRESETS if seed < SEEDS else SHOWN:
                for warmup in (1, WARMUP):
                    yield Case(design, warmup, depth, seed)


def shown(table: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Lines of docs/training.md: mean ± standard error without / with warm-up; in brackets how many
    seeds, if fewer."""
    losses: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in table:
        losses[one["design"], one["n_layers"], one["warmup"]].append(
            float(one["final_loss"] or "inf")
        )
    yield "| design |" + "".join(f" {depth} layers |" for depth in DEPTHS)
    yield "|---|" + "---|" * len(DEPTHS)
    for design in SHOWN:
        cells = (
            " / ".join(_cell(losses[design, str(depth), str(warmup)]) for warmup in (1, WARMUP))
            for depth in DEPTHS
        )
        yield f"| {PRESETS[design].title} | {' | '.join(cells)} |"


def _cell(values: Sequence[float]) -> str:
    error = f"{stdev(values) / math.sqrt(len(values)):.2f}".removeprefix("0")
    return f"{fmean(values):.2f} ± {error}" + f" ({len(values)})" * (len(values) < SHOWN_SEEDS)


@cache
def text(seed: int) -> Data:
    """What a seed's models learn."""
    return Data(Task(seed=seed), None, SIZES["n_ctx"], SIZES["batch_size"])


def trained(config: Config, case: Case) -> tuple[Runner, float]:
    """Trains one in a thread of its own: the contender, and its held-out loss behind the last step,
    inf if retired."""
    import torch

    from explorer_race.race import Contender
    from explorer_race.runner import Runner

    torch.set_num_threads(1)
    data, recipe = text(case.seed), Recipe(learning_rate=RATE, warmup=case.warmup)
    runner = Runner(
        Contender(case.design, data.task.fit(config), recipe), data, STEPS, torch.device("cpu")
    )
    while runner.step < STEPS and not runner.retired:
        runner.advance(STEPS + 1)  # no instruments, but for the first step
    return runner, math.inf if runner.retired else runner.held_out_loss()


def row(case: Case) -> dict[str, Any]:
    """Trains one, as a row of the table."""
    begun = time.process_time()
    runner, loss = trained(
        preset(case.design, n_layers=case.n_layers, seed=case.seed, **SIZES), case
    )
    levels = runner.data.levels
    return {
        **case._asdict(),
        "final_loss": "" if runner.retired else f"{loss:.4f}",
        "retired_at": runner.step if runner.retired else "",
        "reason": runner.retired,
        "unigram": f"{levels.unigram:.4f}",
        "bigram": f"{levels.bigram:.4f}",
        "steps": STEPS,
        "learning_rate": RATE,
        **SIZES,
        "seconds": f"{time.process_time() - begun:.1f}",
    }


def done(path: Path) -> set[tuple[str, ...]]:
    """The trainings that a table has already.

    Raises:
        SystemExit: it was made with other columns or sizes, and can only be made anew.
    """
    if not path.is_file() or not path.stat().st_size:
        return set()
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    now = {
        "steps": str(STEPS),
        "learning_rate": str(RATE),
        **{name: str(size) for name, size in SIZES.items()},
    }
    if any(
        tuple(one) != COLUMNS or any(one[name] != value for name, value in now.items())
        for one in rows
    ):
        raise SystemExit(f"{path} was made with other settings: delete it to begin anew")
    return {tuple(one[name] for name in KEY) for one in rows}


def main() -> None:
    """Trains what is missing, as many at a time as there are processors, a thread each."""
    parser = argparse.ArgumentParser(description="how every design trains")
    parser.add_argument(
        "--show", action="store_true", help="the table of docs/training.md, to standard output"
    )
    if parser.parse_args().show:
        with OUTPUT.open(newline="", encoding="utf-8") as file:
            print("\n".join(shown(list(csv.DictReader(file)))))
        return
    there = done(OUTPUT)
    missing = [case for case in cases() if case.key not in there]
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers' torch is imported with it
    with OUTPUT.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not there:
            writer.writeheader()
        with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
            for index, found in enumerate(pool.imap(row, missing), start=1):
                writer.writerow(found)
                file.flush()
                print(f"\r{index} of {len(missing)} trainings", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
