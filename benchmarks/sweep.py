"""What a map costs: the theory's, measured cells beside a loop over `measure`, and the local pool
beside one core.

Ratios are medians over neighboring runs of the same cells, in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch

import explorer as ex
from benchmarks.overhead import seconds
from explorer.ends import endings
from explorer.limits import processors
from explorer.measuring.observe import Pass
from explorer.measuring.sharing import torch_threads
from explorer.theory.predict import predict_all

Over = dict[str, Sequence[Any]]
Work = Callable[[], object]

SIDE = 40
DEPTHS = sorted({*range(1, 23), *np.geomspace(23, 100, SIDE - 22).round().astype(int).tolist()})
SCALES = np.geomspace(0.01, 100, SIDE).tolist()
THEORY: dict[str, tuple[ex.Config, Over]] = {
    "depth × init variance": (ex.Config(), {"n_layers": DEPTHS, "init_variance": SCALES}),
    "α × depth": (
        ex.Config(norm_placement="post"),
        {"alpha": np.linspace(0, 2, SIDE).tolist(), "n_layers": DEPTHS},
    ),
    "init variance × tokens": (
        ex.Config(),
        {"init_variance": SCALES, "n_ctx": list(range(8, 8 + 6 * SIDE, 6))},
    ),
}
MAP_LIMIT = 2.0
"""Seconds of a theory map."""
NARROW = ex.Config(d_model=64, n_heads=2)
EXPLODING = NARROW.replace(norm_placement="none", n_layers=48)
MEASURED: dict[str, tuple[ex.Config, Over]] = {
    "default": (ex.Config(), {"alpha": [0.5, 1.0], "init_variance": [0.3, 0.5, 1.0, 2.0]}),
    "narrow": (NARROW, {"alpha": [0.5, 1.0], "init_variance": [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]}),
    "no norms, 48 layers": (
        EXPLODING,
        {"alpha": [0.5, 1.0], "init_variance": [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]},
    ),
}
LOOP_LIMIT = round(1 / 1.5, 2)
"""Time of measured cells in a sweep, over that in a loop."""
CORES, POOL_LIMIT = 2, round(1 / 1.7, 2)
"""The local pool's time over one core's, where there are so many cores."""


def configs(config: ex.Config, over: Over) -> list[ex.Config]:
    """Every cell's design."""
    return [
        config.replace(**dict(zip(over, values, strict=True))) for values in product(*over.values())
    ]


def theory(config: ex.Config, over: Over) -> None:
    """A map's predicted end values."""
    for _, profile in predict_all(configs(config, over)):
        endings(profile)


def loop(config: ex.Config, over: Over) -> None:
    """Cells as a person without a sweep would measure them."""
    for one in configs(config, over):
        endings(ex.measure(one))


def swept(config: ex.Config, over: Over) -> None:
    """The same in a sweep."""
    found = ex.sweep(config, over, origins=("measured",))
    if failures := set(found.failure.values.ravel()) - {""}:
        raise RuntimeError(str(failures))


def whole(config: ex.Config, over: Over) -> None:
    """The same of one seed, on one core, with no early end."""
    _alone(config, over, ends=False)


def ended(config: ex.Config, over: Over) -> None:
    """The same, as `measure` does it."""
    _alone(config, over, ends=True)


def _alone(config: ex.Config, over: Over, ends: bool) -> None:
    for one in configs(config, over):
        work = Pass(one, one.seed)
        work.ends &= ends
        work.run(torch.device("cpu"))


def ratio(work: Work, other: Work, rounds: int, limit: float) -> dict[str, float]:
    """Time of some work over that of other work, after a warm-up of each."""
    times = [(seconds(work), seconds(other)) for _ in range(rounds + 1)][1:]
    return {
        "own_seconds": statistics.median(one for one, _ in times),
        "other_seconds": statistics.median(two for _, two in times),
        "ratio": statistics.median(one / two for one, two in times),
        "limit": limit,
    }


def pool() -> dict[str, float]:
    """200 default cells, ten runs of twenty: the local pool over one core."""
    over: Over = {"alpha": [0.25, 0.5, 1.0, 2.0], "init_variance": [0.1, 0.3, 1.0, 3.0, 10.0]}

    def one_core() -> None:
        with torch_threads(1):
            loop(ex.Config(), over)

    return ratio(lambda: swept(ex.Config(), over), one_core, 10, POOL_LIMIT)


def main() -> dict[str, dict[str, float]]:
    """Every map to what it costs."""
    found: dict[str, dict[str, float]] = {}
    for name, (config, over) in THEORY.items():
        figures = [seconds(lambda config=config, over=over: theory(config, over)) for _ in range(3)]  # type: ignore[misc]
        found[f"theory map {SIDE} × {SIDE}, {name}"] = {
            "seconds": min(figures),
            "limit_seconds": MAP_LIMIT,
        }
    for name, (config, over) in MEASURED.items():
        found[f"measured cells in a sweep over a loop, {name}"] = ratio(
            lambda config=config, over=over: swept(config, over),  # type: ignore[misc]
            lambda config=config, over=over: loop(config, over),
            5,
            LOOP_LIMIT,
        )  # type: ignore[misc]
    with torch_threads(1):
        name, cells = "no norms, 48 layers", MEASURED["no norms, 48 layers"]
        found[f"cells that end early over whole ones, {name}"] = ratio(
            lambda: ended(*cells), lambda: whole(*cells), 5, LOOP_LIMIT
        )
    if processors() >= CORES:
        found["200 default cells, the local pool over one core"] = pool()
    return found


if __name__ == "__main__":
    from benchmarks.results import table

    print(table(main()))
