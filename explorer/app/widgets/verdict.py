"""The verdict: what the measurement means, its evidence, and a button for each change that would help."""

from __future__ import annotations

from collections.abc import Callable

import traitlets

from explorer.app.widgets.runtime import PageWidget, view
from explorer.diagnosis import Finding


def entry(finding: Finding, **changes: str) -> dict[str, object]:
    """A finding as an entry of a verdict, with some fields replaced."""
    parts = ("severity", "meaning", "evidence", "remedy", "code", "numbers")
    return {part: getattr(finding, part) for part in parts} | changes


class Verdict(PageWidget):
    """A bar with the first finding; the others fold away below it.

    Traits:
        findings: `[{severity, meaning, evidence, remedy, code, numbers}]`, most serious first; evidence and numbers
            fold away; a remedy is a button's label, or stands before the code that makes the change where the model is
            not ours.
        stale: the findings are of an earlier design.
        undo: the remedy that can be taken back, as its button had it; empty where there is none.
    """

    _esm = view("verdict")
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
