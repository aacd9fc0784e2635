"""Seeds that share a pass beside seeds that have one each, by size: the source of `limits.gains`.

    python -m benchmarks.together            # a minute or two on two quiet cores
    python -m benchmarks.together --one      # on one thread, as in a sweep's pool

Ratios of neighboring measurements, above 1 where sharing is quicker: quartiles over the rounds. The
star says that `measure` shares there; of the others the table says what it would give."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from explorer import Config, limits, measure
from explorer.measuring.sharing import torch_threads

ROUNDS = 5
WIDTHS, TOKENS, DEPTHS, SEEDS = (
    (16, 32, 64, 96, 128, 256, 512),
    (16, 32, 64, 128),
    (4, 24, 100),
    (2, 3, 8, 16),
)
SMALL = {"d_model": 64, "n_heads": 2, "n_layers": 12, "n_ctx": 32}
"""The size at which depth and seeds are varied."""


def sizes() -> Iterator[dict[str, Any]]:
    """Widths by tokens, depths, and seeds."""
    for width in WIDTHS:
        for tokens in TOKENS:
            if width * tokens <= 2**14:
                yield {
                    "d_model": width,
                    "n_heads": max(1, width // 32),
                    "n_layers": 12,
                    "n_ctx": tokens,
                }
    for depth in DEPTHS:
        yield SMALL | {"n_layers": depth}
    for seeds in SEEDS:
        yield SMALL | {"n_seeds": seeds}


def seconds(config: Config, gains: bool) -> float:
    """Wall time of a measurement whose seeds share passes, or do not."""
    chosen, limits.gains = limits.gains, lambda _: gains
    try:
        start = time.perf_counter()
        measure(config)
        return time.perf_counter() - start
    finally:
        limits.gains = chosen


def row(config: Config) -> tuple[float, list[float]]:
    """Median seconds of seeds with a pass each, and the quartiles of the ratio, after a warm-up."""
    times = [(seconds(config, False), seconds(config, True)) for _ in range(ROUNDS + 1)][1:]
    return statistics.median(one for one, _ in times), statistics.quantiles(
        [one / two for one, two in times], n=4
    )


def main(say: Callable[[str], object] = print) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="seeds that share a pass, by size")
    parser.add_argument("--one", action="store_true", help="on one thread")
    say(f"{'size':72} {'each':>9}  ratio")
    with torch_threads(1) if parser.parse_args().one else nullcontext():
        for size in sizes():
            config = Config(**size)
            apart, (low, middle, high) = row(config)
            words = ", ".join(f"{name}={value}" for name, value in size.items())
            star = " *" * limits.gains(config.design)
            say(f"{words:72} {apart * 1e3:6.0f} ms  {middle:.2f} ({low:.2f}–{high:.2f}){star}")


if __name__ == "__main__":
    main()
