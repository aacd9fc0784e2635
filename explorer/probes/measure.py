"""`measure`: runs a config once a seed, and puts the numbers into a `Profile`."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import torch

from explorer import noise
from explorer.config import Config
from explorer.display import must_be
from explorer.probes.observe import Pass, Progress, Stop
from explorer.probes.threads import shares, torch_threads
from explorer.probes.together import runs
from explorer.profile import Array, Key, Profile

LARGE = 750e6
"""Bytes of a measurement after which memory is given back; to do so costs the next one some time."""


def measure(config: Config, stop: Stop = lambda: False, progress: Progress = lambda _: None,
            pattern_of: tuple[int, int] = (1, 0), backward: bool = True) -> Profile:
    """Measures one experiment over its seeds: every statistic of the vocabulary, by layer.

    Args:
        config: what to build and run.
        stop: asked before each layer, forward and backward; once it says true, the work is abandoned. Seeds may run
            side by side, so it may be asked from several threads.
        progress: called with the fraction that is done, from 0 to 1, after each layer; from one thread at a time.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern the profile keeps.
        backward: whether gradients are wanted, too; without them it takes less than half the time.
    Raises:
        Stopped: `stop()` said true.
        TypeError: the config is none.
        ValueError: `pattern_of` names no layer or head of the model, or EXPLORER_DEVICE no device.
    """
    must_be(Config, "config", config)
    layer, head = pattern_of
    if not (1 <= layer <= config.n_layers and 0 <= head < config.n_heads):
        raise ValueError(
            f"pattern_of must be a layer from 1 to {config.n_layers} and a head from 0 to {config.n_heads - 1}; "
            f"got {layer} and {head}"
        )
    start = time.perf_counter()
    seeds, shared = tuple(range(config.seed, config.seed + config.n_seeds)), runs(config)
    abandoned = threading.Event()
    done, lock = {run[0]: 0.0 for run in shared}, threading.Lock()

    def report(seed: int, fraction: float) -> None:
        with lock:
            done[seed] = fraction
            progress(sum(done.values()) / len(done))

    passes = [
        Pass(config, run[0], pattern_of, lambda: abandoned.is_set() or stop(), partial(report, run[0]), backward,
             len(run))
        for run in shared
    ]
    try:
        values = _run(passes, config, abandoned)
    finally:
        _give_back(config)
    return Profile(
        origin="measured",
        values={key: np.stack([value[key] for value in values]) for key in values[0]},
        config=config,
        seeds=seeds,
        pattern=passes[0].pattern,
        pattern_of=pattern_of,
        seconds=time.perf_counter() - start,
    )


def _run(passes: list[Pass], config: Config, abandoned: threading.Event) -> list[dict[Key, Array]]:
    """All passes, side by side where there is room; when one is stopped or fails, so are the others."""
    target = device()
    workers, threads = shares(config, target)
    with torch_threads(threads), ThreadPoolExecutor(workers, "explorer-seed") as pool:
        futures = [pool.submit(one.run, target) for one in passes]
        try:
            return [found for future in futures for found in future.result()]
        except BaseException:
            abandoned.set()
            pool.shutdown(cancel_futures=True)
            raise


def _give_back(config: Config) -> None:
    """Returns to the system what a large model took: on Linux, the C library would keep most of the freed memory."""
    if noise.settle() or config.sizes.memory_bytes > LARGE:
        with suppress(AttributeError, OSError, TypeError):  # another C library keeps less, or has no such function
            ctypes.CDLL(None).malloc_trim(0)


def device() -> torch.device:
    """Device of the measurements: EXPLORER_DEVICE = auto (a GPU if there is one), cpu or cuda."""
    choice = os.environ.get("EXPLORER_DEVICE", "auto")
    if choice not in ("auto", "cpu", "cuda"):
        raise ValueError(f"EXPLORER_DEVICE must be one of auto, cpu, cuda; got {choice!r}")
    if choice == "cuda" and not torch.cuda.is_available():
        raise ValueError("EXPLORER_DEVICE = cuda needs a GPU that torch can use; there is none")
    return torch.device("cuda" if choice != "cpu" and torch.cuda.is_available() else "cpu")
