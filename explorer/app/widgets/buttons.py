"""Rows of buttons."""

from __future__ import annotations

from collections.abc import Callable

import traitlets

from explorer.app.widgets.parts import Part


def button(
    verb: str, label: str, *, enabled: bool, primary: bool = False, title: str = ""
) -> dict[str, object]:
    """A button as the browser draws it; a press is the message `verb`."""
    return {"verb": verb, "label": label, "enabled": enabled, "primary": primary, "title": title}


class ButtonRow(Part):
    """Some buttons, as many at all times, and a line beside them.

    Traits:
        label: name of the row, said to a screen reader.
        links: whether the buttons look like links, and their line is read out.
        buttons: see `button`.
        note: the line; `refused` if it is a refusal.
        losing: steps would be lost with the page, so that a browser asks before it closes it.

    A message `{file, media}` to the browser, with bytes beside it, is a file that the browser
    downloads."""

    view = "buttons"
    label = traitlets.Unicode().tag(sync=True)
    links = traitlets.Bool(False).tag(sync=True)
    buttons = traitlets.List(traitlets.Dict()).tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)
    losing = traitlets.Bool(False).tag(sync=True)

    def __init__(self, label: str, on_press: Callable[[str], None], *, links: bool = False) -> None:
        super().__init__(label=label, links=links)
        self.on_msg(lambda _, verb, __: on_press(verb) if isinstance(verb, str) else None)

    def offers(self, verb: str) -> bool:
        """Whether this can be done now: a press in a browser may come late, and say anything."""
        return any(button["verb"] == verb and button["enabled"] for button in self.buttons)
