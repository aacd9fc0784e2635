"""The Explore panel: controls on the left, what they do to the signal on the right, live.

A config is predicted at once, where there is a theory, and measured by the worker; what is common to all live panels
is in `live`, what pinned designs need in `comparison`. A design that is pinned before it was measured is measured once
the worker has nothing else to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import ipywidgets as widgets

from explorer.agreement import agreement
from explorer.app.explore.comparison import Comparison, Current
from explorer.app.explore.picker import Picker
from explorer.app.explore.pins import PinBox
from explorer.app.explore.place import Place
from explorer.app.explore.words import model_words, progress_words, summary
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.live import Live, words
from explorer.app.widgets.which import Which
from explorer.app.widgets.worker import Progress, Stop
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.figures import FIGURES, Draw, Row, gradient_by_matrix
from explorer.profile import Profile
from explorer.theory.solve import Solution

Measure = Callable[[Config, Stop, Progress, tuple[int, int]], Profile]
Predict = Callable[[Config], Profile]
Diagnose = Callable[[Profile], Sequence[Finding]]
Solve = Callable[[Config, str, str], Solution]

PATIENCE = 0.8
"""Seconds of measuring still to come for which the theory's lines are drawn ahead of the dots."""
FLAT = {
    "flat_signal": ("Flat signal", "The value at which theory expects the last second moment to equal the first"),
    "flat_gradient": ("Flat gradient", "The value at which theory expects the same gradient at both ends"),
}
"""Questions to the theory beside a slider: the target, the button's label and its tooltip."""
BETTER = {"label": "Branches of 1/√(2N)", "title": "Instead: all 2N branches together add about as much as the input"}
"""Label and tooltip of the offer that replaces a trivial answer."""
SOLVED = ("init_variance", "alpha")
"""The fields with such buttons."""


class Job(NamedTuple):
    """One task of the worker: a config, and the layer and head whose pattern is kept."""

    config: Config
    pattern_of: tuple[int, int]


class Mend(NamedTuple):
    """A remedy that was applied: its words, the values it set, and those before."""

    words: str
    change: Mapping[str, object]
    before: Mapping[str, object]


class Explore(Live[Job, Profile]):
    """The panel.

    Args:
        config: where it starts.
        measure: `explorer.probe.measure`, or a function that imports it when first called.
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
        self._measure, self._predict, self._diagnose, self._solve = measure, predict, diagnose, solve
        self._predicted: Profile | None = None  # of the newest job
        self._expected: Profile | None = None  # of what was measured last
        self._better: dict[str, Config | None] = {}
        self._findings: Sequence[Finding] = ()
        self._mends: list[Mend] = []  # the latest last
        self._trouble = ""
        self._done: Job | None = None  # the last job of the controls that was measured
        self._behind: Job | None = None  # a pin's, given to the worker since
        self._dragging = self._owed = False
        offers = {name: [{"label": label, "title": title} for label, title in FLAT.values()] for name in SOLVED}
        controls = Controls(config, self.refresh, offers if solve else {}, self._flatten)
        self.place, self.picker = Place(config, self.refresh), Picker(config, controls.apply)
        self.which = Which(self._choose)
        charts = {row.name: Chart(title=row.title, caption=row.caption) for row in FIGURES.values()}
        self.comparison = Comparison(PinBox(self._click), self._current, controls.apply, self._changed)
        super().__init__(controls, charts, subject="measured design", action="Measure")

    @property
    def _measured(self) -> Profile | None:
        return self._result

    def _children(self) -> list[widgets.Widget]:
        below = {"attention_pattern": [self.place], "gradient_by_matrix": [self.which]}
        for control in (self.place, self.which):
            control.add_class("ex-place")
        cells = [widgets.Box([chart, *below.get(name, [])]).add_class("ex-cell") for name, chart in self.charts.items()]
        grid = widgets.Box(cells).add_class("ex-charts")
        side = widgets.Box([self.picker, self.controls]).add_class("ex-side")
        main = widgets.Box([self.verdict, self.comparison.box, grid]).add_class("ex-main")
        heading = words("<h2>Explore</h2>", "ex-spoken")  # the tab says it to those who see
        return [heading, widgets.Box([side, main]).add_class("ex-explore"), self.status]

    # --- from the page: any thread ----------------------------------------------------------------------------

    def _refusal(self) -> str:
        return self.controls.refusal or self.place.refusal

    def _next(self) -> Job:
        self._dragging = self.status.state == "computing"
        self._done = self._behind = None
        self.place.fit(self.controls.config)
        self.picker.follow(self.controls.config)
        self.comparison.move()
        self._follow_mends()
        return Job(self.controls.config, self.place.pattern_of)

    def _promise(self, job: Job) -> str:
        return f"Measuring {model_words(job.config)}"

    def _begun(self, job: Job) -> None:
        """The theory's lines: at once while a slider is dragged, and otherwise only if the dots take long.

        A single move of a usual model is measured before an eye would have followed the line, and drawing takes
        processors from measuring. A theory that breaks does not keep the measurement from the page.
        """
        if self._predict and not (self._predicted and self._predicted.config == job.config):
            try:
                self._predicted, self._trouble = self._predict(job.config), ""
            except Exception as error:  # noqa: BLE001 - shown beside the measurement
                self._predicted, self._trouble = None, f"no prediction: {type(error).__name__}: {error}"
        self._owed = self._predicted is not self._expected
        if self._owed and (self._dragging or self._measured is None):
            self._draw()

    def _rest(self) -> None:
        if self._predicted is not self._expected:
            self._draw()  # a line that went ahead of its dots goes back to those that are there

    def _undo(self) -> None:
        if self.controls.refusal:
            self.controls.apply({})
        else:
            self.place.values = dict(zip(("layer", "head"), self.place.pattern_of, strict=True))
            self.refresh()

    def _flatten(self, name: str, index: int) -> None:
        """Solves for a field's value, on a thread of its own: a deep model takes a second.

        Where the answer was trivial there is one more offer, the better design, which is known already.
        """
        solve = self._solve
        if solve is None:
            return
        if index == len(FLAT):
            better = self._better[name]
            self.controls.apply({field: getattr(better, field) for field in ("residual", *SOLVED)})
            return

        def work() -> None:
            try:
                solution = solve(self.controls.config, name, list(FLAT)[index])
                self.controls.apply({name: float(f"{getattr(solution.config, name):.6g}")})  # an entry holds no more
                self._better[name] = solution.better
                self.controls.remark(name, solution.message, *([BETTER] if solution.better else []))
            except Exception as error:  # noqa: BLE001 - shown, and the page goes on
                self._fail(self._job, f"{type(error).__name__}: {error}")

        threading.Thread(target=work, name="explorer-solve", daemon=True).start()

    def _click(self, content: object) -> None:
        """Handles a click on the pins."""
        with self._lock:
            self.comparison.obey(content)

    def _choose(self) -> None:
        """Draws another matrix."""
        with self._lock:
            self._draw()

    def _current(self) -> Current:
        """The design of the controls, with what was predicted and measured of it and of no other."""
        config = self.controls.config
        predicted, measured = (
            profile if profile and profile.config == config else None for profile in (self._predicted, self._measured)
        )
        return Current(config, predicted, measured)

    def _changed(self) -> None:
        """Pins came, went or changed."""
        self._draw()
        self._measure_pins()

    def _measure_pins(self) -> None:
        """Gives the worker a pin that has no measurement, when the design of the controls has its own."""
        if self._done != self._job:
            return
        config = self.comparison.board.waiting()
        job = Job(config, (1, 0)) if config else None
        if job == self._behind:
            return
        self._behind = job
        if job:
            self.worker.submit(job)
        else:
            self.worker.cancel()  # the pin that it was measuring is gone

    def _apply(self, index: int) -> None:
        with self._lock:
            finding, config = self._findings[index], self.controls.config
            if not finding.config_change:
                return
            before = {name: getattr(config, name) for name in finding.config_change}
            self._mends.append(Mend(finding.remedy, finding.config_change, before))
        self.controls.apply(finding.config_change)

    def _take_back(self) -> None:
        with self._lock:
            before = self._mends.pop().before if self._mends else {}
        self.controls.apply(before)

    def _follow_mends(self) -> None:
        """Offers to undo the last remedy while all values that it set are unchanged."""
        config = self.controls.config
        while self._mends and any(getattr(config, name) != value for name, value in self._mends[-1].change.items()):
            self._mends.pop()
        self.verdict.undo = self._mends[-1].words if self._mends else ""

    # --- on the worker's thread -------------------------------------------------------------------------------

    def _work(self, job: Job, stop: Stop, progress: Progress) -> Profile:
        try:
            return self._measure(job.config, stop, progress, job.pattern_of)
        except Exception as error:
            if not stop():
                with self._lock:
                    self.comparison.board.fill(job.config, None, f"{type(error).__name__}: {error}")
            raise

    def _receive(self, job: Job, result: Profile) -> None:
        with self._lock:
            pinned = self.comparison.board.fill(job.config, result)
            if job == self._job:
                self._done = job
            super()._receive(job, result)
            self._ended(job, pinned and job != self._job)

    def _fail(self, job: Job | None, message: str) -> None:
        with self._lock:
            super()._fail(job, message)
            self._ended(job, redraw=False)

    def _ended(self, job: Job | None, redraw: bool) -> None:
        """Handles the end of a job: the next pin without a measurement is measured."""
        self.comparison.follow()
        if redraw:
            self._draw()
        if job == self._behind:
            self._behind = None
        self._measure_pins()

    def _advance(self, job: Job, fraction: float) -> None:
        super()._advance(job, fraction)
        with self._lock:
            if job == self._job and self._owed and self.worker.busy_for * (1 - fraction) > PATIENCE * fraction:
                self._draw()

    def _progress(self, job: Job, fraction: float) -> str:
        return progress_words(job.config, fraction)

    def _show(self, _: Profile) -> None:
        self._expected = self._predicted
        self._draw()
        self._judge()

    def _summary(self, result: Profile) -> tuple[str, str]:
        text, detail = summary(result, self._predicted)
        return text, " · ".join(filter(None, (detail, self._trouble)))

    # --- drawing ----------------------------------------------------------------------------------------------

    @property
    def _line(self) -> Profile | None:
        """The prediction to be drawn: it goes ahead of its dots only while those are on their way."""
        ahead = self._measured is None or self.status.state == "computing"
        return self._predicted if ahead else self._expected

    def _draw(self) -> None:
        """Draws every figure."""
        self._owed = False
        profiles, whose = self.comparison.cast([profile for profile in (self._line, self._measured) if profile])
        several = len({design.index for design in whose}) > 1
        self.which.several(there_are=several)
        draws: dict[str, Draw] = {name: row.draw for name, row in FIGURES.items()}
        draws["gradient_by_matrix"] = partial(gradient_by_matrix, matrix=self.which.matrix)
        legend = self.comparison.legend(whose)
        for name, chart in self.charts.items():
            with chart.hold_sync():  # one message a chart; `_lock` keeps other threads out, as this needs
                chart.show(draws[name](profiles, whose), stale=self._stale)
                # Of one design: the last, which is that of the controls.
                chart.designs = legend[-1:] if name == "attention_pattern" else legend
                chart.marks = "" if name == "attention_pattern" else " · ".join(self.comparison.box.marks)
                self._grade(chart, FIGURES[name], several)

    def _grade(self, chart: Chart, row: Row, several: bool) -> None:
        """The badge: how far the dots lie from the line, once both are of the same design; and the theory's notes."""
        measured, predicted = self._measured, self._line
        note = predicted.notes.get(row.statistic, "") if predicted else ""
        caption = (row.together if several else "") or row.caption
        chart.caption = f"{caption} Theory: {note}." if note else caption
        if not row.statistic or measured is None or predicted is None or measured.config != predicted.config:
            chart.badge = chart.badge_tone = ""
        else:
            words, chart.badge_tone, _ = agreement(measured, predicted, row.statistic)
            chart.badge = f"now: {words}" if several and words else words

    def _judge(self) -> None:
        if self._diagnose and self._measured:
            self._findings = tuple(self._diagnose(self._measured))
            self.verdict.findings = [
                {key: getattr(finding, key) for key in ("severity", "meaning", "evidence", "remedy")}
                for finding in self._findings
            ]

