"""`Worker`: one thread, and the jobs that a page wants, the most urgent first.

A page submits its jobs at every move of a slider; only the last ones matter. `submit` therefore
replaces whatever was wanted and returns at once, from any thread. The work is handed a `stop()`
that turns true as soon as its job is no longer the most urgent, and is expected to leave by an
exception, such as `Stopped`; what a stopped work raises or returns is not reported. Results are
kept by job, the least recently used are dropped.

Nothing here knows of widgets, of an event loop, or of what is computed. Callbacks run on the
worker's thread."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, TypeVar

from explorer.choices import ConfigError
from explorer.stopping import Progress, Stop, Stopped
from explorer.translation import translated

Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")

MOST_BYTES = 64e6
"""Bytes of results that are kept: an attention pattern over 1024 tokens alone takes 8 MB."""
GLANCE = 0.02
"""Seconds between two looks of work that waits."""


def in_words(error: Exception) -> str:
    """An error as `Class: message`, or as its message where that is a sentence."""
    said = translated(str(error))
    if isinstance(error, ConfigError):
        return translated("{sentence}.", sentence=said[:1].upper() + said[1:])
    # an error that stands for another, such as a worker's, has that one's class as its `kind`
    kind = getattr(error, "kind", type(error).__name__)
    return f"{kind}: {said}"


def wait(while_true: Callable[[], bool], stop: Stop) -> None:
    """Returns when `while_true()` is not. Raises: Stopped."""
    while not stop():
        if not while_true():
            return
        time.sleep(GLANCE)
    raise Stopped


class Worker(Generic[Job, Result]):
    """Computes the jobs of the last `submit` on a daemon thread, one after the other.

    Args:
        work: `work(job, stop, progress)`; asks `stop()` often, calls `progress` with a fraction
            0..1.
        on_result: called with the job and its result, unless it is not wanted any more by then.
        on_failure: called with the job and the words of the error when the work or `on_result`
            raised.
        on_progress: called with the job and the fraction, at most every `progress_every` seconds.
        capacity: results kept, and of those that say how many bytes they have (`nbytes`),
            `MOST_BYTES` in all.
        hold: whether a job waits, be its result kept or not.
    """

    def __init__(
        self,
        work: Callable[[Job, Stop, Progress], Result],
        on_result: Callable[[Job, Result], None],
        on_failure: Callable[[Job, str], None],
        on_progress: Callable[[Job, float], None] = lambda job, fraction: None,
        capacity: int = 64,
        progress_every: float = 0.1,
        hold: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hold = hold
        self._work, self._on_result, self._on_failure, self._on_progress = (
            work,
            on_result,
            on_failure,
            on_progress,
        )
        self._capacity, self._progress_every = capacity, progress_every
        self._changed = threading.Condition()
        self._wanted: list[Job] = []
        self._running: list[Job] = []  # the first of them, in a list of each run's own, or none
        self._closed = False
        self._results: OrderedDict[Job, Result] = OrderedDict()
        self._computations = 0
        self._begun = time.monotonic()
        # In a kernel, what a thread sends counts as an answer to the message in whose context it
        # runs; without one, to whichever is being handled. A browser that asks for a whole widget
        # would take a few traits for the answer.
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="explorer-worker", daemon=True
        )
        self._thread.start()

    @property
    def computations(self) -> int:
        """Number of jobs that were computed; answers from the cache do not count."""
        return self._computations

    @property
    def busy_for(self) -> float:
        """Seconds since the work that is being done was begun."""
        return time.monotonic() - self._begun

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def submit(self, *jobs: Job) -> None:
        """Makes these the wanted jobs: the current one goes on if it is the first of them, and else
        ends.

        Nothing is reported of jobs that are not wanted any more. Ignored after `close`.
        """
        with self._changed:
            self._wanted = list(jobs)
            if self._running != list(jobs[:1]):
                self._running = []
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> None:
        """Ends the thread, at the latest when the running work next asks `stop()`; waits for that
        up to `timeout` s."""
        with self._changed:
            self._wanted, self._running, self._closed = [], [], True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
                self._running = run = self._wanted[:1]
            self._serve(run[0], lambda run=run: self._running is not run)  # type: ignore[misc]
            with self._changed:
                if self._running is run:
                    self._running = []
                    self._wanted.pop(0)

    def _serve(self, job: Job, stop: Stop) -> None:
        try:
            wait(self._hold, stop)
            result = self._compute(job, stop)
            if not stop():
                self._on_result(job, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown and the next job is served
            if not stop():
                # a page that closes meanwhile must not take the thread along
                with suppress(Exception):
                    self._on_failure(job, in_words(error))

    def _compute(self, job: Job, stop: Stop) -> Result:
        if job not in self._results:
            self._computations += 1
            self._begun = time.monotonic()
            self._results[job] = self._work(job, stop, self._reporter(job, stop))
            while len(self._results) > (1 if self._nbytes() > MOST_BYTES else self._capacity):
                self._results.popitem(last=False)
        self._results.move_to_end(job)
        return self._results[job]

    def _nbytes(self) -> int:
        return sum(getattr(result, "nbytes", 0) for result in self._results.values())

    def _reporter(self, job: Job, stop: Stop) -> Progress:
        """A `progress` that speaks seldom: every report crosses to the browser. Any thread of the
        work may call it."""
        spoken, context = time.monotonic(), copy_context()

        def report(fraction: float) -> None:
            nonlocal spoken
            if (now := time.monotonic()) - spoken >= self._progress_every and not stop():
                spoken = now
                context.copy().run(self._on_progress, job, fraction)

        return report
