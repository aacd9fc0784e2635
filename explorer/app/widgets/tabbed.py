"""`Tabbed`: panels in tabs, each built when it is first opened and kept from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import ipywidgets as widgets

from explorer.app.page import HasPart, Tabs
from explorer.app.view import WHOLE, View
from explorer.app.widgets.header import Header
from explorer.config import Config


class Tab(NamedTuple):
    """One tab: its title, and the function that builds its widget when it is first opened."""

    title: str
    build: Callable[[Config], widgets.Widget]


@runtime_checkable
class Hiding(Protocol):
    """Whatever can hide a part of itself."""

    def look(self, view: View) -> None:
        """Shows what a view has of it, and hides the rest."""


class Tabbed(widgets.Box):  # type: ignore[misc]
    """A bar of tabs and the panel that is open.

    Args:
        header: the bar; its tabs are the panels' titles.
        start: the design that each panel starts with.
        panels: name to panel, in the order of the tabs.
        above: widgets between the bar and the panels.
    """

    def __init__(self, header: Header, start: Config, panels: Mapping[str, Tab], above: Sequence[widgets.Widget] = ()
                 ) -> None:
        self._start, self._rows = start, dict(panels)
        self.panels: dict[str, widgets.Widget] = {}
        self._unopened: dict[str, object] = {}  # parts of panels that are not built yet
        self.view = WHOLE
        self.header = header
        header.tabs = [row.title for row in panels.values()]
        self._above: list[widgets.Widget] = [header, *above]
        super().__init__(children=self._above)
        header.observe(self._select, names="selected")
        self.show(next(iter(self._rows)))

    def show(self, name: str) -> widgets.Widget:
        """Shows a panel, and hides the others: they keep what they show."""
        if name not in self.panels:
            self.panels[name] = self._rows[name].build(self._start)
            self._hide_all_but(name)  # before it comes: two at a time would make the page jump
            self.children = [*self._above, *self.panels.values()]
            self._hand(name)
            if not self.view.whole:
                self._look_at(self.panels[name])
        self.header.selected = list(self._rows).index(name)
        self._hide_all_but(name)
        return self.panels[name]

    def _hide_all_but(self, name: str) -> None:
        for other, panel in self.panels.items():
            panel.layout.display = None if other == name else "none"

    def look(self, view: View) -> None:
        """Shows what a view has of the panels; of those that are not built yet, when they are."""
        self.view = view
        for panel in self.panels.values():
            self._look_at(panel)

    def _look_at(self, panel: widgets.Widget) -> None:
        if isinstance(panel, Hiding):
            panel.look(self.view)

    @property
    def opened(self) -> str:
        """Name of the panel that is shown."""
        return next(name for name, panel in self.panels.items() if panel.layout.display != "none")

    @property
    def part(self) -> Tabs:
        """The open tab, and what is set on the panels."""
        built = {name: panel.part for name, panel in self.panels.items() if isinstance(panel, HasPart)}
        return Tabs(self.opened, {**self._unopened, **built})

    def restore(self, part: Tabs) -> None:
        """Opens the tab and sets the panels; those that are not built yet, when they are."""
        self._unopened |= part.panels
        for name in self.panels:
            self._hand(name)
        self.show(part.open)

    def _hand(self, name: str) -> None:
        """Gives a panel the part that waits for it, if there is one."""
        panel = self.panels[name]
        if name in self._unopened and isinstance(panel, HasPart):
            wanted = self._unopened.pop(name)
            if wanted != panel.part:
                panel.restore(wanted)

    def _select(self, _: object) -> None:
        names, index = list(self._rows), self.header.selected
        self.show(names[index] if 0 <= index < len(names) else self.opened)

    def close(self) -> None:
        """Ends the panels' threads and removes the page."""
        for panel in self.panels.values():
            panel.close()
        for widget in self._above:
            widget.close()
        super().close()
