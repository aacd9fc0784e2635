"""The worker: newest job wins, stale work is abandoned, failures are told and survived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import numpy as np
import pytest

from explorer.app.widgets.worker import MOST_BYTES, Worker

WAIT = 20.0
"""Seconds after which a test gives up; nothing is asserted about how long anything takes."""


WHOSE = ContextVar("WHOSE", default="nobody's")


class Abandoned(Exception):  # noqa: N818 - as in the package, not an error
    pass


class Bench:
    """A worker whose work waits for its gate, and a record of all that it reports."""

    def __init__(self, capacity: int = 64, hold: Callable[[], bool] = lambda: False) -> None:
        self.gates: dict[object, threading.Event] = {}
        self.started: dict[object, threading.Event] = {}
        self.abandoned: list[object] = []
        self.results: list[tuple[object, object]] = []
        self.failures: list[tuple[object, str]] = []
        self.fractions: list[tuple[object, float]] = []
        self.reported = threading.Condition()
        self.worker: Worker[object, object] = Worker(
            self.work,
            self.keep,
            self.keep_failure,
            self.keep_fraction,
            capacity=capacity,
            progress_every=0.0,
            hold=hold,
        )

    def gate(self, job: object) -> None:
        self.gates[job] = threading.Event()
        self.started[job] = threading.Event()

    def begin(self, job: object) -> None:
        """Submits a job that waits, until it has begun."""
        self.gate(job)
        self.worker.submit(job)
        assert self.started[job].wait(WAIT)

    def work(
        self, job: object, stop: Callable[[], bool], progress: Callable[[float], None]
    ) -> object:
        if job in ("broken", "broken twice"):
            raise ZeroDivisionError("no such thing")
        if job in self.gates:
            self.started[job].set()
            while not self.gates[job].wait(0.001):
                if stop() and job != "deaf":
                    self.abandoned.append(job)
                    raise Abandoned
        progress(0.5)
        return f"result of {job}"

    def keep(self, job: object, result: object) -> None:
        with self.reported:
            self.results.append((job, result))
            self.reported.notify_all()
        if job == "unshowable":
            raise LookupError("the figure could not be drawn")

    def keep_failure(self, job: object, message: str) -> None:
        with self.reported:
            self.failures.append((job, message))
            self.reported.notify_all()
        if job == "broken twice":
            raise RuntimeError("the page is gone")

    def keep_fraction(self, job: object, fraction: float) -> None:
        self.fractions.append((job, fraction))

    def settle(self, done: Callable[[], bool]) -> None:
        with self.reported:
            assert self.reported.wait_for(done, WAIT), f"got {self.results} and {self.failures}"


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.worker.close()
    assert not bench.worker.alive


def test_result_reaches_its_callback_with_its_job(bench: Bench) -> None:
    bench.worker.submit("a")
    bench.settle(lambda: len(bench.results) == 1)
    assert bench.results == [("a", "result of a")]
    assert bench.fractions == [("a", 0.5)]


@pytest.mark.parametrize("jobs", [["new"], []], ids=["a newer job", "cancelled"])
def test_newest_job_wins_and_the_stale_one_is_abandoned_unreported(
    bench: Bench, jobs: list[str]
) -> None:
    bench.begin("old")
    bench.worker.submit(*jobs)
    if not jobs:
        bench.worker.submit("new")
    bench.settle(lambda: len(bench.results) == 1)
    assert bench.abandoned == ["old"]
    assert (bench.results, bench.failures) == ([("new", "result of new")], [])


def test_forty_jobs_behind_a_busy_worker_cost_one_more_computation(bench: Bench) -> None:
    bench.begin("deaf")  # does not listen to stop: all forty arrive meanwhile
    for number in range(40):
        bench.worker.submit(number)
    bench.gates["deaf"].set()
    bench.settle(lambda: len(bench.results) == 1)
    assert bench.results == [(39, "result of 39")]
    assert bench.worker.computations == 2


def test_the_newest_job_alone_is_done_when_nothing_holds_it_any_more_be_its_result_known_or_not() -> (
    None
):
    held = threading.Event()
    asked = threading.Semaphore(0)
    bench = Bench(hold=lambda: asked.release() or held.is_set())  # type: ignore[func-returns-value]
    for count, job in enumerate(("known", "new"), start=1):
        bench.worker.submit("known")
        bench.settle(lambda count=count: len(bench.results) == 2 * count - 1)
        held.set()
        for waiting in ("passed", job):
            bench.worker.submit(waiting)
            while asked.acquire(blocking=False):  # those before it
                pass
            assert asked.acquire(timeout=WAIT)
            assert asked.acquire(timeout=WAIT)
        assert len(bench.results) == 2 * count - 1
        held.clear()
        bench.settle(lambda count=count: len(bench.results) == 2 * count)
    bench.worker.close()
    assert [job for job, _ in bench.results] == ["known", "known", "known", "new"]
    assert bench.worker.computations == 2


@pytest.mark.parametrize(
    ("capacity", "jobs", "computations"),
    [(64, "aba", 2), (2, "abacab", 4)],
    ids=["kept by job", "c pushes b out, a had been asked for since"],
)
def test_results_are_kept_by_job_and_the_least_recently_used_is_dropped(
    capacity: int, jobs: str, computations: int
) -> None:
    bench = Bench(capacity=capacity)
    for count, job in enumerate(jobs, start=1):
        bench.worker.submit(job)
        bench.settle(lambda count=count: len(bench.results) == count)
    bench.worker.close()
    assert [job for job, _ in bench.results] == [*jobs]
    assert bench.worker.computations == computations


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("broken", "ZeroDivisionError: no such thing"),
        ("unshowable", "LookupError: the figure could not be drawn"),
    ],
)
def test_an_exception_is_told_by_class_and_message_and_the_next_job_works(
    bench: Bench, job: str, message: str
) -> None:
    bench.worker.submit(job)
    bench.settle(lambda: len(bench.failures) == 1)
    assert bench.failures == [(job, message)]
    bench.worker.submit("next")
    bench.settle(lambda: ("next", "result of next") in bench.results)


def test_a_failure_is_not_kept_as_a_result(bench: Bench) -> None:
    for count in (1, 2):
        bench.worker.submit("broken")
        bench.settle(lambda count=count: len(bench.failures) == count)
    assert bench.worker.computations == 2


def test_a_failing_failure_callback_does_not_end_the_thread(bench: Bench) -> None:
    bench.worker.submit("broken twice")
    bench.settle(lambda: len(bench.failures) == 1)
    bench.worker.submit("next")
    bench.settle(lambda: len(bench.results) == 1)
    assert [job for job, _ in bench.failures] == ["broken twice"]
    assert bench.results == [("next", "result of next")]


def test_jobs_are_done_in_their_order_and_the_first_goes_on_while_it_stays_first(
    bench: Bench,
) -> None:
    bench.begin("long")
    bench.worker.submit("long", "second", "third")
    bench.gates["long"].set()
    bench.settle(lambda: len(bench.results) == 3)
    assert [job for job, _ in bench.results] == ["long", "second", "third"]
    assert (bench.abandoned, bench.worker.computations) == ([], 3)


def test_a_job_that_is_wanted_later_ends_and_begins_anew(bench: Bench) -> None:
    bench.begin("long")
    bench.worker.submit("urgent", "long")
    bench.settle(lambda: len(bench.results) == 1)
    bench.gates["long"].set()
    bench.settle(lambda: len(bench.results) == 2)
    assert [job for job, _ in bench.results] == ["urgent", "long"]
    assert bench.abandoned == ["long"]


def test_close_ends_the_thread_in_the_middle_of_a_job(bench: Bench) -> None:
    bench.begin("long")
    bench.worker.close()
    assert not bench.worker.alive
    assert (bench.abandoned, bench.results, bench.failures) == (["long"], [], [])


def test_progress_is_reported_seldom() -> None:
    fractions: list[float] = []
    done = threading.Event()

    def work(job: object, stop: object, progress: Callable[[float], None]) -> None:
        for step in range(1000):
            progress(step / 1000)

    worker: Worker[int, None] = Worker(
        work,
        lambda job, result: done.set(),
        lambda job, message: None,
        lambda job, fraction: fractions.append(fraction),
        progress_every=1e9,
    )
    worker.submit(1)
    assert done.wait(WAIT)
    worker.close()
    assert fractions == []


def test_everything_is_told_in_the_context_of_whoever_made_the_worker() -> None:
    done = threading.Event()
    found: list[str] = []

    def tell(*_: object) -> None:
        found.append(WHOSE.get())

    def work(_: str, __: Callable[[], bool], progress: Callable[[float], None]) -> None:
        tell()
        # as a measurement has one for each seed
        helper = threading.Thread(target=progress, args=(0.5,))
        helper.start()
        helper.join()

    def keep(*_: object) -> None:
        tell()
        done.set()

    token = WHOSE.set("the maker's")
    worker = Worker(work, keep, lambda job, message: done.set(), tell, progress_every=0.0)
    WHOSE.reset(token)
    worker.submit("this")
    assert done.wait(WAIT)
    worker.close()
    assert found == ["the maker's"] * 3


def test_large_results_are_kept_up_to_a_number_of_bytes() -> None:
    """Whole measurements with an attention pattern over a thousand tokens, not numbers by layer
    only."""
    shown = threading.Semaphore(0)
    worker: Worker[int, np.ndarray] = Worker(
        lambda job, stop, progress: np.zeros(int(MOST_BYTES / 8 * 0.4)),
        lambda job, result: shown.release(),
        lambda job, message: None,
    )
    for job in (1, 2, 2, 3, 1, 3):
        worker.submit(job)
        assert shown.acquire(timeout=WAIT)
    worker.close()
    assert worker.computations == 4, (
        "1 was forgotten for 3, then 2 for 1; 2 and 3 were still there when asked again"
    )
