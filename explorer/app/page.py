"""`Page`: all that a visitor has set, as one record; and `Undo`, the records that it was before. No
widgets.

A link says the record, and each panel shows its part of it. The parts are records, too, and are
valid as soon as they are made: `link` checks whatever comes from outside. The Map's part is
`map.plan.MapPart`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from explorer.app.explore.selections import ALL
from explorer.app.roster import Entry
from explorer.app.view import WHOLE, View
from explorer.choices import Choices
from explorer.config import Config
from explorer.figures import BY_CHOICE


class ExplorePart(NamedTuple):
    """A visitor's settings of the Explore panel."""

    design: Config = Config()
    pins: tuple[Entry, ...] = ()
    pattern_of: tuple[int, int] = (1, 0)
    """Layer, from 1, and head, from 0, whose attention pattern is shown."""
    matrix: str = ALL
    """The matrix whose gradient is compared."""
    statistic: str = next(iter(BY_CHOICE))
    """The statistic on the first chart."""
    tokens_of: int = 0
    """The layer, from 1, that charts by token position have; 0 is the last."""


class Tab(NamedTuple):
    """One tab of the page."""

    title: str
    build: Callable[[Config], Any]
    """Builds its panel, a `Part`, when it is first opened: of the design that the page starts
    with."""
    part: type | None = None
    """The class of the panel's part of the page's record, a NamedTuple; None where it has none."""
    check: Callable[[Any], tuple[Any, list[str]]] | None = None
    """Makes a part that a link says one that the panel can have, by the rules that types do not
    say; and a sentence for each entry that it refuses. A `ConfigError` refuses the whole."""
    after: str = ""
    """Name of the tab that it stands behind; empty for the last place."""


@dataclass(frozen=True)
class Page:
    """Settings of the whole page."""

    open: str
    """The open panel's name."""
    panels: Mapping[str, Any] = field(default_factory=dict)
    """Parts by the panel's name. A panel without a part stays as it is."""
    view: View = WHOLE
    story: tuple[str, int] | None = None
    """Name of the open story, and its step from 1; None while no story is open."""


@runtime_checkable
class HasPart(Protocol):
    """A panel with a part of the page's record."""

    @property
    def part(self) -> Any:
        """All that a visitor has set on it."""

    def restore(self, part: Any) -> object:
        """Sets all of it, as a visitor would."""


# The records as they were, back and forth.


QUIET = 1.0
"""Seconds: changes of the same fields that follow each other sooner are one, as when a slider is
dragged."""
STEPS = frozenset(("open", "story", "pins", "contenders"))
"""Fields that are never dragged: each change of them is a step of its own."""
MOST = 200
"""Steps that are kept."""


class Undo:
    """The page as it is, earlier pages, and those undone.

    Args:
        page: where it starts.
        clock: seconds, from any start.
    """

    def __init__(self, page: Page, clock: Callable[[], float] = time.monotonic) -> None:
        self.now, self._clock = page, clock
        self.past: deque[Page] = deque(maxlen=MOST)
        self.future: deque[Page] = deque()
        self._changed: frozenset[str] = frozenset()
        """The fields that changed last."""
        self._when = -QUIET

    def note(self, page: Page) -> None:
        """Notes the page as it is now, as a new step to undo.

        A slider that is dragged is one step: a change of the same fields as the last one, within
        `QUIET` seconds of it, replaces the page without a step, unless it is of a field whose
        every change is a step, see `STEPS`."""
        if page == self.now:
            return
        changed, now = differing(self.now, page), self._clock()
        last_names = {name.rpartition(".")[2] for name in changed}  # "n_layers" of a dotted name
        dragged = (
            changed == self._changed and STEPS.isdisjoint(last_names) and now - self._when < QUIET
        )
        if not (dragged and self.past):
            self.past.append(self.now)
        self.now, self._changed, self._when = page, changed, now
        self.future.clear()

    def back(self) -> Page:
        """Goes one step back; stays where there is none."""
        return self._go(self.past, self.future)

    def forth(self) -> Page:
        """Takes a step back again; stays where there is none."""
        return self._go(self.future, self.past)

    def _go(self, source: deque[Page], target: deque[Page]) -> Page:
        """Takes the last page of `source`, if there is one, and keeps the present one in `target`.

        The next change is then a step of its own, whatever changed last: `_changed` is emptied."""
        if source:
            target.append(self.now)
            self.now = source.pop()
            self._changed = frozenset()
        return self.now


def differing(before: Any, after: Any, name: str = "") -> frozenset[str]:
    """Names of the fields that differ between two records: `panels.explore.design.n_layers`."""
    if before == after:
        return frozenset()
    old, new = _fields(before), _fields(after)
    if not old or old.keys() != new.keys():
        return frozenset((name,))
    return frozenset().union(
        *(differing(old[key], new[key], f"{name}.{key}".lstrip(".")) for key in old)
    )


def _fields(record: Any) -> Mapping[str, Any]:
    """The fields of a record by name; none of what is no record."""
    if isinstance(record, Page | View):
        return vars(record)
    if isinstance(record, Choices):
        return dict(record)
    if isinstance(record, Mapping):
        return record
    return record._asdict() if hasattr(record, "_asdict") else {}
