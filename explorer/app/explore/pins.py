"""The legend: the current design and the pinned ones, each with its marks, and what can be done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from explorer.app.explore.board import NOW, Board, Pin
from explorer.app.explore.words import design_words, residual_words
from explorer.app.named import differences, told
from explorer.app.widgets.chips import ChipBox
from explorer.app.widgets.source import HERE, source
from explorer.config import Config
from explorer.figures.palette import Design


class PinBox(ChipBox):
    """Names, swatches and buttons of designs.

    Traits:
        now: the current design, `{name, about, hue, symbol, dash}`.
        pins: the pinned ones, the same with `number` and `visible`.
        marks: what dots and lines mean, a phrase each.

    A click is a message: `["pin"]`, or a verb and a pin's number, `["name", 3, "Deep"]`, `["show", 3]`, `["hide", 3]`,
    `["load", 3]`, `["remove", 3]`.
    """

    _esm = source("widgets/moves.js", "widgets/marks.js", "widgets/typeset.js", "explore/pins.js")
    _css = HERE / "explore/pins.css"
    now = traitlets.Dict().tag(sync=True)
    pins = traitlets.List(traitlets.Dict()).tag(sync=True)
    marks = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def tell(self, board: Board, config: Config) -> None:
        """Updates the name of each design and its differences from the current one."""
        with self.hold_sync():
            about = residual_words(config)
            self.now = {"name": board.name_for(config), "about": about, **swatch(Design(NOW, config, ""))}
            self.pins = [describe(pin, config) for pin in board]

    def explain(self, marks: Sequence[str]) -> None:
        """Sets the meaning of dots and lines."""
        self.marks = list(marks)


def describe(pin: Pin, config: Config) -> dict[str, Any]:
    """A pin as the browser draws it, beside the current config."""
    fields = differences(pin.config, config)
    waits = pin.trouble or ("" if pin.measured else "not measured yet")
    about = " · ".join(filter(None, (told(pin.config, fields) or "same as now", waits)))
    return {"number": pin.number, "name": pin.name, "about": about, "visible": pin.visible, **swatch(pin.design)}


def entry(name: str, design: Design) -> dict[str, str]:
    """A design in the legend of a picture that is saved."""
    return {"name": name, "about": design_words(design.config) if design.config else "", **swatch(design)}


def swatch(design: Design) -> dict[str, str]:
    """The marks of a design."""
    return {"hue": design.hue, "symbol": design.symbol, "dash": design.dash}
