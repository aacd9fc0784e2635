"""One lab: a claim, controls, a verdict in words, charts, and a caveat."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import ipywidgets as widgets

from explorer.app import home
from explorer.app.view import View
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.files import TakeHome
from explorer.app.widgets.live import Live
from explorer.app.widgets.panel import prose
from explorer.app.widgets.tabbed import Tab
from explorer.app.widgets.wording import in_words
from explorer.choices import Choices, ConfigError
from explorer.figures.words import explained, linked
from explorer.labs import outside
from explorer.labs.lab import Lab
from explorer.stopping import Progress, Stop, Throttle


def tab(row: Lab) -> Tab[Any]:
    """A lab as the panel of a tab."""
    return Tab(row.title, lambda _: LabPanel(row, run=partial(outside.run, row)))


class Outcome(NamedTuple):
    """A lab's result, the seconds that it took, and the request for it."""

    result: Any
    seconds: float
    settings: Choices


class LabPanel(Live[Choices, Outcome]):
    """The panel of one lab.

    Args:
        lab: the lab that it shows.
        settings: where it starts; the lab's defaults when left out.
        run: computes it, outside this process for one; `lab.run` when left out.
    """

    def __init__(self, lab: Lab, settings: Choices | None = None, run: Callable[..., Any] | None = None) -> None:
        self.lab, self._run = lab, run or lab.run
        self._growing = Throttle(1.0, share=0.05, most=5.0)
        self._partial = False  # the charts show a result that is not complete
        controls = Controls(settings or lab.settings(), self.refresh, label=f"Settings: {lab.title}")
        charts = {plot.name: Chart(title=plot.title, caption=plot.caption).explain(plot.why) for plot in lab.plots}
        super().__init__(controls, charts, subject="computed setting", action="Compute")
        self.add_class("ex-lab")
        self.home = TakeHome([*home.lab_files(lab, lambda: self.controls.config, self._numbers)])
        self.children = self._layout()
        self.refresh()

    def _layout(self) -> list[widgets.Widget]:
        lab = self.lab
        claim, source = explained(lab.claim), linked(lab.source)
        lead = prose(f"<h2>{html.escape(lab.title)}</h2><p>{claim} <small>{source}.</small></p>", "ex-lead")
        beware = prose(f"<p><b>Beware.</b> {explained(lab.caveat)}</p>", "ex-beware")
        cells = [widgets.Box([chart]).add_class("ex-cell") for chart in self.charts.values()]
        grid = widgets.Box(cells).add_class("ex-charts")
        main = widgets.Box([self.verdict, grid, self.home, beware]).add_class("ex-main")
        return [lead, widgets.Box([self.controls, main]).add_class("ex-explore"), self.status]

    @property
    def part(self) -> Choices:
        """The settings."""
        settings: Choices = self.controls.config
        return settings

    def restore(self, part: Choices) -> None:
        """Sets the controls."""
        self.controls.apply(part.model_dump())

    def look(self, view: View) -> None:
        """Shows what a view has of the panel."""
        self.controls.only(view)

    def _next(self) -> Choices:
        self.home.forget()
        self._growing.now()
        settings: Choices = self.controls.config
        return settings

    def _numbers(self) -> str:
        """The settings, the verdict and the numbers of the charts, as JSON."""
        with self.lock:
            if self._result is None:
                raise ConfigError("numbers must be there to be saved; got none yet")
            return home.lab_numbers(self.lab, self._result.settings, self._result.result, self.charts)

    def _promise(self, _: Choices) -> str:
        return f"Computing: {self.lab.title}"

    def _work(self, job: Choices, stop: Stop, progress: Progress) -> Outcome:
        begun = time.perf_counter()
        more = {"look": partial(self._grow, job, stop)} if self.lab.grows else {}
        return Outcome(self._run(job, stop, progress, **more), time.perf_counter() - begun, job)

    def _grow(self, job: Choices, stop: Stop, make: Callable[[], Any]) -> None:
        """Draws the result so far from time to time, on the worker's thread."""
        if not self._growing.due or stop():
            return
        with self._growing:
            result = make()
            with self.lock:
                if job == self._job and not stop():
                    self._partial = True
                    self._draw(result, job, stale=False)

    def _rest(self) -> None:
        if self._partial and self._result is not None:  # the charts go back to what is complete
            self._show(self._result)

    def _progress(self, job: Choices, fraction: float) -> str:
        return super()._progress(job, fraction) + (", so far" if self._partial else "") + self._left(fraction)

    def _draw(self, result: Any, settings: Choices, *, stale: bool) -> None:
        for plot in self.lab.plots:
            self.charts[plot.name].show(plot.draw(result), stale=stale)
            self.charts[plot.name].marks = settings_words(settings)

    def _show(self, result: Outcome) -> None:
        self._partial = False
        self._draw(result.result, result.settings, stale=self._stale)
        severity, meaning, evidence = self.lab.verdict(result.result)
        self.verdict.findings = [{"severity": severity, "meaning": meaning, "evidence": evidence, "remedy": ""}]

    def _summary(self, result: Outcome) -> tuple[str, str]:
        return f"Computed: {self.lab.title}", f"in {result.seconds:.2f} s"


def settings_words(settings: Choices) -> str:
    """Every choice in one line: 'Depth 12 · Norm placement pre'."""
    specs = settings.specs()
    return " · ".join(f"{spec.about.label} {in_words(getattr(settings, name))}" for name, spec in specs.items())
