"""All rows in one run, in turn, each beside the pass that it is compared with."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.kit import Row, deviations, tolerance
from benchmarks.peers.model import SIZES, reference, subject
from benchmarks.peers.worker import Failed, Worker

ROUNDS, SLOW, SELDOM, ENOUGH = 7, 8.0, 3, 40.0
"""Rounds; a row that takes so many times the bare pass is timed in each third round only, and for
so many seconds."""

Found = dict[str, Any]
"""A row's part of the JSON."""


def measured(rows: Sequence[Row], sizes: Sequence[str], rounds: int = ROUNDS) -> list[Found]:
    """One record a row, in their order; a row that fails has the reason, and does not stop the
    others."""
    workers = {row.name: Worker(row) for row in rows}
    records: dict[str, Found] = {row.name: {**row._asdict(), "sizes": {}} for row in rows}
    try:
        for name in list(workers):
            try:
                records[name]["version"] = workers[name].ask("version")
            except Failed as reason:
                records[name]["failed"] = str(reason)
                workers.pop(name).close()
        for size in sizes:
            print(f"{size} …", file=sys.stderr, flush=True)
            for name, found in at(size, workers, rounds).items():
                records[name]["sizes"][size] = found
    finally:
        for worker in workers.values():
            worker.close()
    return list(records.values())


def at(size: str, workers: dict[str, Worker], rounds: int) -> dict[str, Found]:
    """Name to what was found at one size."""
    expected, allowed = reference(subject(SIZES[size])), tolerance(SIZES[size].n_layers)
    found: dict[str, Found] = {}
    for name, worker in workers.items():
        try:
            values, memory = worker.ask("read", size)
        except Failed as reason:
            found[name] = {"failed": str(reason)}
            continue
        errors = deviations(values, expected)
        found[name] = {
            "deviations": errors,
            "tolerance": allowed,
            "memory_mb": memory,
            "agrees": all(error <= allowed for error in errors.values()),
            "seconds": [],
            "ratios": [],
        }
    for turn in range(rounds):
        for name, worker in workers.items():
            if not wanted(found[name], turn):
                continue
            try:
                if "ratios" not in found.get(worker.row.over, {}):
                    raise Failed(f"{worker.row.over}, which it is compared with, was not measured")
                beside, seconds = workers[worker.row.over].ask("seconds"), worker.ask("seconds")
            except Failed as reason:
                found[name] = {"failed": str(reason)}
                continue
            found[name]["seconds"].append(round(seconds, 6))
            found[name]["ratios"].append(round(seconds / beside, 4))
    return found


def wanted(found: Found, turn: int) -> bool:
    """Whether a row is timed in a round."""
    if "failed" in found or not found["ratios"] or found["ratios"][0] <= SLOW:
        return "failed" not in found
    return turn % SELDOM == 0 and sum(found["seconds"]) < ENOUGH


def spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, middle, high = (
        statistics.quantiles(ratios, n=4, method="inclusive")
        if len(ratios) > 1
        else [ratios[0]] * 3
    )
    return low, middle, high
