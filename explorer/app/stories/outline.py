"""`Outline`: the frame around the chart, or the verdict, that a step says to look at."""

from __future__ import annotations

import ipywidgets as widgets

from explorer.app.stories.story import VERDICT
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.live import Live
from explorer.app.widgets.tabbed import Tabbed

MARK = "ex-looked"
"""Class of the box around it: a class of the chart itself would not reach the browser once it is drawn."""


class Outline:
    """One frame on the page, or none."""

    def __init__(self) -> None:
        self._framed: widgets.Widget | None = None

    def show(self, panel: widgets.Widget, name: str) -> str:
        """Frames a chart of a panel, or its verdict, and nothing else.

        Returns:
            Its title; empty where the panel has no such thing.
        """
        self.clear()
        if isinstance(panel, Tabbed):
            panel = panel.panels[panel.opened]
        if not isinstance(panel, Live) or name not in (*panel.charts, VERDICT):
            return ""
        target = panel.verdict if name == VERDICT else panel.charts[name]
        self._framed = box_of(target, panel)
        if self._framed:
            self._framed.add_class(MARK)
        return target.title if isinstance(target, Chart) else "Verdict"

    def clear(self) -> None:
        """Removes the frame."""
        if self._framed:
            self._framed.remove_class(MARK)
            self._framed = None


def box_of(widget: widgets.Widget, root: widgets.Widget) -> widgets.Widget | None:
    """The box below a widget, or itself, that has another one as its child; None where there is none."""
    children = getattr(root, "children", ())
    if widget in children:
        return root
    return next(filter(None, (box_of(widget, child) for child in children)), None)
