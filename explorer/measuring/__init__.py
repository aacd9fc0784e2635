"""Measures our own model: runs a config once a seed, reads what passes its taps, and fills a `Profile`."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.limits import claimed
from explorer.measuring.observe import Pass
from explorer.measuring.sharing import device, runs, shares, torch_threads
from explorer.model import noise
from explorer.profile import Array, Key, Profile
from explorer.stopping import Progress, Stop, Stopped

__all__ = ["Stopped", "measure"]

OnSeed = Callable[[Profile], None]

LARGE = 750e6
"""Bytes of a measurement after which memory is given back; to do so costs the next one some time."""

NEARLY = 0.7
"""How much of a seed has to be done for those before it, but the first, to wait for it."""


def measure(config: Config, stop: Stop = lambda: False, progress: Progress = lambda _: None,
            pattern_of: tuple[int, int] = (1, 0), on_seed: OnSeed | None = None, backward: bool = True) -> Profile:
    """Measures one experiment over its seeds: every statistic of the vocabulary, by layer.

    Args:
        config: what to build and run.
        stop: asked before each layer, forward and backward; once it says true, the work is abandoned. Seeds may run
            side by side, so it may be asked from several threads.
        progress: called with the fraction that is done, from 0 to 1, after each layer; from one thread at a time.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern the profile keeps.
        on_seed: called with a profile of the seeds that are done, from the first one on and without gaps, while others
            still run; not with all of them, nor for each where several are done at about the same time. It is called
            on this thread, and what it raises ends the measurement.
        backward: whether gradients are wanted, too; without them it takes less than half the time.
    Raises:
        Stopped: `stop()` said true.
        TypeError: the config is none.
        ValueError: `pattern_of` names no layer or head of the model, or EXPLORER_DEVICE no device.
        ConfigError: on a server, other visitors' computations leave too little memory.
    """
    layer, head = pattern_of
    if not (1 <= layer <= must_be(Config, "config", config).n_layers and 0 <= head < config.n_heads):
        raise ValueError(f"pattern_of must be a layer from 1 to {config.n_layers} and a head from 0 to "
                         f"{config.n_heads - 1}; got {layer} and {head}")
    start = time.perf_counter()
    seeds, shared = tuple(range(config.seed, config.seed + config.n_seeds)), runs(config, soon=on_seed is not None)
    abandoned = threading.Event()
    done, lock = {run[0]: 0.0 for run in shared}, threading.Lock()

    def report(seed: int, fraction: float) -> None:
        with lock:
            done[seed] = fraction
            progress(sum(done[run[0]] * len(run) for run in shared) / len(seeds))

    passes = [
        Pass(config, run[0], pattern_of, lambda: abandoned.is_set() or stop(), partial(report, run[0]), backward,
             len(run))
        for run in shared
    ]

    def profile(values: Sequence[dict[Key, Array]]) -> Profile:
        stacked = {key: np.stack([value[key] for value in values]) for key in values[0]}
        return Profile("measured", stacked, config, seeds=seeds[: len(values)], pattern=passes[0].pattern,
                       pattern_of=pattern_of, seconds=time.perf_counter() - start)

    def show(values: Sequence[dict[Key, Array]]) -> None:
        if on_seed and (len(values) == len(shared[0]) or done[seeds[len(values)]] < NEARLY):
            on_seed(profile(values))

    try:
        with claimed(config.sizes.memory_bytes):
            in_turn = on_seed is not None and len(shared) < len(seeds)
            return profile(_run(passes, config, abandoned, show, in_turn))
    finally:
        _give_back(config)


def _run(passes: list[Pass], config: Config, abandoned: threading.Event,
         show: Callable[[Sequence[dict[Key, Array]]], None], in_turn: bool) -> list[dict[Key, Array]]:
    """All passes, side by side where there is room; when one is stopped or fails, so are the others.

    Args:
        show: called with the values of the first ones, always while others run.
        in_turn: not side by side. Passes that are calls more than arithmetic hold each other up, and whoever draws the
            first of them: alone it takes half the time.
    """
    target, values = device(), list[dict[Key, Array]]()
    workers, threads = shares(config, target)
    with torch_threads(threads), ThreadPoolExecutor(1 if in_turn else workers, "explorer-seed") as pool:
        # Taken from the end: a future that this frame held would hold it in turn, by its exception's traceback, and the
        # two a stopped measurement's tensors, until the garbage collector looks.
        waiting = [pool.submit(work.run, target) for work in passes][::-1]
        try:
            while waiting:
                values += waiting.pop().result()
                if waiting and not waiting[-1].done():
                    show(values)
            return values
        except BaseException:
            abandoned.set()
            pool.shutdown(cancel_futures=True)
            raise


def _give_back(config: Config) -> None:
    """Returns to the system what a large model took: on Linux, the C library would keep most of the freed memory."""
    if noise.settle() or config.sizes.memory_bytes > LARGE:
        with suppress(AttributeError, OSError, TypeError):  # another C library keeps less, or has no such function
            ctypes.CDLL(None).malloc_trim(0)
