"""The head of the page: its name, and a tab for each panel when there are several. Carries the page's style."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets


class Header(anywidget.AnyWidget):
    """Name and tabs.

    Traits:
        tabs: titles of the panels; a single one shows no tab bar.
        selected: index of the open panel, set from either side; the browser's is only a wish.
    """

    _esm = Path(__file__).with_name("header.js")
    _css = Path(__file__).with_name("style.css")
    tabs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    selected = traitlets.Int(0).tag(sync=True)
