"""`Sweep`: draws a statistic at the last layer against the whole range of one slider.

Theory's line comes first, then the measured dots, coarse to fine, from a thread of their own which ends with the card.
Another move of the swept slider only moves the mark; of any other control, the sweep follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import ipywidgets as widgets
import traitlets

from explorer.app.design_names import lowered
from explorer.app.explore.pins import NOW
from explorer.app.explore.selections import ListSelection
from explorer.app.explore.sweep_plan import (
    MOST_DOTS,
    Finder,
    Plan,
    Task,
    alike,
    caption,
    nearest,
    notes,
    planned,
    progress,
    sweepable,
    thinned,
    understood,
)
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls, choice
from explorer.app.widgets.panel import close_all
from explorer.app.widgets.runtime import PageWidget, view
from explorer.app.widgets.worker import Worker
from explorer.config import Config
from explorer.ends import ENDS
from explorer.fields import Spec
from explorer.figures.across import Swept, across
from explorer.figures.palette import Design
from explorer.stopping import Progress, Stop
from explorer.sweeping.grid import coarse_to_fine

# The card of a sweep: its chart, the list of statistics, and a bar with notes and the button that closes it.


Take = Callable[[object, object, object], None]


class SweepBar(PageWidget):
    """Notes below a sweep.

    Traits:
        field: of the swept slider: its button gets the focus when the card closes.
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


LINE_SECONDS = 10.0
"""Seconds that all lines together may take: theory of a wide causal model takes one for each point."""
REDRAW = 0.15
"""Seconds between two drawings of a line that grows."""


class Sweep:
    """The card, and its thread while it is open. Callers of its methods must hold the panel's lock.

    Args:
        controls: have the buttons, and what a click on a dot sets.
        finder: predicts and measures.
        pins: gives the visible pinned designs.
        lock: the panel's.
    """

    def __init__(self, controls: Controls[Config], finder: Finder, pins: Callable[[], Sequence[Design]],
                 lock: AbstractContextManager[object]) -> None:
        self._controls, self._finder, self._pins, self._lock = controls, finder, pins, lock
        self.card = SweepCard(self._take, self._choose)
        self.field = ""
        """The field that is swept; empty while the card is closed."""
        self.worker: Worker[Task, Plan] | None = None
        self._task: Task | None = None
        self._plan: Plan = {}  # of the task that is drawn
        controls.sweeps = list(sweepable())
        controls.on_msg(self._take)

    def _take(self, _: object, content: object, __: object) -> None:
        """Handles a button beside a slider, a click on a dot, and the button that closes; ignores anything else."""
        with self._lock:
            match content:
                case ["sweep", str() as name] if name in sweepable():
                    self.close() if name == self.field else self.open(name, clicked=True)
                case ["pick", int() | float() as value, *_] if self._plan and not isinstance(value, bool):
                    values = [spot.value for spot in next(iter(self._plan.values()))]
                    if values[0] * 0.99 <= value <= values[-1] * 1.01:  # a chart's numbers are rounded
                        self._controls.apply({self.field: nearest(values, value)})
                case "close":
                    self.close()

    def _choose(self) -> None:
        with self._lock:
            self._draw()

    def open(self, field: str, clicked: bool = False) -> None:
        """Opens the card, or sweeps another field in it."""
        self.field = self._controls.sweeping = field
        self._task, self._plan = None, {}
        self.card.show_for(sweepable()[field], clicked)
        if not self.worker:
            self.worker = Worker(self._work, self._publish, self._fail, capacity=1)
        self.follow()

    def close(self) -> None:
        """Closes the card and ends its thread."""
        if self.worker:
            self.worker.close(0)  # it may wait for the lock that is held here; it ends when it next looks
            self.card.shut()
        self.worker, self._task, self._plan = None, None, {}
        self.field = self._controls.sweeping = ""

    def state(self) -> dict[str, str] | None:
        """The field and the statistic, or None while the card is closed."""
        return {"field": self.field, "statistic": self.card.statistic} if self.field else None

    def restore(self, record: object) -> list[str]:
        """Opens or closes the card as a `state()` has it; a sentence for each part that is not understood."""
        if record is None:
            self.close()
            return []
        good, sentences = understood(record)
        if "statistic" in good:
            self.card.choose(good["statistic"])
        if good.get("field", self.field) != self.field:
            self.open(good["field"])
        return sentences

    def follow(self) -> None:
        """Follows controls and pins: a new sweep where anything but the swept field has changed, else a new mark."""
        if not self.worker:
            return
        config, known = self._controls.config, self._task.designs[0].config if self._task else None
        if known and alike(config, known, self.field):
            config = known
        pins = tuple(pin for pin in self._pins() if pin.config and not alike(pin.config, config, self.field))
        task = Task(self.field, (Design(NOW, config, "now" if pins else ""), *pins))
        if task != self._task:
            self._task = task
            self.worker.submit(task)
        self._draw()

    def _draw(self) -> None:
        """Draws what is known; an earlier sweep is stale until the theory of the new one is there."""
        if self.worker and self._plan and self._task:
            points = partial(self._finder.points, self.card.statistic)
            swept = [Swept(design, points("predicted", row),
                           [] if design.index else points("measured", thinned(row, MOST_DOTS)))
                     for design, row in self._plan.items()]
            self.card.draw(sweepable()[self.field], swept, getattr(self._controls.config, self.field),
                           stale=tuple(self._plan) != self._task.designs)

    # --- on its thread ----------------------------------------------------------------------------------------

    def _work(self, task: Task, stop: Stop, _: Progress) -> Plan:
        plan = planned(task)
        begun = drawn = time.monotonic()
        for row in plan.values():
            for spot in map(row.__getitem__, coarse_to_fine(len(row))):
                if spot.config and time.monotonic() - begun < LINE_SECONDS:
                    self._finder.predict(spot.config, stop)
                if time.monotonic() - drawn > REDRAW:
                    self._publish(task, plan)
                    drawn = time.monotonic()
        self._publish(task, plan)
        dots = thinned(next(iter(plan.values())), MOST_DOTS)
        for spot in map(dots.__getitem__, coarse_to_fine(len(dots))):
            if spot.config and not self._finder.known("measured", spot.config):
                self._finder.measure(spot.config, stop)
                self._publish(task, plan)
        return plan

    def _publish(self, task: Task, plan: Plan) -> None:
        with self._lock:
            if task == self._task:
                self._plan = plan
                self._draw()

    def _fail(self, task: Task, message: str) -> None:
        with self._lock:
            if task == self._task:
                self.card.bar.notes = [message]
