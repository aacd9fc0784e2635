"""`Live`: base of the panels that follow their controls: these become a job or a refusal, charts
show the result.

Charts show the last good result at all times, marked stale until the next one is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.panel import Job, Panel, Phase, Result
from explorer.app.widgets.parts import together
from explorer.app.widgets.schedule import Schedule
from explorer.app.widgets.verdict import Verdict
from explorer.app.widgets.wording import left_in_words
from explorer.translation import translated

LONGEST_REFUSAL = 400
"""Characters of a refusal that are shown: a browser can send any number of wrong fields."""
SLOW = 1.0
"""Seconds of computing after which there is a button to stop it."""
TELLING = 2.0
"""Seconds of computing that say how long the rest takes."""


class Live(Panel[Job, Result]):
    """A panel with controls, charts and a verdict. A subclass puts them in its `children`, and
    calls `refresh`.

    Args:
        controls: made with `on_read=self.refresh`.
        charts: by name.
        subject: of the charts, in the words of 'The charts show the last …'.
        action: label of the button that computes again after a stop.
        schedule: of the panel.
    """

    def __init__(
        self,
        controls: Controls[Any],
        charts: Mapping[str, Chart],
        subject: str,
        action: str,
        schedule: Schedule[Job, Result],
    ) -> None:
        self.schedule = schedule
        self._subject, self._action = subject, action
        self.controls, self.charts = controls, dict(charts)
        self.verdict = Verdict()
        # a choice is checked while a drawing goes on; `refresh` takes the lock
        controls.turn = nullcontext
        super().__init__()

    # --- what a panel says of itself --------------------------------------------------------------

    def _refusal(self) -> str:
        """The reason why the controls are refused; empty when they are accepted."""
        return self.controls.refusal

    def _next(self) -> Job:
        """The job that the controls ask for."""
        raise NotImplementedError

    def _promise(self, job: Job) -> str:
        """Sentence about a job in progress, without its period."""
        raise NotImplementedError

    def _progress(self, _: Job, fraction: float) -> str:
        """Progress of a job, in words."""
        return f"{100 * fraction:.0f} %"

    def _left(self, fraction: float) -> str:
        """Words on the time that is left, for the end of `_progress`; empty while too little is
        known."""
        spent = self.worker.busy_for
        return (
            f" · {left_in_words(spent / fraction - spent)}" if fraction and spent > TELLING else ""
        )

    def _begun(self, _: Job) -> None:
        """Called when a job was handed to the worker: what can be shown at once."""

    def _show(self, result: Result) -> None:
        """Draws a result."""
        raise NotImplementedError

    def _summary(self, result: Result) -> tuple[str, str]:
        """Status line of a result: a sentence, and details."""
        raise NotImplementedError

    def _rest(self) -> None:
        """Called when what was begun is not what the charts will show next: nothing of it may stay
        on them."""

    def _undo(self) -> None:
        """Takes a refused choice back."""
        self.controls.apply({})

    # --- from the page: any thread ----------------------------------------------------------------

    def refresh(self) -> None:
        """Asks for what the controls say: a refusal in words, or a result soon."""
        with self.schedule.moving(), together():
            try:
                if refusal := self._refusal():
                    short = (
                        refusal
                        if len(refusal) <= LONGEST_REFUSAL
                        else refusal[:LONGEST_REFUSAL] + "…"
                    )
                    sentence = translated("Refused: {reason}.", reason=short)
                    undo = translated("Undo")
                    self._halt(Phase.REFUSED, sentence, undo, self.controls.remedy)
                else:
                    self._ask()
            except Exception as error:  # noqa: BLE001 - the page says what broke and goes on
                self._fail(self.schedule.job, f"{type(error).__name__}: {error}")
            self.schedule.moved()

    def _halt(self, phase: Phase, sentence: str, action: str, offer: str = "") -> None:
        """The charts stay what they last were, and the status line says why."""
        self.schedule.halt()
        self._mark()
        shown = ""
        if self.schedule.result is not None:
            shown = translated("The charts show the last {subject}.", subject=self._subject)
        self._enter(phase, sentence, shown, action=action, offer=offer)
        self._rest()

    def _ask(self) -> None:
        job = self._next()
        self.schedule.ask(job)
        self._mark()
        self._enter(Phase.COMPUTING, self._promise(job), fraction=2.0)
        self.worker.submit(job)
        self._begun(job)

    def _fix(self) -> None:
        self.controls.fix()

    def _act(self) -> None:
        """Stops, undoes or tries again, depending on the phase; does nothing if the job to stop has
        just ended."""
        if self.phase is Phase.IDLE:
            return
        if self.phase is Phase.COMPUTING:
            self.worker.submit()
            self.schedule.stop()
            self._halt(Phase.STALE, translated("Stopped."), self._action)
        elif self._refusal():
            self._undo()
        else:
            self.refresh()

    # --- on the worker's thread -------------------------------------------------------------------

    def _advance(self, job: Job, fraction: float) -> None:
        if job == self.schedule.job and self.phase is Phase.COMPUTING:
            action = translated("Stop") if self.worker.busy_for > SLOW else ""
            self._enter(
                Phase.COMPUTING, self.status.text, self._progress(job, fraction), fraction, action
            )

    def _receive(self, job: Job, result: Result) -> None:
        if job != self.schedule.job:
            return
        refused = bool(self._refusal())
        self.schedule.receive(result, refused=refused)
        self._show(result)  # each chart gets its figure and whether it is stale together
        self._mark()
        if not refused:
            self._enter(Phase.IDLE, *self._summary(result))

    def _fail(self, job: Job | None, message: str) -> None:
        if job == self.schedule.job:
            self._halt(Phase.FAILED, message, translated("Try again"))

    def _mark(self) -> None:
        """Says on charts and verdict whether they show what the controls ask for."""
        stale = self.schedule.stale
        for chart in self.charts.values():
            chart.stale, chart.ahead = stale, False
        self.verdict.stale = stale
