"""A pool on a Dask cluster: a real scheduler and real worker processes, which are killed, stopped
and not there."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from distributed import Client, Event, LocalCluster
from test_pool import DEEP, LARGE, SMALL, SOON, Asked, task

from explorer import measuring, tasks
from explorer.measuring.outside import measure
from explorer.tasks.cluster import Cluster
from explorer.tasks.pool import KILLED, Answer, Pool
from explorer_race.archive import from_bytes
from explorer_race.history import Record, Terms
from explorer_race.recipe import Recipe
from explorer_race.tasks import Task as Lesson


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes of one thread each. Dask itself would begin a task four times."""
    with LocalCluster(
        "127.0.0.1:0", n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def pool(cluster: LocalCluster, client: Client) -> Iterator[Pool]:
    client.wait_for_workers(2, timeout=SOON)
    made = Cluster(cluster.scheduler_address, "--scheduler")
    yield made.pool
    made.close()


def kill_busy(client: Client) -> None:
    """Kills the process of the cluster that computes."""
    where = client.run(os.getpid)
    (busy,) = (where[worker] for worker, names in client.processing().items() if names)
    os.kill(busy, signal.SIGKILL)


def test_a_cluster_finds_the_same_numbers_as_this_process(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "place", lambda: pool)
    config = SMALL.replace(n_seeds=3, d_model=128, n_layers=3)
    outside, here = measure(config), measuring.measure(config, on_seed=lambda _: None)
    assert list(outside.values) == list(here.values)
    for key, values in here.values.items():
        np.testing.assert_array_equal(outside.values[key], values)
    assert (pool.slots, pool.computed) == (2, 3)


def test_a_killed_worker_costs_a_repetition_and_then_its_own_task_alone(
    pool: Pool, client: Client
) -> None:
    asked = Asked(pool, task(DEEP))
    for _ in range(2):
        asked.begun()
        kill_busy(client)
        asked.answers.queue.clear()
    assert asked.last() == Answer(error="RuntimeError", message=KILLED)
    assert Asked(pool, task(SMALL.replace(seed=5))).last().result


def test_stale_work_stops(pool: Pool, client: Client) -> None:
    """Both workers are free for another task long before the stale ones would have ended."""
    client.wait_for_workers(2, timeout=SOON)
    stale = [Asked(pool, task(LARGE.replace(seed=seed))) for seed in (7, 8)]
    heard = []
    for asked in stale:
        asked.begun()
        heard.append(asked.cancel())
    assert Asked(pool, task(SMALL.replace(seed=9))).last().result
    assert pool.computed == 1
    assert max(sum(heard, [0.0])) < 0.5, "they went on"


def test_work_that_waits_behind_that_of_others_is_withdrawn_at_once(
    pool: Pool, client: Client
) -> None:
    gate = Event(client=client)
    others = [client.submit(gate.wait, pure=False) for _ in range(2)]
    asked = Asked(pool, task(SMALL.replace(seed=12)))
    must_come(lambda: bool(pool._busy))
    asked.ticket.cancel()
    try:
        must_come(lambda: not pool._busy)
        assert not any(other.done() for other in others)
    finally:
        gate.set()
    client.gather(others)


def test_errors_arrive_in_words(pool: Pool) -> None:
    unknown = Asked(pool, task(SMALL)._replace(kind="spell")).last()
    assert unknown.error == "ValueError"
    assert "kind must be one of run" in unknown.message


def test_a_race_tells_how_it_stands_and_stands_still_when_asked(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no thread from others meanwhile."""
    monkeypatch.setattr(tasks, "place", lambda: pool)
    lesson = Lesson()
    record = Record(Terms([("one", lesson.fit(SMALL), Recipe())], lesson, 1_000_000, 10))
    steps, measured = [], []
    for _ in record.follow(lambda: False, lambda: len(steps) > 2, lambda _: None):
        steps.append(record.step)
        if not measured:
            measured += [
                Asked(pool, task(SMALL.replace(seed=seed))).last().result for seed in (10, 11, 12)
            ]
    assert 0 < steps[0] < steps[-1] < record.steps
    assert from_bytes(record.archive, "race").step == steps[-1]
    assert all(measured)


def test_a_cluster_whose_scheduler_or_workers_are_gone_computes_nothing() -> None:
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster("127.0.0.1:0", **options) as made:
        pool = Cluster(made.scheduler_address, "--scheduler").pool
        must_come(lambda: pool.alive == 1)
        made.scale(0)
        must_come(lambda: pool.alive == 0)
        made.scale(1)
        must_come(lambda: pool.alive == 1)
    must_come(lambda: pool.alive == 0)


def must_come(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def served(address: str) -> tuple[int, str]:
    """Asks for a server on a cluster: its exit code, and what it says."""
    command = [
        sys.executable,
        "-m",
        "explorer",
        "serve",
        "--no-browser",
        "--port",
        "8866",
        "--scheduler",
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=False)
    return done.returncode, done.stderr


def test_an_answer_without_meaning_is_not_taken_for_a_scheduler_that_is_gone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "nthreads", lambda _: None)
    with pytest.raises(AttributeError, match="values"):
        Cluster(client, "--scheduler")


def test_a_scheduler_out_of_reach_is_said_in_one_sentence() -> None:
    assert served("tcp://127.0.0.1:1") == (
        1,
        (
            "explorer: --scheduler must be the address of a Dask scheduler that answers, such as tcp://10.0.0.5:8786; "
            "got 'tcp://127.0.0.1:1'\n"
        ),
    )


@pytest.mark.parametrize(
    ("address", "argument"),
    [("nonsense", "executor"), ("tcp://no.such.host.invalid:1", "--scheduler")],
)
def test_a_wrong_address_is_refused(
    address: str, argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.tasks.cluster.PATIENCE", 1.0)
    gc.collect()  # a client that failed before closes its loop when it is collected, for which a new loop would wait
    with pytest.raises(ValueError, match=f"{argument} must be the address .*; got '{address}'"):
        Cluster(address, argument)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install transformer-signal-explorer\[cluster\]"):
        Cluster("tcp://127.0.0.1:1", "--scheduler")


def test_a_closed_client_is_looked_at_without_an_error(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.tasks.cluster.SELDOM", 0.0)
    client = Client(cluster.scheduler_address, set_as_default=False)
    looked_at = Cluster(client, "executor")
    client.close()
    looked_at.look()
    assert not looked_at.alive
