"""The head of the page: its name, and a tab for each panel when there are several.

Without a name it is a bar of tabs within a panel.
"""

from __future__ import annotations

from collections.abc import Callable

import traitlets

from explorer.app.widgets.runtime import PageWidget, view


class Header(PageWidget):
    """Name and tabs.

    Traits:
        name: the page's heading; empty for none.
        label: what the tabs choose among, said to a screen reader.
        tabs: titles of the panels; a single one shows no tab bar.
        selected: index of the open panel, set from either side; the browser's is only a wish.
        labs: names of the labs that a link on this page can open.
    """

    _esm = view("header")
    name = traitlets.Unicode("Transformer Signal Explorer").tag(sync=True)
    label = traitlets.Unicode("Panels").tag(sync=True)
    tabs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    selected = traitlets.Int(0).tag(sync=True)
    labs = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def on_shown(self, call: Callable[[], None]) -> None:
        """Registers a function to call each time a browser has created the page."""
        self.on_msg(lambda _, content, __: call() if content == "shown" else None)

    def on_lab(self, call: Callable[[str], None]) -> None:
        """Registers a function to call with the name of a lab whose link was pressed, if it is one of `labs`."""

        def take(_: object, content: object, __: object) -> None:
            match content:
                case {"lab": str() as name} if name in self.labs:
                    call(name)

        self.on_msg(take)
