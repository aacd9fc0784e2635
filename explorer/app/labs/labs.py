"""Panels of labs: each lab in a tab of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from explorer.app.labs.lab import LabPanel
from explorer.app.widgets.header import Header
from explorer.app.widgets.tabbed import Panel, Tabbed
from explorer.labs.lab import Lab


class Labs(Tabbed[None]):
    """A panel of labs, each built when it is first opened.

    Args:
        rows: the labs, in the order of their tabs.
    """

    def __init__(self, rows: Sequence[Lab]) -> None:
        super().__init__(Header(name="", label="Labs"), None, {row.name: tab(row) for row in rows})
        self.add_class("ex-panel").add_class("ex-labs")


def tab(row: Lab) -> Panel[Any]:
    """A lab as the panel of a tab."""
    return Panel(row.title, lambda _: LabPanel(row))
