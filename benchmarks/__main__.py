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
from benchmarks.results import table, verdict

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


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "plotly": version("plotly"),
    }


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
