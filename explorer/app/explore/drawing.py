"""`Drawing`: the profiles of all designs on the charts of the Explore panel, with captions and
badges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

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
        secret = WITHHELD if self._asking.stands else ""
        now = [profile for profile in (line, dots) if profile and not secret]
        profiles, whose = self._comparison.drawn(now, secret)
        several = len({design.index for design in whose}) > 1
        self._matrix.hidden = not several  # a design alone shows each of its matrices
        self._layer.hidden = not STATISTICS[self._statistic.value].by_position
        rows, legend = self._rows(), self._comparison.legend(whose)
        explained, pinned = _lines(profiles), _pairs(profiles, whose)
        compared = dots if line and dots and _comparable(line, dots) else None
        skipped = False
        for name, chart in self._charts.items():
            if schedule.interrupted:
                return
            if hurry and not chart.seen:
                skipped = True
                continue
            withheld = self._asking.figure(name)
            row = rows[name] if withheld is None else FIGURES[name]
            # of one design: the last, which is that of the controls
            alone = name == "attention_pattern"
            with together():  # a chart by itself: the browser draws it while the next one is made
                chart.title = row.title
                if withheld is None:
                    config = _config_of(line, dots)
                    figure = self._asking.guessed(row.name, row.plain(profiles, whose), config)
                    chart.show(figure, stale=schedule.stale, ahead=schedule.line_is_ahead)
                else:
                    chart.show(withheld, ahead=schedule.line_is_ahead)
                chart.designs = legend[-1:] if alone else legend
                chart.marks = "" if alone else " · ".join(self._comparison.box.marks)
                chart.annotate(
                    (row.together if several else "") or row.caption,
                    row.statistic,
                    line if withheld is None else None,
                    compared,
                    "now: " if several else "",
                    self._layer.value,
                    pinned,
                )
                if withheld is not None:
                    chart.explain(row.why())
                else:
                    chart.explain(row.why(*(explained[-1:] if alone else explained)))
        schedule.drawn = Drawn(line, dots, complete=not skipped)


def _comparable(line: Profile, dots: Profile) -> bool:
    """Whether a badge may compare them: of one design, and all its seeds."""
    return line.config == dots.config and not dots.partial


def _lines(profiles: Sequence[Profile]) -> list[Profile]:
    """The predicted of what is drawn; none where a design is drawn without."""
    predicted = [profile for profile in profiles if profile.origin == "predicted"]
    every, known = ({profile.config for profile in some} for some in (profiles, predicted))
    return predicted if every == known else []


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
