"""`Page`: all that a visitor has set, as one record. A link says it, and each panel shows its part of it.

The parts are records, too, and are valid as soon as they are made: `link` checks whatever comes from outside. The Map's
part is `map.plan.MapPart`, the Race's `race.lineup.RacePart`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from explorer.app.explore.selections import ALL
from explorer.app.roster import Entry
from explorer.app.view import WHOLE, View
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
    sweep: tuple[str, str] | None = None
    """Field and statistic of the sweep; None while nothing is swept."""


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
