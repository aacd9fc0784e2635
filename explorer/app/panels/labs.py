"""Panels of labs: each lab in a tab of its own. `LABS` lists the labs of all panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from explorer.app.header import Header
from explorer.app.panels import depth, foundations, training
from explorer.app.panels.lab import Lab, LabPanel
from explorer.app.tabbed import Panel, Tabbed

LABS: Mapping[str, Lab] = MappingProxyType({
    row.name: row for row in (*foundations.ROWS, *depth.ROWS, *training.ROWS)
})


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
