"""The Explore panel: controls on the left, what they do to the signal on the right, live.

A change becomes a `Config` or a refusal. A config is predicted at once, where there is a theory, and measured by the
worker; the newest config wins. Charts show the last good profiles at all times, marked stale until the new ones are
there. Callbacks may come from any thread: `_lock` makes one change of the panel's state at a time.
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
from explorer.app.place import Place
from explorer.app.status import Status
from explorer.app.verdict import Verdict
from explorer.app.words import legend, model_words, progress_words, summary
from explorer.app.worker import Progress, Stop, Worker
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.figures import FIGURES
from explorer.profile import Profile
from explorer.theory.solve import Solution

LONGEST_REFUSAL = 400
"""Characters of a refusal that are shown: a browser can send any number of wrong fields."""
SLOW = 1.0
"""Seconds of computing after which there is a button to stop it."""


Measure = Callable[[Config, Stop, Progress, tuple[int, int]], Profile]
Predict = Callable[[Config], Profile]
Diagnose = Callable[[Profile], Sequence[Finding]]
Solve = Callable[[Config, str, str], Solution]

FLAT = {
    "flat_signal": ("Make the signal flat", "The value at which theory expects the last second moment to be the first"),
    "flat_gradient": ("Make the gradient flat", "The value at which theory expects one gradient at both ends"),
}
"""What can be asked of the theory beside a slider: the target, the button's label and its tooltip."""
SOLVED = ("init_variance", "alpha")
"""The fields that it can be asked for."""


class Job(NamedTuple):
    """What is asked of the worker: a config, and the layer and head whose pattern is kept."""

    config: Config
    pattern_of: tuple[int, int]


class Explore(widgets.Box):  # type: ignore[misc]
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
        self._lock = threading.RLock()
        self._job: Job | None = None
        self._measured: Profile | None = None
        self._predicted: Profile | None = None
        self._findings: Sequence[Finding] = ()
        self._stale = False
        self._trouble = ""
        offers = {name: [{"label": label, "title": title} for label, title in FLAT.values()] for name in SOLVED}
        self.controls = Controls(config, self.refresh, offers if solve else {}, self._flatten)
        self.place = Place(config, self.refresh)
        self.charts = {row.name: Chart(title=row.title, caption=row.caption) for row in FIGURES.values()}
        self.verdict = Verdict(self._apply)
        self.legend = widgets.HTML().add_class("ex-legend")
        self.status = Status(self._act)
        self.worker: Worker[Job, Profile] = Worker(self._work, self._receive, self._fail, self._advance)
        super().__init__(children=self._children())
        self.add_class("ex-panel")
        self.refresh()

    def close(self) -> None:
        """Ends the worker and removes every widget of the panel from the page."""
        self.worker.close()
        for child in self.children:
            close_all(child)
        super().close()

    def _children(self) -> list[widgets.Widget]:
        self.place.add_class("ex-place")
        below = {"attention_pattern": [self.place]}
        cells = [widgets.Box([chart, *below.get(name, [])]).add_class("ex-cell") for name, chart in self.charts.items()]
        grid = widgets.Box(cells).add_class("ex-charts")
        main = widgets.Box([self.verdict, self.legend, grid]).add_class("ex-main")
        return [widgets.Box([self.controls, main]).add_class("ex-explore"), self.status]

    # --- from the page: any thread ----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Asks for what the controls say: a refusal in words, or a prediction at once and a measurement soon."""
        with self._lock:
            try:
                if refusal := self.controls.refusal or self.place.refusal:
                    self._refuse(refusal)
                else:
                    self._ask()
            except Exception as error:  # noqa: BLE001 - the page says what broke and goes on
                self._fail(self._job, f"{type(error).__name__}: {error}")

    def _refuse(self, sentence: str) -> None:
        self._mark(stale=True)
        short = sentence if len(sentence) <= LONGEST_REFUSAL else sentence[:LONGEST_REFUSAL] + "…"
        self.status.say("refused", f"Refused: {short}.", "The charts show the last accepted design.", action="Undo")

    def _ask(self) -> None:
        config = self.controls.config
        self.place.fit(config)
        self._job = Job(config, self.place.pattern_of)
        self._mark(stale=self._measured is not None)
        self.status.say("computing", f"Measuring {model_words(config)}", fraction=2.0)
        self.worker.submit(self._job)
        self._foretell(config)

    def _foretell(self, config: Config) -> None:
        """The theory's lines, at once. A theory that breaks does not keep the measurement from the page."""
        if self._predict is None or (self._predicted and self._predicted.config == config):
            return
        try:
            self._predicted, self._trouble = self._predict(config), ""
        except Exception as error:  # noqa: BLE001 - told beside the measurement
            self._predicted, self._trouble = None, f"no prediction: {type(error).__name__}: {error}"
        self._draw()

    def _act(self) -> None:
        """The button of the status line: stop, undo or try again, as its state has it."""
        state = self.status.state
        if state == "computing":
            with self._lock:
                self.worker.cancel()
                self.status.say("stale", "Stopped. The charts show an earlier design.", action="Measure")
        elif self.controls.refusal:
            self.controls.apply({})
        elif self.place.refusal:
            self.place.values = dict(zip(("layer", "head"), self.place.pattern_of, strict=True))
            self.refresh()
        else:
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
        with self._lock:
            if job == self._job and self.status.state == "computing":
                action = "Stop" if self.worker.busy_for > SLOW else ""
                self.status.say("computing", self.status.text, progress_words(job.config, fraction), fraction, action)

    def _receive(self, job: Job, profile: Profile) -> None:
        with self._lock:
            if job != self._job:
                return
            refused = bool(self.controls.refusal or self.place.refusal)
            self._measured = profile
            self._mark(stale=refused)
            self._draw()
            self._judge()
            if not refused:
                text, detail = summary(profile, self._predicted)
                self.status.say("idle", text, " · ".join(filter(None, (detail, self._trouble))))

    def _fail(self, job: Job | None, message: str) -> None:
        with self._lock:
            if job == self._job:
                self._mark(stale=True)
                self.status.say("failed", message, "The charts show an earlier design.", action="Try again")

    # --- drawing ----------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Every figure anew, and whole."""
        profiles = self._profiles()
        for name, chart in self.charts.items():
            chart.show(FIGURES[name].draw(profiles), stale=self._stale)
            self._grade(chart, FIGURES[name].statistic)
        self.legend.value = legend(profiles)

    def _grade(self, chart: Chart, statistic: str) -> None:
        """The badge: how far the dots lie from the line, once both are of the same design."""
        measured, predicted = self._measured, self._predicted
        if not statistic or measured is None or predicted is None or measured.config != predicted.config:
            chart.badge = chart.badge_tone = ""
        else:
            chart.badge, chart.badge_tone, _ = agreement(measured, predicted, statistic)

    def _profiles(self) -> list[Profile]:
        """Prediction and measurement of the newest design; a measurement that lags keeps the design's hue."""
        if self._measured is None or self._predicted is None:
            return [profile for profile in (self._predicted, self._measured) if profile is not None]
        return [self._predicted, replace(self._measured, config=self._predicted.config)]

    def _mark(self, stale: bool) -> None:
        self._stale = stale
        for chart in self.charts.values():
            chart.stale = stale
        self.verdict.stale = stale

    def _judge(self) -> None:
        if self._diagnose and self._measured:
            self._findings = tuple(self._diagnose(self._measured))
            self.verdict.findings = [
                {key: getattr(finding, key) for key in ("severity", "meaning", "evidence", "remedy")}
                for finding in self._findings
            ]


def close_all(widget: widgets.Widget) -> None:
    """Closes a widget and what it holds: a closed box leaves its children in the browser's memory."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    widget.close()
