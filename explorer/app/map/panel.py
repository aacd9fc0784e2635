"""The Map panel: a statistic over one or two fields of a design, theory first, then measured,
coarse to fine.

The map follows its controls. Its cells are the least urgent tasks of the workers, so that it delays
no other panel. A click on a cell puts its design on Explore."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from explorer.app import home
from explorer.app.explore.selections import NamedDesigns
from explorer.app.map.picture import MapControls, Picture, Shown
from explorer.app.map.plan import FIRST_DESIGN, Job, MapPart, Plan
from explorer.app.page import Tab
from explorer.app.sentences import model_words, name_of
from explorer.app.setups import SetupRow
from explorer.app.widgets.buttons import ButtonRow, button
from explorer.app.widgets.files import TakeHome
from explorer.app.widgets.panel import Panel, Phase
from explorer.app.widgets.parts import LOCK, Part, prose
from explorer.app.widgets.wording import left_in_words, refusal_in_words
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.limits import process_count
from explorer.stopping import Progress, Stop, Stopped, Throttle
from explorer.sweeping.cell import origins
from explorer.sweeping.sweeps import Sweep
from explorer.sweeping.workers import Outside

LEAD = (
    "<h2>Map</h2><p>Where does the signal live, and does the theory draw the border in the right place? Each cell "
    "is a design.</p>"
)
KEPT = 6
"""Maps that are kept, so that one that was stopped goes on where it was; the largest has some 8 MB
of numbers."""
TAKE, TAKE_WORDS = "take", "Take the design from Explore"
MOST_MINUTES = 120
"""Minutes of one processor that a map may take, about."""
ENOUGH = 5
"""Cells that say how long the others take."""


class MapPanel(Panel[Job, None]):
    """The panel.

    Args:
        plan: where its controls start.
        design: the design to vary.
    """

    def __init__(self, plan: Plan | None = None, design: Config = FIRST_DESIGN) -> None:
        self.design = design
        """The design that is varied."""
        self._good = (plan or Plan(), design)  # the last choices that were accepted
        self._job: Job | None = None  # what they ask for
        self._runs = False  # whether the worker has it
        self._put: Callable[[Config], None] | None = None
        self._drawing = Throttle(0.25, share=0.25, most=2.0)
        super().__init__(capacity=1)
        self._sweep = lru_cache(KEPT)(begun)
        self.controls = MapControls(self._good[0], self.refresh)
        self.named_designs = NamedDesigns(design, self._vary)
        self.take = ButtonRow("Design of the map", self._press, links=True)
        self.take.buttons = [button(TAKE, TAKE_WORDS, enabled=False)]
        self.picture = Picture()
        self.picture.chart.on_msg(lambda _, content, __: self._pick(content))
        self.maps = SetupRow("Maps", "map", self.restore)
        self.home = TakeHome(
            [*home.map_files(lambda: self._shown().job, lambda: self._shown().sweep)]
        )
        self.children = self._layout()
        self.add_class("ex-map")
        self.refresh()

    def _layout(self) -> list[Part]:
        side = Part([self.named_designs, self.take, self.controls]).add_class("ex-side")
        cell = Part([self.picture.chart]).add_class("ex-cell")
        self._charts = Part([cell]).add_class("ex-charts")
        main = Part([self._charts, self.home]).add_class("ex-main")
        return [
            prose(LEAD, "ex-lead"),
            self.maps,
            Part([side, main]).add_class("ex-explore"),
            self.status,
        ]

    def meet(self, elsewhere: Callable[[], Config], put: Callable[[Config], None]) -> None:
        """Joins the panel to Explore: takes its design from there, and puts designs there."""
        self._elsewhere, self._put = elsewhere, put
        self.take.buttons = [button(TAKE, TAKE_WORDS, enabled=True)]
        self.picture.mark(elsewhere)
        self._draw()

    @property
    def part(self) -> MapPart:
        """The design and the choices, not the numbers."""
        return MapPart(self.design, self.controls.config)

    def restore(self, part: MapPart) -> None:
        """Makes a map."""
        self.design = part.design
        self.controls.apply(part.plan.model_dump())
        self.refresh()

    # --- from the page: any thread ----------------------------------------------------------------

    def refresh(self) -> None:
        """Makes the map that the controls ask for, or says why not; the last good one stays."""
        with LOCK:
            try:
                if self.controls.refusal:
                    self._refuse(self.controls.refusal)
                    return
                job = self.controls.config.job(self.design)
                self._sweep(job)  # which may refuse
            except ConfigError as error:
                self._refuse(refusal_in_words(error))
                return
            self._good = (self.controls.config, self.design)
            self._say_design()
            if job != self._job or self.phase in (Phase.REFUSED, Phase.FAILED):
                self._go(job)
            self._draw()

    def _refuse(self, sentence: str) -> None:
        self._enter(
            Phase.REFUSED,
            f"Refused: {sentence}.",
            "The map is the last that was accepted.",
            action="Undo",
            offer=self.controls.remedy,
        )

    def _go(self, job: Job) -> None:
        """Gives a map to the worker, unless it has it."""
        self.home.forget()
        if not (self._runs and job == self._job):
            self.worker.submit(job)
        self._job, self._runs = job, True
        self._enter(Phase.COMPUTING, _promise(job), fraction=2.0, action="Stop")

    def _act(self) -> None:
        """Stops, goes on, or undoes a refused choice."""
        if self._job is None or self.phase is Phase.IDLE:
            return
        if self.phase is Phase.COMPUTING:
            self.worker.submit()
            self._runs = False
            self._draw()
            self._enter(Phase.PAUSED, "Stopped", cells(self._sweep(self._job)), action="Resume")
        elif self.phase is Phase.REFUSED:
            plan, self.design = self._good
            self.controls.apply(plan.model_dump())
            self.refresh()
        else:
            self._go(self._job)

    def _fix(self) -> None:
        self.controls.fix()

    def _vary(self, changes: Mapping[str, object]) -> None:
        """Takes a named design."""
        try:
            self.design = self.design.replace(**changes)
        except ConfigError as error:
            self._refuse(refusal_in_words(error))
        else:
            self.refresh()

    def _press(self, verb: str) -> None:
        """Takes the design from Explore."""
        if verb == TAKE and self._put:
            self.design = self._elsewhere()
            self.refresh()

    def _pick(self, content: object) -> None:
        """Handles a click on a cell."""
        if self._put and (config := self.picture.picked(content)):
            self._put(config)

    # --- on the worker's thread -------------------------------------------------------------------

    def _work(self, job: Job, stop: Stop, _: Progress) -> None:
        sweep = self._sweep(job)
        clock = Clock(sweep)
        self._drawing.now()

        def ends() -> bool:
            self._look(job, clock)
            return stop()

        if sweep.run(ends).done < sweep.total:
            raise Stopped  # no result, or the worker would have it for the next time

    def _look(self, job: Job, clock: Clock) -> None:
        """Draws the map and its progress if a redraw is due; called ten times a second."""
        if not self._drawing.due:
            return
        with LOCK, self._drawing:
            if job == self._job and self._runs:
                self._draw()
                if self.phase is Phase.COMPUTING:
                    self._enter(
                        Phase.COMPUTING, _promise(job), clock.words(), clock.fraction, "Stop"
                    )

    def _receive(self, job: Job, _: None) -> None:
        if job == self._job and self._runs:
            self._runs = False
            self._draw()
            if self.phase is Phase.COMPUTING:
                self._enter(Phase.IDLE, *_summary(self._shown()))

    def _fail(self, job: Job, message: str) -> None:
        if job == self._job and self._runs:
            self._runs = False
            if self.phase is Phase.COMPUTING:
                self._enter(Phase.FAILED, message, action="Try again")

    # --- what is shown ----------------------------------------------------------------------------

    def _shown(self) -> Shown:
        """The map on the chart: its job, sweep and plan.

        Raises:
            ConfigError: nothing yet.
        """
        if self.picture.shown is None:
            raise ConfigError("map must be begun to be saved; got none yet")
        return self.picture.shown

    def _say_design(self) -> None:
        self.named_designs.follow(self.design)
        self.take.note = f"{name_of(self.design)}, {model_words(self.design)}."

    def _draw(self) -> None:
        if self._job:
            self.picture.draw(self._job, self._sweep(self._job), self._good[0])
            if self.picture.shown and len(self.picture.shown.plan.sides) == 1:
                self._charts.add_class("ex-one-axis")
            else:
                self._charts.remove_class("ex-one-axis")


def _promise(job: Job) -> str:
    """'Measuring 24 × 14 cells'"""
    return f"{origins()[job.origins[-1]].doing} {_size(job)}"


def _summary(shown: Shown) -> tuple[str, str]:
    """Status line of a finished map: 'Measured 24 × 14 cells', and how many failed."""
    failed = int((shown.sweep.failures != "").sum())
    return (
        f"{shown.job.origins[-1].capitalize()} {_size(shown.job)}",
        f"{failed:,} failed" if failed else "",
    )


def _size(job: Job) -> str:
    return f"{' × '.join(str(len(values)) for _, values in job.over)} cells"


# The sweep of a map: what it costs, how far it is, and how long it still takes.


def minutes(sweep: Sweep) -> float:
    """Minutes of one processor that the cells take that are not there yet, right to a factor of
    three or so."""
    return (
        sum(
            point.cell.seconds
            for place, point in sweep.grid.points.items()
            if point.cell and not sweep.state[place]
        )
        / 60
    )


def begun(job: Job) -> Sweep:
    """The sweep of a job.

    Raises:
        ConfigError: it would take hours.
    """
    kind = origins()[job.origins[-1]].settings
    settings = kind(steps=job.steps) if kind else None
    sweep = Sweep(job.config, job.fields, job.statistics, origins=job.origins, settings=settings)
    if (needed := minutes(sweep)) > MOST_MINUTES:
        raise ConfigError(
            f"the map must take at most about {MOST_MINUTES} minutes of one processor; got about "
            f"{needed:,.0f}: take fewer values, a smaller design, or theory alone"
        )
    cells = [point.cell for point in sweep.grid.points.values() if point.cell]
    sweep.executor = Outside(max((cell.memory for cell in cells), default=0.0))
    return sweep


class Clock:
    """How far a sweep is and how long it still takes, in words.

    Args:
        sweep: as it is begun, or goes on.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._begun, self._first = time.monotonic(), sweep.done

    @property
    def fraction(self) -> float:
        """Part of the cells that is done."""
        return self._sweep.done / self._sweep.total

    def words(self) -> str:
        """'120 of 480 cells · about 40 s left': at first by what such cells cost, then by those
        that are done."""
        done = self._sweep.done
        # processes start, and theory is another matter
        if done <= max(self._first, self._predicted):
            self._begun, self._first = time.monotonic(), done
        if done < self._first + ENOUGH:
            left = 60 * minutes(self._sweep) / process_count()
        else:
            left = (
                (time.monotonic() - self._begun) / (done - self._first) * (self._sweep.total - done)
            )
        return f"{cells(self._sweep)} · {left_in_words(left)}"

    @property
    def _predicted(self) -> int:
        """Cells that are found first, where others follow."""
        origins = self._sweep.grid.origins
        return (
            self._sweep.total // len(origins) if "predicted" in origins and len(origins) > 1 else 0
        )


def cells(sweep: Sweep) -> str:
    """'120 of 480 cells'"""
    return f"{sweep.done:,} of {sweep.total:,} cells"


TAB = Tab("Map", lambda _: MapPanel(), part=MapPart)
