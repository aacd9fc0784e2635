"""The Explore panel: controls on the left, what they do to the signal on the right, live.

A config is predicted at once, where there is a theory, and measured by the worker; what is common to all live panels
is in `live`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import ipywidgets as widgets

from explorer.agreement import agreement
from explorer.app.chart import Chart
from explorer.app.controls import Controls
from explorer.app.panels.live import Live
from explorer.app.place import Place
from explorer.app.words import legend, model_words, progress_words, summary
from explorer.app.worker import Progress, Stop
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.figures import FIGURES, Row
from explorer.profile import Profile
from explorer.theory.solve import Solution

Measure = Callable[[Config, Stop, Progress, tuple[int, int]], Profile]
Predict = Callable[[Config], Profile]
Diagnose = Callable[[Profile], Sequence[Finding]]
Solve = Callable[[Config, str, str], Solution]

PATIENCE = 0.8
"""Seconds of measuring still to come for which the theory's lines are drawn ahead of the dots."""
FLAT = {
    "flat_signal": ("Flat signal", "The value at which theory expects the last second moment to be the first"),
    "flat_gradient": ("Flat gradient", "The value at which theory expects one gradient at both ends"),
}
"""What can be asked of the theory beside a slider: the target, the button's label and its tooltip."""
SOLVED = ("init_variance", "alpha")
"""The fields that it can be asked for."""


class Job(NamedTuple):
    """What is asked of the worker: a config, and the layer and head whose pattern is kept."""

    config: Config
    pattern_of: tuple[int, int]


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
        self._predicted: Profile | None = None
        self._findings: Sequence[Finding] = ()
        self._trouble = ""
        self._dragging = self._owed = False
        offers = {name: [{"label": label, "title": title} for label, title in FLAT.values()] for name in SOLVED}
        controls = Controls(config, self.refresh, offers if solve else {}, self._flatten)
        self.place = Place(config, self.refresh)
        self.legend = widgets.HTML().add_class("ex-legend")
        charts = {row.name: Chart(title=row.title, caption=row.caption) for row in FIGURES.values()}
        super().__init__(controls, charts, subject="design", action="Measure")

    @property
    def _measured(self) -> Profile | None:
        return self._result

    def _children(self) -> list[widgets.Widget]:
        self.place.add_class("ex-place")
        below = {"attention_pattern": [self.place]}
        cells = [widgets.Box([chart, *below.get(name, [])]).add_class("ex-cell") for name, chart in self.charts.items()]
        grid = widgets.Box(cells).add_class("ex-charts")
        main = widgets.Box([self.verdict, self.legend, grid]).add_class("ex-main")
        return [widgets.Box([self.controls, main]).add_class("ex-explore"), self.status]

    # --- from the page: any thread ----------------------------------------------------------------------------

    def _refusal(self) -> str:
        return self.controls.refusal or self.place.refusal

    def _next(self) -> Job:
        self._dragging = self.status.state == "computing"
        self.place.fit(self.controls.config)
        return Job(self.controls.config, self.place.pattern_of)

    def _promise(self, job: Job) -> str:
        return f"Measuring {model_words(job.config)}"

    def _begun(self, job: Job) -> None:
        """The theory's lines: at once while a slider is dragged, and otherwise if the dots keep us waiting.

        A single move of a usual model is measured before an eye would have followed the line, and drawing takes
        processors from measuring. A theory that breaks does not keep the measurement from the page.
        """
        if self._predict is None or (self._predicted and self._predicted.config == job.config):
            return
        try:
            self._predicted, self._trouble = self._predict(job.config), ""
        except Exception as error:  # noqa: BLE001 - told beside the measurement
            self._predicted, self._trouble = None, f"no prediction: {type(error).__name__}: {error}"
        self._owed = True
        if self._dragging or self._measured is None:
            self._draw()

    def _undo(self) -> None:
        if self.controls.refusal:
            self.controls.apply({})
        else:
            self.place.values = dict(zip(("layer", "head"), self.place.pattern_of, strict=True))
            self.refresh()

    def _flatten(self, name: str, index: int) -> None:
        """Runs the theory backwards, on a thread of its own: a deep model takes it a second."""

        solve = self._solve
        if solve is None:
            return

        def work() -> None:
            try:
                solution = solve(self.controls.config, name, list(FLAT)[index])
                self.controls.apply({name: getattr(solution.config, name)})
                self.controls.remark(name, solution.message)
            except Exception as error:  # noqa: BLE001 - told, and the page goes on
                self._fail(self._job, f"{type(error).__name__}: {error}")

        threading.Thread(target=work, name="explorer-solve", daemon=True).start()

    def _apply(self, index: int) -> None:
        with self._lock:
            change = self._findings[index].config_change
        self.controls.apply(change)

    # --- on the worker's thread -------------------------------------------------------------------------------

    def _work(self, job: Job, stop: Stop, progress: Progress) -> Profile:
        return self._measure(job.config, stop, progress, job.pattern_of)

    def _advance(self, job: Job, fraction: float) -> None:
        super()._advance(job, fraction)
        with self._lock:
            if job == self._job and self._owed and self.worker.busy_for * (1 - fraction) > PATIENCE * fraction:
                self._draw()

    def _progress(self, job: Job, fraction: float) -> str:
        return progress_words(job.config, fraction)

    def _show(self, _: Profile) -> None:
        self._draw()
        self._judge()

    def _summary(self, result: Profile) -> tuple[str, str]:
        text, detail = summary(result, self._predicted)
        return text, " · ".join(filter(None, (detail, self._trouble)))

    # --- drawing ----------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Every figure anew, and whole."""
        self._owed = False
        profiles = self._profiles()
        for name, chart in self.charts.items():
            with chart.hold_sync():  # one message a chart; `_lock` keeps other threads out, as this needs
                chart.show(FIGURES[name].draw(profiles), stale=self._stale)
                self._grade(chart, FIGURES[name])
        self.legend.value = legend(profiles)

    def _grade(self, chart: Chart, row: Row) -> None:
        """The badge: how far the dots lie from the line, once both are of the same design. And the theory's excuses."""
        measured, predicted = self._measured, self._predicted
        note = predicted.notes.get(row.statistic, "") if predicted else ""
        chart.caption = f"{row.caption} Theory: {note}." if note else row.caption
        if not row.statistic or measured is None or predicted is None or measured.config != predicted.config:
            chart.badge = chart.badge_tone = ""
        else:
            chart.badge, chart.badge_tone, _ = agreement(measured, predicted, row.statistic)

    def _profiles(self) -> list[Profile]:
        """Prediction and measurement of the newest design; a measurement that lags keeps the design's hue."""
        if self._measured is None or self._predicted is None:
            return [profile for profile in (self._predicted, self._measured) if profile is not None]
        return [self._predicted, replace(self._measured, config=self._predicted.config)]

    def _judge(self) -> None:
        if self._diagnose and self._measured:
            self._findings = tuple(self._diagnose(self._measured))
            self.verdict.findings = [
                {key: getattr(finding, key) for key in ("severity", "meaning", "evidence", "remedy")}
                for finding in self._findings
            ]

