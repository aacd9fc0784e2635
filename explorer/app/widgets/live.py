"""Base of the live panels: controls become a job or a refusal, the worker computes the newest job, charts follow.

A panel says what its jobs and results are by overriding the methods in the middle of `Live`. Charts show the last good
result at all times, marked stale until the next one is there. Callbacks may come from any thread: `_lock` makes one
change of the panel's state at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import ipywidgets as widgets

from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.status import Status
from explorer.app.widgets.verdict import Verdict
from explorer.app.widgets.worker import Progress, Stop, Worker
from explorer.figures.words import typeset

Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")

LONGEST_REFUSAL = 400
"""Characters of a refusal that are shown: a browser can send any number of wrong fields."""
SLOW = 1.0
"""Seconds of computing after which there is a button to stop it."""


class Live(widgets.Box, Generic[Job, Result]):  # type: ignore[misc]
    """A panel with controls, charts, a verdict, a status line and a worker.

    Args:
        controls: made with `on_read=self.refresh`.
        charts: by name.
        subject: what the charts show, in the words of 'The charts show the last …'.
        action: label of the button that computes again after a stop.
    """

    def __init__(self, controls: Controls[Any], charts: Mapping[str, Chart], subject: str, action: str) -> None:
        self._lock = threading.RLock()
        self._job: Job | None = None
        self._result: Result | None = None
        self._stale = False
        self._subject, self._action = subject, action
        self.controls, self.charts = controls, dict(charts)
        self.verdict = Verdict(self._apply, self._take_back)
        self.status = Status(self._act, self.controls.mend)
        self.worker: Worker[Job, Result] = Worker(self._work, self._receive, self._fail, self._advance)
        super().__init__(children=self._children())
        self.add_class("ex-panel")
        self.refresh()

    def close(self) -> None:
        """Ends the worker and removes every widget of the panel from the page."""
        self.worker.close()
        for child in self.children:
            close_all(child)
        super().close()

    # --- what a panel says of itself --------------------------------------------------------------------------

    def _children(self) -> list[widgets.Widget]:
        """Widgets of the panel."""
        raise NotImplementedError

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

    def _begun(self, _: Job) -> None:
        """Called when a job was handed to the worker: what can be shown at once."""

    def _work(self, job: Job, stop: Stop, progress: Progress) -> Result:
        """Does a job, on the worker's thread."""
        raise NotImplementedError

    def _show(self, result: Result) -> None:
        """Draws a result."""
        raise NotImplementedError

    def _summary(self, result: Result) -> tuple[str, str]:
        """Status line of a result: a sentence, and details."""
        raise NotImplementedError

    def _apply(self, index: int) -> None:
        """A button of the verdict was clicked."""

    def _take_back(self) -> None:
        """The verdict's Undo was clicked."""

    def _rest(self) -> None:
        """Called when what was begun is not what the charts will show next: nothing of it may stay on them."""

    def _undo(self) -> None:
        """Takes a refused choice back."""
        self.controls.apply({})

    # --- from the page: any thread ----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Asks for what the controls say: a refusal in words, or a result soon."""
        with self._lock:
            try:
                if refusal := self._refusal():
                    self._refuse(refusal)
                else:
                    self._ask()
            except Exception as error:  # noqa: BLE001 - the page says what broke and goes on
                self._fail(self._job, f"{type(error).__name__}: {error}")

    def _refuse(self, sentence: str) -> None:
        short = sentence if len(sentence) <= LONGEST_REFUSAL else sentence[:LONGEST_REFUSAL] + "…"
        self._halt("refused", f"Refused: {short}.", "Undo", self.controls.remedy)

    def _halt(self, state: str, sentence: str, action: str, offer: str = "") -> None:
        """The charts stay what they last were, and the status line says why."""
        self._mark(stale=True)
        shown = f"The charts show the last {self._subject}." if self._result is not None else ""
        self.status.say(state, sentence, shown, action=action, offer=offer)
        self._rest()

    def _ask(self) -> None:
        self._job = job = self._next()
        self._mark(stale=self._result is not None)
        self.status.say("computing", self._promise(job), fraction=2.0)
        self.worker.submit(job)
        self._begun(job)

    def _act(self) -> None:
        """The button of the status line: stop, undo or try again, as its state has it."""
        with self._lock:
            if self.status.state == "idle":
                return  # what was to be stopped has ended while the press was on its way
            if self.status.state == "computing":
                self.worker.cancel()
                self._halt("stale", "Stopped.", self._action)
            elif self._refusal():
                self._undo()
            else:
                self.refresh()

    # --- on the worker's thread -------------------------------------------------------------------------------

    def _advance(self, job: Job, fraction: float) -> None:
        with self._lock:
            if job == self._job and self.status.state == "computing":
                action = "Stop" if self.worker.busy_for > SLOW else ""
                self.status.say("computing", self.status.text, self._progress(job, fraction), fraction, action)

    def _receive(self, job: Job, result: Result) -> None:
        with self._lock:
            if job != self._job:
                return
            refused = bool(self._refusal())
            self._result = result
            self._stale = refused  # each chart gets this together with its figure
            self._show(result)
            self._mark(stale=refused)
            if not refused:
                self.status.say("idle", *self._summary(result))

    def _fail(self, job: Job | None, message: str) -> None:
        with self._lock:
            if job == self._job:
                self._halt("failed", message, "Try again")

    def _mark(self, stale: bool) -> None:
        self._stale = stale
        for chart in self.charts.values():
            chart.stale = stale
        self.verdict.stale = stale


def words(markup: str, name: str) -> widgets.HTML:
    """A text on a panel; `name` is its class in the style sheet."""
    return widgets.HTML(typeset(markup)).add_class("ex-words").add_class(name)


def tell_all(widget: widgets.Widget) -> None:
    """Sends a widget and its children again, to a browser that has just created them.

    It did so from a copy of their state. What a worker sent while that copy was on its way was for widgets that the
    browser did not know yet, and is lost: without this, a page could say "Measuring" for ever.
    """
    with getattr(widget, "_lock", nullcontext()):  # or a newer result could be overtaken by this in turn
        for child in getattr(widget, "children", ()):
            tell_all(child)
        changing = [key for key in widget.keys if not key.startswith("_")]  # scripts and styles stay as they are
        widget.send_state(changing)
        widget.layout.send_state("display")


def close_all(widget: widgets.Widget) -> None:
    """Closes a widget and its children: a closed box leaves its children in the browser's memory."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    widget.close()
