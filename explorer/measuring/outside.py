"""Measuring outside this process: the seeds of one pass are a task, `run`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from explorer import measuring, tasks
from explorer.config import Config
from explorer.measuring import OnSeed
from explorer.measuring.sharing import Run
from explorer.profile import Profile
from explorer.stopping import Progress, Stop
from explorer.tasks.frames import packed, unpacked
from explorer.tasks.pool import Call, Order, Task


def measure(
    config: Config,
    stop: Stop = lambda: False,
    progress: Progress = lambda _: None,
    pattern_of: tuple[int, int] = (1, 0),
    on_seed: OnSeed | None = None,
    order: Order = Order.FIRST_SEEDS,
) -> Profile:
    """`explorer.measuring.measure`, computed by workers; the same arguments give the same numbers.

    Args:
        order: how urgent it is. If it is the most urgent, that holds for the first run; the others
            are one step less urgent.
    Raises:
        TaskError: the measurement failed.
    """
    return measuring.measure(
        config, stop, progress, pattern_of, on_seed, compute=partial(compute_runs, order)
    )


def compute_runs(
    order: Order,
    config: Config,
    runs: Sequence[range],
    pattern_of: tuple[int, int],
    backward: bool,
    stop: Stop,
    progress: Callable[[int, float], None],
    done: Callable[[Run], None],
) -> None:
    """Has the runs of a measurement computed side by side, and passes them on in order; see
    `sharing.Compute`."""
    requests = []
    for number, run in enumerate(runs):
        most_urgent = Order.OTHER_SEEDS if number else Order.FIRST_SEEDS
        body = body_of(config, run, pattern_of, backward)
        requests.append(Task("run", body, max(order, most_urgent)))
    results: dict[int, Run] = {}  # those that wait for an earlier one, by number
    following = 0
    for number, answer in tasks.answers(requests, stop):
        progress(number, answer.progress)
        if answer.result is not None:
            results[number] = result_of(answer.result)
        while following in results:
            done(results.pop(following))
            following += 1


def body_of(config: Config, run: range, pattern_of: tuple[int, int], backward: bool) -> str:
    """The text of a task; equal runs have equal texts."""
    return json.dumps([config.model_dump(mode="json"), run.start, run.stop, pattern_of, backward])


def compute(call: Call) -> bytes:
    """Measures the seeds of one pass, in a worker; `result_of` reads the bytes."""
    from explorer.measuring.observe import here

    config, start, stop, (layer, head), backward = json.loads(call.body)
    runs = list[Run]()
    here(
        Config(**config),
        [range(start, stop)],
        (layer, head),
        backward,
        stop=call.stop,
        progress=lambda number, fraction: call.progress(fraction),
        done=runs.append,
    )
    [(values, pattern)] = runs
    rows = [[[*key, array] for key, array in of_seed.items()] for of_seed in values]
    return packed([rows, pattern])


def result_of(result: bytes) -> Run:
    """The seeds of a pass, from the bytes of `compute`."""
    values, pattern = unpacked(result)
    return Run(
        [{(statistic, site): array for statistic, site, array in of_seed} for of_seed in values],
        pattern,
    )
