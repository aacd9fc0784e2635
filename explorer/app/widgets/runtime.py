"""`Runtime`: script, style and plotly.js of the page, in one widget per kernel for all the others.

Each widget brings no more than a stub, which waits until the page has the script and draws by the view of its name. The
script is put together from the `.js` files of this package: those in `SHARED` are seen by all others, each of which
exports one view under the file's name.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import anywidget
import traitlets

from explorer import plotlyjs
from explorer.glossary import TERMS, cited, marks
from explorer.glossary.lessons import LESSONS
from explorer.glossary.papers import HOSTS

APP = Path(__file__).parent.parent
SHARED = ("elements", "typeset", "glossary", "messages", "address", "handing", "picture", "plotly", "search", "guess",
          "update", "screen")
STYLES = tuple(f"{name}.css" for name in (
    "widgets/style", "widgets/header", "widgets/media", "widgets/chart", "widgets/saving", "widgets/search",
    "widgets/glossary", "widgets/roster_box", "race/race", "explore/explore",
    "stories/stories"))
STUB = """const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {{}});
const page = (pages.{key} ??= Promise.withResolvers());
export default {{ render: async (view) => (await page.promise)("{name}", view) }};
"""
_creating = threading.Lock()


class _Thread(threading.local):
    answering = False
    """Whether it handles a browser's message."""
    states: dict[str, dict[str, Any]] | None = None
    """Changes gathered by `one_message`, by model; None outside of it."""


_thread = _Thread()


def page_script() -> str:
    """All scripts as one module: shared functions, the views, each in a scope of its own, and the registry of views."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in sorted(APP.rglob("*.js"))}
    shared, start = [files.pop(name) for name in SHARED], files.pop("runtime")
    own = [f"views.{name} = (() => {{\n{text.replace('export default', 'return')}}})();"
           for name, text in files.items()]
    return "\n".join([*shared, "const views = {};", *own, start])


SCRIPT = page_script()
STYLE = "\n".join((APP / name).read_text(encoding="utf-8") for name in STYLES)
KEY = "v" + hashlib.sha256(f"{SCRIPT}{STYLE}{plotlyjs.digest()}".encode()).hexdigest()[:12]
"""Pages of several kernels in one window share a script only if it is the same."""


class Runtime(anywidget.AnyWidget):
    """Holds what all widgets of a kernel need. It has no view.

    plotly.js is in it from the start, but not where a page can have it from its server (`explorer serve`, a notebook
    server of the same environment): there it is sent only if a page says that this failed.
    """

    _esm, _css = SCRIPT, STYLE
    key = traitlets.Unicode(KEY, read_only=True).tag(sync=True)
    plotly = traitlets.Bytes(read_only=True).tag(sync=True)
    plotly_path = traitlets.Unicode(plotlyjs.path(), read_only=True).tag(sync=True)
    glossary = traitlets.Dict(read_only=True).tag(sync=True)

    _only: Runtime | None = None

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _, content, __: content == "plotly" and self.set_trait("plotly", plotlyjs.packed()))

    @traitlets.default("plotly")
    def _packed_plotly(self) -> bytes:
        return b"" if os.environ.get(plotlyjs.SERVED) else plotlyjs.packed()

    @traitlets.default("glossary")
    def _glossary(self) -> dict[str, Any]:
        """Symbols, the lessons' titles and addresses, and addresses of papers; what a row is, `glossary.Term` says."""
        shown = ("symbol", "name", "words", "formula", "unit", "lesson")
        return {
            "terms": [{part: getattr(row, part) for part in shown} | {"source": cited(row.source)} for row in TERMS],
            "marks": marks(), "lessons": {name: [row.title, row.file] for name, row in LESSONS.items()},
            "hosts": dict(HOSTS),
        }

    @classmethod
    def shared(cls) -> Runtime:
        """The kernel's only one, made at the first call and again if somebody closed it."""
        with _creating:
            if cls._only is None or cls._only.comm is None:
                cls._only = cls()
            return cls._only


LISTENERS: WeakSet[Listener] = WeakSet()
"""Pages that want to know when somebody may have changed something."""


class Listener(Protocol):
    """A follower of the changes of a page."""

    def follow(self) -> None:
        """Called when a message from a browser was handled: whatever it changed is changed by then."""


def tell() -> None:
    """Tells the listeners. Callers hold no panel's lock."""
    for listener in tuple(LISTENERS):
        listener.follow()


class PageWidget(anywidget.AnyWidget):
    """Base of the page's widgets. A subclass that has a view says `_esm = view("its name")`."""

    def __init__(self, **traits: object) -> None:
        Runtime.shared()
        self.altered: set[str] = set()
        """Names of the traits that were set since a browser was given all of them."""
        super().__init__(**traits)
        self.altered.clear()

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """Values of traits, as a browser is given them."""
        if key is None:
            self.altered.clear()
        return super().get_state(key, drop_defaults)

    def notify_change(self, change: Any) -> None:
        """Notes and sends a change."""
        self.altered.add(change["name"])
        super().notify_change(change)

    def _handle_msg(self, msg: object) -> None:
        """Handles a message from a browser: all that a person does on the page comes as one."""
        _thread.answering = True
        try:
            super()._handle_msg(msg)
        finally:
            _thread.answering = False
        tell()

    def _send(self, msg: Mapping[str, Any], buffers: Any = None) -> None:
        """Sends a message, or leaves a change of state to `one_message`."""
        gathered = _thread.states
        if gathered is None or self.comm is None:
            super()._send(msg, buffers)
        elif msg["method"] == "update" and not buffers:
            gathered.setdefault(self.model_id, {}).update(msg["state"])
        else:
            if state := gathered.pop(self.model_id, None):
                super()._send({"method": "update", "state": state, "buffer_paths": []})
            super()._send(msg, buffers)


@contextmanager
def one_message() -> Iterator[None]:
    """Sends this thread's changes to page widgets as one message, where the thread answers a browser's message.

    Each message costs kernel, server and page some milliseconds, which a dragged slider waits for. A page that has
    sent one has the script that takes them apart; to any other, still being put together, all is sent again. The caller
    holds the lock under which the widgets change: nobody else's message comes between.
    """
    if not _thread.answering or _thread.states is not None:
        yield
        return
    states: dict[str, dict[str, Any]] = {}
    _thread.states = states
    try:
        yield
    finally:
        _thread.states = None
        if states:
            Runtime.shared().send({"states": states})


def view(name: str) -> str:
    """The script of a widget that is drawn by the page's view of this name: that of the file `name.js`."""
    return STUB.format(key=KEY, name=name)
