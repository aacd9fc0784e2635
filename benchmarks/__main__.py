"""`python -m benchmarks`: runs every benchmark, prints a table, writes
`benchmarks/results.json`."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import arrival, drag, load, overhead, page, sweep, training, watching

RESULTS = Path(__file__).with_name("results.json")
BENCHMARKS = (
    overhead.main,
    arrival.main,
    page.main,
    drag.main,
    training.main,
    watching.main,
    sweep.main,
    load.main,
)
BOUNDED = {
    "ratio": "limit",
    "seconds": "limit_seconds",
    "megabytes": "limit_megabytes",
    "errors": "limit_errors",
}
"""A figure and the one that it should stay below."""
LEAST = {"updates_a_second": "least_updates_a_second"}
"""A figure and the one that it should reach."""


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "plotly": version("plotly"),
    }


def verdict(figures: dict[str, float]) -> str:
    """Whether what has a limit keeps it."""
    bounds = [
        (figures[name], figures[limit])
        for name, limit in BOUNDED.items()
        if {name, limit} <= figures.keys()
    ]
    least = [
        (figures[name], figures[limit])
        for name, limit in LEAST.items()
        if {name, limit} <= figures.keys()
    ]
    if not bounds and not least:
        return ""
    if any(value < limit for value, limit in least):
        return "TOO LITTLE"
    return "ok" if all(value <= limit for value, limit in bounds) else "TOO MUCH"


def table(results: dict[str, dict[str, float]]) -> str:
    """One line a benchmark: its name, its figures, its verdict."""
    width = max(map(len, results))
    lines = []
    for name, figures in results.items():
        shown = "  ".join(f"{key.replace('_', ' ')} {value:.3g}" for key, value in figures.items())
        lines.append(f"{name:{width}}  {shown}  {verdict(figures)}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Runs them all; 0 when every limit is kept."""
    results: dict[str, dict[str, float]] = {}
    for benchmark in BENCHMARKS:
        found = benchmark()
        print(table(found), flush=True)
        results |= found
    RESULTS.write_text(
        json.dumps({"machine": machine(), "results": results}, indent=2) + "\n", encoding="utf-8"
    )
    print(f"written to {RESULTS}")
    return int(not {"TOO MUCH", "TOO LITTLE"}.isdisjoint(map(verdict, results.values())))


if __name__ == "__main__":
    sys.exit(main())
