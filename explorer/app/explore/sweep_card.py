"""The card of a sweep: its chart, the list of statistics, and a bar with notes and the button that closes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as widgets
import traitlets

from explorer.app.design_names import lowered
from explorer.app.explore.selections import ListSelection
from explorer.app.explore.sweep_words import caption, notes, progress
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import choice
from explorer.app.widgets.panel import close_all
from explorer.app.widgets.runtime import PageWidget, view
from explorer.ends import ENDS
from explorer.fields import Spec
from explorer.figures.across import Swept, across

Take = Callable[[object, object, object], None]


class SweepBar(PageWidget):
    """Notes below a sweep.

    Traits:
        field: which slider is swept: its button gets the focus when the card closes.
        opened: counts the clicks that opened it: each brings the card into sight.
        progress: changes often and is not read out.
        notes: sentences on what is missing, read out.

    The button that closes the card is the message `"close"`.
    """

    _esm = view("sweep_card")
    field = traitlets.Unicode().tag(sync=True)
    opened = traitlets.Int(0).tag(sync=True)
    progress = traitlets.Unicode().tag(sync=True)
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)


class SweepCard(widgets.Box):  # type: ignore[misc]
    """The card; without children, and not shown, while it is closed. Callers must hold the panel's lock.

    Args:
        take: receives a click on a dot and the button that closes.
        on_choice: called after another statistic was chosen.
    """

    def __init__(self, take: Take, on_choice: Callable[[], None]) -> None:
        super().__init__()
        self.add_class("ex-cell").add_class("ex-sweep-card")
        self.layout.display = "none"
        self._take, self._on_choice = take, on_choice
        self._statistic = next(iter(ENDS))
        self._is_open = False

    @property
    def statistic(self) -> str:
        """The chosen statistic, also while the card is closed."""
        if self._is_open:
            self._statistic = self.list.value
        return self._statistic

    def choose(self, statistic: str) -> None:
        """Chooses a statistic."""
        self._statistic = statistic
        if self._is_open:
            self.list.restore(statistic)

    def show_for(self, spec: Spec, clicked: bool) -> None:
        """Shows the card, for the slider of this field."""
        if not self._is_open:
            self.chart, self.bar = Chart(picks=True), SweepBar()
            self.chart.on_msg(self._take)
            self.bar.on_msg(self._take)
            self.list = end_list(self._statistic, self._on_choice)
            self.children = [self.chart, self.list, self.bar]
            self.layout.display, self._is_open = None, True
        self.chart.title = f"Sweep: {lowered(spec.about.label)}"
        with self.bar.hold_sync():
            self.bar.field = spec.name
            self.bar.opened += clicked

    def shut(self) -> None:
        """Removes everything from the page."""
        self._statistic, self.layout.display, self._is_open = self.statistic, "none", False
        children = tuple(self.children)
        self.children = []
        for child in children:
            close_all(child)

    def draw(self, spec: Spec, swept: Sequence[Swept], now: float, *, stale: bool) -> None:
        """Draws a sweep, the current design first."""
        end = ENDS[self.statistic]
        with self.chart.hold_sync():
            self.chart.caption = caption(end, swept[0])
            self.chart.show(across(spec, end, swept, now), stale=stale)
        with self.bar.hold_sync():
            self.bar.progress, self.bar.notes = progress(swept[0]), notes(spec, swept[0])


def end_list(chosen: str, on_choice: Callable[[], None]) -> ListSelection:
    """The statistic of a sweep."""
    rows = [{"value": end.name, "label": end.title} for end in ENDS.values()]
    about = "Statistic that is drawn over the slider's range."
    field = choice("sweep_statistic", "Show", about, rows, rows[0]["value"])
    made = ListSelection("Statistic of the sweep", field, on_choice)
    made.restore(chosen)
    made.add_class("ex-place")
    return made
