"""Sweeps on Dask: a real scheduler and two real worker processes on the loopback interface, each
killed in its turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from small_sweeps import ENVIRONMENT, OVER, SMALL, same

from explorer import Sweep, sweep
from explorer.sweeping.workers import OnCluster
from explorer.tasks.cluster import OUT_OF_REACH

SECONDS = 60
"""After which a test gives up."""


class Processes:
    """A scheduler, and workers once they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.file, self.all = folder / "scheduler.json", list[subprocess.Popen[bytes]]()
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0")

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "dask", *arguments]
        command += ["--scheduler-file", str(self.file), "--no-dashboard"]
        self.all.append(
            subprocess.Popen(
                command, env=ENVIRONMENT, stderr=subprocess.DEVNULL, start_new_session=True
            )
        )

    def hire(self) -> None:
        for _ in range(2):
            self.start(
                "worker", "--host", "127.0.0.1", "--nthreads", "1", "--memory-limit", "1.5GB"
            )


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    started = Processes(tmp_path_factory.mktemp("dask"))
    yield started
    for process in started.all:  # asked to end, a worker would look for its scheduler
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)


@pytest.fixture(scope="module")
def client(processes: Processes) -> Iterator[Client]:
    end = time.monotonic() + SECONDS
    while not processes.file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    with Client(scheduler_file=str(processes.file), timeout=SECONDS) as client:
        yield client


def test_workers_may_come_later(processes: Processes, client: Client, whole: xr.Dataset) -> None:
    """As a cluster's do, which wait in a queue. What they find is, bit for bit, what one process
    finds."""
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(sweep, SMALL, OVER, executor=client.scheduler.address)
        processes.hire()
        assert same(found.result(SECONDS), whole)
    client.wait_for_workers(2, timeout=SECONDS)
    workers = OnCluster(client)
    assert (workers.most, workers.threads, workers.memory) == (4, 1, 1.5e9)
    workers.close()


def test_a_killed_worker_costs_a_repetition(client: Client, whole: xr.Dataset) -> None:
    client.wait_for_workers(2, timeout=SECONDS)
    where = client.run(os.getpid)
    killed: list[int] = []

    def kill(cell: Any) -> None:
        if killed or cell.origin != "measured":
            return  # the process in its place has another address
        if busy := [where[worker] for worker, tasks in client.processing().items() if tasks]:
            os.kill(busy[0], signal.SIGKILL)
            killed.append(busy[0])

    assert same(sweep(SMALL, OVER, executor=client, on_cell=kill), whole)
    assert killed


def test_what_no_worker_can_hold_is_refused_before_it_starts(client: Client) -> None:
    client.wait_for_workers(1, timeout=SECONDS)
    over = {"d_model": [16, 2048]}
    large = SMALL.replace(n_layers=12, d_model=2048).sizes.memory_bytes
    reason = f"needs about {large / 1e9:.2g} GB, and a worker has 1.5 GB"
    one = Sweep(SMALL.replace(n_layers=12), over, executor=client)
    with pytest.warns(UserWarning, match=f"1 cells were not computed: {reason}"):
        one.run()
    assert one.dataset().failure.values.tolist() == [["", ""], ["", reason]]
    assert one.done == 3, "it is still missing: a larger worker may find it"


def measured(one: Sweep) -> int:
    """Its cells that are measured: the predicted ones are one batch, which comes before them,
    between them or last."""
    return int(np.isfinite(one.dataset().seconds.sel(origin="measured")).sum())


def test_a_sweep_may_be_stopped_and_go_on(client: Client, whole: xr.Dataset) -> None:
    one = Sweep(SMALL, OVER, executor=client)
    one.run(stop=lambda: measured(one) > 2)
    assert 2 < measured(one) < 12
    end = time.monotonic() + SECONDS
    while any(client.processing().values()):
        assert time.monotonic() < end, "stale cells are computed"
    assert same(one.run().dataset(), whole)


def test_without_a_scheduler_a_sweep_ends(
    processes: Processes, client: Client, whole: xr.Dataset
) -> None:
    """The last test: what was computed is returned, what was not says why."""
    one = Sweep(SMALL, OVER, executor=client)

    def kill(_: Any) -> None:
        if measured(one) == 2:
            processes.all[0].kill()

    with pytest.warns(UserWarning, match=f"cells were not computed: {OUT_OF_REACH}"):
        found = one.run(on_cell=kill).dataset()
    there = (found.failure == "").values
    assert there.sum() == one.done
    assert 2 <= measured(one) < 12
    assert (found.second_moment.values[there] == whole.second_moment.values[there]).all()
