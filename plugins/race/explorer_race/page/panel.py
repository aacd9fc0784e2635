"""The Race panel: contenders learn the same text side by side, and their curves grow while the
controls stay free.

The controls are for the next race; the one that runs has its own copy. It runs in a process of its
own, which tells about once a second how it stands; the panel draws from that. A pause ends the
process, which hands over the saved race, and another process goes on with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from explorer.app.setups import SetupRow
from explorer.app.widgets.buttons import ButtonRow, button
from explorer.app.widgets.files import TakeHome
from explorer.app.widgets.panel import Panel, Phase
from explorer.app.widgets.parts import LOCK, Part, prose
from explorer.app.widgets.wording import left_in_words, refusal_in_words
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.memory import environment
from explorer.stopping import Progress, Stop, Throttle
from explorer.tasks.broker import MOST_DATA
from explorer_race.history import Record
from explorer_race.page.files import race_files
from explorer_race.page.gallery import Gallery
from explorer_race.page.lineup import Lineup, Plan, RacePart, first_lineup
from explorer_race.page.preparation import HEADING, WHILE_RUNNING, Preparation, Start
from explorer_race.page.racefile import Saves, stored
from explorer_race.page.standings import most_steps

RUNS_ON = "The controls are for the next race; they do not change this one."
TOO_LARGE = " This one is too large to be paused or saved."
LIMITED = ": its time on this server is up. Press Resume to go on."
AGAIN = "Press Start to run the race again."
LEAD = (
    "<h2>Race</h2><p>Do the findings at initialization hold in training? The contenders learn the same text from the "
    "same batches, and take turns, one step each.</p>"
)
BEWARE = (
    "<p><b>Beware.</b> One race is one draw of weights and batches; another seed may end differently. In three draws "
    "of the race that the page opens with, warm-up led Post-LN off the unigram level each time, but in one of them, "
    "seed 0, only just; without, it stayed near it. And a learning rate that suits one design may not suit another. "
    'A saved race goes on in Python, too: <code>explorer_race.archive.load("race.zip").run()</code>.</p>'
)
WAITING = "<p>No race has been run yet. Choose contenders and recipes, and press Start.</p>"
STORED = (
    "<p><b>A stored race</b> of the contenders with which this panel opens. "
    "Press Start to run yours here.</p>"
)


@dataclass(eq=False)
class Leg:
    """The part of a race from a start or a resume until it stands still: one job of the worker."""

    start: Start
    first: int = 0
    """The step it begins with."""
    begun: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it has taken all the seconds that the server gives; EXPLORER_RACE_SECONDS limits
        them."""
        return self.begun > 0 and time.monotonic() - self.begun > environment(
            "EXPLORER_RACE_SECONDS", math.inf
        )

    def progress(self, made: int, steps: int) -> str:
        """'step 40 of 700 · about 32 s left'"""
        new = made - self.first
        left = (time.monotonic() - self.begun) / max(1, new) * (steps - made)
        return f"step {made:,} of {steps:,}" + (f" · {left_in_words(left)}" if new > 1 else "")


class RaceButtons(ButtonRow):
    """Start, pause or resume, and stop."""

    def __init__(self, on_press: Callable[[str], None]) -> None:
        super().__init__("The race", on_press)

    def offer(self, *verbs: str) -> None:
        """Enables what can be done now."""
        paused = "resume" in verbs
        middle = ("resume", "Resume") if paused else ("pause", "Pause")
        self.buttons = [
            button("start", "Start", enabled="start" in verbs, primary=True),
            button(*middle, enabled=middle[0] in verbs, primary=paused),
            button("stop", "Stop", enabled="stop" in verbs),
        ]


class RacePanel(Panel[Leg, Record | ConfigError]):
    """The panel.

    Args:
        lineup: the contenders at first.
        plan: the task and the steps at first.
    """

    def __init__(self, lineup: Lineup | None = None, plan: Plan | None = None) -> None:
        self.race: Record | None = None
        """The race that runs, or ran last."""
        self._leg: Leg | None = None  # the newest
        self._wish = ""  # pause or stop, until the race obeys
        self._drawing = Throttle(1.0, share=0.05, most=5.0)
        super().__init__(capacity=1)
        self.bar, self.saves = RaceButtons(self._press), Saves(self._still, self._saved)
        self.gallery = Gallery()
        self.preparation = Preparation(lineup or first_lineup(), plan or Plan(), self._changed)
        self.controls = self.preparation.plan
        self.setups = SetupRow("Set-ups", "race", self.restore)
        self.waiting = prose(WAITING, "ex-beware")
        self.home = TakeHome([*race_files(self._shown)])
        main = Part(
            [self.waiting, self.gallery.box, self.saves, self.home, prose(BEWARE, "ex-beware")]
        )
        main.add_class("ex-main")
        if lineup is None:
            self._show_sample()
        grid = Part([self.preparation.side, main]).add_class("ex-explore")
        start = Part([self.bar, self.setups]).add_class("ex-race-start")
        self.children = [prose(LEAD, "ex-lead"), start, grid, self.status]
        self.add_class("ex-race")
        self._enter(Phase.IDLE, "Ready")

    def _show_sample(self) -> None:
        """Shows the stored race, until one is run here: it cannot be saved, and is of no contender
        in the list."""
        sample = stored()
        self.waiting.value = STORED
        self.waiting.remove_class("ex-beware").add_class("ex-stored")
        self.gallery.show(sample.course, sample.outcomes, final=True, lines=sample.lines)

    def welcome(self, designs: list[tuple[str, Config]]) -> None:
        """Offers the designs of the Explore panel as contenders."""
        self.preparation.welcome(designs)

    @property
    def part(self) -> RacePart:
        """The choices for the next race."""
        return self.preparation.part

    def restore(self, part: RacePart) -> None:
        """Sets the choices for the next race."""
        self.preparation.restore(part)

    def _enter(self, phase: Phase, text: str, *words: Any, **more: Any) -> None:
        """Goes to a phase, as every panel does, and first offers the buttons of this phase."""
        running, paused = phase is Phase.COMPUTING, phase is Phase.PAUSED
        large = running and self._leg is not None and self._leg.start.saved_bytes > MOST_DATA
        verbs = (
            ("resume", "stop") if paused else ("pause", "stop")[large:] if running else ("start",)
        )
        self.bar.offer(*(() if running and self._wish else verbs))
        self.bar.note = RUNS_ON + TOO_LARGE * large if running or paused else ""
        self.bar.losing = running or (paused and self.bar.losing)
        self.home.forget()
        self.saves.offer(enabled=not running and self.race is not None)
        self.preparation.contenders.heading = WHILE_RUNNING if running or paused else HEADING
        if not running:
            self.gallery.stale(False)
        super()._enter(phase, text, *words, **more)

    # --- from the page: any thread ----------------------------------------------------------------

    def _changed(self) -> None:
        """Checks the choices for the next race; a running race is not affected."""
        if self.phase in (Phase.COMPUTING, Phase.PAUSED):
            return
        if refusal := self.preparation.refusal:
            self._refuse(refusal)
        elif self.phase is Phase.REFUSED:
            self._enter(Phase.IDLE, "Ready")

    def _refuse(self, sentence: str) -> None:
        refused = self.preparation.refused
        self._enter(
            Phase.REFUSED,
            f"Refused: {sentence}.",
            action="Undo" if refused else "",
            offer=refused.remedy if refused else "",
        )

    def _fix(self) -> None:
        """Makes the change that a refusal offers."""
        if refused := self.preparation.refused:
            refused.fix()

    def _act(self) -> None:
        """Undoes refused choices."""
        self.preparation.undo()

    def _press(self, verb: str) -> None:
        """Handles a button of the bar, unless the race has ended while the press waited for the
        lock."""
        if not self.bar.offers(verb):
            return
        if verb == "start":
            self._begin()
        elif verb == "resume" and self._leg:
            self._go(Leg(self._leg.start))
        elif self.phase is Phase.PAUSED and self.race:
            self._end("Stopped", self.race)
        else:
            self._wish = verb
            self._enter(
                Phase.COMPUTING, {"pause": "Pausing", "stop": "Stopping"}[verb], fraction=2.0
            )

    def _begin(self) -> None:
        """Starts a race from the controls, in place of the last one."""
        try:
            leg = Leg(self.preparation.start())
        except ConfigError as error:
            self._refuse(refusal_in_words(error))
            return
        self.race = None
        self.gallery.stale(True)
        self._go(leg)

    def _go(self, leg: Leg) -> None:
        """Gives the race to the worker."""
        self._leg, self._wish = leg, ""
        self._enter(Phase.COMPUTING, self._promise(leg), fraction=2.0)
        self.worker.submit(leg)

    def _promise(self, leg: Leg) -> str:
        count = len(leg.start.designs)
        return f"Training {count} contender{'s' * (count != 1)}"

    def _still(self) -> Record:
        """The race, to be saved by the thread that takes presses: it cannot be resumed
        meanwhile."""
        if self.race is None or self.phase is Phase.COMPUTING:
            raise ConfigError("race must stand still to be saved; got none that does")
        return self.race

    def _shown(self) -> Start:
        """The start of this page's race; before there is a race, the start of the next."""
        return self._leg.start if self._leg and self.race else self.preparation.start()

    def _saved(self) -> None:
        """All of the race was saved: nothing of it is lost with the page until it goes on."""
        self.bar.losing = self.phase is Phase.COMPUTING

    # --- on the worker's thread -------------------------------------------------------------------

    def _work(self, job: Leg, stop: Stop, progress: Progress) -> Record | ConfigError:
        try:
            race = self.race or Record(job.start.terms)
            job.first, job.begun = race.step, 0.0
            self._drawing.now()
            for _ in race.follow(stop, lambda: bool(self._wish) or job.is_over, progress):
                self._look(job, race)
            return race
        except ConfigError as error:
            return error

    def _look(self, job: Leg, race: Record) -> None:
        """Called when there is news of a race: draws it, if it is time."""
        with LOCK:
            self.race, job.begun = race, job.begun or time.monotonic()
            if self._drawing.due and job is self._leg and not self._wish:
                with self._drawing:
                    self._draw(race, final=False)

    def _advance(self, job: Leg, fraction: float) -> None:
        if job is self._leg and self.race and job.begun and not self._wish:
            words = job.progress(round(fraction * self.race.steps), self.race.steps)
            self._enter(Phase.COMPUTING, self._promise(job), words, fraction)

    def _receive(self, job: Leg, result: Record | ConfigError) -> None:
        if job is not self._leg:
            return
        if isinstance(result, ConfigError):
            self._enter(Phase.REFUSED, f"Refused: {refusal_in_words(result)}.")
        elif self._wish != "stop" and result.archive and not result.finished:
            self._pause(result, "" if self._wish else LIMITED)
        else:
            self._end("Finished" if result.finished else "Stopped", result)

    def _fail(self, job: Leg, message: str) -> None:
        if job is self._leg:
            self._enter(Phase.FAILED, f"{message}. {AGAIN}")

    # --- where a race stands ----------------------------------------------------------------------

    def _pause(self, race: Record, why: str = "") -> None:
        self._draw(race, final=False)
        made = most_steps(race.outcomes)
        self._enter(
            Phase.PAUSED, "Paused", f"at step {made:,} of {race.steps:,}{why}", made / race.steps
        )

    def _end(self, how: str, race: Record) -> None:
        self._draw(race, final=True)
        self._enter(Phase.IDLE, f"{how} at step {most_steps(race.outcomes):,} of {race.steps:,}")

    def _draw(self, race: Record, *, final: bool) -> None:
        if self._leg:
            self.gallery.draw(race, self._leg.start.designs, final=final)
            self.waiting.hidden = True
