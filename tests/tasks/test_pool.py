"""Worker processes that share a queue: what is computed once, in which order, what stops, and what
a death costs."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from explorer import measuring, tasks
from explorer.config import Config
from explorer.measuring.outside import body_of, measure
from explorer.stopping import Stopped
from explorer.tasks.pool import (
    KILLED,
    MISSED,
    NICENESS,
    RARELY,
    SILENT,
    Answer,
    Job,
    Order,
    Pool,
    Task,
    TaskError,
    Wish,
    WorkerProcess,
)

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=2, n_seeds=1)
DEEP = SMALL.replace(n_layers=500, d_model=64)
"""Takes a worker seconds."""
LARGE = DEEP.replace(n_layers=1000, batch_size=16)
"""Takes it several times as long."""
SOON = 60.0


def task(config: Config, order: Order = Order.FIRST_SEEDS) -> Task:
    return Task("run", body_of(config, range(config.seed, config.seed + 1), (1, 0), True), order)


def workers() -> list[psutil.Process]:
    """Worker processes of this one."""
    return [
        child
        for child in psutil.Process().children()
        if "explorer.tasks.worker" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE
    ]


class Asked:
    """A task that was handed in, and its answers."""

    def __init__(self, pool: Pool, wanted: Task, visitor: object = None) -> None:
        self.answers: queue.Queue[Answer] = queue.Queue()
        self.ticket = Wish(pool, visitor, wanted.order, self.answers.put)
        pool.enter(wanted, self.ticket)

    def begun(self) -> None:
        """Waits until it is being computed."""
        assert self.answers.get(timeout=SOON).progress > 0

    def cancel(self) -> list[float]:
        """Withdraws it; gives a list, to which the progress is added that is reported from then
        on."""
        job, heard = self.ticket.job, []
        assert job
        self.ticket.cancel()
        job.wishes[
            Wish(self.ticket.pool, None, Order.MAP, lambda answer: heard.append(answer.progress))
        ] = None
        return heard

    def last(self) -> Answer:
        while not (answer := self.answers.get(timeout=SOON)).last:
            pass
        return answer


@pytest.fixture
def alone() -> Iterator[Pool]:
    """A pool of one worker."""
    pool = Pool(1)
    yield pool
    pool.close()


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize(
    "config",
    [
        SMALL.replace(n_seeds=4),
        SMALL.replace(n_seeds=3, d_model=128, n_layers=3),
        SMALL.replace(attention="none"),
    ],
    ids=["one pass", "passes", "no attention"],
)
def test_workers_find_the_same_numbers_as_this_process(config: Config) -> None:
    """Bit for bit, and the seeds that are there first are the same too."""
    parts: list[tuple[int, ...]] = []
    outside = measure(
        config,
        pattern_of=(2, 1) if config.attention != "none" else (1, 0),
        on_seed=lambda some: parts.append(tuple(some.seeds)),
    )
    here = measuring.measure(config, pattern_of=outside.pattern_of, on_seed=lambda _: None)
    assert list(outside.values) == list(here.values)
    for key, values in here.values.items():
        np.testing.assert_array_equal(outside.values[key], values)
    np.testing.assert_array_equal(outside.pattern, here.pattern)
    assert all(part == tuple(here.seeds[: len(part)]) for part in parts)


def test_equal_work_is_done_once(pool: Pool) -> None:
    before, wanted = pool.computed, task(SMALL.replace(seed=77))
    both = [Asked(pool, wanted, visitor) for visitor in ("first", "second")]
    results = [asked.last().result for asked in both]
    results.append(Asked(pool, wanted, "late").last().result)
    assert results[0]
    assert results[0] == results[1] == results[2]
    assert pool.computed == before + 1


def test_the_results_that_were_wanted_last_are_kept(
    alone: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed_after(seed: int) -> int:
        assert Asked(alone, task(SMALL.replace(seed=seed))).last().result
        return alone.computed

    result = Asked(alone, task(SMALL)).last().result
    assert result
    monkeypatch.setattr("explorer.tasks.pool.KEPT_BYTES", 2.5 * len(result))
    assert [computed_after(seed) for seed in (1, 0, 2, 0, 1)] == [2, 2, 3, 3, 4]


def test_stale_work_stops_and_makes_room_at_once(alone: Pool) -> None:
    Asked(alone, task(SMALL)).last()  # the worker is there
    stale = Asked(alone, task(LARGE))
    stale.begun()
    heard = stale.cancel()
    assert Asked(alone, task(SMALL.replace(seed=1))).last().result
    assert alone.computed == 2, "the stale one was computed to its end"
    assert max(heard, default=0.0) < 0.5, "it went on"


def test_work_that_another_still_wants_goes_on(alone: Pool) -> None:
    first, second = Asked(alone, task(DEEP), 1), Asked(alone, task(DEEP), 2)
    first.begun()
    first.ticket.cancel()
    assert second.last().result


def test_a_killed_worker_costs_a_repetition_and_then_its_own_task_alone(alone: Pool) -> None:
    asked, waits = Asked(alone, task(DEEP)), Asked(alone, task(SMALL), "other")
    asked.begun()
    kill(alone)
    while not asked.answers.empty():  # the dead worker's
        asked.answers.get()
    asked.begun()
    kill(alone)
    assert asked.last() == Answer(error="RuntimeError", message=KILLED)
    assert waits.last().result


def test_a_worker_killed_once_is_no_matter(alone: Pool) -> None:
    asked = Asked(alone, task(DEEP))
    asked.begun()
    deaths: list[bool] = []
    alone.on_death = lambda: deaths.append(True)
    kill(alone)
    assert asked.last().result
    assert (len(deaths), alone.alive) == (1, 1)


def kill(pool: Pool) -> None:
    """Kills the worker of a pool, and waits until another has its place."""
    (killed,) = pool.workers
    assert isinstance(killed, WorkerProcess)
    killed.kill()
    end = time.monotonic() + SOON
    while pool.workers == [killed]:
        assert time.monotonic() < end
        time.sleep(0.01)


def stop(pool: Pool) -> WorkerProcess:
    """Stops a pool's worker, as a debugger or a full machine does: it lives, and says nothing."""
    (stopped,) = pool.workers
    assert isinstance(stopped, WorkerProcess)
    stopped.process.send_signal(signal.SIGSTOP)
    return stopped


posix = pytest.mark.skipif(sys.platform == "win32", reason="no such signal there")


@posix
def test_a_worker_that_does_not_answer_is_replaced_and_its_work_done_again(alone: Pool) -> None:
    asked, waits = Asked(alone, task(DEEP)), Asked(alone, task(SMALL), "other")
    asked.begun()
    stopped = stop(alone)
    assert asked.last().result
    assert waits.last().result
    assert stopped.silent


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A pool of one worker, which must answer within two seconds."""
    monkeypatch.setattr("explorer.tasks.pool.GLANCE", 0.4)
    pool = Pool(1)
    yield pool
    pool.close()


def replaced(pool: Pool, harmed: WorkerProcess) -> None:
    """Waits until another worker has the place of one."""
    end = time.monotonic() + SOON
    while pool.workers == [harmed]:
        assert time.monotonic() < end
        time.sleep(0.05)


@posix
def test_work_that_silences_two_workers_fails_with_the_reason(watched: Pool) -> None:
    asked = Asked(watched, task(DEEP.replace(batch_size=16)))
    asked.begun()
    replaced(watched, stop(watched))
    while not asked.answers.empty():  # the first worker's
        asked.answers.get()
    asked.begun()
    stop(watched)
    assert asked.last() == Answer(error="RuntimeError", message=SILENT)
    assert Asked(watched, task(SMALL.replace(seed=2))).last().result


@posix
@pytest.mark.parametrize("harm", ["SIGSTOP", "SIGKILL"])
def test_an_idle_worker_that_is_stopped_or_dead_is_replaced_before_somebody_waits(
    watched: Pool, harm: str
) -> None:
    Asked(watched, task(SMALL)).last()
    (harmed,) = watched.workers
    assert isinstance(harmed, WorkerProcess)
    harmed.process.send_signal(getattr(signal, harm))
    replaced(watched, harmed)
    assert watched.alive == 1


@posix
def test_nobody_waits_for_a_stopped_worker_but_who_wrote_to_it(watched: Pool) -> None:
    """Where more is on its way to the worker than a pipe holds, and somebody withdraws the task."""
    Asked(watched, task(SMALL)).last()
    stopped = stop(watched)
    large = Asked(watched, Task("run", "{}", Order.FIRST_SEEDS, bytes(10_000_000)))
    while watched.waiting:
        time.sleep(0.01)
    threading.Thread(target=large.ticket.cancel).start()
    time.sleep(0.2)
    assert watched.waiting == 0
    assert stopped.alive, "it was answered only when the stopped worker had been killed"
    assert Asked(watched, task(SMALL.replace(seed=2))).last().result


@posix
def test_a_long_computation_is_no_silence(watched: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at more often than a silent worker would be."""
    Asked(watched, task(SMALL)).last()
    (worker,) = watched.workers
    looks: list[bool] = []
    look = WorkerProcess.look
    monkeypatch.setattr(
        WorkerProcess, "look", lambda self, *, busy: looks.append(busy) or look(self, busy=busy)
    )
    for seed in range(100):
        assert Asked(watched, task(LARGE.replace(seed=seed))).last().result
        if sum(looks) > 2 * MISSED:
            break
    assert sum(looks) > 2 * MISSED
    assert watched.workers == [worker]


def test_a_worker_is_asked_for_a_sign_at_each_look_while_it_computes_and_else_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, asked = WorkerProcess(0), []

    def answered(*_: object) -> None:
        asked.append(True)
        worker._is_sign({"alive": True})

    monkeypatch.setattr("explorer.tasks.pool.send", answered)
    for busy, times in ((True, RARELY), (False, 1)):
        asked.clear()
        for _ in range(RARELY):
            worker.look(busy=busy)
        assert len(asked) == times
    worker.end()


class Idle:
    """A worker that computes for ever, and counts the looks at it."""

    def __init__(self, niceness: int) -> None:
        self.niceness, self.looks, self.over = niceness, [], threading.Event()
        self.ended = self.silent = False
        self.alive = True

    def look(self, *, busy: bool) -> None:
        self.looks.append(busy)

    def tell(self, data: bytes = b"", **header: object) -> None:
        pass

    def answer(self) -> tuple[dict[str, object], bytes]:
        self.over.wait(SOON)
        raise EOFError

    def end(self) -> None:
        self.over.set()

    kill = end


def test_each_worker_is_looked_at_once_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.tasks.pool.GLANCE", 0.02)
    hired: list[Idle] = []
    pool = Pool(2, lambda niceness: hired.append(Idle(niceness)) or hired[-1])
    for order in (Order.MAP, Order.LONG):
        Asked(pool, task(SMALL.replace(seed=order), order))
    while len(hired) < 3 or min(len(worker.looks) for worker in hired) < 20:
        time.sleep(0.01)
    pool.close()
    busy, idle, long = sorted(hired, key=lambda worker: (worker.niceness, not worker.looks[-1]))
    assert len(busy.looks) <= len(idle.looks) + 1
    assert {*long.looks, busy.looks[-1]} == {True}
    assert {*idle.looks} == {False}
    assert [worker.niceness for worker in (busy, idle, long)] == [NICENESS, NICENESS, 2 * NICENESS]


def test_long_work_delays_nobody(alone: Pool) -> None:
    long = Asked(alone, task(DEEP, Order.LONG))
    long.begun()
    assert Asked(alone, task(SMALL.replace(seed=3))).last().result
    assert not any(answer.last for answer in long.answers.queue)
    long.ticket.cancel()


def test_urgent_work_comes_first_visitors_take_turns_and_nobody_waits_for_ever() -> None:
    def job(number: int, order: Order, visitor: str, since: float = 0.0) -> Job:
        made = Job(number, task(SMALL), since)
        made.wishes[Wish(None, visitor, order, print)] = None  # type: ignore[arg-type]
        return made

    turns = {"greedy": 9, "modest": 2}
    jobs = [
        job(1, Order.MAP, "modest"),
        job(2, Order.FIRST_SEEDS, "greedy"),
        job(3, Order.FIRST_SEEDS, "modest"),
        job(4, Order.OTHER_SEEDS, "new"),
    ]
    assert [made.number for made in sorted(jobs, key=lambda made: made.rank(0.0, turns))] == [
        3,
        2,
        4,
        1,
    ]
    old = job(5, Order.MAP, "modest", since=-100.0)
    assert min([*jobs, old], key=lambda made: made.rank(0.0, turns)) is old


@pytest.mark.parametrize(
    ("seconds", "steps"), [(0.0, 0), (9.9, 0), (10.1, 1), (19.9, 1), (20.1, 2), (35.0, 3)]
)
def test_who_waits_ten_seconds_is_one_step_more_urgent(seconds: float, steps: int) -> None:
    """By whole steps: of two that are as urgent, the visitors' turns decide, and not who came a
    moment before."""
    waits = Job(1, task(SMALL), since=50.0)
    waits.wishes[Wish(None, "somebody", Order.MAP, print)] = None  # type: ignore[arg-type]
    urgency, *_ = waits.rank(50.0 + seconds, {})
    assert urgency == Order.MAP - steps


@pytest.mark.usefixtures("pool")
def test_errors_arrive_in_words() -> None:
    unknown = Task("spell", "{}", Order.FIRST_SEEDS)
    with pytest.raises(TaskError, match=r"kind must be one of run, cells.*; got 'spell'") as raised:
        list(tasks.answers([unknown], lambda: False))
    assert raised.value.kind == "ValueError"
    lie, *others = json.loads(task(SMALL).body)
    lie["n_layers"] = 10**9
    with pytest.raises(ValueError, match=r"n_layers must be .* got 1000000000"):
        list(
            tasks.answers(
                [Task("run", json.dumps([lie, *others]), Order.FIRST_SEEDS)], lambda: False
            )
        )


@pytest.mark.usefixtures("pool")
def test_a_measurement_that_nobody_wants_is_stopped() -> None:
    wanted = threading.Event()
    with pytest.raises(Stopped):
        measure(DEEP, wanted.is_set, lambda _: wanted.set())


KILLS_ITSELF = """
import os, psutil, signal
from explorer.config import Config
from explorer.measuring.outside import measure
measure(Config(n_layers=1, n_seeds=1))
print(*[child.pid for child in psutil.Process().children()], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_their_process_however_it_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS_ITSELF], stdout=subprocess.PIPE, text=True, check=False
    )
    left = [int(number) for number in done.stdout.split()]
    assert left
    end = time.monotonic() + SOON
    while any(psutil.pid_exists(number) for number in left) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [number for number in left if psutil.pid_exists(number)]


@pytest.mark.skipif(sys.platform == "win32", reason="another user's environment may not be read")
def test_a_worker_comes_after_the_page_and_its_threads_do_not_spin_unless_somebody_wants_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if given:
            monkeypatch.setenv("OMP_WAIT_POLICY", given)
        pool = Pool(1)
        Asked(pool, task(SMALL)).last()
        (worker,) = pool.workers
        assert isinstance(worker, WorkerProcess)
        process = psutil.Process(worker.process.pid)
        assert process.environ()["OMP_WAIT_POLICY"] == expected
        assert process.nice() == min(19, psutil.Process().nice() + NICENESS)
        pool.close()


def test_an_idle_worker_takes_no_processor_time(pool: Pool) -> None:
    Asked(pool, task(SMALL)).last()
    before = [process.cpu_times() for process in workers()]
    time.sleep(2.0)
    assert [process.cpu_times()[:2] for process in workers()] == [times[:2] for times in before]


def test_a_page_that_waits_long_looks_seldom_whether_it_still_waits() -> None:
    """A crowd's pages wait for seconds, and each look takes processor time from the work that they
    wait for."""
    assert tasks.glance(0.0) == tasks.glance(0.1) == tasks.GLANCE
    assert tasks.GLANCE < tasks.glance(2.0) < tasks.LONGEST_GLANCE
    assert tasks.glance(7.0) == tasks.glance(600.0) == tasks.LONGEST_GLANCE
