"""The verdict: what the measurement means, its evidence, and a button for each change that would help."""

from __future__ import annotations

from collections.abc import Callable

import anywidget
import traitlets

from explorer.app.widgets.source import source


class Verdict(anywidget.AnyWidget):
    """A bar with the first finding; the others fold away below it.

    Traits:
        findings: `[{severity, meaning, evidence, remedy}]`, most serious first; a remedy is a button's label.
        stale: the findings are of an earlier design.
        undo: the remedy that can be taken back, as its button had it; empty where there is none.
    """

    _esm = source("widgets/moves.js", "widgets/typeset.js", "widgets/verdict.js")
    findings = traitlets.List(traitlets.Dict()).tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    undo = traitlets.Unicode().tag(sync=True)

    def __init__(
        self, on_apply: Callable[[int], None] = lambda index: None, on_undo: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._on_apply, self._on_undo = on_apply, on_undo
        self.on_msg(self._receive)

    def _receive(self, _: object, content: object, __: object) -> None:
        if isinstance(content, int) and 0 <= content < len(self.findings):
            self._on_apply(content)
        elif content == "undo" and self.undo:
            self._on_undo()
