"""The status line: what the page is doing, in words, with progress and at most two buttons."""

from __future__ import annotations

from collections.abc import Callable

import anywidget
import traitlets

from explorer.app.widgets.source import source

STATES = ("idle", "computing", "stale", "refused", "failed")


class Status(anywidget.AnyWidget):
    """One line at the bottom of the page, announced politely to screen readers.

    Traits:
        state: one of `STATES`; colors the mark.
        text: the sentence that is read out.
        detail: changes often and is not read out.
        fraction: progress 0..1; below 0 there is no bar, above 1 a bar without an end.
        action: label of the button; empty for none.
        offer: label of a button before it, for another way out; empty for none.
    """

    _esm = source("widgets/moves.js", "widgets/typeset.js", "widgets/status.js")
    state = traitlets.Enum(STATES, default_value="idle").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    detail = traitlets.Unicode().tag(sync=True)
    fraction = traitlets.Float(-1.0).tag(sync=True)
    action = traitlets.Unicode().tag(sync=True)
    offer = traitlets.Unicode().tag(sync=True)

    def __init__(
        self, on_action: Callable[[], None] = lambda: None, on_offer: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._buttons = {"action": on_action, "offer": on_offer}
        self.on_msg(self._take)

    def _take(self, _: object, content: object, __: object) -> None:
        """Handles a click; ignored when there is no such button."""
        if isinstance(content, str) and content in self._buttons:
            self._buttons[content]()

    def say(
        self, state: str, text: str, detail: str = "", fraction: float = -1.0, action: str = "", offer: str = ""
    ) -> None:
        """Changes the whole line in one message."""
        with self.hold_sync():
            self.state, self.text, self.detail, self.fraction = state, text, detail, fraction
            self.action, self.offer = action, offer
