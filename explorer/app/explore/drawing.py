"""`Drawing`: the profiles of all designs on the charts of the Explore panel, with captions and
badges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from explorer.app.explore.comparison import Comparison
from explorer.app.explore.pins import NOW
from explorer.app.explore.question import Asking
from explorer.app.explore.selections import ALL, LayerSelection, ListSelection
from explorer.app.widgets.chart import Chart, Pair
from explorer.app.widgets.parts import together
from explorer.config import Config
from explorer.figures import FIGURES, Row, gradient_by_matrix, row_of
from explorer.figures.layers import WITHHELD
from explorer.figures.palette import LegendEntry
from explorer.profile import STATISTICS, Profile

# When the Explore panel draws what it has while it measures. Pure functions.


PATIENCE = 0.8
"""Seconds of measuring still to come for which the theory's lines are drawn ahead of the dots."""
BEGINNING = 0.25
"""Seconds of measuring after which it is known how long it takes; the first dots of a usual model
are there by then."""
SOON = 0.1
"""Seconds of measuring still to come for which the first dots wait for the others."""
AGAIN, LATER = 0.5, 1.5
"""Seconds still to come for which dots are drawn once more before all are there, where they took so
much longer."""


def lines_first(busy: float, fraction: float) -> bool:
    """Whether the dots of a measurement that is busy for so many seconds, and done in part, are far
    away."""
    return busy > BEGINNING and busy * (1 - fraction) > PATIENCE * fraction


def worth_drawing(some: Profile, before: Profile | None) -> bool:
    """Whether the other seeds of a partial measurement take longer than a drawing.

    Args:
        before: an earlier part of it that is on the charts, or another design's.
    """
    if some.config is None:
        return False
    left = some.seconds * (some.config.n_seeds / len(some.seeds) - 1)
    if before is None or before.config != some.config:
        return left > SOON
    return left > AGAIN and some.seconds > LATER * before.seconds


class Drawing:
    """The charts of `FIGURES`.

    Args:
        charts: by name.
        comparison: the pinned designs.
        matrix: the list that chooses the matrix whose gradient is compared.
        statistic: the list that chooses the statistic of the first chart.
        layer: whose tokens that chart has, where it has positions.
        asking: the question that withholds some of them.
    """

    def __init__(
        self,
        charts: Mapping[str, Chart],
        comparison: Comparison,
        matrix: ListSelection,
        statistic: ListSelection,
        layer: LayerSelection,
        asking: Asking,
    ) -> None:
        self._charts, self._comparison, self._matrix, self._statistic = (
            charts,
            comparison,
            matrix,
            statistic,
        )
        self._layer, self._asking = layer, asking
        self.line: Profile | None = None
        self.dots: Profile | None = None
        """Of the last drawing; and the line before."""
        self.whole = True
        """Whether the last drawing was made on all charts."""
        matrix.hidden = True  # until there are several designs

    def _rows(self) -> dict[str, Row]:
        """The figure of each chart, as the lists below them have it."""
        matrix = "" if self._matrix.value == ALL else self._matrix.value
        by_matrix = FIGURES["gradient_by_matrix"]._replace(
            plain=partial(gradient_by_matrix.plain, matrix=matrix)
        )
        first = row_of(self._statistic.value, self._layer.value)
        return {**FIGURES, "gradient_by_matrix": by_matrix, "second_moment": first}

    def draw(
        self,
        predicted: Profile | None,
        measured: Profile | None,
        *,
        stale: bool,
        ahead: bool = False,
        hurry: bool = False,
        leave: Callable[[], bool] = lambda: False,
    ) -> None:
        """Draws every figure: the current design's line and dots, and the pins.

        Args:
            stale, ahead: of what is measured, and whether the line is not; see `Chart`.
            hurry: whether charts off the screen are left as they are.
            leave: whether to leave all that is still to be drawn.
        """
        self.line, self.dots, self.whole = predicted, measured, False
        secret = WITHHELD if self._asking.stands else ""
        now = [profile for profile in (predicted, measured) if profile and not secret]
        profiles, whose = self._comparison.drawn(now, secret)
        several, lines = len({design.index for design in whose}) > 1, _lines(profiles)
        self._matrix.hidden = not several  # a design alone shows each of its matrices
        self._layer.hidden = not STATISTICS[self._statistic.value].by_position
        legend, rows = self._comparison.legend(whose), self._rows()
        pinned = _pairs(profiles, whose)
        both = (
            measured and predicted and measured.config == predicted.config and not measured.partial
        )
        compared, skipped = measured if both else None, False
        for name, chart in self._charts.items():
            if leave():
                return
            if hurry and not chart.seen:
                skipped = True
                continue
            hidden = self._asking.figure(name)
            row = FIGURES[name] if hidden else rows[name]
            # of one design: the last, which is that of the controls
            alone = name == "attention_pattern"
            with together():  # a chart by itself: the browser draws it while the next one is made
                chart.title = row.title
                config = _config_of(predicted, measured)
                figure = (
                    hidden
                    if hidden is not None
                    else self._asking.guessed(row.name, row.plain(profiles, whose), config)
                )
                chart.show(figure, stale=stale and hidden is None, ahead=ahead)
                chart.designs = legend[-1:] if alone else legend
                chart.marks = "" if alone else " · ".join(self._comparison.box.marks)
                chart.annotate(
                    (row.together if several else "") or row.caption,
                    row.statistic,
                    None if hidden else predicted,
                    compared,
                    "now: " if several else "",
                    self._layer.value,
                    pinned,
                )
                chart.explain(row.why(*(() if hidden else lines[-1:] if alone else lines)))
        self.whole = not skipped

    def shows(self, predicted: Profile | None, measured: Profile | None) -> bool:
        """Whether all charts have this line and these dots."""
        return self.whole and self.line is predicted and self.dots is measured

    def forget(self) -> None:
        """Has the next result drawn, be it the one on the charts: something else on them has
        changed."""
        self.line = self.dots = None


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
