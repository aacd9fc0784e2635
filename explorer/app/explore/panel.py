"""The Explore panel: controls on the left, what they do to the signal on the right, live.

What is computed and drawn when is in `schedule`, what is common to all live panels in `live`, what
pinned designs need in `comparison`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from explorer.app import home
from explorer.app.explore.comparison import Comparison
from explorer.app.explore.diagram import Diagram
from explorer.app.explore.drawing import Drawing
from explorer.app.explore.flatten import Flatten, Solve
from explorer.app.explore.question import Asking, Question
from explorer.app.explore.schedule import Drawn, ExploreSchedule, Job, Predict
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


class Explore(Live[Job, Profile]):
    """The panel.

    Args:
        config: where it starts.
        measure: `explorer.measuring.measure`, or the same outside this process.
        predict: the theory's profile of a config, or None.
        diagnose: findings of a measured profile, or None.
        solve: the theory run backwards, or None.
    """

    schedule: ExploreSchedule

    def __init__(
        self,
        config: Config,
        measure: Measure,
        predict: Predict | None = None,
        diagnose: Diagnose | None = None,
        solve: Solve | None = None,
    ) -> None:
        self._measure = measure
        self._map_over: Callable[[str], None] | None = None
        controls = Controls(config, self.refresh)
        schedule = ExploreSchedule(predict, lambda: controls.rest)
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
            lambda: controls.config, schedule.known, controls.apply, self._changed, diagnose
        )
        self.asking = Asking(charts)
        self.drawing = Drawing(
            charts, self.comparison, self.matrix, self.statistic, self.layer, self.asking, schedule
        )
        super().__init__(
            controls, charts, subject="measured design", action="Measure", schedule=schedule
        )
        self.diagram = Diagram()
        self.remedies = Remedies(self.verdict, controls, diagnose) if diagnose else None
        if solve:
            Flatten(controls, solve, lambda message: self._fail(schedule.job, message))
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
        top = Part([self.diagram.stack, self.verdict, self.diagram]).add_class("ex-top")
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
        self.schedule.drawn = Drawn()  # the next result is drawn, be it the one on the charts
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
        self.named_designs.follow(self.controls.config)
        self.comparison.move()
        self.home.forget()
        if self.remedies:
            self.remedies.follow(self.controls.config)
        return Job(self.controls.config, self.pattern.within(self.controls.config))

    def _fit(self) -> None:
        """Gives the choices of a layer the bounds of the design."""
        self.pattern.fit(self.controls.config)
        self.layer.fit(self.controls.config)

    def _promise(self, job: Job) -> str:
        return f"Measuring {model_words(job.config)}"

    def _begun(self, _: Job) -> None:
        schedule = self.schedule
        # the browser makes these controls anew, which a dragged slider would wait for
        if not schedule.dragging:
            self._fit()
        schedule.predict()
        if schedule.draws_at_once:
            self._draw(hurry=schedule.dragging)
        else:
            self._draw_diagram()

    def _rest(self) -> None:
        self._catch_up()  # a line that went ahead of its dots goes back to those that are there

    def _undo(self) -> None:
        if self.controls.refusal:
            self.controls.apply({})
        else:
            self.pattern.show()
            self.layer.show()

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
        now = [profile for profile in (self.schedule.line, self.schedule.result) if profile]
        profiles, designs = self.comparison.drawn(now)
        name = self.comparison.pins.name_for
        return [
            (design.label or name(profile.config), profile)
            for design, profile in zip(designs, profiles, strict=True)
            if profile.config
        ]

    def _measure_pins(self) -> None:
        """Has the pins measured that are not yet, once the design of the controls is; ends the
        measurement of one that was removed."""
        jobs = self.schedule.pins_to_measure(pin.config for pin in self.comparison.pins)
        if jobs is not None:
            self.worker.submit(*jobs)

    def _work(self, job: Job, stop: Stop, progress: Progress) -> Profile:
        show = partial(self._show_some_seeds, job)
        try:
            return self._measure(job.config, stop, progress, job.pattern_of, show)
        except Exception as error:
            if not stop():
                with LOCK:
                    if self.comparison.pins.holder(job.config):
                        self._keep(job.config, f"{type(error).__name__}: {error}")
            raise

    def _keep(self, config: Config, outcome: Profile | str) -> None:
        """Keeps what came of measuring a design, for as long as it is pinned or the controls'."""
        pinned = (pin.config for pin in self.comparison.pins)
        self.schedule.keep(config, outcome, [self.controls.config, *pinned])

    def _holds(self) -> bool:
        return self.schedule.measuring_waits

    def _show_some_seeds(self, job: Job, some: Profile) -> None:
        """Draws the seeds that are there, while the others take longer than a drawing."""
        with LOCK:
            if self._refusal() or self.asking.stands:
                return
            if self.schedule.take_seeds(job, some):
                self._draw(hurry=True)

    def _receive(self, job: Job, result: Profile) -> None:
        self._keep(job.config, result)
        super()._receive(job, result)
        self._ended(job)

    def _fail(self, job: Job | None, message: str) -> None:
        super()._fail(job, message)
        self._ended(job)

    def _ended(self, job: Job | None) -> None:
        """A job has ended: pins without a measurement come next."""
        self.comparison.follow()
        if job != self.schedule.job:  # a pin's, whose values, or why it has none, are in the table
            self._draw()
        self._measure_pins()

    def _advance(self, job: Job, fraction: float) -> None:
        super()._advance(job, fraction)
        schedule = self.schedule
        if job == schedule.job and schedule.lines_go_first(self.worker.busy_for, fraction):
            self._draw()

    def _progress(self, job: Job, fraction: float) -> str:
        return progress_words(job.config, fraction, self.schedule.some_seeds)

    def _show(self, _: Profile) -> None:
        self._catch_up()
        self._judge()

    def _catch_up(self) -> None:
        """Draws the result, where the charts show anything else."""
        if self.schedule.settle():
            self._draw()

    def _redraw(self) -> None:
        """Draws, and gives the verdict, as far as no question withholds them."""
        self._draw()
        self._judge()

    def _judge(self) -> None:
        """Gives the verdict, as far as no question withholds it."""
        result = self.schedule.result
        if self.remedies and (result or self.asking.stands):
            self.remedies.judge(None if self.asking.stands else result)
        if self.phase is Phase.IDLE and result:
            self._enter(Phase.IDLE, *self._summary(result))
        self.asking.measured(result, self.schedule.line)

    def _summary(self, result: Profile) -> tuple[str, str]:
        schedule = self.schedule
        text, detail = summary(result, schedule.prediction, whole=not self.asking.stands)
        _, no_theory = schedule.theory_of(self.controls.config)
        return text, " · ".join(filter(None, (detail, no_theory)))

    def _draw(self, *, hurry: bool = False) -> None:
        """Draws every figure, or in a hurry those that are on the screen.

        What is left is drawn at the next move, or at rest.
        """
        if not hurry:
            self._fit()
        self._draw_diagram()
        self.drawing.draw(hurry=hurry)

    def _draw_diagram(self) -> None:
        """Draws a layer of the controls' design; parts that differ from the first pin, or the
        default, are marked."""
        profiles: list[Profile | None] = []
        if not self.asking.stands:
            profiles = [self.schedule.prediction, self.schedule.dots]
        reference = next((pin.config for pin in self.comparison.pins), Config())
        self.diagram.show(self.controls.config, profiles, reference)
