"""`Runtime`: script, style and plotly.js of the page, in one widget per kernel for all its pages.

A page brings no more than a stub, which waits for the script. That is put together from the `.js`
files of this package and of plug-ins: those in `SHARED` are seen by all others. An exported
function of any is the view of its name."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from explorer import plotlyjs, plugins
from explorer.glossary import HOSTS, LESSONS, TERMS, cited, marks

APP = Path(__file__).parent.parent
SHARED = (
    "elements",
    "glossary",
    "parts",
    "address",
    "picture",
    "plotly",
    "search",
    "guess",
    "update",
)
STYLES = tuple(
    APP / f"{name}.css"
    for name in (
        "widgets/style",
        "widgets/controls",
        "widgets/header",
        "widgets/media",
        "widgets/chart",
        "widgets/glossary",
        "widgets/answer",
        "explore/explore",
        "stories/stories",
    )
)
VIEW = re.compile(r"^export function (\w+)", re.M)
FOLDERS: tuple[Path, ...] = tuple(plugins.rows("page").values())
"""Folders of plug-ins with scripts and style sheets of their own."""
_creating = threading.Lock()


def page_script() -> str:
    """All scripts as one module: shared functions, the others, each file in a scope of its own, and
    what starts it."""
    files = {
        path.stem: VIEW.sub(r"views.\1 = \1;\nfunction \1", path.read_text(encoding="utf-8"))
        for folder in (APP, *FOLDERS)
        for path in sorted(folder.rglob("*.js"))
    }
    shared, start = [files.pop(name) for name in SHARED], files.pop("runtime")
    return "\n".join([*shared, *(f"{{\n{text}}}" for text in files.values()), start])


SCRIPT = page_script()
OTHER_STYLES = tuple(path for folder in FOLDERS for path in sorted(folder.rglob("*.css")))
STYLE = "\n".join(path.read_text(encoding="utf-8") for path in (*STYLES, *OTHER_STYLES))
KEY = "v" + hashlib.sha256(f"{SCRIPT}{STYLE}{plotlyjs.digest()}".encode()).hexdigest()[:12]
"""Pages of several kernels in one window share a script only if it is the same."""
LATE = 30
"""Seconds after which a page says that its script has not come.

Hosts that bring only the widget that is shown, as marimo, bring no layout either: there the page
says so at once. """
WITHOUT_SCRIPT = (
    "The script of this page has not come yet. JupyterLab, Jupyter Notebook and Voilà bring it; marimo and other "
    "places that show anywidgets one by one do not. There, profile.plot(…) and ex.predict(…) work, and explorer serve "
    "shows the page."
)
STUB = f"""const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {{}});
const page = (pages.{KEY} ??= Promise.withResolvers());
export default () => {{
  let draw;
  return {{ render: async ({{ model, el }}) => {{
    const patience = model.get("layout")?.on ? {1000 * LATE} : 0;
    const late = setTimeout(() => {{ el.textContent = {json.dumps(WITHOUT_SCRIPT)}; }}, patience);
    const open = await (draw ??= page.promise.then((open) => open(model)));
    clearTimeout(late);
    el.textContent = "";
    return open(el);
  }} }};
}};
"""
"""Script of a page, which waits for the other one."""


def tell(
    widget: anywidget.AnyWidget, content: object, buffers: Sequence[bytes] | None = None
) -> None:
    """Sends a message to a widget's views, over its layout, which is a widget of ipywidgets.

    anywidget gives up on a widget whose script is not there within two seconds, for example on a
    slow machine: it draws the widget, but refuses for good whatever the kernel sends to it. What
    the kernel sends to the layout arrives."""
    if widget.comm is not None:
        widget.layout.send(content, buffers)


class Runtime(anywidget.AnyWidget):
    """Holds what all pages of a kernel need. It has no view.

    plotly.js is in it from the start, but not where a page can have it from its server (`explorer
    serve`, a notebook server of the same environment): there it is sent only if a page says that
    this failed."""

    _esm, _css = SCRIPT, STYLE
    key = traitlets.Unicode(KEY, read_only=True).tag(sync=True)
    plotly = traitlets.Bytes(read_only=True).tag(sync=True)
    plotly_path = traitlets.Unicode(plotlyjs.path(), read_only=True).tag(sync=True)
    glossary = traitlets.Dict(read_only=True).tag(sync=True)

    _only: Runtime | None = None

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.on_msg(self._answer)

    def _answer(self, _: object, content: object, __: object) -> None:
        if content == "plotly":
            tell(self, content, [plotlyjs.packed()])

    @traitlets.default("plotly")
    def _packed_plotly(self) -> bytes:
        return b"" if os.environ.get(plotlyjs.SERVED) else plotlyjs.packed()

    @traitlets.default("glossary")
    def _glossary(self) -> dict[str, Any]:
        """Symbols, the lessons' titles and addresses, and addresses of papers; what a row is,
        `glossary.Term` says."""
        shown = ("symbol", "name", "words", "formula", "unit", "lesson")
        return {
            "terms": [
                {part: getattr(row, part) for part in shown} | {"source": cited(row.source)}
                for row in TERMS
            ],
            "marks": marks(),
            "lessons": {name: [row.title, row.file] for name, row in LESSONS.items()},
            "hosts": dict(HOSTS),
        }

    @classmethod
    def shared(cls) -> Runtime:
        """The kernel's only one, made at the first call and again if somebody closed it."""
        with _creating:
            if cls._only is None or cls._only.comm is None:
                cls._only = cls()
            return cls._only
