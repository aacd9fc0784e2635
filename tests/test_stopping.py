"""Work that is done rarely: never forgotten, and once for all who asked for it meanwhile."""

from __future__ import annotations

import threading

from explorer.stopping import Rarely

SOON = 30.0


def test_rare_work_is_done_at_once_and_then_once_for_all_who_ask() -> None:
    done = threading.Semaphore(0)
    rarely = Rarely(done.release, 1.0)
    rarely.ask()
    assert done.acquire(blocking=False), "the first time it is due at once"
    for _ in range(5):
        rarely.ask()
    assert done.acquire(timeout=SOON), "what was asked for is done, though nobody asks again"
    assert not done.acquire(timeout=1.5), "once for all five"
    rarely.ask()
    assert done.acquire(timeout=SOON)


def test_who_asks_while_rare_work_is_being_done_is_served_after_it() -> None:
    """As another thread may: what it wants may have come too late for the work that is under
    way."""
    done, times = threading.Semaphore(0), list[int]()

    def work() -> None:
        times.append(len(times))
        if len(times) == 1:
            rarely.ask()
        done.release()

    rarely = Rarely(work, 0.1)
    rarely.ask()
    assert done.acquire(timeout=SOON)
    assert done.acquire(timeout=SOON)
