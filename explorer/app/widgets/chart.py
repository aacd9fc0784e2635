"""`Chart`: one card of the page, a title, a sentence and a plotly figure.

A figure is one trait, so a view that opens late shows the latest. Arrays travel as typed arrays. Of
what a browser says only whether the chart is on the screen and the name of a format are read, and
the chart is then sent as such a file; other messages go to the asker of a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas  # noqa: F401 - plotly looks for it as it draws, and breaks on one that a thread still imports
import plotly.graph_objects as go
import traitlets

from explorer.app.widgets.files import hand_over
from explorer.app.widgets.parts import Part, together
from explorer.diagnosis.agreement import agreement
from explorer.figures.data import Plain, packed
from explorer.figures.pages import standalone
from explorer.figures.why import Why
from explorer.glossary import cited
from explorer.profile import Profile

TONES = ("", "good", "warn")


class Pair(NamedTuple):
    """Line and dots of a design that is drawn beside the current one."""

    name: str
    predicted: Profile
    measured: Profile


class Chart(Part):
    """A card with one figure. Every trait may be set at any time, from any thread.

    Traits:
        title: the card's heading.
        caption: one line that says how to read the figure.
        why, lesson, source: the line below it: the recursion or law, the name of the lesson that
            derives it, the paper.
        badge: a short verdict at the right of the title; empty for none.
        badge_tone: color of the badge: one of `TONES`.
        badge_rule: the rule of that color, in one sentence, on hovering.
        description: the picture in words, for screen readers.
        stale: the figure belongs to an older choice; it is dimmed, and the card says so.
        ahead: its lines are those of the present choice, and only dots and bands are of an older
            one.
        designs: the drawn designs, `[{name, about, hue, symbol, dash}]`: the legend of a picture
            that is saved.
        ask: a question that is answered on the chart: `{depths, low, high, log}` while a line is to
            be drawn, `{said}` once it was; empty for none.
        marks: meaning of dots and lines, or their settings, as that picture says it.
        picks: a click on a point is the message `["pick", x, y]`.
        figure: the figure as plain data, as `plotly.graph_objects.Figure.to_dict` gives it.
    """

    view = "chart"
    title = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    why = traitlets.Unicode().tag(sync=True)
    lesson = traitlets.Unicode().tag(sync=True)
    source = traitlets.Unicode().tag(sync=True)
    badge = traitlets.Unicode().tag(sync=True)
    badge_tone = traitlets.Enum(TONES, default_value="").tag(sync=True)
    badge_rule = traitlets.Unicode().tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    ahead = traitlets.Bool(False).tag(sync=True)
    designs = traitlets.List(traitlets.Dict()).tag(sync=True)
    marks = traitlets.Unicode().tag(sync=True)
    picks = traitlets.Bool(False).tag(sync=True)
    figure = traitlets.Dict().tag(sync=True)
    ask = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.seen = True
        """Whether it is on the screen, as far as the browser has said; one that is not may wait for
        its figure."""
        self.on_ask: Callable[[object], None] = lambda _: None
        """Called with what the buttons below a question send: `["reveal", heights]` or
        `["skip"]`."""
        self.on_msg(lambda _, content, __: self._take(content))

    def _take(self, content: object) -> None:
        """Handles a message: what the page shows, what is to be saved, or an answer to a
        question."""
        match content:
            case ["seen", bool() as seen]:
                self.seen = seen
            case "html":
                self._save()
            case _:
                self.on_ask(content)

    def _save(self) -> None:
        """Sends the chart as a page."""
        name = re.sub("[^a-z0-9]+", "-", self.title.lower()).strip("-") or "chart"
        page = standalone(self.figure, self.title, [self.caption, self.marks], self.designs)
        hand_over(self, f"{name}.html", "text/html", page.encode())

    def explain(self, why: Why) -> Chart:
        """Replaces the line below the caption; returns the chart."""
        self.why, self.lesson, self.source = why.words, why.lesson, cited(why.source)
        return self

    def annotate(
        self,
        caption: str,
        statistic: str,
        predicted: Profile | None,
        measured: Profile | None,
        whose: str = "",
        layer: int = 0,
        beside: Sequence[Pair] = (),
    ) -> None:
        """The caption with the theory's note, and the badge: how far the dots lie from the line.

        Args:
            caption: how to read the figure.
            statistic: drawn; empty where no badge is wanted.
            predicted: has the line, and the note.
            measured: has the dots; None where there is nothing to be compared yet.
            whose: a word before the badge's.
            layer: whose tokens are compared; 0 is the last.
            beside: other designs on the chart. The worst of those that are off theory has the
                badge, with its name, unless the current design is off as well.
        """
        note = predicted.notes.get(statistic, "") if predicted else ""
        self.caption = f"{caption} Theory: {note}." if note else caption
        self.badge = self.badge_tone = self.badge_rule = ""
        if statistic and predicted and measured:
            words, self.badge_tone, _, self.badge_rule = agreement(
                measured, predicted, statistic, layer
            )
            reason = note.removeprefix("not covered: ")  # the caption has it
            self.badge = whose * bool(words) + words.removesuffix(f": {reason}")
            if self.badge_tone != "warn":
                self._warn_of(beside, statistic, layer)

    def _warn_of(self, beside: Sequence[Pair], statistic: str, layer: int) -> None:
        """Gives the badge to the worst of some designs, if one is off theory."""
        judged = [
            (pair.name, agreement(pair.measured, pair.predicted, statistic, layer))
            for pair in beside
        ]
        off = [row for row in judged if row[1].tone == "warn"]
        if off:
            name, worst = max(off, key=lambda row: np.nan_to_num(row[1].worst, nan=np.inf))
            self.badge, self.badge_tone, self.badge_rule = (
                f"{name}: {worst.words}",
                worst.tone,
                worst.rule,
            )

    def show(self, fig: go.Figure | Plain, *, stale: bool = False, ahead: bool = False) -> None:
        """Replaces the figure, and the description by the one the figure carries in `layout.meta`,
        if it does."""
        figure = packed(fig if isinstance(fig, dict) else fig.to_dict())
        meta = figure.get("layout", {}).get("meta")
        with together():
            if isinstance(meta, dict) and "description" in meta:
                self.description = meta["description"]
            self.figure = figure
            self.stale, self.ahead = stale, ahead
