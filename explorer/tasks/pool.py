"""`Pool`: worker processes that share a queue of tasks.

Equal work is done once, stale work stops, and a killed worker costs one repetition.

A worker is a process of its own on a pipe, not part of an executor, which a single killed process
breaks for all. One thread for each worker takes the most urgent task that waits, hands it over, and
passes on what comes back."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from explorer.stopping import Progress, Stop
from explorer.tasks.frames import send
from explorer.tasks.signs import Ear, Pulse

KEPT_BYTES = 128e6
"""Bytes of results that are kept, for whoever asks for an equal task next."""
AGEING = 10.0
"""Seconds of waiting that make up for one step of urgency: see `Order`."""
NICENESS = 5
"""Niceness of a worker, half that of one that computes for minutes: the page, and the theory that
it shows first, come before both."""
SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Environment of a worker, where it is not set already. OpenMP threads that spin stall each other
as soon as anything else runs, and beside workers a browser does."""
KILLED = "the process that computed it was killed (out of memory, perhaps)"
LOST = "Lost"
"""Kind of the error of a task whose server or cluster does not answer: nobody computed it."""
SILENT = "the process that computed it did not answer for ten seconds"
GLANCE = 2.0
"""Seconds between two looks at the workers."""
MISSED = 5
"""Looks without a sign of life after which a worker is replaced."""
RARELY = 5
"""Looks between two questions to a worker that has nothing to do."""


class Order(IntEnum):
    """How urgent a task is: of those that wait, the most urgent is begun first."""

    FIRST_SEEDS, OTHER_SEEDS, MAP, LONG = range(4)


class Task(NamedTuple):
    """A request to compute something.

    Args:
        kind: a row of `worker.KINDS`, or a plug-in's.
        body: what to compute, a text in JSON.
        order: how urgent it is. One that takes minutes is `LONG`: it has a process of its own and
            delays nobody.
        data: bytes that it needs.
    """

    kind: str
    body: str
    order: Order
    data: bytes = b""

    @property
    def key(self) -> Key:
        """Equal for tasks with equal results."""
        return self.kind, self.body, self.data


class Call(NamedTuple):
    """A task as the function sees it that computes it, in a worker."""

    body: str
    data: bytes
    stop: Stop
    """Whether the result is no longer wanted; the function then raises `Stopped`."""
    early: Stop
    """Whether to end now, with the result so far."""
    progress: Progress
    show: Callable[[bytes], None]
    """Hands a result so far to who waits."""


Key = tuple[str, str, bytes]
"""Kind, body and data of a task."""


class TaskError(RuntimeError):
    """A task failed; `kind` is the class of the error, the message its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Answer(NamedTuple):
    """News of a task: how far it is, or its result, or the reason why there is none."""

    progress: float = 0.0
    result: bytes | None = None
    so_far: bytes | None = None
    """A result that is not complete."""
    error: str = ""
    """The class of the error, empty for none."""
    message: str = ""

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.result is not None or bool(self.error)


Notify = Callable[[Answer], None]
"""Called with each answer, on a thread of the pool's: it must return at once."""


@dataclass(eq=False)
class Job:
    """A task of the queue, with all who wait for its result."""

    number: int
    """Of its entry into the queue."""
    task: Task
    since: float
    """When it was entered, by `time.monotonic`."""
    wishes: dict[Wish, None] = field(default_factory=dict)
    """All who wait for its result, in order: a dict serves as an ordered set."""
    begun: bool = False
    worker: Worker | None = None
    """Who computes it; None until there is one."""
    deaths: int = 0
    """Workers that have died of it."""

    @property
    def long(self) -> bool:
        """Whether it takes minutes."""
        return self.task.order is Order.LONG

    def rank(self, now: float, turns: Mapping[Hashable, int]) -> tuple[float, int, int]:
        """Sorts the queue, the lowest first: by urgency, less the time it has waited; then by the
        visitor whose turn is longest ago; then by age.

        Args:
            now: by `time.monotonic`.
            turns: number of the last turn of each visitor; one without a turn comes first.
        """
        steps_waited = (now - self.since) // AGEING
        urgency = min(wish.order for wish in self.wishes) - steps_waited
        turn = min(turns.get(wish.visitor, 0) for wish in self.wishes)
        return urgency, turn, self.number


@dataclass(eq=False)
class Wish:
    """One visitor's wish for a job's result."""

    pool: Pool
    visitor: Hashable
    """Of a server, whose visitors have turns; None where there are none."""
    order: Order
    notify: Notify
    job: Job | None = None
    """None once it is withdrawn, and where the result was there already."""

    def cancel(self) -> None:
        """Says that the result is no longer wanted; no answer follows. Nothing happens where it is
        there already."""
        self.pool.withdraw(self)

    def finish(self) -> None:
        """Asks for the result so far, in place of the whole; kinds of task that cannot give it go
        on."""
        self.pool.finish(self)


class Worker(Protocol):
    """A worker, seen from the pool."""

    @property
    def alive(self) -> bool:
        """Whether the worker can compute."""

    @property
    def ended(self) -> bool:
        """Whether the worker can never compute again, so that another must take its place."""

    @property
    def silent(self) -> bool:
        """Whether the worker was killed because it gave no sign of life."""

    def look(self, *, busy: bool) -> None:
        """Asks the worker for a sign of life, and kills it where none came for long; called every
        `GLANCE` seconds."""

    def tell(self, data: bytes = b"", **header: Any) -> None:
        """Sends the worker a message. If it has died meanwhile, whoever waits for its answer
        notices."""

    def answer(self) -> tuple[dict[str, Any], bytes]:
        """Waits for the worker's next message, header and bytes.

        Raises:
            EOFError, OSError, ValueError: the worker has died.
        """

    def kill(self) -> None:
        """Ends the worker's computation from another thread; whoever waits for its answer goes
        on."""

    def end(self) -> None:
        """Ends the worker at once, and frees all that belongs to it."""


class WorkerProcess:
    """A process of this machine; a `Worker`.

    A thread of the process answers questions whatever it computes, so a long computation is no
    silence. Nor is a slow answer of a process that runs: niced as it is, it may be long in coming.

    Args:
        niceness: how far its priority is below that of others.
    """

    def __init__(self, niceness: int) -> None:
        self.sending = threading.Lock()
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", "explorer.tasks.worker", str(niceness)],
            env=SETTINGS | os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.kill = self.process.kill
        self.silent = False
        self._ear = Ear(self.process.stdout, self._is_sign)  # type: ignore[arg-type]
        self._pulse = Pulse(self.process.pid)
        self._asked, self._looks, self._missed = False, 0, 0

    def _is_sign(self, header: dict[str, Any]) -> bool:
        """Notes a sign of life, which any message is; true if the message is nothing else."""
        self._asked, self._missed = False, 0
        return "alive" in header

    def look(self, *, busy: bool) -> None:
        """Asks for a sign of life; see `Worker`. An idle one is asked seldom."""
        self._looks += 1
        if self._asked:
            # a process that uses processor time lives, though its answer may be long in coming
            self._missed = 0 if self._pulse.beats() else self._missed + 1
            if self._missed >= MISSED and self.alive:
                self.silent = True
                self.kill()
        elif busy or self._looks % RARELY == 0:
            self._asked = True
            # where the lock is taken, a message is on its way, to which an answer will come
            if self.sending.acquire(blocking=False):
                try:
                    # it may have died: whoever waits for its answer learns of it
                    with suppress(OSError, ValueError):
                        send(self.process.stdin, {"ask": True})  # type: ignore[arg-type]
                finally:
                    self.sending.release()

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self.ended

    def tell(self, data: bytes = b"", **header: Any) -> None:
        """Sends a message; whoever waits for the answer notices where the process has died
        meanwhile."""
        with suppress(OSError, ValueError), self.sending:
            send(self.process.stdin, header, data)  # type: ignore[arg-type]

    def answer(self) -> tuple[dict[str, Any], bytes]:
        """Waits for its next message."""
        return self._ear.hear()

    def end(self) -> None:
        """Ends the process at once, and closes its pipes."""
        self.process.kill()
        self.process.wait()
        self._ear.close()
        with suppress(OSError):  # closing flushes unsent bytes, which nobody reads any more
            self.process.stdin.close()  # type: ignore[union-attr]


class Pool:
    """Worker processes and the queue before them.

    Args:
        slots: workers, and so tasks that are computed at a time; long tasks have further ones.
        hire: makes a worker, from its niceness: how far its priority is below that of others.
    """

    def __init__(self, slots: int, hire: Callable[[int], Worker] = WorkerProcess) -> None:
        self.slots, self._hire = 0, hire
        self.turns: dict[Hashable, int] = {}
        """The number of the last turn of each visitor."""
        self.computed = 0
        """Tasks that were computed to their end."""
        self.on_death: Callable[[], None] = lambda: None
        """Called when a worker has died."""
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._jobs: dict[Key, Job] = {}
        """Every job that is wanted, waiting or being computed, by key."""
        self._results: OrderedDict[Key, bytes] = OrderedDict()
        """Results of short tasks, the one that was wanted last at the end."""
        self._closed, self._ended = False, threading.Event()
        self._busy: dict[Worker, None] = {}
        """Workers that compute, those of long tasks included; a dict serves as an ordered set."""
        self.workers: list[Worker | None] = []
        """The worker of each slot; None where the first is only starting."""
        self._threads: list[threading.Thread] = []
        self.grow(slots)
        threading.Thread(target=self._look_after, name="explorer-looks", daemon=True).start()

    def grow(self, slots: int) -> None:
        """Has at least so many slots from now on, each with a thread for its worker and one for a
        long task."""
        with self._changed:
            while self.slots < slots and not self._closed:
                self.workers.append(None)
                self._start(self._serve, self.slots)
                self._start(self._serve_long)
                self.slots += 1

    def _start(self, serve: Callable[..., None], *arguments: int) -> None:
        """Starts a thread that serves until the pool is closed."""
        thread = threading.Thread(target=serve, args=arguments, name="explorer-task", daemon=True)
        self._threads.append(thread)
        thread.start()

    def submit(self, task: Task, notify: Notify) -> Wish:
        """Hands in a task without a visitor; the wish cancels it. Answers go to `notify`."""
        wish = Wish(self, None, task.order, notify)
        self.enter(task, wish)
        return wish

    def enter(self, task: Task, wish: Wish) -> None:
        """Hands in a visitor's wish for a task. Where an equal task waits or is computed, the wish
        joins it; a kept result is given at once."""
        with self._changed:
            result = self._results.get(task.key)
            if result is not None:
                self._results.move_to_end(task.key)
            else:
                job = self._jobs.get(task.key)
                if not job:
                    job = self._jobs[task.key] = Job(next(self._numbers), task, time.monotonic())
                    self._changed.notify_all()
                wish.job = job
                job.wishes[wish] = None
        if result is not None:
            wish.notify(Answer(1.0, result))

    def withdraw(self, wish: Wish) -> None:
        """Forgets a wish; a job that nobody wants any more is stopped."""
        stale = None
        with self._changed:
            job, wish.job = wish.job, None
            if job:
                job.wishes.pop(wish, None)
                is_current = self._jobs.get(job.task.key) is job  # and not done
                if is_current and not job.wishes:
                    del self._jobs[job.task.key]
                    stale = job.worker
        # sent without the lock: a worker that takes no message must delay nobody else
        if job and stale:
            stale.tell(stop=job.number)

    @property
    def waiting(self) -> int:
        """Tasks that no worker has begun."""
        with self._changed:
            return sum(not job.begun for job in self._jobs.values())

    @property
    def alive(self) -> int:
        """Workers that can compute; those of long tasks do not count."""
        return sum(worker is not None and worker.alive for worker in self.workers)

    def close(self) -> None:
        """Ends the workers and all that they compute; who waits for a result gets no answer."""
        with self._changed:
            self._closed = True
            self._ended.set()
            busy = [job.worker for job in self._jobs.values() if job.worker]
            self._changed.notify_all()
        for worker in busy:
            worker.kill()
        for thread in self._threads:
            thread.join()

    def finish(self, wish: Wish) -> None:
        """Asks a job's worker for the result so far. A job that has not begun yet ignores it, and
        is to be asked again."""
        with self._changed:
            job = wish.job
            worker = job.worker if job else None
        if job and worker:
            worker.tell(finish=job.number)

    def _next(self, worker: Worker | None = None) -> Job | None:
        """Waits for a job, and gives the most urgent: a short one for a worker, a long one where no
        worker is given.

        None once the pool is closed, or the worker has died.
        """
        wants_long = worker is None
        with self._changed:
            while not self._closed and (worker is None or not worker.ended):
                now = time.monotonic()
                waiting = [
                    job for job in self._jobs.values() if not job.begun and job.long == wants_long
                ]
                if waiting:
                    chosen = min(waiting, key=lambda job: job.rank(now, self.turns))
                    turn = next(self._numbers)  # grows from turn to turn
                    for wish in chosen.wishes:
                        self.turns[wish.visitor] = turn
                    chosen.begun = True
                    return chosen
                self._changed.wait()
            return None

    def _look_after(self) -> None:
        """Looks after all workers every `GLANCE`, on a thread of its own, which never waits for one
        of them."""
        while not self._ended.wait(GLANCE):
            busy = list(self._busy)
            idle = [worker for worker in self.workers if worker and worker not in busy]
            for worker in (*busy, *idle):
                worker.look(busy=worker in busy)
            if any(worker.ended for worker in idle) and self._changed.acquire(blocking=False):
                self._changed.notify_all()  # its thread, which waits in `_next`, replaces it
                self._changed.release()

    def _serve(self, slot: int) -> None:
        """Hires a worker for a slot, hands it jobs, and replaces it when it dies; a thread of its
        own."""
        while not self._closed:
            worker = self._hire(NICENESS)
            self.workers[slot] = worker
            while job := self._next(worker):
                self._compute(worker, job)
            if not self._closed:
                self.on_death()
            worker.end()

    def _serve_long(self) -> None:
        """Computes long jobs, each in a process that ends with it; a thread of its own."""
        while job := self._next():
            worker = self._hire(2 * NICENESS)
            self._compute(worker, job)
            worker.end()

    def _compute(self, worker: Worker, job: Job) -> None:
        """Has a worker compute a job; one that dies of it is ended."""
        with self._changed:
            if self._jobs.get(job.task.key) is not job:  # nobody wants it any more
                return
            job.worker = worker
        self._busy[worker] = None
        worker.tell(job.task.data, task=job.number, kind=job.task.kind, body=job.task.body)
        try:
            while not self._take(job, *worker.answer()):
                pass
        except (EOFError, OSError, ValueError):
            worker.end()
            self._lose(job, SILENT if worker.silent else KILLED)
        finally:
            del self._busy[worker]

    def _take(self, job: Job, header: dict[str, Any], payload: bytes) -> bool:
        """Passes an answer of a worker on; true if it was the last."""
        if "progress" in header:
            self._notify(job, Answer(header["progress"], so_far=payload or None))
            return False
        if "done" in header:
            self._finish(job, Answer(1.0, payload))
        elif "error" in header:
            self._finish(job, Answer(error=header["error"], message=header["message"]))
        return True

    def _finish(self, job: Job, answer: Answer) -> None:
        """Ends a job with its last answer, keeps the result of a short one, and passes it on."""
        with self._changed:
            self.computed += 1
            if self._jobs.get(job.task.key) is job:
                del self._jobs[job.task.key]
            if answer.result is not None and not job.long:
                self._results[job.task.key] = answer.result
                while sum(map(len, self._results.values())) > KEPT_BYTES:
                    self._results.popitem(last=False)
        self._notify(job, answer)

    def _notify(self, job: Job, answer: Answer) -> None:
        """Passes an answer on to all who wait for a job."""
        with self._changed:
            wishes = list(job.wishes)
        for wish in wishes:
            wish.notify(answer)

    def _lose(self, job: Job, reason: str) -> None:
        """Has a job whose worker has died computed again, once; a long job, or one of which two
        workers have died, fails with the reason."""
        if job.long and not self._closed:
            self.on_death()  # of others the thread of their slot calls it
        with self._changed:
            job.begun, job.worker = False, None
            job.deaths += 1
            again = job.deaths < 2 and not self._closed and not job.long
            self._changed.notify_all()
        if not again:
            self._finish(job, Answer(error="RuntimeError", message=reason))
