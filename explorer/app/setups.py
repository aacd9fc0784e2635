"""`setups`: choices of a panel that a button makes; a table each of `setups.toml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from explorer import plugins
from explorer.app.link.state import part_of
from explorer.app.tabs import tabs
from explorer.app.widgets.buttons import ButtonRow, button
from explorer.glossary import rows


class Setup(NamedTuple):
    """A question, and the choices that answer it; the keys of a table of `setups.toml`."""

    panel: str
    name: str
    title: str
    words: str
    state: Mapping[str, Any] = MappingProxyType({})
    """Settings that differ from the panel as it opens."""

    @property
    def part(self) -> Any:
        """The panel's part of a page's record."""
        part, _ = part_of(self.panel, dict(self.state), tabs()[self.panel])
        return part


@cache
def setups(panel: str) -> Mapping[str, Setup]:
    """The set-ups of a panel by name, in the order of their buttons; those of plug-ins are last."""
    files = [Path(__file__).with_suffix(".toml"), *plugins.rows("setups").values()]
    return {row["name"]: Setup(panel, **row) for file in files for row in rows(file, panel)}


class SetupRow(ButtonRow):
    """A button for each set-up, and the question of the one that was pressed last.

    Args:
        label: of the set-ups, for a screen reader.
        panel: whose set-ups they are, by name.
        restore: sets the panel's part of a page's record.
    """

    def __init__(self, label: str, panel: str, restore: Callable[[Any], object]) -> None:
        super().__init__(label, self._press, links=True)
        self._setups, self._restore = setups(panel), restore
        self.buttons = [
            button(row.name, row.title, enabled=True, title=row.words)
            for row in self._setups.values()
        ]

    def _press(self, name: str) -> None:
        """Handles a press in a browser, which may say anything."""
        if name in self._setups:
            self._restore(self._setups[name].part)
            self.note = self._setups[name].words
