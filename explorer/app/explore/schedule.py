"""`ExploreSchedule`: the times at which the Explore panel computes, and draws.

A move asks for a `Job`. Theory answers at once, with lines. Measuring answers later, with dots:
some seeds first, then all. Then the pins are measured that are not yet. Four rules say what is
drawn:

- A slider that is dragged has its lines drawn at each move, and measuring waits until it rests.
- A single move of a usual model has lines and dots drawn together: it is measured before an eye
  would have followed the line, and drawing takes processors from measuring.
- Where the dots are far away, the lines go ahead of them, and some seeds are drawn before all.
- A refusal, a stop or a failure leaves the last good result on the charts, marked stale, with its
  own line.

There are no widgets here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from explorer.app.explore.pins import Known
from explorer.app.widgets.schedule import Schedule
from explorer.config import Config
from explorer.profile import Profile

Predict = Callable[[Config], Profile]

KEPT = 64
"""Predictions that are kept, the largest of .2 MB."""
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


class Job(NamedTuple):
    """One task of the worker: a config, and the layer and head whose pattern is kept."""

    config: Config
    pattern_of: tuple[int, int]


class Drawn(NamedTuple):
    """The line and the dots that were handed to the charts last."""

    line: Profile | None = None
    dots: Profile | None = None
    complete: bool = True
    """Whether all charts have it; not where a move came, or charts off the screen were left."""


class ExploreSchedule(Schedule[Job, Profile]):
    """The state of the Explore panel: the newest job, its results so far, and those of the pins.

    Args:
        predict: the theory's profile of a config, or None.
        rest: gives the seconds after a move from which a slider rests.
    """

    def __init__(self, predict: Predict | None, rest: Callable[[], float]) -> None:
        super().__init__()
        self._predict, self._rest = predict, rest
        # a slider that is dragged comes by again
        self.theory_of = lru_cache(KEPT)(self._theory_of)
        self.prediction: Profile | None = None
        """Theory's, of the newest job."""
        self.some_seeds: Profile | None = None
        """A measurement of some of the newest job's seeds, drawn in place of the result."""
        self.drawn = Drawn()
        self._computing = False
        self._overtaking = False  # the newest move came before the dots of the one before
        self._dragging = False  # and so did moves before it, up to now
        self._outcomes: dict[Config, Profile | str] = {}  # measurements, or why there is none

    # --- what happens -----------------------------------------------------------------------------

    def ask(self, job: Job) -> None:
        """A move asks for a job."""
        # where the design is measured, its attention pattern alone was to come
        self._overtaking = self._computing and not self.measured
        self._dragging = (self._overtaking or self._dragging) and self._moving
        if self.result is None:
            self.some_seeds = None  # the charts show no earlier design yet
        super().ask(job)
        self._computing = True

    def predict(self) -> None:
        """Theory answers for the newest job. One that breaks does not keep the dots from the
        page."""
        if self.job is not None:
            self.prediction, _ = self.theory_of(self.job.config)

    def take_seeds(self, job: Job, some: Profile) -> bool:
        """Takes a measurement of some seeds; whether it is to be drawn."""
        wanted = job == self.job and not self.measured and worth_drawing(some, self.some_seeds)
        if wanted:
            self.some_seeds, self.stale = some, False
        return wanted

    def receive(self, result: Profile, *, refused: bool) -> None:
        """The newest job is done; the controls may have been refused since."""
        super().receive(result, refused=refused)
        self._computing = False

    def halt(self) -> None:
        """The controls are refused, a person has stopped the job, or it has failed."""
        super().halt()
        self._computing = False

    def settle(self) -> bool:
        """Lets go of what went ahead of the result; whether the charts show anything else."""
        self.some_seeds = None
        return self.drawn != Drawn(self.line, self.dots)

    # --- what to draw, and when -------------------------------------------------------------------

    @property
    def line(self) -> Profile | None:
        """The prediction to draw: the newest job's while its dots are on their way, and otherwise
        that of the dots."""
        if self._computing or self.result is None or self.result.config is None:
            return self.prediction
        return self.theory_of(self.result.config)[0]

    @property
    def dots(self) -> Profile | None:
        """The measurement to draw."""
        return self.some_seeds or self.result

    @property
    def line_is_ahead(self) -> bool:
        """Whether the line to draw is of the design that the controls ask for, whose dots are on
        their way."""
        return self._computing

    @property
    def dragging(self) -> bool:
        """Whether the newest move is one of a slider that is dragged."""
        return self._dragging

    @property
    def measuring_waits(self) -> bool:
        """Whether measuring leaves the processors to the lines: while a slider is dragged."""
        return self._dragging and self._moving

    @property
    def draws_at_once(self) -> bool:
        """Whether the newest move's lines are drawn before any dots."""
        if not self.drawn.complete:
            return True
        in_haste = self._overtaking or self._dragging or self.result is None
        return in_haste and self._line_is_missing

    def lines_go_first(self, busy: float, fraction: float) -> bool:
        """Whether the lines are to be drawn now, since the dots are far away.

        Args:
            busy: seconds for which the newest job has been measured.
            fraction: how much of it is done, from 0 to 1.
        """
        return self._line_is_missing and far_away(busy, fraction)

    @property
    def measured(self) -> bool:
        """Whether the result is of the newest job's design; the layer of its pattern may be
        another."""
        return (
            self.job is not None
            and self.result is not None
            and self.result.config == self.job.config
        )

    @property
    def _line_is_missing(self) -> bool:
        return self.prediction is not self.drawn.line

    @property
    def _moving(self) -> bool:
        return self.since_move < self._rest()

    # --- pins -------------------------------------------------------------------------------------

    def keep(self, config: Config, outcome: Profile | str, wanted: Iterable[Config]) -> None:
        """Keeps a measurement, or the reason why there is none, and forgets those of other designs
        than the wanted."""
        kept = {config, *wanted}
        self._outcomes = {key: value for key, value in self._outcomes.items() if key in kept}
        if isinstance(outcome, Profile):
            outcome = replace(outcome, pattern=None, pattern_of=None)  # drawn of one design alone
        elif config in self._outcomes:
            return
        self._outcomes[config] = outcome

    def known(self, config: Config) -> Known:
        """Prediction and measurement of a pinned design."""
        outcome = self._outcomes.get(config)
        line = self.theory_of(config)[0]
        if isinstance(outcome, str):
            return Known(line, None, outcome)
        return Known(line, outcome, "")

    def pins_to_measure(self, pins: Iterable[Config]) -> list[Job] | None:
        """Jobs for the pins that have not been measured; None, which is to wait, while the design
        of the controls is measured or has never been: it comes first."""
        if self._computing or not self.measured:
            return None
        # a job must name the attention pattern to keep: of a pin none is drawn, so any will do
        pattern_of = (1, 0)  # layer and head
        return [Job(config, pattern_of) for config in pins if config not in self._outcomes]

    def _theory_of(self, config: Config) -> tuple[Profile | None, str]:
        """The theory's profile of a design, None where there is none; and the reason, if theory has
        failed."""
        if self._predict is None:
            return None, ""
        try:
            return self._predict(config), ""
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            return None, f"no prediction: {type(error).__name__}: {error}"


def far_away(busy: float, fraction: float) -> bool:
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
