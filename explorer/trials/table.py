"""The trials: random designs of one small size, and whether they trained. Made by `python -m benchmarks.trainability`.

A design trained if its held-out loss after the last step was `LEAVES` nats or more below the unigram level.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from explorer.trials.evidence import Evidence

TABLE = Path(__file__).parent / "trials.csv"
SIZES: Mapping[str, int] = MappingProxyType({"d_model": 32, "n_heads": 2, "mlp_ratio": 2, "n_ctx": 32, "batch_size": 8})
STEPS, WARMUP, RATE = 200, 100, 3e-3
LEAVES = 0.3


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


@cache
def trials() -> tuple[Trial, ...]:
    """Every trial, by number."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(_trial(row) for row in csv.DictReader(file))


def _trial(row: Mapping[str, str]) -> Trial:
    return Trial(int(row["number"]), json.loads(row["design"]), int(row["warmup"]), row["trained"] == "1",
                 row["verdict"], tuple(row["rules"].split()),
                 Evidence(*(float(row[name]) for name in Evidence._fields)))
