"""Random designs, measured and predicted: where the theory is far off and does not say so.

    python -m benchmarks.fuzz
        # 500 designs of seed 0; exits with 1 if any is far off without a note
    python -m benchmarks.fuzz --seed 1 --designs 100

Each field keeps its default or is drawn at random, with even chances. A statistic is off by the
factor between the prediction and the mean over seeds, at its worst site and layer. Means are moved
two standard errors towards the prediction first; a design that is still beyond a bound is measured
again with eight times the seeds, for the standard error of a heavy tail is itself uncertain, and
counts only if it is beyond the bound then. Norms of gradients by weights are squared. What is nan
in the prediction is withdrawn, and a statistic with a note is not judged."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from benchmarks.accuracy import Array, measured
from explorer.config import Config, ConfigError
from explorer.profile import Profile
from explorer.theory import predict
from explorer.vocabulary import STATISTICS

SEEDS, MORE_SEEDS = 8, 64
BOUNDS = {
    "second_moment": 1.5,
    "max_abs": 1.5,
    "kurtosis": 1.5,
    "activation_gradient": 3.0,
    "parameter_gradient": 3.0,
}
"""Largest factor, of squares."""
RANGES = {
    "n_layers": (1, 12),
    "n_ctx": (4, 64),
    "batch_size": (1, 4),
    "mlp_ratio": (1, 6),
    "alpha": (0.1, 4.0),
    "bias_variance": (0.0, 10.0),
    "init_variance": (1e-3, 1e3),
    "logit_cap": (0.01, 100.0),
    "norm_epsilon": (1e-12, 1e-3),
    "base_depth": (1, 12),
    "n_streams": (2, 8),
    "norm_alpha": (0.05, 4.0),
    "n_loops": (1, 4),
}
"""Numbers that are drawn within less than their bounds; log-uniform, but for those that may be
0."""
SIZES = {
    "d_model": (64, 128, 192, 256),
    "n_heads": (1, 2, 4, 8),
    "n_layers": (),
    "n_ctx": (),
    "batch_size": (),
    "n_kv_heads": (0, 0, 1, 2),
    "head_size": (0, 0, 16, 48),
}
"""Fields that are always drawn, as texts are, and what from where it is not a range."""
FIXED = ("seed", "n_seeds")
CHARACTERS = "ae st\u00e9\u65e5\U0001f600"
"""Drawn texts have the first few of them, from one on: of one byte to four, and a space."""


class Off(NamedTuple):
    """One statistic of one design, further from its prediction than it should be."""

    statistic: str
    site: str
    layer: int
    measured: float
    predicted: float
    factor: float


def designs(seed: int, count: int) -> Iterator[Config]:
    """Random configs, the same for the same seed, and of the same other values when `Config` gets
    one more field."""
    found = (accepted(seed, index) for index in itertools.count())
    return itertools.islice((config for config in found if config), count)


def accepted(seed: int, index: int) -> Config | None:
    """One random config; None where its choices exclude each other."""
    choices = {}
    for name, spec in Config.specs().items():
        rng = np.random.default_rng([seed, index, crc32(name.encode())])
        drawn = name in SIZES or spec.kind == "text"
        if drawn or (name not in FIXED and rng.random() < 0.5):
            choices[name] = _value(rng, name)
    try:
        return Config(**choices, n_seeds=SEEDS)
    except ConfigError:
        return None


def _value(rng: np.random.Generator, name: str) -> Any:
    spec = Config.specs()[name]
    if options := SIZES.get(name) or {"choice": spec.choices, "switch": (False, True)}.get(
        spec.kind
    ):
        return options[rng.integers(len(options))]
    if spec.kind == "text":
        return _text(rng, int(spec.low), int(spec.high))
    low, high = RANGES.get(name, (spec.low, spec.high))
    value = (
        rng.uniform(low, high) if low <= 0 else math.exp(rng.uniform(math.log(low), math.log(high)))
    )
    return round(value) if spec.kind == "integer" else float(f"{value:.3g}")


def _text(rng: np.random.Generator, shortest: int, longest: int) -> str:
    """A text of a random length, of a random number of characters: the same one throughout, or
    nearly all different."""
    length = round(math.exp(rng.uniform(math.log(shortest), math.log(longest))))
    known = CHARACTERS[: rng.integers(1, len(CHARACTERS), endpoint=True)]
    return "".join(known[place] for place in rng.integers(len(known), size=length))


def off(predicted: Profile, found: Profile) -> list[Off]:
    """The statistics without a note that are beyond their bound, each at its worst."""
    worst: dict[str, Off] = {}
    for (statistic, site), theory in predicted.values.items():
        if statistic not in BOUNDS or statistic in predicted.notes:
            continue
        power = 1 + STATISTICS[statistic].root
        draws, expected = found[statistic, site] ** power, theory[0] ** power
        factor = factors(draws, expected)
        index = int(np.argmax(factor))
        one = Off(
            statistic,
            site,
            index + 1,
            float(draws.mean(0)[index]),
            float(expected[index]),
            float(factor[index]),
        )
        if one.factor > max(
            BOUNDS[statistic], worst[statistic].factor if statistic in worst else 0.0
        ):
            worst[statistic] = one
    return list(worst.values())


def factors(draws: Array, expected: Array) -> Array:
    """By how much `[seed, layer]` is off by layer, at least 1, after two standard errors in the
    prediction's favor."""
    with np.errstate(all="ignore"):
        mean, margin = draws.mean(0), 2 * draws.std(0, ddof=1) / math.sqrt(len(draws))
        near = np.clip(expected, mean - margin, mean + margin)
        factor = np.maximum(expected / near, near / expected)
    factor = np.where(np.isfinite(mean), np.nan_to_num(factor, nan=1.0, posinf=math.inf), math.inf)
    return np.where(np.isnan(expected), 1.0, factor)


def judged(config: Config) -> tuple[Profile, list[Off]]:
    """The prediction, and what is beyond its bound even with more seeds."""
    predicted = predict(config)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = off(predicted, measured(config, SEEDS))
        if found:
            found = off(predicted, measured(config, MORE_SEEDS))
    return predicted, found


def changes(config: Config) -> str:
    """What rebuilds a config: the fields that are not at their default."""
    return ", ".join(
        f"{name}={value!r}" for name, value in config if value != getattr(Config(), name)
    )


def main() -> int:
    """Prints what is off, and one line on all; 0 when nothing is."""
    parser = argparse.ArgumentParser(
        description="random designs where the theory is off and does not say so"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--designs", type=int, default=500)
    options = parser.parse_args()
    bad, noted = 0, {True: [0.0, 0.0], False: [0.0, 0.0]}
    for config in designs(options.seed, options.designs):
        predicted, found = judged(config)
        count = noted[config.logit_cap > 0]
        count[0] += bool(predicted.notes.keys() & BOUNDS.keys())
        count[1] += 1
        bad += bool(found)
        if found:
            print(f"Config({changes(config)})", flush=True)
        for one in found:
            print(
                f"    {one.statistic}@{one.site} layer {one.layer}: measured {one.measured:.3g}, "
                f"predicted {one.predicted:.3g}, ×{one.factor:.3g}",
                flush=True,
            )
    shares = {capped: part / max(total, 1) for capped, (part, total) in noted.items()}
    print(
        f"seed {options.seed}: {options.designs} designs, {bad} off without a note; with a note: "
        f"{shares[False]:.1%} of those without a cap, {shares[True]:.1%} of those with one"
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
