"""Two lists below a heat map: its statistic, and its contender."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from explorer.app.widgets.controls import ControlBox, choice
from explorer.figures.training import MAPS

STATISTIC, CONTENDER = "statistic", "contender"


class Pick(ControlBox):
    """A statistic by its name, and a contender by its place.

    Args:
        statistic: what is shown first.
        place: whom it is shown of first, where there are so many.
        on_read: called when a person chose something else.
    """

    def __init__(self, statistic: str, place: int = 0, on_read: Callable[[], None] = lambda: None) -> None:
        super().__init__(label="What the heat map shows")
        self.statistic, self.place, self._wanted = statistic, place, place
        self._on_read = on_read
        self._names: tuple[str, ...] = ()
        self.observe(self._read, names="values")

    def among(self, names: Sequence[str]) -> None:
        """Takes the contenders of a race."""
        if tuple(names) == self._names:
            return
        self._names = tuple(names)
        self.place = min(self._wanted, len(names) - 1)
        with self.hold_sync():
            self.sections = [{"title": "", "fields": [
                choice(STATISTIC, "Shown", "Statistic shown by the colors.",
                       [{"value": row.name, "label": row.title} for row in MAPS.values()], self.statistic),
                choice(CONTENDER, "Contender", "Contender shown by the colors.",
                       [{"value": str(place), "label": name} for place, name in enumerate(names)], str(self.place)),
            ]}]
            self._answer()

    def _read(self, _: object = None) -> None:
        """Reads a person's choice; ignored when there is no such option."""
        statistic, place = self.values.get(STATISTIC), self.values.get(CONTENDER)
        places = {str(number): number for number in range(len(self._names))}
        wanted = (
            statistic if isinstance(statistic, str) and statistic in MAPS else self.statistic,
            places.get(place, self.place) if isinstance(place, str) else self.place,
        )
        if wanted != (self.statistic, self.place):
            self.statistic, self.place = wanted
            self._wanted = self.place
            self._on_read()
        self._answer()

    def _answer(self) -> None:
        self.values = {STATISTIC: self.statistic, CONTENDER: str(self.place)}
