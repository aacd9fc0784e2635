"""Computing outside the page's process: what takes longer than a frame is a task with a key.

A kernel of `explorer serve` hands its tasks to the server, whose workers all visitors share; any
other process has workers of its own, which start with its first task. Plain data goes in, arrays
come out."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

from explorer.choices import ConfigError
from explorer.limits import process_count
from explorer.stopping import Stop, Throttle, check
from explorer.tasks.broker import ADDRESS, Remote
from explorer.tasks.pool import Answer, Pool, Task, TaskError

GLANCE = 0.03
"""Seconds between two looks at whether a result is still wanted, at least."""
LONGEST_GLANCE, SHARE = 0.2, 0.05
"""The seconds grow while no answer comes, as this share of the wait, up to `LONGEST_GLANCE`: many
pages that wait in a queue would take processor time from the tasks that are computed."""
AGAIN = 0.5
"""Seconds after which a result so far is asked for again: a task that is not begun yet ignores the
question."""

Place = Pool | Remote
"""Where tasks are computed."""

_lock = threading.Lock()
_places: list[Place] = []
"""The place of this process, once it was asked for."""


def place() -> Place:
    """Where this process has its tasks computed: by its server, or by workers of its own."""
    with _lock:
        if not _places:
            _places.append(
                Remote(os.environ[ADDRESS]) if ADDRESS in os.environ else Pool(process_count())
            )
        return _places[0]


def answers(
    tasks: Sequence[Task], stop: Stop, early: Stop = lambda: False
) -> Iterator[tuple[int, Answer]]:
    """Has tasks computed; gives every answer as it comes, with the number of its task in the list.

    Args:
        early: asked whether the results so far are enough.
    Raises:
        Stopped: `stop()` said true; nothing goes on then.
        ConfigError: a task was refused.
        TaskError: a task failed.
    """
    news: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
    tickets = [
        place().submit(task, partial(_put, news, number)) for number, task in enumerate(tasks)
    ]
    unfinished, asking = len(tasks), Throttle(AGAIN, share=1.0)
    last_answer = time.monotonic()
    try:
        while unfinished:
            check(stop)
            if early() and asking.due:
                with asking:
                    for ticket in tickets:
                        ticket.finish()
            try:
                number, answer = news.get(timeout=glance(time.monotonic() - last_answer))
            except queue.Empty:
                continue
            last_answer = time.monotonic()
            if answer.error == ConfigError.__name__:
                raise ConfigError(answer.message)
            if answer.error:
                raise TaskError(answer.error, answer.message)
            unfinished -= answer.last
            yield number, answer
    finally:
        for ticket in tickets:
            ticket.cancel()


def glance(waited: float) -> float:
    """Seconds until the next look at `stop`, after a wait of so many seconds without an answer."""
    return min(LONGEST_GLANCE, max(GLANCE, SHARE * waited))


def _put(news: queue.SimpleQueue[tuple[int, Answer]], number: int, answer: Answer) -> None:
    """Passes an answer on from a thread of the pool's, with the number of its task."""
    news.put((number, answer))
