"""`RosterBox`: a chip for each design of a roster, and a button that adds one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from explorer.app.design_names import LONGEST_NAME
from explorer.app.roster import Kind, Roster
from explorer.app.widgets.runtime import PageWidget, view
from explorer.figures.palette import Design


class RosterBox(PageWidget):
    """Chips with a swatch, a name that can be edited, a line of words, and buttons.

    Traits:
        noun: word for an entry, as labels for screen readers have it.
        heading: title of the list.
        verbs: the buttons of a chip: `hide` (`show` where it is hidden), `load`, `remove`.
        entries: `[{number, name, about, visible, selected, hue, symbol, dash}]`.
        choices: designs to add, `[{group, value, label}]`; without any, the current design can be pinned, and with
            them `about` is a button that selects an entry.
        now: the current design, `{name, about, hue, symbol, dash}`.
        marks: phrases beside it: what dots and lines mean.
        said: result of the last click, where it needs words; read out.
        longest: letters of a name that make sense.
        answers: counts the messages that were answered, so that each answer is noticed.

    A click is a message, `["pin"]`, `["add", "preset:rezero"]`, or a verb and a number, as in `["select", 3]`.
    """

    _esm = view("roster_box")
    noun = traitlets.Unicode().tag(sync=True)
    heading = traitlets.Unicode().tag(sync=True)
    verbs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    entries = traitlets.List(traitlets.Dict()).tag(sync=True)
    choices = traitlets.List(traitlets.Dict()).tag(sync=True)
    now = traitlets.Dict().tag(sync=True)
    marks = traitlets.List(traitlets.Unicode()).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    longest = traitlets.Int(LONGEST_NAME).tag(sync=True)
    answers = traitlets.Int(0).tag(sync=True)

    def __init__(self, on_click: Callable[[object], None] = lambda message: None, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _, message, __: on_click(message))

    def answer(self, said: str) -> None:
        """Ends a click: in words, or without any where what happened is seen."""
        with self.hold_sync():
            self.said, self.answers = said, self.answers + 1

    def show(self, roster: Roster[Kind], about: Callable[[Kind], str], selected: int = 0) -> None:
        """Updates the chips; `about` gives the words of each."""
        designs = roster.designs()
        self.entries = [
            {
                "number": entry.number, "name": designs[entry.number].label, "about": about(entry),
                "visible": entry.visible, "selected": entry.number == selected, **swatch(designs[entry.number]),
            }
            for entry in roster
        ]


def swatch(design: Design) -> dict[str, str]:
    """The marks of a design."""
    return {"hue": design.hue, "symbol": design.symbol, "dash": design.dash}
