"""The Race panel: contenders learn the same text side by side, and their curves grow while the controls stay free.

What the controls say is for the next race; the one that runs has its own copy. It runs on the worker's thread, which
draws from it at most about once a second and takes a few per cent of its time for that. To pause is to let the worker
go: the race stands still, and another job goes on with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import ipywidgets as widgets

from explorer.app.race.gallery import Gallery
from explorer.app.race.lineup import Lineup, usual
from explorer.app.race.plan import Plan
from explorer.app.race.preparation import Preparation, Start
from explorer.app.race.racebar import RaceBar
from explorer.app.race.turns import Turn
from explorer.app.widgets.controls import said
from explorer.app.widgets.live import close_all, words
from explorer.app.widgets.status import Status
from explorer.app.widgets.worker import Progress, Stop, Worker
from explorer.choices import ConfigError
from explorer.config import Config

if TYPE_CHECKING:
    from explorer.training.race import Outcome, Race

RUNS_ON = "The controls are for the next race; they do not change this one."
LEAD = (
    "<h2>Race</h2><p>Do the findings at initialization hold in training? The contenders learn the same text from the "
    "same batches, and take turns, one step each.</p>"
)
BEWARE = (
    "<p><b>Beware.</b> One race is one draw of weights and batches; another seed may end differently. In three draws "
    "of the race that the page opens with, warm-up led Post-LN off the unigram level each time, but in one of them, "
    "seed 0, only just; without, it stayed near it. And a learning rate that suits one design may not suit another. "
    "A saved race goes on in Python: <code>explorer.training.archive.load(\"race.zip\").run()</code>.</p>"
)
WAITING = "<p>No race has been run yet. Choose contenders and recipes, and press Start.</p>"


class Shown(NamedTuple):
    """Result of the worker: the outcomes so far, or the reason why there is no race."""

    outcomes: Sequence[Outcome] = ()
    refusal: str = ""


def assemble(start: Start) -> Race:
    """The race, ready to run. Imports torch: call it on the worker's thread.

    Raises:
        ConfigError: see `Race`.
    """
    from explorer.training.race import Contender, Race

    task = start.plan.task
    contenders = [Contender(design.label, task.fit(config), recipe) for design, config, recipe in start.lineup]
    return Race(contenders, task, start.plan.steps, start.plan.every, start.text)


class RacePanel(widgets.Box):  # type: ignore[misc]
    """The panel.

    Args:
        lineup: who is in it at first.
        plan: what they learn at first, and for how long.
    """

    def __init__(self, lineup: Lineup | None = None, plan: Plan | None = None) -> None:
        self._lock = threading.RLock()
        self.race: Race | None = None
        """The race that runs, or ran last."""
        self._start: Start | None = None
        self._phase = "ready"  # or running, or paused
        self._wish = ""  # pause or stop, until the race obeys
        self._job = 0
        self._resumed = (0, 0.0)  # at which step, and when
        self._outcomes: Sequence[Outcome] = ()
        self._telling, self._judging, self._drawing = Turn(0.3), Turn(2.0, share=0.03), Turn(1.0, share=0.05, most=5.0)
        self.bar, self.status = RaceBar(self._press), Status(self._undo, self._mend)
        self.gallery = Gallery(self._lock, self._still, self._kept)
        self.next = Preparation(lineup or usual(), plan or Plan(), self._lock, self._changed)
        self.controls = self.next.plan
        self.worker: Worker[int, Shown] = Worker(self._work, self._receive, self._fail, capacity=1)
        super().__init__(children=self._children())
        self.add_class("ex-panel").add_class("ex-race")
        self._free("Ready")

    def _children(self) -> list[widgets.Widget]:
        self.waiting = words(WAITING, "ex-beware")
        main = widgets.Box([self.waiting, self.gallery.box, words(BEWARE, "ex-beware")]).add_class("ex-main")
        grid = widgets.Box([self.next.box, main]).add_class("ex-explore")
        return [words(LEAD, "ex-lead"), self.bar, grid, self.status]

    def close(self) -> None:
        """Ends the worker and removes every widget of the panel from the page."""
        self.worker.close()
        for child in self.children:
            close_all(child)
        super().close()

    def welcome(self, designs: Sequence[tuple[str, Config]]) -> None:
        """Offers designs, by name, beside the named ones."""
        self.next.welcome(designs)

    # --- from the page: any thread ----------------------------------------------------------------------------

    def _changed(self) -> None:
        """Checks the choices for the next race; a running race is not affected."""
        with self._lock:
            if self._phase != "ready":
                return
            if refusal := self.next.refusal:
                self._refuse(refusal)
            elif self.status.state == "refused":
                self.status.say("idle", "Ready")

    def _refuse(self, sentence: str) -> None:
        undo = "Undo" if self.next.recipe.refusal or self.next.plan.refusal else ""
        self.status.say("refused", f"Refused: {sentence}.", action=undo,
                        offer=self.next.recipe.remedy or self.next.plan.remedy)

    def _mend(self) -> None:
        """Makes the change that a refusal offers."""
        controls = self.next.recipe if self.next.recipe.remedy else self.next.plan
        controls.mend()

    def _undo(self) -> None:
        """Undoes refused choices."""
        self.next.undo()
        self._changed()

    def _press(self, verb: str) -> None:
        """Handles a button of the bar, unless the race has ended while the press waited for the lock."""
        with self._lock:
            if not self.bar.offers(verb):
                return
            if verb == "start":
                self._begin()
            elif verb == "resume":
                self._go()
            elif self._phase == "paused":
                self._settle("Stopped")
            else:
                self._wish = verb
                self.bar.offer(running=False, paused=False)
                self.status.say("computing", {"pause": "Pausing", "stop": "Stopping"}[verb], fraction=2.0)

    def _begin(self) -> None:
        """Starts a race from the controls, in place of the last one."""
        try:
            if refusal := self.next.refusal:
                raise ConfigError(refusal)
            self._start = self.next.start()
        except ConfigError as error:
            self._refuse(said(error))
            return
        self.race = None
        self.gallery.stale(True)
        self._go()

    def _go(self) -> None:
        """Gives the race to the worker."""
        self._phase, self._wish, self._job = "running", "", self._job + 1
        self.bar.offer(running=True, paused=False)
        self.bar.losing = True
        self.gallery.saves.offer(enabled=False)
        self.bar.note = RUNS_ON
        self.next.meanwhile(running=True)
        self.status.say("computing", self._promise(), fraction=2.0)
        self.worker.submit(self._job)

    def _still(self) -> Race:
        """The race, to be saved by the thread that takes presses: it cannot be resumed meanwhile."""
        with self._lock:
            if self.race is None or self._phase == "running":
                raise ConfigError(f"race must stand still to be saved; got one that is {self._phase}")
            return self.race

    def _kept(self) -> None:
        """All of the race was saved: nothing of it is lost with the page until it goes on."""
        with self._lock:
            self.bar.losing = self._phase == "running"

    def _promise(self) -> str:
        count = len(self._start.lineup) if self._start else 0
        return f"Training {count} contender{'s' * (count != 1)}"

    # --- on the worker's thread -------------------------------------------------------------------------------

    def _work(self, _: int, stop: Stop, __: Progress) -> Shown:
        start, race = self._start, self.race
        if start is None:
            raise RuntimeError("a race was never started")
        try:
            if race is None:
                self.race = race = assemble(start)
                self._judging.now()
                self._drawing.now()
            self._resumed = (race.step, time.monotonic())
            race.run(lambda: stop() or bool(self._wish), self._look)
            return Shown(() if stop() else race.verdict())
        except ConfigError as error:
            return Shown(refusal=said(error))

    def _look(self, race: Race) -> None:
        """Called after each round: from time to time, updates progress, charts and verdict."""
        if self._judging.due:
            with self._judging:
                self._outcomes = race.verdict()
        with self._lock:
            if self._wish or self.race is not race:
                return
            if self._telling.due:
                with self._telling:
                    self.status.say("computing", self._promise(), self._progress(race), race.step / race.steps)
            if self._drawing.due:
                with self._drawing:
                    self._draw(race, final=False)

    def _progress(self, race: Race) -> str:
        """'step 40 of 700 · about 32 s left'"""
        first, since = self._resumed
        made = race.step - first
        left = (time.monotonic() - since) / max(1, made) * (race.steps - race.step)
        words = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
        return f"step {race.step:,} of {race.steps:,}" + (f" · about {words} left" if made > 1 else "")

    def _receive(self, job: int, shown: Shown) -> None:
        with self._lock:
            race = self.race
            if job != self._job:
                return
            if shown.refusal or race is None:
                self._free(f"Refused: {shown.refusal}.", "refused")
                return
            self._outcomes = shown.outcomes
            if self._wish != "pause" or race.finished:
                self._settle("Finished" if race.finished else "Stopped")
                return
            self._phase = "paused"
            self._draw(race, final=False)
            self.bar.offer(running=False, paused=True)
            self.gallery.saves.offer(enabled=True)
            self.status.say("idle", "Paused", f"at step {self._made:,} of {race.steps:,}", self._made / race.steps)

    def _fail(self, job: int, message: str) -> None:
        with self._lock:
            if job == self._job:
                self._free(message, "failed")

    def _settle(self, how: str) -> None:
        """The race is over."""
        if self.race is not None:
            self._draw(self.race, final=True)
            self._free(f"{how} at step {self._made:,} of {self.race.steps:,}")

    @property
    def _made(self) -> int:
        """Steps of the contender with the most."""
        return max(one.steps for one in self._outcomes)

    def _free(self, words: str, state: str = "idle") -> None:
        """Makes the panel ready for the next race."""
        self._phase = "ready"
        self.bar.offer(running=False, paused=False)
        self.gallery.saves.offer(enabled=self.race is not None)
        self.bar.note, self.bar.losing = "", False
        self.next.meanwhile(running=False)
        self.gallery.stale(False)
        self.status.say(state, words)

    def _draw(self, race: Race, *, final: bool) -> None:
        if self._start is not None:
            self.gallery.draw(race, self._start.designs, self._outcomes, final=final)
            self.waiting.layout.display = "none"
