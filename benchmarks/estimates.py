"""Peak memory and processor time of a measurement, beside what is estimated before it: a fresh
process for each design.

    python -m benchmarks.estimates        # about five minutes

The memory is that of a server's worker, which has measured a small design before.
`tests/measuring/test_estimates.py` holds a few of the designs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

GRID: tuple[dict[str, Any], ...] = (
    {},
    {"n_layers": 48},
    {"n_layers": 48, "n_ctx": 128},
    {"n_layers": 200},
    {"n_layers": 400},
    {"n_layers": 1000, "d_model": 64},
    {"n_layers": 1000},
    {"n_layers": 24, "d_model": 512, "n_ctx": 256, "n_heads": 8},
    {"n_layers": 6, "d_model": 2048},
    {"n_layers": 112, "d_model": 64, "n_ctx": 512},
    {"d_model": 64, "n_ctx": 512, "n_heads": 16, "batch_size": 4},
    {"d_model": 64, "n_ctx": 512, "n_heads": 16, "batch_size": 4, "causal": True},
    {"n_layers": 6, "d_model": 512, "n_ctx": 512, "n_heads": 8, "batch_size": 8},
    {"n_layers": 2, "d_model": 256, "n_ctx": 512, "n_heads": 8, "batch_size": 4},
    {"d_model": 512, "n_heads": 8, "batch_size": 8, "mlp": "gated", "activation": "silu"},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "norm": "rms"},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "norm_placement": "post"},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "norm_placement": "peri", "activation": "gelu"},
    {"n_layers": 24, "n_ctx": 256, "n_heads": 16, "qk_norm": True, "logit_cap": 30.0},
    {"n_ctx": 256, "causal": True, "sink": "learned"},
    {"n_layers": 200, "d_model": 64, "n_ctx": 16, "n_seeds": 4},
    {"n_layers": 48, "d_model": 96, "n_seeds": 8},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "layer_weights": "copied"},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "stream": "hyper"},
)
"""Designs with one seed, where nothing else is said."""


class Taken(NamedTuple):
    """Bytes and seconds, estimated and measured."""

    bytes_estimated: float
    bytes_measured: float
    seconds_estimated: float
    seconds_measured: float


def measured(choices: dict[str, Any]) -> Taken:
    """Measures the largest pass of a design in this process, after a small one, as a worker
    does."""
    from explorer.config import Config
    from explorer.measuring.observe import Pass
    from explorer.measuring.sharing import device, runs_of
    from explorer.sweeping.cell import Cell

    Pass(Config(n_layers=1, d_model=8, n_heads=1, n_ctx=2), 0).run(device())
    config = Config(**{"n_seeds": 1, **choices})
    largest = max(runs_of(config, soon=True), key=len)
    start = time.process_time()
    Pass(config, largest[0], seeds=len(largest)).run(device())
    seconds = time.process_time() - start
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    part = config.replace(n_seeds=len(largest))
    return Taken(
        config.sizes.memory_bytes,
        1024 * int(peak.split()[1]),
        Cell("measured", part, ()).seconds,
        seconds,
    )


def apart(choices: dict[str, Any]) -> Taken:
    """`measured` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.estimates", json.dumps(choices)],
        check=True,
        capture_output=True,
        text=True,
    )
    return Taken(*json.loads(done.stdout))


def main() -> None:
    """Prints the table, or the numbers of one design."""
    if sys.argv[1:]:
        print(json.dumps(measured(json.loads(sys.argv[1]))))
        return
    for choices in GRID:
        taken = apart(choices)
        print(
            f"{taken.bytes_estimated / 1e6:6.0f} {taken.bytes_measured / 1e6:6.0f} MB "
            f"{taken.bytes_estimated / taken.bytes_measured:5.2f}   {taken.seconds_estimated:6.2f} "
            f"{taken.seconds_measured:6.2f} s {taken.seconds_estimated / taken.seconds_measured:5.2f}   {choices}",
            flush=True,
        )


if __name__ == "__main__":
    main()
