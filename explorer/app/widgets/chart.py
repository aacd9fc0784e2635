"""`Chart`: one card of the page, a title, a sentence and a plotly figure that is replaced whole.

A whole figure is one trait, so a view that opens late shows the latest and no update is lost. Arrays travel as typed
arrays. Nothing here reads what a browser says: traits only go out, and messages go to who asked a question.
"""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go
import traitlets

from explorer.app.widgets.runtime import PageWidget, view

TONES = ("", "good", "warn")


class Chart(PageWidget):
    """A card with one figure. Every trait may be set at any time, from any thread.

    Traits:
        title: the card's heading.
        caption: one line that says how to read the figure.
        badge: a short verdict at the right of the title; empty for none.
        badge_tone: color of the badge: one of `TONES`.
        description: what the picture shows, in words, for those who cannot see it.
        stale: the figure belongs to an older choice; it is dimmed, and the card says so.
        designs: what is drawn, `[{name, about, hue, symbol, dash}]`: the legend of a picture that is saved.
        ask: a question that is answered on the chart: `{depths, low, high, log}` while a line is to be drawn, `{said}`
            once it was; empty for none.
        marks: what dots and lines are, or of which settings they are, as that picture says it.
        figure: the figure as plain data, as `plotly.graph_objects.Figure.to_dict` gives it.
    """

    _esm = view("chart")
    title = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    badge = traitlets.Unicode().tag(sync=True)
    badge_tone = traitlets.Enum(TONES, default_value="").tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    designs = traitlets.List(traitlets.Dict()).tag(sync=True)
    marks = traitlets.Unicode().tag(sync=True)
    figure = traitlets.Dict().tag(sync=True)
    ask = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.on_ask: Callable[[object], None] = lambda _: None
        """Called with what the buttons below a question send: `["reveal", heights]` or `["skip"]`."""
        self.on_msg(lambda _, content, __: self.on_ask(content))

    def show(self, fig: go.Figure, *, stale: bool = False) -> None:
        """Replaces the figure, and the description by the one the figure carries in `layout.meta`, if it does."""
        meta = fig.layout.meta
        # One trait at a time: `hold_sync` forgets changes when two threads hold it at once.
        if isinstance(meta, dict) and "description" in meta:
            self.description = meta["description"]
        self.figure = fig.to_dict()
        self.stale = stale
