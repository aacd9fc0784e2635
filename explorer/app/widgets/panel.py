"""`Panel`: base of every panel: a phase, a worker, a status line that always says the phase, and an
end.

    idle ──► computing ──► idle, stale (stopped), paused, refused or failed

A browser's messages and what a worker reports come under the one `LOCK`; `_work` runs without it.
`_enter` is the only way from one phase to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Any, Generic, TypeVar

import traitlets

from explorer.app.widgets.parts import LOCK, Part, together
from explorer.app.widgets.worker import Worker
from explorer.stopping import Progress, Stop

Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")


class Phase(StrEnum):
    """Phase of a panel, as its status line has it."""

    IDLE = "idle"
    """The page shows what its controls say, or waits for a start."""
    COMPUTING = "computing"
    STALE = "stale"
    """Stopped by a person: the page shows an earlier result."""
    REFUSED = "refused"
    FAILED = "failed"
    PAUSED = "paused"
    """Stopped by a person, to be resumed where it was."""


STOPPED = (Phase.STALE, Phase.PAUSED)
"""Phases to which only computing leads; the others may follow any phase."""


def locked(callback: Callable[..., None]) -> Callable[..., None]:
    """A worker's callback, called under the lock."""

    def call(*arguments: Any) -> None:
        with LOCK:
            callback(*arguments)

    return call


class Status(Part):
    """The line at the bottom of the page: what it is doing, in words, with progress and at most two
    buttons.

    Screen readers are told politely.

    Traits:
        state: the panel's phase; colors the mark.
        text: the sentence that is read out.
        detail: changes often and is not read out.
        fraction: progress 0..1; below 0 there is no bar, above 1 a bar without an end.
        action: label of the button; empty for none.
        offer: label of a button before it, for another way out; empty for none.
    """

    view = "status"
    state = traitlets.Enum(tuple(Phase), default_value=Phase.IDLE).tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    detail = traitlets.Unicode().tag(sync=True)
    fraction = traitlets.Float(-1.0).tag(sync=True)
    action = traitlets.Unicode().tag(sync=True)
    offer = traitlets.Unicode().tag(sync=True)

    def __init__(self, on_action: Callable[[], None], on_offer: Callable[[], None]) -> None:
        super().__init__()
        self._buttons = {"action": on_action, "offer": on_offer}
        self.on_msg(self._take)

    def _take(self, _: object, content: object, __: object) -> None:
        """Handles a click; ignored when there is no such button."""
        if isinstance(content, str) and content in self._buttons:
            self._buttons[content]()


class Panel(Part, Generic[Job, Result]):
    """A widget that computes on a thread of its own. Subclasses define the jobs.

    Args:
        capacity: results that the worker keeps.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._phase = Phase.IDLE
        self.status = Status(self._act, self._fix)
        self.worker: Worker[Job, Result] = Worker(
            self._work,
            locked(self._receive),
            locked(self._fail),
            self._report,
            capacity,
            hold=self._holds,
        )
        super().__init__()
        self.add_class("ex-panel")

    @property
    def phase(self) -> Phase:
        """The panel's phase."""
        return self._phase

    def _enter(
        self,
        phase: Phase,
        text: str,
        detail: str = "",
        fraction: float = -1.0,
        action: str = "",
        offer: str = "",
    ) -> None:
        """Goes to a phase, or stays in it, and shows its words; see `Status` for the words.

        Raises:
            RuntimeError: this phase cannot follow the last one.
        """
        with LOCK, together():
            if phase in STOPPED and self._phase not in (phase, Phase.COMPUTING):
                raise RuntimeError(f"a panel that is {self._phase} cannot become {phase}")
            self._phase, status = phase, self.status
            status.state, status.text, status.detail, status.fraction = (
                phase,
                text,
                detail,
                fraction,
            )
            status.action, status.offer = action, offer

    def _report(self, job: Job, fraction: float) -> None:
        """Takes the progress of a job, unless the page is being changed: who measures does not wait
        for a drawing."""
        if LOCK.acquire(blocking=False):
            try:
                self._advance(job, fraction)
            finally:
                LOCK.release()

    def close(self) -> None:
        """Ends the worker, and what runs for the parts within."""
        self.worker.close()
        super().close()

    # --- what a panel says of itself --------------------------------------------------------------

    def _act(self) -> None:
        """The button of the status line was pressed."""

    def _fix(self) -> None:
        """The button with the offer was pressed."""

    def _holds(self) -> bool:
        """Whether the newest job is to wait, as the worker asks again and again."""
        return False

    def _work(self, job: Job, stop: Stop, progress: Progress) -> Result:
        """Does a job, on the worker's thread."""
        raise NotImplementedError

    def _receive(self, job: Job, result: Result) -> None:
        """Takes the result of a job, on the worker's thread."""
        raise NotImplementedError

    def _fail(self, job: Job, message: str) -> None:
        """Takes the failure of a job, on the worker's thread."""
        raise NotImplementedError

    def _advance(self, job: Job, fraction: float) -> None:
        """Takes the progress of a job, on the worker's thread."""
