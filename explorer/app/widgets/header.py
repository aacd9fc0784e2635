"""The head of the page: its name, a tab for each panel when there are several, and tools for the
whole page."""

from __future__ import annotations

from collections.abc import Callable

import segno
import traitlets

from explorer.app.widgets.parts import Part
from explorer.translation import translated


class Header(Part):
    """Name, tabs and tools.

    Traits:
        name: the page's heading.
        tabs: titles of the panels; a single one shows no tab bar.
        hidden_tabs: indexes of the tabs that are not shown.
        selected: index of the open panel, set from either side; the browser's is only a wish.
        link: the page as a query; None until a browser has said what its address holds.
        undoes, redoes: whether there is a step back, or again.
        said: a sentence about the last link.
        stories: whether the page has stories to tell.
        parts: what a link can show of the page, as `view.parts` gives it.
        code: the QR code that was asked for, as SVG.

    Messages are lists: `["shown", query]` once a browser has put the page together, and the tools'
    `["open", link]`, `["undo"]`, `["redo"]`, `["reset"]`, `["stories"]`, `["code", link]`."""

    view = "header"
    name = traitlets.Unicode("Transformer Signal Explorer").tag(sync=True)
    tabs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    hidden_tabs = traitlets.List(traitlets.Int()).tag(sync=True)
    selected = traitlets.Int(0).tag(sync=True)
    link = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    undoes = traitlets.Bool(False).tag(sync=True)
    redoes = traitlets.Bool(False).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    stories = traitlets.Bool(False).tag(sync=True)
    parts = traitlets.Dict().tag(sync=True)
    code = traitlets.Unicode().tag(sync=True)

    def draw_code(self, link: str) -> None:
        """Draws the QR code of a link, or says that it is too long for one."""
        self.code = ""  # or the code of the same link, asked for again, would not be sent
        try:
            self.code = segno.make(link).svg_inline(omitsize=True, dark="#000", light="#fff")
        except segno.DataOverflowError:
            self.said = translated(
                "A QR code holds up to {most:,} bytes; this link has {count:,}",
                most=2953,
                count=len(link.encode()),
            )

    def on_act(self, call: Callable[[object], None]) -> None:
        """Registers what handles the messages; it believes none of them."""
        self.on_msg(lambda _, content, __: call(content))
