"""What a thousand layers take: peak memory and time of measuring every design, each in a process of
its own.

    python -m benchmarks.memory
        # goes on with docs/memory.csv: width 64 and 256, about half an hour for all
    python -m benchmarks.memory 64  # one width of all, to standard output

`over_kept` is the time over that of the same pass with every activation kept; at width 64, where
small machines can."""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from explorer.config import preset
from explorer.limits import MAX_KEPT_MEGABYTES
from explorer.schemes.preset import PRESETS

LAYERS, WIDTHS = 1000, (64, 256)
LIMITS = {64: 2.0, 256: 8.0}
"""Gigabytes."""
TIMED = (64,)
"""Widths at which the time is compared."""
SLOWER = 1.5
"""What computing activations a second time may cost."""
OUTPUT = Path(__file__).parent.parent / "docs" / "memory.csv"
COLUMNS = (
    "design",
    "n_layers",
    "d_model",
    "n_ctx",
    "batch_size",
    "block",
    "peak_gb",
    "limit_gb",
    "cpu_seconds",
    "over_kept",
    "over_kept_limit",
)


def measured(name: str, width: int) -> dict[str, Any]:
    """Runs in a fresh process: forward, backward, all statistics, one seed; narrow models twice, as
    a warm-up."""
    from explorer.measuring import measure

    config = preset(name, n_layers=LAYERS, d_model=width, n_seeds=1)
    seconds = []  # of the processors, which whoever else computes does not lengthen
    for _ in range(2 if width in TIMED else 1):
        start = time.process_time()
        measure(config)
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "block": config.sizes.block,
        "n_ctx": config.n_ctx,
        "batch_size": config.batch_size,
        "peak_gb": round(peak / 1e9, 3),
        "cpu_seconds": round(min(seconds), 2),
    }


def apart(name: str, width: int, kept_megabytes: float) -> dict[str, Any]:
    """`measured`, in a process whose peak memory is its own."""
    environment = {
        **os.environ,
        "EXPLORER_MAX_ACTIVATION_MB": str(kept_megabytes),
        "EXPLORER_MAX_MEMORY_MB": "20000",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--one", name, str(width)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(name: str, width: int) -> dict[str, Any]:
    """One design at one width."""
    found = apart(name, width, MAX_KEPT_MEGABYTES)
    slower = (
        round(found["cpu_seconds"] / apart(name, width, 1e6)["cpu_seconds"], 2)
        if width in TIMED
        else ""
    )
    return {
        "design": name,
        "n_layers": LAYERS,
        "d_model": width,
        **found,
        "limit_gb": LIMITS[width],
        "over_kept": slower,
        "over_kept_limit": SLOWER if width in TIMED else "",
    }


def main() -> None:
    """Measures every preset that is not in the table, and adds it."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
        return
    widths, there = [int(width) for width in sys.argv[1:]], set[tuple[str, str]]()
    if not widths and OUTPUT.is_file():
        with OUTPUT.open(newline="", encoding="utf-8") as file:
            there = {(one["design"], one["d_model"]) for one in csv.DictReader(file)}
    with sys.stdout if widths else OUTPUT.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not there:
            writer.writeheader()
        for width in widths or WIDTHS:
            for name in PRESETS:
                if (name, str(width)) not in there:
                    writer.writerow(row(name, width))
                    file.flush()


if __name__ == "__main__":
    main()
