"""`Remedies`: the findings of a design, the changes that they offer, and the way back from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from explorer.app.widgets.controls import Controls
from explorer.app.widgets.verdict import Verdict, entry
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.profile import Profile

Diagnose = Callable[[Profile], Sequence[Finding]]


WITHHELD = {"severity": "withheld", "meaning": "The verdict waits until the question is answered.", "evidence": "",
            "remedy": ""}


class Applied(NamedTuple):
    """A remedy that was applied: its words, the values it set, and those before."""

    words: str
    change: Mapping[str, object]
    before: Mapping[str, object]


class Remedies:
    """The findings of a verdict, and the actions of its buttons.

    Args:
        verdict: shows them.
        controls: set by a remedy.
        diagnose: findings of a measured profile.
        lock: the panel's; callers hold it.
        similar: a sentence on how many designs similar to a config trained, shown after the first finding's evidence.
    """

    def __init__(self, verdict: Verdict, controls: Controls[Config], diagnose: Diagnose,
                 lock: AbstractContextManager[object],
                 similar: Callable[[Config | None], str] = lambda config: "") -> None:
        self._verdict, self._controls, self._diagnose, self._lock = verdict, controls, diagnose, lock
        self._findings: Sequence[Finding] = ()
        self._similar, self._sentence = similar, ""
        self._withheld = False
        self._applied: list[Applied] = []  # the latest last
        verdict.on_apply, verdict.on_undo = self._apply, self._take_back

    def judge(self, measured: Profile | None) -> None:
        """Shows the findings of a profile; of None, that they are withheld."""
        self._withheld = measured is None
        self._findings = tuple(self._diagnose(measured)) if measured else ()
        self._sentence = self._similar(measured.config) if measured else ""
        self.show()

    def show(self) -> None:
        """Shows the findings, each with its remedy where the controls that it moves are seen."""
        shown = [entry(finding, **({} if self._can_be_seen(finding) else {"remedy": ""})) for finding in self._findings]
        if shown and self._sentence:
            shown[0]["evidence"] = f"{shown[0]['evidence']} {self._sentence}".strip()
        self._verdict.findings = shown or [WITHHELD] * self._withheld

    def _can_be_seen(self, finding: Finding) -> bool:
        """Whether every control that the remedy would set is shown."""
        return all(map(self._controls.shows, finding.config_change))

    def follow(self, config: Config) -> None:
        """Offers to undo the latest remedy while all values that it set are unchanged."""
        while self._applied and any(getattr(config, name) != value for name, value in self._applied[-1].change.items()):
            self._applied.pop()
        self._verdict.undo = self._applied[-1].words if self._applied else ""

    def _apply(self, index: int) -> None:
        with self._lock:
            if index >= len(self._findings):
                return  # withheld a moment ago
            finding, config = self._findings[index], self._controls.config
            if finding.config_change:
                before = {name: getattr(config, name) for name in finding.config_change}
                self._applied.append(Applied(finding.remedy, finding.config_change, before))
                self._controls.apply(finding.config_change)

    def _take_back(self) -> None:
        with self._lock:
            self._controls.apply(self._applied.pop().before if self._applied else {})
