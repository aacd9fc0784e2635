"""Sweeps on dask: a real scheduler and two real worker processes on the loopback interface, each
killed in its turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from small_sweeps import DEADLY, ENVIRONMENT, OVER, SMALL, deadly, same

from explorer import Sweep, sweep
from explorer.sweeping.cell import Cell, Found
from explorer.sweeping.workers import KILLED, Cluster, Here, run, workers_of

SECONDS = 60
"""After which a test gives up."""


class Processes:
    """A scheduler, and workers once they are asked for."""

    def __init__(self, folder: str) -> None:
        self.file, self.all = f"{folder}/scheduler.json", []
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "dask",
            *arguments,
            "--scheduler-file",
            self.file,
            "--no-dashboard",
        ]
        environment = {**ENVIRONMENT, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
        self.all.append(
            subprocess.Popen(
                command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
            )
        )
        return self.all[-1]

    def hire(self) -> None:
        for _ in range(2):
            self.start(
                "worker", "--host", "127.0.0.1", "--nthreads", "1", "--memory-limit", "1.5GB"
            )


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    started = Processes(str(tmp_path_factory.mktemp("dask")))
    yield started
    for process in (
        started.all
    ):  # with what they have started; asked to end, a worker would look for its scheduler
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)


@pytest.fixture(scope="module")
def client(processes: Processes) -> Iterator[Client]:
    end = time.monotonic() + SECONDS
    while not os.path.exists(processes.file) and time.monotonic() < end:  # noqa: PTH110
        time.sleep(0.05)
    with Client(scheduler_file=processes.file, timeout=SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def whole() -> xr.Dataset:
    return sweep(SMALL, OVER, executor=Here())


def test_workers_may_come_later(processes: Processes, client: Client, whole: xr.Dataset) -> None:
    """As a cluster's do, which wait in a queue. What they find is, bit for bit, what one process
    finds."""
    executor = client.get_executor()
    assert workers_of(executor).slots == 1
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(sweep, SMALL, OVER, executor=executor)
        processes.hire()
        assert same(found.result(SECONDS), whole)
    client.wait_for_workers(2, timeout=SECONDS)
    workers = workers_of(executor)
    assert (workers.slots, workers.threads, workers.memory) == (2, 1, 1.5e9)


def test_a_worker_that_is_killed_costs_only_what_it_computed(
    client: Client, whole: xr.Dataset
) -> None:
    client.wait_for_workers(2, timeout=SECONDS)
    where = client.run(os.getpid)
    killed: list[int] = []

    def kill(cell: Any) -> None:
        if killed or cell.origin != "measured":
            return  # the process in its place has another address
        if busy := [where[worker] for worker, tasks in client.processing().items() if tasks]:
            os.kill(busy[0], signal.SIGKILL)
            killed.append(busy[0])

    assert same(sweep(SMALL, OVER, executor=client.get_executor(), on_cell=kill), whole)
    assert killed


class Deadly(Cluster):
    """Its processes die at some cells."""

    def submit(self, compute: Any, batch: list[Cell]) -> Future[list[Found]]:
        return super().submit(partial(deadly, compute), batch)


def test_a_cell_that_kills_its_worker_fails_alone(client: Client) -> None:
    """The predicted ones are handed out together: those beside the deadly one are found all the
    same."""
    client.wait_for_workers(2, timeout=SECONDS)
    points = Sweep(SMALL, {"alpha": OVER["alpha"]}, origins="predicted").grid.points.values()
    failures: dict[float, str] = {}
    run(
        [([point.cell for point in points if point.cell], Deadly(client.get_executor(), client))],
        lambda: False,
        lambda cell, found: failures.update({cell.config.alpha: found.failure}),
    )
    assert failures == {alpha: KILLED if alpha == DEADLY else "" for alpha in OVER["alpha"]}


def test_what_no_worker_can_hold_is_refused_before_it_starts(client: Client) -> None:
    client.wait_for_workers(1, timeout=SECONDS)
    over = {"d_model": [16, 2048]}
    large = SMALL.replace(n_layers=12, d_model=2048).sizes.memory_bytes
    reason = f"needs about {large / 1e9:.2g} GB, and a worker has 1.5 GB"
    one = Sweep(SMALL.replace(n_layers=12), over, executor=client.get_executor())
    with pytest.warns(UserWarning, match=f"1 cells were not computed: {reason}"):
        one.run()
    found = one.dataset()
    assert found.failure.values.tolist() == [["", ""], ["", reason]]
    assert one.done == 3, "it is still missing: a larger worker may find it"


def measured(one: Sweep) -> int:
    """Its cells that are measured: the predicted ones are one batch, which comes before them,
    between them or last."""
    return int(np.isfinite(one.dataset().seconds.sel(origin="measured")).sum())


def test_a_sweep_may_be_stopped_and_go_on(client: Client, whole: xr.Dataset) -> None:
    one = Sweep(SMALL, OVER, executor=client.get_executor())
    one.run(stop=lambda: measured(one) > 2)
    assert 2 < measured(one) < 12
    assert same(one.run().dataset(), whole)


def test_without_a_scheduler_a_sweep_ends(
    processes: Processes, client: Client, whole: xr.Dataset
) -> None:
    """The last test: what was computed is returned, what was not says why."""
    one = Sweep(SMALL, OVER, executor=client.get_executor())

    def kill(_: Any) -> None:
        if measured(one) == 2:
            processes.scheduler.kill()

    with pytest.warns(
        UserWarning, match=r"cells were not computed: the connection to dask's scheduler is lost"
    ):
        found = one.run(on_cell=kill).dataset()
    there = (found.failure == "").values
    assert there.sum() == one.done
    assert 2 <= measured(one) < 12
    assert (found.second_moment.values[there] == whole.second_moment.values[there]).all()
