"""The buttons that start, pause, resume and stop a race."""

from __future__ import annotations

from collections.abc import Callable

import anywidget
import traitlets

from explorer.app.widgets.source import source


class RaceBar(anywidget.AnyWidget):
    """Three buttons and a line.

    Traits:
        buttons: `[{verb, label, enabled, primary}]`, three.
        note: a line beside them.
        losing: steps would be lost with the page, so that a browser asks before it closes it.
    """

    _esm = source("widgets/moves.js", "widgets/marks.js", "race/racebar.js")
    buttons = traitlets.List(traitlets.Dict()).tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    losing = traitlets.Bool(False).tag(sync=True)

    def __init__(self, on_press: Callable[[str], None] = lambda verb: None) -> None:
        super().__init__()
        self.on_msg(lambda _, content, __: on_press(str(content)))
        self.offer(running=False, paused=False)

    def offer(self, *, running: bool, paused: bool) -> None:
        """Enables what can be done now."""
        middle = ("resume", "Resume") if paused else ("pause", "Pause")
        self.buttons = [
            _button("start", "Start", enabled=not running and not paused, primary=True),
            _button(*middle, enabled=running or paused, primary=paused),
            _button("stop", "Stop", enabled=running or paused),
        ]

    def offers(self, verb: str) -> bool:
        """Whether this can be done now: a press in a browser may come late, and say anything."""
        return any(button["verb"] == verb and button["enabled"] for button in self.buttons)


def _button(verb: str, label: str, *, enabled: bool, primary: bool = False) -> dict[str, object]:
    return {"verb": verb, "label": label, "enabled": enabled, "primary": primary}
