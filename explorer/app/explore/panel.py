"""The Explore panel: controls on the left, what they do to the signal on the right, live.

A config is predicted at once, where there is a theory, and measured by the worker; what is common
to all live panels is in `live`, what pinned designs need in `comparison`. A design that is pinned
before it was measured is measured once the worker has nothing else to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from explorer.app import home
from explorer.app.explore.comparison import Comparison
from explorer.app.explore.diagram import Diagram
from explorer.app.explore.drawing import Drawing, lines_first, worth_drawing
from explorer.app.explore.flatten import Flatten, Solve
from explorer.app.explore.pins import Known
from explorer.app.explore.question import Asking, Question
from explorer.app.explore.selections import (
    LayerSelection,
    NamedDesigns,
    PatternSelection,
    matrix_list,
    statistic_list,
)
from explorer.app.page import ExplorePart
from explorer.app.roster import Entry
from explorer.app.sentences import model_words, progress_words, summary
from explorer.app.view import DESIGN, View
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.files import TakeHome
from explorer.app.widgets.live import Live
from explorer.app.widgets.panel import Phase
from explorer.app.widgets.parts import LOCK, Part, prose
from explorer.app.widgets.slider_steps import sliders
from explorer.app.widgets.verdict import Diagnose, Remedies
from explorer.config import Config
from explorer.export import snippet
from explorer.figures import FIGURES
from explorer.profile import Profile
from explorer.stopping import Progress, Stop

OnSeed = Callable[[Profile], None] | None
Measure = Callable[[Config, Stop, Progress, tuple[int, int], OnSeed], Profile]
Predict = Callable[[Config], Profile]

KEPT = 64
"""Predictions that are kept, the largest of .2 MB."""


class Job(NamedTuple):
    """One task of the worker: a config, and the layer and head whose pattern is kept."""

    config: Config
    pattern_of: tuple[int, int]


class Explore(Live[Job, Profile]):
    """The panel.

    Args:
        config: where it starts.
        measure: `explorer.measuring.measure`, or the same outside this process.
        predict: the theory's profile of a config, or None.
        diagnose: findings of a measured profile, or None.
        solve: the theory run backwards, or None.
    """

    def __init__(
        self,
        config: Config,
        measure: Measure,
        predict: Predict | None = None,
        diagnose: Diagnose | None = None,
        solve: Solve | None = None,
    ) -> None:
        self._measure = measure
        # a slider that is dragged comes by again
        self._theory_of = lru_cache(KEPT)(partial(theory_of, predict))
        self._predicted: Profile | None = None  # of the newest job
        self._outcomes: dict[
            Config, Profile | str
        ] = {}  # measurements of the pins, or reasons why there is none
        self._some: Profile | None = (
            None  # on the charts in place of the result: a measurement of some seeds
        )
        self._dragging = self._held = False
        self._map_over: Callable[[str], None] | None = None
        controls = Controls(config, self.refresh)
        controls.on_msg(lambda _, content, __: self._open_map(content))
        self.named_designs = NamedDesigns(config, controls.apply)
        self.pattern, self.layer = (
            PatternSelection(config, self.refresh),
            LayerSelection(config, self._draw),
        )
        self.matrix, self.statistic = matrix_list(self._draw), statistic_list(self._draw)
        charts = {
            row.name: Chart(title=row.title, caption=row.caption).explain(row.why())
            for row in FIGURES.values()
        }
        self.comparison = Comparison(
            lambda: controls.config, self.known, controls.apply, self._changed, diagnose
        )
        self.asking = Asking(charts)
        self.drawing = Drawing(
            charts, self.comparison, self.matrix, self.statistic, self.layer, self.asking
        )
        super().__init__(controls, charts, subject="measured design", action="Measure")
        self.diagram = Diagram()
        self.remedies = Remedies(self.verdict, controls, diagnose) if diagnose else None
        if solve:
            Flatten(controls, solve, lambda message: self._fail(self._job, message))
        self.home = TakeHome([*home.explore_files(self._designs, self._script, self._drawn)])
        self.children = self._layout()
        self.refresh()

    def _layout(self) -> list[Part]:
        below: dict[str, list[Part]] = {
            "second_moment": [self.statistic, self.layer],
            "gradient_by_matrix": [self.matrix],
            "attention_pattern": [self.pattern],
        }
        for selection in (self.pattern, self.layer):
            selection.add_class("ex-place")
        self.statistic.add_class("ex-as-title")
        self.cells = {
            name: Part([chart, *below.get(name, [])]).add_class("ex-cell")
            for name, chart in self.charts.items()
        }
        self._grid = Part([*self.cells.values()]).add_class("ex-charts").add_class("ex-pictures")
        self.side = side = Part([self.named_designs, self.controls]).add_class("ex-side")
        top = Part([self.verdict, self.diagram]).add_class("ex-top")
        above = [top, self.comparison.box, self.comparison.table]
        main = Part([*above, self._grid, self.home]).add_class("ex-main")
        heading = prose("<h2>Explore</h2>", "ex-spoken")  # the tab says it to those who see
        return [heading, Part([side, main]).add_class("ex-explore"), self.status]

    @property
    def part(self) -> ExplorePart:
        """Design, pins, and what the lists below the charts show."""
        return ExplorePart(
            self.controls.config,
            self.comparison.pins.entries,
            self.pattern.pattern_of,
            self.matrix.value,
            self.statistic.value,
            self.layer.value,
        )

    def restore(self, part: ExplorePart) -> None:
        """Sets the controls and the lists, and replaces the pins."""
        self.drawing.forget()
        self.comparison.pins.restore(part.pins)
        self.controls.apply(part.design.model_dump())
        self.pattern.restore(part.pattern_of)
        self.matrix.restore(part.matrix)
        self.statistic.restore(part.statistic)
        self.layer.fit(part.design)
        self.layer.restore(part.tokens_of)
        self.refresh()

    def meet(self, map_over: Callable[[str], None]) -> None:
        """Joins the panel to the Map, which a button beside a slider opens.

        Args:
            map_over: opens the map of the controls' design over a field.
        """
        self._map_over = map_over
        self.controls.maps = list(sliders(Config))

    def _open_map(self, content: object) -> None:
        """Handles the button beside a slider; another message is not for it."""
        match content:
            case ["map", str() as field] if self._map_over and field in self.controls.maps:
                self._map_over(field)

    def ask(
        self,
        question: Question | None,
        config: Config,
        say: Callable[[str], None] = lambda _: None,
        act: Callable[[object], None] = lambda _: None,
    ) -> None:
        """Asks a question about a design, or takes back the one that stands; see `Asking.ask`."""
        changed = question or self.asking.question
        self.asking.ask(question, config, say, act)
        if changed:
            self._redraw()

    def reveal(self, guess: object) -> None:
        """Shows what a question withholds; `guess` is one that was checked, or None."""
        self.asking.reveal(guess)
        self._redraw()

    def look(self, view: View) -> None:
        """Shows what a view has of the panel."""
        self.controls.only(view)
        # within another page there are no tabs, and so no way back from a map
        has_map = self._map_over is not None and view.opens("map") and not view.embed
        self.controls.maps = list(sliders(Config)) if has_map else []
        self.named_designs.hidden = not view.shows(DESIGN)
        self.side.hidden = not (view.shows(DESIGN) or self.controls.sections)
        if self.remedies:
            self.remedies.show()
        # the chosen ones are large
        (self._grid.remove_class if view.charts else self._grid.add_class)("ex-pictures")
        for name, cell in self.cells.items():
            cell.hidden = not (view.charts is None or name in view.charts)

    def _refusal(self) -> str:
        return self.controls.refusal or self.pattern.refusal or self.layer.refusal

    def _next(self) -> Job:
        # or its verdict alone was to come
        self._dragging = self.phase is Phase.COMPUTING and not self._measured
        self._held = (self._dragging or self._held) and self._moving
        if self._result is None:
            self._some = None  # nothing on the charts is stale yet
        self.named_designs.follow(self.controls.config)
        self.comparison.move()
        self.home.forget()
        if self.remedies:
            self.remedies.follow(self.controls.config)
        # the browser makes its controls anew, which a dragged slider would wait for
        if not self._held:
            self._fit()
        return Job(self.controls.config, self.pattern.within(self.controls.config))

    def _fit(self) -> None:
        """Gives the choices of a layer the bounds of the design."""
        self.pattern.fit(self.controls.config)
        self.layer.fit(self.controls.config)

    def _promise(self, job: Job) -> str:
        return f"Measuring {model_words(job.config)}"

    def _begun(self, job: Job) -> None:
        """The theory's lines: at once while a slider is dragged, and otherwise only if the dots
        take long.

        A single move of a usual model is measured before an eye would have followed the line, and
        drawing takes processors from measuring. A theory that breaks does not keep the measurement
        from the page."""
        self._predicted, _ = self._theory_of(job.config)
        if not self.drawing.whole or (
            self._lags and (self._dragging or self._held or self._result is None)
        ):
            self._draw(hurry=self._held)
        else:
            self._draw_diagram()

    @property
    def _lags(self) -> bool:
        """Whether the charts do not have the line of the newest job yet."""
        return self._predicted is not self.drawing.line

    @property
    def _measured(self) -> bool:
        """Whether the result is of the newest job's design; the layer of its pattern may be
        another."""
        return (
            self._job is not None
            and self._result is not None
            and self._result.config == self._job.config
        )

    def _rest(self) -> None:
        self._catch_up()  # a line that went ahead of its dots goes back to those that are there

    def _undo(self) -> None:
        if self.controls.refusal:
            self.controls.apply({})
        else:
            self.pattern.show()
            self.layer.show()

    def known(self, config: Config) -> Known:
        """Prediction and measurement of a pinned design."""
        outcome = self._outcomes.get(config)
        measured, trouble = (None, outcome) if isinstance(outcome, str) else (outcome, "")
        return Known(self._theory_of(config)[0], measured, trouble)

    def _changed(self) -> None:
        """Pins came, went or changed."""
        self.home.forget()
        self._draw()
        self._measure_pins()

    def _designs(self) -> tuple[Config, list[Entry]]:
        """The design of the controls, and the pins."""
        return self.controls.config, list(self.comparison.pins)

    def _script(self) -> str:
        """The script that gives the page's numbers."""
        pins = {pin.name: pin.config for pin in self.comparison.pins}
        return snippet.explore(
            self.controls.config,
            pins,
            self.statistic.value,
            self.pattern.pattern_of,
            self.layer.value,
        )

    def _drawn(self) -> list[tuple[str, Profile]]:
        """The profiles on the charts, each with the name of its design; the current design's are
        the last."""
        now = [profile for profile in (self._line, self._result) if profile]
        profiles, designs = self.comparison.drawn(now)
        name = self.comparison.pins.name_for
        return [
            (design.label or name(profile.config), profile)
            for design, profile in zip(designs, profiles, strict=True)
            if profile.config
        ]

    def _measure_pins(self) -> None:
        """Has the pins measured that are not yet, when the design of the controls is."""
        if self.phase is not Phase.COMPUTING and self._measured:
            self.worker.submit(
                *(
                    Job(pin.config, (1, 0))
                    for pin in self.comparison.pins
                    if pin.config not in self._outcomes
                )
            )

    def _work(self, job: Job, stop: Stop, progress: Progress) -> Profile:
        try:
            return self._measure(
                job.config, stop, progress, job.pattern_of, partial(self._show_some, job)
            )
        except Exception as error:
            if not stop():
                with LOCK:
                    if self.comparison.pins.holder(job.config) and job.config not in self._outcomes:
                        self._outcomes[job.config] = f"{type(error).__name__}: {error}"
            raise

    def _holds(self) -> bool:
        """While a slider is dragged, which leaves the processors to the lines; a single move is
        measured at once."""
        return self._held and self._moving

    @property
    def _moving(self) -> bool:
        """Whether the last move was just now."""
        return time.monotonic() - self._moved < self.controls.rest

    def _show_some(self, job: Job, some: Profile) -> None:
        """Draws the seeds that are there, while the others take longer than a drawing."""
        with LOCK:
            wanted = (
                job == self._job
                and not self._measured
                and not self._refusal()
                and not self.asking.stands
            )
            if wanted and worth_drawing(some, self._some):
                self._some, self._stale = some, False
                self._draw(hurry=True)

    def _receive(self, job: Job, result: Profile) -> None:
        wanted = {job.config, self.controls.config, *(pin.config for pin in self.comparison.pins)}
        self._outcomes = {
            config: outcome for config, outcome in self._outcomes.items() if config in wanted
        }
        # shown of one design
        self._outcomes[job.config] = replace(result, pattern=None, pattern_of=None)
        super()._receive(job, result)
        self._ended(job != self._job)

    def _fail(self, job: Job | None, message: str) -> None:
        super()._fail(job, message)
        self._ended(job != self._job)  # the table says why a pin has no values

    def _ended(self, redraw: bool) -> None:
        """Handles the end of a job: pins without a measurement come next."""
        self.comparison.follow()
        if redraw:
            self._draw()
        self._measure_pins()

    def _advance(self, job: Job, fraction: float) -> None:
        super()._advance(job, fraction)
        if job == self._job and self._lags and lines_first(self.worker.busy_for, fraction):
            self._draw()

    def _progress(self, job: Job, fraction: float) -> str:
        return progress_words(job.config, fraction, self._some)

    def _show(self, _: Profile) -> None:
        self._catch_up()
        self._judge()

    def _catch_up(self) -> None:
        """Draws the result, where the charts show anything else."""
        self._some = None
        if not self.drawing.shows(self._line, self._result):
            self._draw()

    def _redraw(self) -> None:
        """Draws, and gives the verdict, as far as no question withholds them."""
        self._draw()
        self._judge()

    def _judge(self) -> None:
        """Gives the verdict, as far as no question withholds it."""
        if self.remedies and (self._result or self.asking.stands):
            self.remedies.judge(None if self.asking.stands else self._result)
        if self.phase is Phase.IDLE and self._result:
            self._enter(Phase.IDLE, *self._summary(self._result))
        self.asking.measured(self._result, self._line)

    def _summary(self, result: Profile) -> tuple[str, str]:
        text, detail = summary(result, self._predicted, whole=not self.asking.stands)
        return text, " · ".join(filter(None, (detail, self._theory_of(self.controls.config)[1])))

    @property
    def _line(self) -> Profile | None:
        """The prediction to be drawn: it goes ahead of its dots only while those are on their
        way."""
        if self._result is None or self._result.config is None or self.phase is Phase.COMPUTING:
            return self._predicted
        return self._theory_of(self._result.config)[0]

    def _draw(self, *, hurry: bool = False) -> None:
        """Draws every figure, or as many as are done when the next move comes, in a hurry those
        that are on the screen.

        What is left is drawn at the next move, or at rest.
        """
        if not hurry:
            self._fit()
        self._draw_diagram()
        dots = self._some or self._result
        ahead = self.phase is Phase.COMPUTING  # whose line is the one that the controls ask for
        self.drawing.draw(
            self._line,
            dots,
            stale=self._stale,
            ahead=ahead,
            hurry=hurry,
            leave=lambda: self._hurried,
        )

    def _draw_diagram(self) -> None:
        """Draws a layer of the controls' design; parts that differ from the first pin, or the
        default, are marked."""
        profiles = [] if self.asking.stands else [self._predicted, self._some or self._result]
        reference = next((pin.config for pin in self.comparison.pins), Config())
        self.diagram.show(self.controls.config, profiles, reference)


def theory_of(predict: Predict | None, config: Config) -> tuple[Profile | None, str]:
    """The theory's profile of a design, None where there is none; and the reason, if theory has
    failed."""
    try:
        return predict(config) if predict else None, ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        return None, f"no prediction: {type(error).__name__}: {error}"
