"""`dashboard()`: the whole page as one widget, in a notebook, in Voilà or on Binder alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import ipywidgets as widgets

from explorer.app.header import Header
from explorer.app.panels.explore import Explore
from explorer.app.worker import Progress, Stop
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.profile import Profile
from explorer.theory import predict
from explorer.theory.solve import solve


def measure(config: Config, stop: Stop, progress: Progress, pattern_of: tuple[int, int]) -> Profile:
    """`explorer.probe.measure`, imported on the worker's thread: torch takes a second, and the page need not wait."""
    from explorer.probe import measure as measured

    return measured(config, stop, progress, pattern_of)


class Panel(NamedTuple):
    """One tab: its title, and what builds its widget when it is first opened."""

    title: str
    build: Callable[[Config], widgets.Widget]


PANELS: Mapping[str, Panel] = MappingProxyType({
    "explore": Panel("Explore", lambda config: Explore(config, measure, predict, diagnose, solve)),
})


class Dashboard(widgets.Box):  # type: ignore[misc]
    """The page: a header, and the panels, each built when it is first opened.

    Args:
        config: the design that the page starts with.
        panels: rows of `PANELS`.
    """

    def __init__(self, config: Config, panels: Mapping[str, Panel] = PANELS) -> None:
        self._config, self._rows = config, dict(panels)
        self.panels: dict[str, widgets.Widget] = {}
        self.header = Header(tabs=[row.title for row in panels.values()])
        super().__init__(children=[self.header])
        self.add_class("ex-root")
        self.header.observe(self._select, names="selected")
        self.show(next(iter(self._rows)))

    def show(self, name: str) -> widgets.Widget:
        """Shows a panel, and hides the others: they keep what they show."""
        if name not in self.panels:
            self.panels[name] = self._rows[name].build(self._config)
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


def dashboard(config: Config | None = None) -> Dashboard:
    """The page, live: display it as the last line of a cell.

    Args:
        config: the design to start with; the default `Config` when left out.
    """
    return Dashboard(config or Config())
