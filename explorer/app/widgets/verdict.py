"""The verdict: what the measurement means, its evidence, and a button for each change that would
help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import traitlets

from explorer.app.widgets.controls import Controls
from explorer.app.widgets.parts import Part
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.profile import Profile
from explorer.translation import translated


def entry(finding: Finding, **changes: str) -> dict[str, object]:
    """A finding as an entry of a verdict, with some fields replaced."""
    parts = ("severity", "meaning", "evidence", "remedy", "code", "numbers")
    return {part: getattr(finding, part) for part in parts} | changes


class Verdict(Part):
    """A bar with the first finding; the others fold away below it.

    Traits:
        findings: `[{severity, meaning, evidence, remedy, code, numbers}]`, most serious first;
            evidence and numbers fold away; a remedy is a button's label, or stands before the code
            that makes the change where the model is not ours.
        stale: the findings are of an earlier design.
        undo: the remedy that can be taken back, as its button had it; empty where there is none.
    """

    view = "verdict"
    findings = traitlets.List(traitlets.Dict()).tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    undo = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self.on_apply: Callable[[int], None] = lambda index: None
        """Called with the index of the finding whose button was clicked."""
        self.on_undo: Callable[[], None] = lambda: None
        self.on_msg(self._receive)

    def _receive(self, _: object, content: object, __: object) -> None:
        if isinstance(content, int) and 0 <= content < len(self.findings):
            self.on_apply(content)
        elif content == "undo" and self.undo:
            self.on_undo()


Diagnose = Callable[[Profile], Sequence[Finding]]


WITHHELD = {
    "severity": "withheld",
    "meaning": "The verdict waits until the question is answered.",
    "evidence": "",
    "remedy": "",
}


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
    """

    def __init__(self, verdict: Verdict, controls: Controls[Config], diagnose: Diagnose) -> None:
        self._verdict, self._controls, self._diagnose = verdict, controls, diagnose
        self._findings: Sequence[Finding] = ()
        self._withheld = False
        self._applied: list[Applied] = []  # the latest last
        verdict.on_apply, verdict.on_undo = self._apply, self._take_back

    def judge(self, measured: Profile | None) -> None:
        """Shows the findings of a profile; of None, that they are withheld."""
        self._withheld = measured is None
        self._findings = tuple(self._diagnose(measured)) if measured else ()
        self.show()

    def show(self) -> None:
        """Shows the findings, each with its remedy where the controls that it moves are seen."""
        shown = [
            entry(finding, **({} if self._can_be_seen(finding) else {"remedy": ""}))
            for finding in self._findings
        ]
        meaning = translated(WITHHELD["meaning"])
        self._verdict.findings = shown or [WITHHELD | {"meaning": meaning}] * self._withheld

    def _can_be_seen(self, finding: Finding) -> bool:
        """Whether every control that the remedy would set is shown."""
        return all(map(self._controls.shows, finding.config_change))

    def follow(self, config: Config) -> None:
        """Offers to undo the latest remedy while all values that it set are unchanged."""
        while self._applied and any(
            getattr(config, name) != value for name, value in self._applied[-1].change.items()
        ):
            self._applied.pop()
        self._verdict.undo = self._applied[-1].words if self._applied else ""

    def _apply(self, index: int) -> None:
        if index >= len(self._findings):
            return  # withheld a moment ago
        finding, config = self._findings[index], self._controls.config
        if finding.config_change:
            before = {name: getattr(config, name) for name in finding.config_change}
            self._applied.append(Applied(finding.remedy, finding.config_change, before))
            self._controls.apply(finding.config_change)

    def _take_back(self) -> None:
        self._controls.apply(self._applied.pop().before if self._applied else {})
