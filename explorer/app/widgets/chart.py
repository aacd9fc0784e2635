"""`Chart`: one card of the page, a title, a sentence and a plotly figure that is replaced whole.

A whole figure is one trait, so a view that opens late shows the latest and no update is lost. plotly.js, 1.5 MB packed,
is the trait of one `Runtime` per kernel that all charts refer to, and so travels once; `chart.js` unpacks it for the
page. Arrays travel as typed arrays. Nothing here reads what a browser says: traits only go out.
"""

from __future__ import annotations

import gzip
import threading
from functools import cache

import anywidget
import plotly.graph_objects as go
import traitlets
from ipywidgets import Widget, widget_serialization
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from explorer.app.widgets.source import HERE, source

TONES = ("", "good", "warn")
_creating = threading.Lock()


@cache
def packed_plotly() -> bytes:
    """plotly.js as plotly carries it, gzipped; the same bytes each time."""
    return gzip.compress(get_plotlyjs().encode(), compresslevel=6, mtime=0)


class Runtime(anywidget.AnyWidget):
    """Holds plotly.js for all charts of a kernel. It has no view."""

    _esm = "export default {};"
    version = traitlets.Unicode(read_only=True).tag(sync=True)
    plotly = traitlets.Bytes(read_only=True).tag(sync=True)

    _only: Runtime | None = None

    def __init__(self) -> None:
        super().__init__()
        self.set_trait("version", get_plotlyjs_version())
        self.set_trait("plotly", packed_plotly())

    @classmethod
    def shared(cls) -> Runtime:
        """The kernel's only one, made at the first call and again if somebody closed it."""
        with _creating:
            if cls._only is None or cls._only.comm is None:
                cls._only = cls()
            return cls._only


class Chart(anywidget.AnyWidget):
    """A card with one figure. Every trait may be set at any time, from any thread.

    Traits:
        title: the card's heading.
        caption: one line that says how to read the figure.
        badge: a short verdict at the right of the title; empty for none.
        badge_tone: color of the badge: one of `TONES`.
        description: what the picture shows, in words, for those who cannot see it.
        stale: the figure belongs to an older choice; it is dimmed, and the card says so.
        designs: what is drawn, `[{name, about, hue, symbol, dash}]`: the legend of a picture that is saved.
        marks: what dots and lines are, or of which settings they are, as that picture says it.
        figure: the figure as plain data, as `plotly.graph_objects.Figure.to_dict` gives it.
    """

    _esm = source("widgets/typeset.js", "widgets/picture.js", "widgets/chart.js")
    _css = HERE / "widgets/chart.css"
    runtime = traitlets.Instance(Widget, read_only=True).tag(sync=True, **widget_serialization)
    title = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    badge = traitlets.Unicode().tag(sync=True)
    badge_tone = traitlets.Enum(TONES, default_value="").tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    designs = traitlets.List(traitlets.Dict()).tag(sync=True)
    marks = traitlets.Unicode().tag(sync=True)
    figure = traitlets.Dict().tag(sync=True)

    @traitlets.default("runtime")
    def _shared_runtime(self) -> Runtime:
        return Runtime.shared()

    def show(self, fig: go.Figure, *, stale: bool = False) -> None:
        """Replaces the figure, and the description by the one the figure carries in `layout.meta`, if it does."""
        meta = fig.layout.meta
        # One trait at a time: `hold_sync` forgets changes when two threads hold it at once.
        if isinstance(meta, dict) and "description" in meta:
            self.description = meta["description"]
        self.figure = fig.to_dict()
        self.stale = stale
