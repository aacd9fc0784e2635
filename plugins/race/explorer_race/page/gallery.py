"""Pictures of a race: a verdict, a table and the charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from explorer.app.explore.selections import Selection
from explorer.app.roster import legend_entry
from explorer.app.sentences import lowered
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import choice
from explorer.app.widgets.parts import Part
from explorer.app.widgets.verdict import Verdict
from explorer.figures.palette import LegendEntry
from explorer.figures.why import why
from explorer_race.figures import CURVES, Course
from explorer_race.history import ON_REQUEST, Line, Outcome, Record
from explorer_race.maps import MAPS, Map, layer_map
from explorer_race.page.standings import NO_LINES, Standings, judged

COUNT = 2
"""Heat maps: of the first and the second contender, until somebody chooses another."""
FIRST = "weight_gradient"
"""The statistic that they show first."""
MAP_CAPTION = "Across: steps. Up: layers, or the last one's tokens. A statistic has one color scale for all contenders."


class Gallery:
    """The pictures of one race, replaced whole."""

    def __init__(self) -> None:
        self._course: Course | None = None
        self._legend: list[dict[str, str]] = []
        # positions of the contenders whose maps are shown, where there are so many
        self._wanted = list(range(COUNT))
        self.verdict, self.standings = Verdict(), Standings()
        self.curves = {
            row.name: Chart(title=row.title, caption=row.caption).explain(row.why) for row in CURVES
        }
        self.maps = [Chart(title="Layer by layer", caption=MAP_CAPTION) for _ in range(COUNT)]
        self.selections = [
            Selection("What the heat map shows", partial(self._chosen, number)).add_class(
                "ex-place"
            )
            for number in range(COUNT)
        ]
        pairs = zip(self.maps, self.selections, strict=True)
        self.cells = {
            name: Part([chart]).add_class("ex-cell") for name, chart in self.curves.items()
        }
        cells = [*self.cells.values(), *(Part(pair).add_class("ex-cell") for pair in pairs)]
        self.box = Part([self.verdict, Part(cells).add_class("ex-charts"), self.standings])
        self.box.add_class("ex-main").hidden = True

    @property
    def charts(self) -> list[Chart]:
        """All of them."""
        return [*self.curves.values(), *self.maps]

    def stale(self, stale: bool) -> None:
        """Marks the charts as those of an earlier race, or not."""
        self.standings.stale = stale
        for chart in self.charts:
            chart.stale = stale

    def draw(self, race: Record, designs: Sequence[LegendEntry], *, final: bool) -> None:
        """Draws a race as it stands; the outcomes may be some steps older."""
        whose = [
            replace(design, config=runner.config)
            for design, runner in zip(designs, race.runners, strict=True)
        ]
        self.show(
            Course.of(race, whose, race.outcomes), race.outcomes, final=final, lines=race.lines
        )

    def show(
        self,
        course: Course,
        outcomes: Sequence[Outcome],
        *,
        final: bool,
        lines: Mapping[str, Line] = NO_LINES,
    ) -> None:
        """Draws everything from numbers that no longer change; `lines` are what contenders wrote,
        by name."""
        self._course, designs = course, [track.design for track in course.tracks]
        self._legend = [
            legend_entry(design, design.label, design.config) for design in designs if design.config
        ]
        self.standings.show(outcomes, designs, course.levels, final=final, lines=lines)
        self.verdict.findings = [judged(outcomes, course.levels)] if final else []
        for row in CURVES:
            self.cells[row.name].hidden = bool(row.needs) and not course.has(row.needs)
            self.curves[row.name].show(row.draw(self._course))
            self.curves[row.name].designs = self._legend
        names = [design.label for design in designs]
        offered = [
            row for row in MAPS.values() if row.name not in ON_REQUEST or course.has(row.name)
        ]
        for number in range(COUNT):
            self._offer(number, names, offered)
            self._map(self._course, number)
        self.standings.stale = False
        self.box.hidden = False

    def _offer(self, number: int, names: Sequence[str], maps: Sequence[Map]) -> None:
        """Fills the lists below a heat map with the statistics and the contenders of a race."""
        chosen, last = self.selections[number].chosen, len(names) - 1
        statistics = [{"value": row.name, "label": row.title} for row in maps]
        statistic = (
            chosen.get("statistic")
            if any(row.name == chosen.get("statistic") for row in maps)
            else FIRST
        )
        contenders = [
            {"value": str(position), "label": name} for position, name in enumerate(names)
        ]
        self.selections[number].offer(
            [
                choice("statistic", "Show", "Statistic shown by the colors.", statistics, FIRST),
                choice(
                    "contender",
                    "Contender",
                    "Contender shown by the colors.",
                    contenders,
                    str(min(number, last)),
                ),
            ],
            statistic=statistic,
            contender=str(min(self._wanted[number], last)),
        )

    def _chosen(self, number: int) -> None:
        """Redraws a heat map after a choice, from the numbers already drawn."""
        self._wanted[number] = int(self.selections[number].chosen["contender"])
        if self._course is not None:
            self._map(self._course, number)

    def _map(self, course: Course, number: int) -> None:
        chart, chosen = self.maps[number], self.selections[number].chosen
        row, position = MAPS[chosen["statistic"]], int(chosen["contender"])
        chart.title = (
            f"{'Layer by layer' if row.each == 'depth' else 'Last layer'}: {lowered(row.title)}"
        )
        chart.designs = self._legend[position : position + 1]
        chart.explain(why(row.name)).show(layer_map(course, position, row))
