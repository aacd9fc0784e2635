"""`Tabbed`: panels in tabs, each built when it is first opened and kept from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import ipywidgets as widgets

from explorer.app.widgets.header import Header

Start = TypeVar("Start")


class Panel(NamedTuple, Generic[Start]):
    """One tab: its title, and what builds its widget when it is first opened."""

    title: str
    build: Callable[[Start], widgets.Widget]


class Tabbed(widgets.Box, Generic[Start]):  # type: ignore[misc]
    """A bar of tabs and the panel that is open.

    Args:
        header: the bar; its tabs are the panels' titles.
        start: what each panel is built with.
        panels: name to panel, in the order of the tabs.
    """

    def __init__(self, header: Header, start: Start, panels: Mapping[str, Panel[Start]]) -> None:
        self._start, self._rows = start, dict(panels)
        self.panels: dict[str, widgets.Widget] = {}
        self.header = header
        header.tabs = [row.title for row in panels.values()]
        super().__init__(children=[header])
        header.observe(self._select, names="selected")
        self.show(next(iter(self._rows)))

    def show(self, name: str) -> widgets.Widget:
        """Shows a panel, and hides the others: they keep what they show."""
        if name not in self.panels:
            self.panels[name] = self._rows[name].build(self._start)
            self.children = [self.header, *self.panels.values()]
        self.header.selected = list(self._rows).index(name)
        for other, panel in self.panels.items():
            panel.layout.display = None if other == name else "none"
        return self.panels[name]

    def _select(self, _: object) -> None:
        names, index = list(self._rows), self.header.selected
        shown = next(name for name, panel in self.panels.items() if panel.layout.display != "none")
        self.show(names[index] if 0 <= index < len(names) else shown)

    def close(self) -> None:
        """Ends the panels' threads and removes the page."""
        for panel in self.panels.values():
            panel.close()
        self.header.close()
        super().close()
