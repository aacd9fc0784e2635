"""`Tabbed`: panels in tabs, each built when it is first opened and kept from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import ipywidgets as widgets

from explorer.app.widgets.header import Header
from explorer.app.widgets.record import Recorded, parts_of, record
from explorer.display import shown

Start = TypeVar("Start")


class Tab(NamedTuple, Generic[Start]):
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

    def __init__(self, header: Header, start: Start, panels: Mapping[str, Tab[Start]]) -> None:
        self._start, self._rows = start, dict(panels)
        self.panels: dict[str, widgets.Widget] = {}
        self._unopened: dict[str, object] = {}  # records for panels that are not built yet
        self.complaints: list[str] = []
        """Sentences about records of panels that were built after `restore`."""
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
            if name in self._unopened:
                self.complaints += self._hand(name, self._unopened.pop(name))
        self.header.selected = list(self._rows).index(name)
        for other, panel in self.panels.items():
            panel.layout.display = None if other == name else "none"
        return self.panels[name]

    @property
    def opened(self) -> str:
        """Name of the panel that is shown."""
        return next(name for name, panel in self.panels.items() if panel.layout.display != "none")

    def state(self) -> dict[str, Any]:
        """The open tab and the records of the panels; see `Recorded`."""
        built = {name: panel.state() for name, panel in self.panels.items() if isinstance(panel, Recorded)}
        return record(open=self.opened, panels={**self._unopened, **built})

    def restore(self, state: object) -> list[str]:
        """Opens the tab and restores the panels, those that are not built yet when they are; see `Recorded`."""
        parts, sentences = parts_of(state, ("open", "panels"))
        records = parts.get("panels", {})
        if not isinstance(records, Mapping):
            sentences, records = [*sentences, f"panels must be an object of records; got {shown(records)}"], {}
        wanted = parts.get("open", self.opened)
        if isinstance(wanted, str) and wanted in self._rows:
            self.show(wanted)
        else:
            sentences.append(f"open must be one of {', '.join(self._rows)}; got {shown(wanted)}")
        for name, one in records.items():
            sentences += self._hand(name, one)
        return sentences

    def _hand(self, name: str, one: object) -> list[str]:
        """Gives a panel its record, or keeps it until the panel is built."""
        if name not in self._rows:
            return [f"{shown(name)} is not a panel; the panels are {', '.join(self._rows)}"]
        panel = self.panels.get(name)
        if panel is None:
            self._unopened[name] = one
        return [f"{name}: {sentence}" for sentence in panel.restore(one)] if isinstance(panel, Recorded) else []

    def _select(self, _: object) -> None:
        names, index = list(self._rows), self.header.selected
        self.show(names[index] if 0 <= index < len(names) else self.opened)

    def close(self) -> None:
        """Ends the panels' threads and removes the page."""
        for panel in self.panels.values():
            panel.close()
        self.header.close()
        super().close()
