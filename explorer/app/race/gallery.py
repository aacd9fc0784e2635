"""Pictures of a race: a verdict, a table and the charts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import ipywidgets as widgets

from explorer.app.explore.pins import entry
from explorer.app.named import lowered
from explorer.app.race.saves import Saves
from explorer.app.race.standings import Standings, judged
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.pick import Pick
from explorer.app.widgets.verdict import Verdict
from explorer.figures.palette import Design
from explorer.figures.training import CURVES, MAPS, Course, layer_map

if TYPE_CHECKING:
    from explorer.training.race import Outcome, Race

PICKS = (("weight_gradient", 0), ("weight_gradient", 1))
"""First choice of the heat maps: the statistic, and the contender's place."""
MAP_CAPTION = "Across: steps. Up: layers. A statistic has one color scale for all contenders."


class Gallery:
    """The pictures of one race, replaced whole. Callers must hold the panel's lock.

    Args:
        lock: keeps the lists below the heat maps from drawing meanwhile.
        race: the race that is saved, see `Saves`.
        on_saved: called when all of it was.
    """

    def __init__(self, lock: threading.RLock, race: Callable[[], Race], on_saved: Callable[[], None]) -> None:
        self._lock = lock
        self._course: Course | None = None
        self._legend: list[dict[str, str]] = []
        self.verdict, self.standings, self.saves = Verdict(), Standings(), Saves(race, on_saved)
        self.curves = {row.name: Chart(title=row.title, caption=row.caption) for row in CURVES}
        self.maps = [Chart(title="Layer by layer", caption=MAP_CAPTION) for _ in PICKS]
        self.picks = [
            Pick(name, place, partial(self._chosen, number)) for number, (name, place) in enumerate(PICKS)
        ]
        cells = [widgets.Box([chart]).add_class("ex-cell") for chart in self.curves.values()]
        for chart, pick in zip(self.maps, self.picks, strict=True):
            cells.append(widgets.Box([chart, pick.add_class("ex-place")]).add_class("ex-cell"))
        self.box = widgets.Box([self.verdict, self.standings, self.saves, widgets.Box(cells).add_class("ex-charts")])
        self.box.add_class("ex-main").layout.display = "none"

    @property
    def charts(self) -> list[Chart]:
        """All of them."""
        return [*self.curves.values(), *self.maps]

    def stale(self, stale: bool) -> None:
        """Marks the charts as those of an earlier race, or not."""
        for chart in self.charts:
            chart.stale = stale
        self.standings.stale = stale

    def draw(self, race: Race, designs: Sequence[Design], outcomes: Sequence[Outcome], *, final: bool) -> None:
        """Draws everything from numbers that no longer change; the outcomes may be some steps older."""
        self._course = Course.of(race, designs, outcomes)
        self._legend = [  # of the sizes that they race with
            entry(design.label, replace(design, config=runner.config))
            for design, runner in zip(designs, race.runners, strict=True)
        ]
        self.standings.tell(outcomes, designs, race.levels, final=final)
        self.verdict.findings = [judged(outcomes, race.levels)] if final else []
        for row in CURVES:
            self.curves[row.name].show(row.draw(self._course))
            self.curves[row.name].designs = self._legend
        for number, pick in enumerate(self.picks):
            pick.among([design.label for design in designs])
            self._map(self._course, number)
        self.standings.stale = False
        self.box.layout.display = None

    def _chosen(self, number: int) -> None:
        """Redraws a heat map after a choice, from the numbers already drawn."""
        with self._lock:
            if self._course is not None:
                self._map(self._course, number)

    def _map(self, course: Course, number: int) -> None:
        chart, pick = self.maps[number], self.picks[number]
        row = MAPS[pick.statistic]
        chart.title = f"Layer by layer: {lowered(row.title)}"
        chart.designs = self._legend[pick.place : pick.place + 1]
        chart.show(layer_map(course, pick.place, row))
