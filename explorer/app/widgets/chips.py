"""Base of the boxes of chips: names that can be edited, clicks, and an answer to each."""

from __future__ import annotations

from collections.abc import Callable

import anywidget
import traitlets

from explorer.app.named import LONGEST_NAME


class ChipBox(anywidget.AnyWidget):
    """Chips with a name each; a kind of them has a script and traits of its own.

    Traits:
        said: what came of the last click, where it needs words; read out.
        longest: letters of a name that make sense.
        turn: counts the messages that were answered, so that each answer is noticed.

    A click is a message from a browser, so `on_click` must believe none of it.
    """

    said = traitlets.Unicode().tag(sync=True)
    longest = traitlets.Int(LONGEST_NAME).tag(sync=True)
    turn = traitlets.Int(0).tag(sync=True)

    def __init__(self, on_click: Callable[[object], None] = lambda content: None) -> None:
        super().__init__()
        self.on_msg(lambda _, content, __: on_click(content))

    def answer(self, said: str) -> None:
        """Ends a click: in words, or without any where what happened is seen."""
        with self.hold_sync():
            self.said, self.turn = said, self.turn + 1
