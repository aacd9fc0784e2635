"""`Picture`: the chart of a map: what is drawn on it, and the design of a cell that is clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go

from explorer.app.map.plan import NOTHING, SIDES, Job, Plan, fitted, place_of, title
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.parts import together
from explorer.app.widgets.slider_steps import nearest
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.ends import ENDS
from explorer.figures import kit
from explorer.figures.across import across
from explorer.figures.layers import never
from explorer.figures.map import heat_map
from explorer.figures.why import why
from explorer.sweeping.sweeps import Sweep

# `MapControls`: the axes, the statistic and what is computed; a choice brings with it what must
# change as well.


class MapControls(Controls[Plan]):
    """Controls of a `Plan`. What a person chooses is fitted; what the page itself sets is taken as
    it is.

    Args:
        plan: where they start.
        on_read: see `Controls`.
    """

    def __init__(self, plan: Plan, on_read: Callable[[], None]) -> None:
        self._exact = True
        super().__init__(plan, on_read, label="Axes and statistic of the map")
        self._exact = False

    def apply(self, changes: Mapping[str, object]) -> None:
        """Changes some choices; see `Controls.apply`."""
        self._exact = True
        try:
            super().apply(changes)
        finally:
            self._exact = False

    def _exclusions(self, _: Plan) -> dict[str, Any]:
        return {}

    def _absent(self, plan: Plan) -> list[str]:
        """The range and the count of an axis that the map does not have."""
        unused = [side for side in SIDES if side not in plan.sides]
        return [f"{side}_{part}" for side in unused for part in ("from", "to", "count")]

    def _read(self, change: object = None) -> None:
        if not self._exact and (whole := fitted(self.config, self.values)) != self.values:
            self.apply(whole)  # which is read in turn
            return
        super()._read(change)


CAPTIONS = {
    "predicted": "Cells: predicted.",
    "measured": "Dots: measured; cells without one: predicted.",
}
OTHER_CAPTION = "Dots: {origin}; cells without one are still to come."
"""Of an origin that a plug-in brings, which no prediction goes before."""
LINES = "Lines: theory."
PICKS = "A click puts a cell's design on Explore."
BARS = "Bars: lowest to highest seed."
ONE_AXIS_PICKS = "A click on a point puts its design on Explore."


class Shown(NamedTuple):
    """A map as it is on the chart."""

    job: Job
    sweep: Sweep
    plan: Plan


def noted(sweep: Sweep, statistic: str) -> str:
    """The number of cells in which predictions are unreliable or missing, and the first reason;
    empty of none."""
    if statistic not in sweep.notes:
        return ""
    cells = sweep.total // len(sweep.grid.origins)
    notes = list(sweep.notes[statistic].items())  # the worker's thread may add to it
    count = sum(count for _, count in notes)
    reason, _ = notes[0]
    limited = f"Theory is limited in {count} of {cells} cells"
    if len(notes) > 1:  # most reasons have numbers of their design
        return f"{limited}; the first: {reason}."
    return f"{limited}: {reason}."


class Picture:
    """The chart."""

    def __init__(self) -> None:
        self.chart = Chart(title="Map")
        self.shown: Shown | None = None
        self._elsewhere: Callable[[], Config] | None = None

    def mark(self, elsewhere: Callable[[], Config]) -> None:
        """Marks the design of another panel, to which a click on a cell may bring its own."""
        self._elsewhere = elsewhere
        self.chart.picks = True

    def draw(self, job: Job, sweep: Sweep, plan: Plan) -> None:
        """Draws what is known of a map; until there is something, the last one stays."""
        if sweep.done == 0:
            self.chart.stale = bool(self.shown)
            return
        self.shown = Shown(job, sweep, plan)
        figure = self._figure(job, sweep, plan)
        with together():
            self.chart.title = title(plan)
            self.chart.caption = self._caption(figure, sweep, plan)
            self.chart.explain(why(plan.statistic))
            self.chart.show(figure)

    def _figure(self, job: Job, sweep: Sweep, plan: Plan) -> go.Figure:
        """The picture of one axis or of two, or a sentence where no cell can have the statistic."""
        if plan.statistic in ENDS and (words := never(ENDS[plan.statistic].row, [job.config])):
            return kit.blank(words)
        numbers, place = sweep.table(), self._now(job, plan)
        if plan.y == NOTHING:
            unreliable = plan.statistic in sweep.notes
            return across(numbers, plan.statistic, x=plan.x, now=place, noted=unreliable)
        return heat_map(numbers, plan.statistic, x=plan.x, y=plan.y, now=place)

    def _caption(self, figure: go.Figure, sweep: Sweep, plan: Plan) -> str:
        """How to read the picture, and the theory's notes on it; empty of a sentence in its
        place."""
        if not figure.data:
            return ""
        origin = sweep.grid.origins[-1]
        words = [ENDS[plan.statistic].words] if plan.statistic in ENDS else []
        picks = PICKS
        if plan.y == NOTHING:
            picks = ONE_AXIS_PICKS  # a legend names line and dots
            if origin == "measured" and sweep.grid.config.n_seeds > 1:
                words.append(BARS)
        else:
            words.append(CAPTIONS.get(origin, OTHER_CAPTION.format(origin=origin)))
            if any(trace.mode == "lines" for trace in figure.select_traces({"type": "scatter"})):
                words.append(LINES)
        if self.chart.picks:
            words.append(picks)
        words.append(noted(sweep, plan.statistic))
        return " ".join(filter(None, words))

    def _now(self, job: Job, plan: Plan) -> dict[str, float] | None:
        """The place of the other panel's design where that is on this map, else of the map's
        own."""
        here = self._elsewhere() if self._elsewhere else job.config
        fields = {getattr(plan, side) for side in plan.sides}
        same = here.model_dump(exclude=fields) == job.config.model_dump(exclude=fields)
        return place_of(here if same else job.config, plan)

    def picked(self, content: object) -> Config | None:
        """The design of a cell that was clicked; None where the rules refuse it, or nothing was.

        Args:
            content: `["pick", x, y]`, of numbers that are rounded, or whatever a browser sends.
        """
        match content:
            case ["pick", bool(), _] | ["pick", _, bool()]:  # which Python takes for whole numbers
                return None
            case ["pick", int() | float() as x, int() | float() as y] if self.shown:
                job = self.shown.job
                at = {
                    name: nearest(values, value)
                    for (name, values), value in zip(job.over, (x, y), strict=False)
                }
                try:
                    return job.config.replace(
                        **{name: value for name, value in at.items() if name in Config.specs()}
                    )
                except ConfigError:
                    return None
        return None
