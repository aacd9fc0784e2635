"""Measures our own model: runs a config once a seed, reads what passes its taps, and fills a
`Profile`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.measuring.sharing import Compute, Run, runs_of
from explorer.profile import Profile
from explorer.stopping import Progress, Stop, Stopped
from explorer.vocabulary import Array, Key

__all__ = ["Compute", "OnSeed", "Run", "Stopped", "measure"]

OnSeed = Callable[[Profile], None]


NEARLY = 0.7
"""Where so much of the next run is done, `on_seed` waits for it; not after the first run, which is
shown at once unless the next is complete."""


def measure(
    config: Config,
    stop: Stop = lambda: False,
    progress: Progress = lambda _: None,
    pattern_of: tuple[int, int] = (1, 0),
    on_seed: OnSeed | None = None,
    backward: bool = True,
    compute: Compute | None = None,
    spectra: bool = False,
) -> Profile:
    """Measures one experiment over its seeds: every statistic of the vocabulary, by layer.

    Args:
        config: what to build and run.
        stop: asked before each layer, forward and backward; once it says true, the work is
            abandoned. Seeds may run side by side, so it may be asked from several threads.
        progress: called with the fraction that is done, from 0 to 1, after each layer; from one
            thread at a time.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern the profile keeps.
        on_seed: called with a profile of the seeds that are done, from the first one on and without
            gaps, while others still run; not with all of them, nor for each where several are done
            at about the same time. It is called on this thread, and what it raises ends the
            measurement.
        backward: whether gradients are wanted, too; without them it takes less than half the time.
        compute: where it is computed; None for this process, which then imports torch.
        spectra: whether spectral norms and stable ranks of the matrices are wanted, too, which
            takes about as long again; in this process, after the rest.
    Raises:
        Stopped: `stop()` said true.
        TypeError: the config is none.
        ValueError: `pattern_of` names no layer or head of the model, or EXPLORER_DEVICE no device.
        ConfigError: on a server, other visitors' computations leave too little memory.

    Example:
        >>> config = ex.Config(n_layers=4, d_model=32, n_heads=2, n_ctx=16, batch_size=2, n_seeds=3)
        >>> profile = ex.measure(config)
        >>> profile["second_moment", "resid_post"].shape  # [seed, layer]
        (3, 4)
    """
    must_be(Config, "config", config)
    layer, head = pattern_of
    if not (1 <= layer <= config.n_layers and 0 <= head < config.n_heads):
        raise ValueError(
            f"pattern_of must be a layer from 1 to {config.n_layers} and a head from 0 to "
            f"{config.n_heads - 1}; got {layer} and {head}"
        )
    start = time.perf_counter()
    runs = runs_of(config, soon=on_seed is not None)
    seeds = tuple(range(config.seed, config.seed + config.n_seeds))
    done, lock = [0.0] * len(runs), threading.Lock()  # the fraction of each run
    values = list[dict[Key, Array]]()  # of each seed that is done
    patterns = list[Array | None]()  # of each run that is done

    def report(number: int, fraction: float) -> None:
        """Notes a run's fraction, and reports the measurement's: a run counts by its seeds."""
        with lock:
            done[number] = fraction
            finished = sum(share * len(run) for share, run in zip(done, runs, strict=True))
            progress(finished / len(seeds))

    def profile() -> Profile:
        """The profile of the seeds that are done."""
        stacked = {key: np.stack([value[key] for value in values]) for key in values[0]}
        return Profile(
            "measured",
            stacked,
            config,
            seeds=seeds[: len(values)],
            pattern=patterns[0],
            pattern_of=pattern_of,
            seconds=time.perf_counter() - start,
        )

    def keep(run: Run) -> None:
        """Takes over a run's seeds; shows what is done so far, unless the next run is nearly
        there."""
        values.extend(run.values)
        patterns.append(run.pattern)
        following = len(patterns)
        limit = NEARLY if following > 1 else 1
        if on_seed and following < len(runs) and done[following] < limit:
            on_seed(profile())

    if compute is None:
        from explorer.measuring.observe import here

        compute = here
    compute(config, runs, pattern_of, backward, stop, report, keep)
    if spectra:
        from explorer.measuring.spectra import of_config

        for seed, value in zip(seeds, values, strict=True):
            value |= of_config(config, seed, stop)
    return profile()
