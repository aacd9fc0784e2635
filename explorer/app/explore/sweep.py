"""`SliderSweep`: the card that draws a statistic at the last layer against the whole range of one
slider.

Theory's lines come first, then the measured dots, coarse to fine, from a thread of their own which
ends with the card. Both are a `Sweep` of one axis, computed while the panel computes nothing.
Another move of the swept slider only moves the mark; any other control makes another sweep."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import traitlets

from explorer.app.explore.pins import NOW
from explorer.app.explore.selections import ListSelection, sweep_list
from explorer.app.sentences import lowered
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.parts import LOCK, Part, together
from explorer.app.widgets.slider_steps import nearest, slider_steps, sliders, thinned
from explorer.app.widgets.wording import refusal_in_words
from explorer.app.widgets.worker import Worker, ever, wait
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.ends import ENDS, End
from explorer.fields import Spec
from explorer.figures.across import Point, Swept, across
from explorer.figures.palette import LegendEntry
from explorer.memory import machine_memory
from explorer.stopping import Progress, Stop, Throttle
from explorer.sweeping.cell import Cell
from explorer.sweeping.sweeps import CellResult, Sweep
from explorer.sweeping.workers import Here, Outside
from explorer.tasks.pool import Order

MOST = {"predicted": 41, "measured": 11}
"""Values at which theory is asked, and at most measured: every fourth of them."""
LINE_SECONDS = 10.0
"""Seconds that all lines together may take: theory of a wide causal model takes one for each
point."""
LONGEST = 15.0
"""Seconds that a dot may take."""
MOST_BYTES = 1.5e9
"""Memory that a dot may take beside what the panel itself measures."""
KEPT = 64
"""Lines and rows of dots that are kept."""
NAMED = 4
"""Values that a sentence names; further ones are counted."""


class Task(NamedTuple):
    """A sweep: the field, and the designs, the current one first, then the pins; see `anchored`."""

    field: str
    designs: tuple[LegendEntry, ...]


class Row:
    """A line, or a row of dots: one design over the values of a field, as far as it is computed.

    Args:
        config: the design.
        field: the one that is varied.
        origin: predicted or measured.
    """

    def __init__(self, config: Config, field: str, origin: str) -> None:
        self.values = thinned(slider_steps(Config.specs()[field]), MOST["predicted"])
        self.values = thinned(self.values, MOST[origin])
        workers = Here() if origin == "predicted" else Outside(order=Order.SWEEP)
        self._field, self._sweep = (
            field,
            Sweep(config, {field: self.values}, executor=workers, origins=(origin,)),
        )
        self._results: dict[float, CellResult] = {}

    @property
    def next(self) -> Cell | None:
        """The first cell that is not computed yet; None once all are."""
        return next(
            (
                point.cell
                for place, point in self._sweep.grid.points.items()
                if point.cell and not self._sweep.state[place]
            ),
            None,
        )

    def run(self, stop: Stop, on_cell: Callable[[], None], left_out: Callable[[Cell], str]) -> None:
        """Computes what is missing; see `Sweep.run`."""

        def keep(result: CellResult) -> None:
            self._results[result.at[self._field]] = result
            on_cell()

        self._sweep.run(stop, keep, left_out)

    def points(self, statistic: str) -> list[Point]:
        """A statistic at each value, in rising order; empty points where nothing is known yet."""
        points = []
        for value, (_, _, error) in zip(
            self.values, sorted(self._sweep.grid.points.values()), strict=True
        ):
            result = self._results.get(value)
            reason = refusal_in_words(error) if error else result.failure if result else ""
            points.append(Point(value, result.endings.get(statistic) if result else None, reason))
        return points


class Drawn(NamedTuple):
    """A sweep, as far as it is computed: a line for each design, and dots for the current one."""

    task: Task
    lines: tuple[Row, ...]
    dots: Row

    def swept(self, statistic: str) -> list[Swept]:
        """The points of a statistic, the current design's first."""
        return [
            Swept(
                design, line.points(statistic), () if design.index else self.dots.points(statistic)
            )
            for design, line in zip(self.task.designs, self.lines, strict=True)
        ]


@lru_cache(256)
def anchored(config: Config, field: str) -> Config:
    """A design with the lowest value of a field that the rules accept: equal for designs that
    differ there alone."""
    for value in slider_steps(Config.specs()[field]):
        with suppress(ConfigError):
            return config.replace(**{field: value})
    return config


class SweepBar(Part):
    """Notes below a sweep.

    Traits:
        field: of the swept slider: its button gets the focus when the card closes.
        opened: counts the clicks that opened it: each brings the card into sight.
        progress: changes often and is not read out.
        notes: sentences on what is missing, read out.

    The button that closes the card is the message `"close"`.
    """

    view = "sweep_card"
    field = traitlets.Unicode().tag(sync=True)
    opened = traitlets.Int(0).tag(sync=True)
    progress = traitlets.Unicode().tag(sync=True)
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)


class SliderSweep:
    """The card, and its thread while it is open.

    Args:
        controls: have the buttons, and what a click on a dot sets.
        pins: gives the visible pinned designs.
        busy: whether the panel computes: no dot is begun meanwhile; one that is begun is abandoned,
            and done again.
        hurried: whether it has begun so lately that not even the theory may take a processor from
            it.
    """

    chart: Chart
    statistics: ListSelection
    bar: SweepBar

    def __init__(
        self,
        controls: Controls[Config],
        pins: Callable[[], Sequence[LegendEntry]],
        busy: Callable[[], bool],
        hurried: Callable[[], bool],
    ) -> None:
        self._controls, self._pins, self._busy, self._hurried = controls, pins, busy, hurried
        self.card = Part().add_class("ex-cell").add_class("ex-sweep-card")
        self.card.hidden = True
        self.field = ""
        """The field that is swept; empty while the card is closed, without children, and not
        shown."""
        self.worker: Worker[Task, Drawn] | None = None
        self._statistic = next(iter(ENDS))
        self._task: Task | None = None
        self._drawn: Drawn | None = None
        self._row = lru_cache(KEPT)(Row)
        self._begun = 0.0
        self._too_long = math.inf  # what the smallest dot costs that took too long
        self._redraw = Throttle(0.15, share=0.5, most=1.0)
        controls.sweeps = list(sliders(Config))
        controls.on_msg(self._take)

    def _take(self, _: object, content: object, __: object) -> None:
        """Handles a button beside a slider, a click on a dot, and the button that closes; ignores
        anything else."""
        match content:
            case ["sweep", str() as name] if name in sliders(Config):
                self.close() if name == self.field else self.open(name, clicked=True)
            case ["pick", int() | float() as value, *_] if self._drawn and not isinstance(
                value, bool
            ):
                values = self._drawn.lines[0].values
                if values[0] * 0.99 <= value <= values[-1] * 1.01:  # a chart's numbers are rounded
                    self._controls.apply({self.field: nearest(values, value)})
            case "close":
                self.close()

    @property
    def statistic(self) -> str:
        """The chosen statistic, also while the card is closed."""
        return self.statistics.value if self.field else self._statistic

    def open(self, field: str, clicked: bool = False) -> None:
        """Opens the card, or sweeps another field in it."""
        if not self.worker:
            self.chart, self.bar = Chart(picks=True), SweepBar()
            self.statistics = sweep_list(self._draw)
            self.statistics.restore(self._statistic)
            self.chart.on_msg(self._take)
            self.bar.on_msg(self._take)
            self.card.children, self.card.hidden = (self.chart, self.statistics, self.bar), False
            self.worker = Worker(self._work, self._publish, self._fail, capacity=1)
        self.field = self._controls.sweeping = field
        self._task = self._drawn = None
        self.chart.title = f"Sweep: {lowered(sliders(Config)[field].about.label)}"
        with together():
            self.bar.field = field
            self.bar.opened += clicked
        self.follow()

    def close(self) -> None:
        """Closes the card and ends its thread."""
        if self.worker:
            self.worker.close(
                0
            )  # it may wait for the lock that is held here; it ends when it next looks
            self._statistic = self.statistic
            self.card.children, self.card.hidden = (), True
        self.worker = self._task = self._drawn = None
        self.field = self._controls.sweeping = ""

    @property
    def shown(self) -> tuple[str, str] | None:
        """The field and the statistic; None while the card is closed."""
        return (self.field, self.statistic) if self.field else None

    def restore(self, shown: tuple[str, str] | None) -> None:
        """Opens the card with a field and a statistic, or closes it."""
        if shown is None:
            self.close()
            return
        field, self._statistic = shown
        if self.field:
            self.statistics.restore(self._statistic)
        if field != self.field:
            self.open(field)

    def follow(self) -> None:
        """Follows controls and pins: a new sweep where anything but the swept field has changed,
        else a new mark."""
        if not self.worker:
            return
        now = anchored(self._controls.config, self.field)
        pins = [
            replace(pin, config=anchored(pin.config, self.field))
            for pin in self._pins()
            if pin.config
        ]
        others = [pin for pin in pins if pin.config != now]
        task = Task(self.field, (LegendEntry(NOW, now, "now" if others else ""), *others))
        if task != self._task:
            self._task = task
            self.worker.submit(task)
        self._draw()

    def _draw(self) -> None:
        """Draws what is known; an earlier sweep is stale until there is something of the new
        one."""
        if not self._drawn:
            return
        spec, end, swept = (
            sliders(Config)[self.field],
            ENDS[self.statistic],
            self._drawn.swept(self.statistic),
        )
        with together():
            self.chart.caption = caption(end, swept[0])
            self.chart.show(
                across(spec, end, swept, getattr(self._controls.config, self.field)),
                stale=self._drawn.task != self._task,
            )
        with together():
            self.bar.progress, self.bar.notes = progress(swept[0]), notes(spec, swept[0])

    # --- on its thread
    # ----------------------------------------------------------------------------------------

    def _work(self, task: Task, stop: Stop, _: Progress) -> Drawn:
        configs = [design.config for design in task.designs if design.config]
        lines = tuple(self._row(config, task.field, "predicted") for config in configs)
        drawn, end = (
            Drawn(task, lines, self._row(configs[0], task.field, "measured")),
            time.monotonic() + LINE_SECONDS,
        )
        for line in lines:
            self._compute(drawn, line, stop, self._hurried, lambda: time.monotonic() > end)
        self._publish(task, drawn)
        while cell := self._compute(
            drawn, drawn.dots, stop, self._busy, lambda: time.monotonic() - self._begun > LONGEST
        ):
            self._too_long = min(self._too_long, cell.seconds)
        return drawn

    def _compute(
        self, drawn: Drawn, row: Row, stop: Stop, busy: Callable[[], bool], late: Stop
    ) -> Cell | None:
        """Computes a row while the panel does not need the processors; the cell at which it is
        late, if it is.

        Raises:
            Stopped: `stop()` said true.
        """

        def look() -> None:
            self._begun = time.monotonic()
            if self._redraw.due:
                with self._redraw:
                    self._publish(drawn.task, drawn)

        while row.next:
            wait(busy, stop)
            self._begun = time.monotonic()
            row.run(ever(stop, busy, late), look, self._left_out)
            if late():
                return row.next
        return None

    def _left_out(self, cell: Cell) -> str:
        """The reason not to measure a cell; empty for none."""
        if cell.memory > min(MOST_BYTES, machine_memory()):
            return f"needs {cell.memory / 1e9:.2g} GB of memory"
        return (
            f"takes over {LONGEST:.0f} s"
            if cell.origin == "measured" and cell.seconds >= self._too_long
            else ""
        )

    def _publish(self, task: Task, drawn: Drawn) -> None:
        with LOCK:
            if task == self._task:
                self._drawn = drawn
                self._draw()

    def _fail(self, task: Task, message: str) -> None:
        with LOCK:
            if task == self._task:
                self.bar.notes = [message]


# A sweep in words, and as a record. Pure functions.


def caption(end: End, current: Swept) -> str:
    """How to read the chart, and theory's note on its line."""
    noted = dict.fromkeys(
        point.ending.note for point in current.line if point.ending and point.ending.note
    )
    theory = f" Theory: {next(iter(noted))}." if noted else ""
    return f"{end.words} A click on a point sets the slider.{theory}"


def progress(current: Swept) -> str:
    """How many dots are there; empty once all are."""
    done = sum(bool(point.ending or point.reason) for point in current.dots)
    return f"Measured {done} of {len(current.dots)}" if done < len(current.dots) else ""


def notes(spec: Spec, current: Swept) -> list[str]:
    """Sentences on the values that were left out."""
    refused = [point for point in current.line if point.reason]
    values = {point.value for point in refused}
    missing = [point for point in current.dots if point.reason and point.value not in values]
    groups = [
        ("Left out at", refused),
        *(
            ("Not measured at", [point for point in missing if point.reason == reason])
            for reason in dict.fromkeys(point.reason for point in missing)
        ),
    ]
    return [
        f"{start} {lowered(spec.about.label)} {_listed(points)}: {points[0].reason}."
        for start, points in groups
        if points
    ]


def _listed(points: Sequence[Point]) -> str:
    more = len(points) - NAMED
    return ", ".join(f"{point.value:g}" for point in points[:NAMED]) + (
        f" and {more} more" if more > 0 else ""
    )
