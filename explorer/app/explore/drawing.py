"""`Drawing`: the profiles of all designs on the charts of the Explore panel, with captions and
badges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import plotly.graph_objects as go

from explorer.app.explore.comparison import Comparison
from explorer.app.explore.pins import NOW
from explorer.app.explore.question import Asking
from explorer.app.explore.schedule import Drawn, ExploreSchedule
from explorer.app.explore.selections import ALL, LayerSelection, ListSelection
from explorer.app.widgets.chart import Chart, Pair
from explorer.app.widgets.parts import together
from explorer.config import Config
from explorer.figures import FIGURES, Row, gradient_by_matrix, row_of
from explorer.figures.layers import WITHHELD
from explorer.figures.palette import LegendEntry
from explorer.profile import Profile
from explorer.vocabulary import STATISTICS


class Drawing:
    """The charts of `FIGURES`.

    Args:
        charts: by name.
        comparison: the pinned designs.
        matrix: the list that chooses the matrix whose gradient is compared.
        statistic: the list that chooses the statistic of the first chart.
        layer: whose tokens that chart has, where it has positions.
        asking: the question that withholds some of them.
        schedule: says what is drawn, and is told what was.
    """

    def __init__(
        self,
        charts: Mapping[str, Chart],
        comparison: Comparison,
        matrix: ListSelection,
        statistic: ListSelection,
        layer: LayerSelection,
        asking: Asking,
        schedule: ExploreSchedule,
    ) -> None:
        self._charts, self._comparison = charts, comparison
        self._matrix, self._statistic, self._layer = matrix, statistic, layer
        self._asking, self._schedule = asking, schedule
        matrix.hidden = True  # until there are several designs

    def _rows(self) -> dict[str, Row]:
        """The figure of each chart, as the lists below them have it."""
        matrix = "" if self._matrix.value == ALL else self._matrix.value
        by_matrix = FIGURES["gradient_by_matrix"]._replace(
            plain=partial(gradient_by_matrix.plain, matrix=matrix)
        )
        first = row_of(self._statistic.value, self._layer.value)
        return {**FIGURES, "gradient_by_matrix": by_matrix, "second_moment": first}

    def draw(self, *, hurry: bool = False) -> None:
        """Draws every figure: the current design's line and dots, and the pins.

        A move that waits for the lock ends the drawing.

        Args:
            hurry: whether charts off the screen are left as they are.
        """
        schedule = self._schedule
        line, dots = schedule.line, schedule.dots
        schedule.drawn = Drawn(line, dots, complete=False)
        # while a question waits for its guess, the answer must not be seen: neither the design's
        # profiles nor its column of the table
        secret = WITHHELD if self._asking.stands else ""
        now = [profile for profile in (line, dots) if profile and not secret]
        profiles, whose = self._comparison.drawn(now, secret)
        self._matrix.hidden = not _several(whose)  # a design alone shows each of its matrices
        self._layer.hidden = not STATISTICS[self._statistic.value].by_position
        rows, legend = self._rows(), self._comparison.legend(whose)
        explained, pinned = _lines(profiles), _pairs(profiles, whose)
        skipped = False
        for name, chart in self._charts.items():
            if schedule.interrupted:
                return
            if hurry and not chart.seen:
                skipped = True
                continue
            with together():  # a chart by itself: the browser draws it while the next one is made
                # an attention pattern is of one design: the last, which is that of the controls
                alone = name == "attention_pattern"
                chart.designs = legend[-1:] if alone else legend
                chart.marks = "" if alone else " · ".join(self._comparison.box.marks)
                withheld = self._asking.figure(name)
                if withheld is None:
                    reasons = explained[-1:] if alone else explained
                    self._show(chart, rows[name], profiles, whose, pinned, reasons)
                else:
                    self._withhold(chart, FIGURES[name], withheld, whose)
        schedule.drawn = Drawn(line, dots, complete=not skipped)

    def _show(
        self,
        chart: Chart,
        row: Row,
        profiles: Sequence[Profile],
        whose: Sequence[LegendEntry],
        pinned: Sequence[Pair],
        explained: Sequence[Profile],
    ) -> None:
        """Fills a chart: its figure, caption, badge and the reason why it looks so.

        Args:
            row: its figure.
            profiles: all that are drawn; the current design's come last.
            whose: the design of each.
            pinned: line and dots of each pin that has both.
            explained: the predictions that the reason below the chart is about.
        """
        schedule = self._schedule
        line, dots = schedule.drawn.line, schedule.drawn.dots
        chart.title = row.title
        figure = self._asking.guessed(
            row.name, row.plain(profiles, whose), config=_config_of(line, dots)
        )
        chart.show(figure, stale=schedule.stale, ahead=schedule.line_is_ahead)
        several = _several(whose)
        compared = dots if line and dots and _comparable(line, dots) else None
        chart.annotate(
            caption=_caption(row, several),
            statistic=row.statistic,
            predicted=line,
            measured=compared,
            whose="now: " if several else "",
            layer=self._layer.value,
            beside=pinned,
        )
        chart.explain(row.why(*explained))

    def _withhold(
        self, chart: Chart, row: Row, figure: go.Figure, whose: Sequence[LegendEntry]
    ) -> None:
        """Fills a chart whose numbers a question withholds: no note, badge or reason gives them
        away.

        Args:
            row: the chart's usual figure, whose title and caption it has.
            figure: what stands in for it.
            whose: the designs that would be drawn.
        """
        chart.title = row.title
        chart.show(figure, ahead=self._schedule.line_is_ahead)
        chart.annotate(_caption(row, _several(whose)), row.statistic, predicted=None, measured=None)
        chart.explain(row.why())


def _several(whose: Sequence[LegendEntry]) -> bool:
    """Whether more than one design is drawn, by the design of each profile."""
    return len({design.index for design in whose}) > 1


def _caption(row: Row, several: bool) -> str:
    """The caption of a figure, which may be another one where several designs are drawn."""
    return (row.together if several else "") or row.caption


def _comparable(line: Profile, dots: Profile) -> bool:
    """Whether a badge may compare them: of one design, and all its seeds."""
    return line.config == dots.config and not dots.partial


def _lines(profiles: Sequence[Profile]) -> list[Profile]:
    """The predicted profiles of what is drawn; none at all where a design is drawn without its
    prediction: a reason below a chart must hold for all designs in it."""
    predicted = [profile for profile in profiles if profile.origin == "predicted"]
    designs = {profile.config for profile in profiles}
    predicted_designs = {profile.config for profile in predicted}
    return predicted if designs == predicted_designs else []


def _pairs(profiles: Sequence[Profile], whose: Sequence[LegendEntry]) -> list[Pair]:
    """Line and dots of each pin that has both; a pin's dots follow its line."""
    rows = list(zip(profiles, whose, strict=True))
    return [
        Pair(design.label, line, dots)
        for (line, design), (dots, other) in pairwise(rows)
        if design.index != NOW
        and design.index == other.index
        and (line.origin, dots.origin) == ("predicted", "measured")
    ]


def _config_of(predicted: Profile | None, measured: Profile | None) -> Config | None:
    """The design of what is drawn, if it is one."""
    configs = {profile.config for profile in (predicted, measured) if profile}
    return configs.pop() if len(configs) == 1 else None
