"""Pinned designs of the Explore panel: their buttons, and the marks in which each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from explorer.app.explore.board import NOW, Board, PinError
from explorer.app.explore.pins import PinBox, entry
from explorer.app.explore.words import marks
from explorer.config import Config
from explorer.figures import Design
from explorer.profile import Profile

LONGEST_MESSAGE = 1000
"""Letters of a name that are read: a browser can send any number."""


class Current(NamedTuple):
    """The design of the controls, and its profiles so far."""

    config: Config
    predicted: Profile | None
    measured: Profile | None


class Nonsense(ValueError):  # noqa: N818 - a browser's, and nobody's fault
    """A message that none of our buttons sends; it is ignored."""


class Comparison:
    """The pins of a panel. Callers must hold the panel's lock.

    Args:
        box: their widget, whose clicks come to `obey`.
        current: gives the design of the controls.
        load: sets the controls, given every field.
        redraw: draws every chart anew; called when pins have changed.
    """

    def __init__(
        self, box: PinBox, current: Callable[[], Current], load: Callable[[Mapping[str, object]], None],
        redraw: Callable[[], None],
    ) -> None:
        self.board, self.box = Board(), box
        self._current, self._load, self._redraw = current, load, redraw

    def obey(self, content: object) -> None:
        """Handles a click in a browser; messages that make no sense are ignored."""
        try:
            match content:
                case ["load", int() as number] if number in self.board:
                    self._load(self.board[number].config.model_dump())
                    said = f"The controls show “{self.board[number].name}”."
                case _:
                    said = self._change(content)
                    self.follow()
                    self._redraw()
        except (PinError, Nonsense) as error:
            said = str(error)
        self.box.answer(said)

    def _change(self, content: object) -> str:
        """Changes the pins; returns a message for the page."""
        match content:
            case ["pin"]:
                pin = self.board.add(*self._current())
                return f"Pinned as “{pin.name}”: it stays on the charts while the controls move on."
            case ["name", int() as number, str() as text] if number in self.board:
                return self.board.rename(number, text[:LONGEST_MESSAGE])
            case ["show" | "hide" as verb, int() as number] if number in self.board:
                self.board.show(number, verb == "show")
                return ""
            case ["remove", int() as number] if number in self.board:
                return f"Removed “{self.board.remove(number).name}”."
        raise Nonsense

    def move(self) -> None:
        """Removes the message about the last click, after the controls have moved."""
        self.follow()
        self.box.said = ""

    def follow(self) -> None:
        """Updates the legend, after pins have changed or one was measured."""
        self.box.tell(self.board, self._current().config)

    def cast(self, now: Sequence[Profile]) -> tuple[list[Profile], list[Design]]:
        """Everything to be drawn, and the design of each profile; the current design comes last and so lies on top.

        A visible pin of the current config is not drawn a second time.
        """
        config = now[0].config if now else None
        pinned = [(pin.design, profile) for pin in self.board if pin.visible and pin.config != config
                  for profile in pin.profiles]
        when = "now" if config == self._current().config else "before"
        name = f"{self.board.name_for(config)} ({when})" if pinned and config else ""
        rows = [*pinned, *((Design(NOW, config, name), profile) for profile in now)]
        profiles = [profile for _, profile in rows]
        self.box.explain(marks(profiles))
        return profiles, [design for design, _ in rows]

    def legend(self, whose: Sequence[Design]) -> list[dict[str, str]]:
        """The designs that are drawn, each once, for a picture that is saved."""
        return [entry(design.label or self.board.name_for(design.config), design)
                for design in dict.fromkeys(whose) if design.config]
