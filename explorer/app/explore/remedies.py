"""`Remedies`: the changes that a verdict's findings offer, and the way back from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from explorer.app.widgets.controls import Controls
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.profile import Profile

Diagnose = Callable[[Profile], Sequence[Finding]]


class Applied(NamedTuple):
    """A remedy that was applied: its words, the values it set, and those before."""

    words: str
    change: Mapping[str, object]
    before: Mapping[str, object]


class Remedies:
    """The findings of a design, and the remedies that were applied. Callers must hold the panel's lock.

    Args:
        controls: what a remedy sets.
        diagnose: findings of a measured profile, or None.
    """

    def __init__(self, controls: Controls[Config], diagnose: Diagnose | None) -> None:
        self._controls, self._diagnose = controls, diagnose
        self._findings: Sequence[Finding] = ()
        self._applied: list[Applied] = []  # the latest last

    def judge(self, measured: Profile) -> list[dict[str, str]]:
        """The findings of a profile, as the verdict shows them."""
        self._findings = tuple(self._diagnose(measured)) if self._diagnose else ()
        parts = ("severity", "meaning", "evidence", "remedy")
        return [{part: getattr(finding, part) for part in parts} for finding in self._findings]

    def apply(self, index: int) -> None:
        """Makes the change of a finding."""
        finding, config = self._findings[index], self._controls.config
        if finding.config_change:
            before = {name: getattr(config, name) for name in finding.config_change}
            self._applied.append(Applied(finding.remedy, finding.config_change, before))
            self._controls.apply(finding.config_change)

    def take_back(self) -> None:
        """Undoes the latest remedy."""
        self._controls.apply(self._applied.pop().before if self._applied else {})

    @property
    def undoable(self) -> str:
        """The latest remedy whose values all stand unchanged; later ones are forgotten."""
        config = self._controls.config
        while self._applied and any(getattr(config, name) != value for name, value in self._applied[-1].change.items()):
            self._applied.pop()
        return self._applied[-1].words if self._applied else ""
