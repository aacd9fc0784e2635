"""The labs, a folder each: `experiment` computes, `pictures` chooses what is drawn of it, `row` says what it claims.

An experiment holds settings by its topic's name (a `Choices`), a frozen result, `run(settings, stop, progress)`, a
`verdict(result)` in words, and `invariants()`, the numbers that its notebook prints. Work is done in blocks, so that
`stop` is honored and memory stays small. torch is imported where it is used, inside functions: a page that lists the
labs must not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from explorer.stopping import Progress, Stop, check

Item = TypeVar("Item")
Look = Callable[[Callable[[], Any]], None]
"""Told often how the result so far is made, by a lab that trains: it makes it as seldom as it likes."""
Verdict = tuple[str, str, str]
"""Severity (good, warning or bad), finding, and its evidence in numbers."""


def unseen(_: Callable[[], Any]) -> None:
    """The `Look` of a computation that nobody watches."""


def stages(items: Sequence[Item], stop: Stop, progress: Progress) -> Iterator[Item]:
    """Gives the items one by one; asks `stop` before each, and reports the fraction done to `progress` after it.

    Raises:
        explorer.Stopped: `stop()` is true.
    """
    for done, item in enumerate(items, start=1):
        check(stop)
        yield item
        progress(done / len(items))
    check(stop)
