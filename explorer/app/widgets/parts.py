"""`Part`: a piece of the page, and `PageWidget`: the only widget, which carries a page's parts to
the browsers.

A part's traits that are tagged `sync` are drawn by the view of its name, a `.js` file, and what a
person does there comes back to it. Parts are plain objects: a part that is not within a page yet
changes without a message. A page sends what has changed as one message: at the end of a browser's
message, of `together`, or at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, Self

import anywidget
import traitlets
from IPython.display import display

from explorer.app.widgets.runtime import STUB, Runtime, tell
from explorer.figures.words import typeset
from explorer.translation import speaking, spoken

OnMessage = Callable[[Any, Any, Sequence[Any]], object]
LOCK = threading.RLock()
"""Held by whoever changes what a page shows: for a browser's message, a worker's result, or Python
that sets it."""


def in_voila() -> bool:
    """Whether Voilà started this kernel, for a visitor who sees the notebook as a page and cannot
    change its code."""
    return "VOILA_PREHEAT" in os.environ


class Part(traitlets.HasTraits):
    """A piece of a page. A subclass names its `view`; this one is a box around its children.

    Traits:
        classes: its classes in the style sheet.
        hidden: whether it takes no room.
        children: the parts within it.
    """

    view = "box"
    classes = traitlets.Tuple().tag(sync=True)
    hidden = traitlets.Bool(False).tag(sync=True)
    children: Any = traitlets.Tuple().tag(sync=True)

    _numbers = count(1)
    turn: Callable[[], AbstractContextManager[object]] = staticmethod(lambda: LOCK)
    """Gives the lock under which a browser's changes are set."""

    def __init__(self, children: Sequence[Part] = (), **traits: Any) -> None:
        self.number = next(self._numbers)
        """Its number among the parts of this process."""
        self.page: PageWidget | None = None
        """The page that it is within."""
        self._listeners: list[OnMessage] = []
        self._received: dict[
            str, object
        ] = {}  # values as the browser has them whose change is being handled
        super().__init__(children=tuple(children), **traits)
        self.synced = tuple(self.traits(sync=True))
        """Names of the traits that the browser has."""
        self.observe(self._send_change, list(self.synced))

    def get_state(self) -> dict[str, Any]:
        """All that the browser has of it: trait to value, and its view; children as their
        numbers."""
        return {"view": self.view, **{name: self.sent(name) for name in self.synced}}

    def sent(self, name: str) -> Any:
        """A trait's value as it is sent."""
        value = getattr(self, name)
        return [child.number for child in value] if name == "children" else value

    def _send_change(self, change: Any) -> None:
        """Notes a changed trait to be sent, unless the browser has just sent this very value."""
        name, page = change["name"], self.page
        is_echo = name in self._received and self._received[name] == change["new"]
        if page and not is_echo:
            page.note(self, name)

    def set_state(self, changes: dict[str, Any]) -> None:
        """Sets traits, as a browser asks for it; unknown ones are ignored.

        Raises:
            TraitError: a value is of the wrong type.
        """
        with self.turn():
            self._set(changes)

    def _set(self, changes: dict[str, Any]) -> None:
        """Sets the traits that a browser has changed.

        While observers run, the received values are kept, so that none is sent back; a value that
        an observer corrects is. Children are numbers in the browser, and only the kernel sets
        them."""
        self._received = {
            name: value
            for name, value in changes.items()
            if name in self.synced and name != "children"
        }
        try:
            with self.hold_trait_notifications():
                for name, value in self._received.items():
                    self.set_trait(name, value)
        finally:
            self._received = {}

    def on_msg(self, listener: OnMessage, remove: bool = False) -> None:
        """Registers `listener(part, content, buffers)` for the browser's messages, or removes
        it."""
        (self._listeners.remove if remove else self._listeners.append)(listener)

    def handle(self, content: object, buffers: Sequence[Any] = ()) -> None:
        """Hands a browser's message, which may say anything, to the listeners."""
        with LOCK:
            for listener in tuple(self._listeners):
                listener(self, content, buffers)

    def send(self, content: object, buffers: Sequence[bytes] | None = None) -> None:
        """Sends a message to the views of this part, after all changes so far."""
        if self.page:
            self.page.tell(self, content, buffers)

    def add_class(self, name: str) -> Self:
        """Adds a class; returns the part."""
        self.classes = (*dict.fromkeys((*self.classes, name)),)
        return self

    def remove_class(self, name: str) -> Self:
        """Removes a class, if it has it; returns the part."""
        self.classes = tuple(other for other in self.classes if other != name)
        return self

    def close(self) -> None:
        """Ends what runs for it and its children."""
        for child in self.children:
            child.close()

    def tree(self) -> Iterator[Part]:
        """The part and all within it."""
        yield self
        for child in self.children:
            yield from child.tree()


class Words(Part):
    """A text.

    Traits:
        value: HTML.
    """

    view = "words"
    value = traitlets.Unicode().tag(sync=True)


def prose(markup: str, css_class: str) -> Words:
    """A text on a panel, with its class in the style sheet."""
    return Words(value=typeset(markup), classes=("ex-words", css_class))


class _Gathering(threading.local):
    depth = 0
    pages: tuple[PageWidget, ...] = ()


_gathering = _Gathering()


@contextmanager
def together() -> Iterator[None]:
    """Sends this thread's changes to each page as one message, at the end.

    Each message costs kernel, server and page some milliseconds, which a dragged slider waits for.
    """
    _gathering.depth += 1
    try:
        yield
    finally:
        _gathering.depth -= 1
        if not _gathering.depth:
            pages, _gathering.pages = _gathering.pages, ()
            for page in pages:
                page.flush()


class PageWidget(anywidget.AnyWidget):
    """A page, or a live figure of a lesson: the only widget, whose parts are within its `top`.

    Its messages are `{sent, handled, parts}` for changes: the number of the message, that of a
    person's last act that was handled, and trait values by the part's number; `{to, content}` for a
    part's own message. A browser sends `["shown", sent]` once it listens, `[number, part, "set",
    values]` and `[number, part, "act", content]`, where the number is 0 if it is no act of a
    person."""

    _esm = STUB
    state = traitlets.Dict(read_only=True).tag(sync=True, to_json=lambda _, page: page.whole())

    def __init__(self, top: Part) -> None:
        Runtime.shared()
        self.top = top
        self.language = spoken()
        """The language of what a browser's message then shows."""
        self._lock = threading.RLock()
        self._changed: dict[
            int, set[str]
        ] = {}  # names of the traits to be sent, by the part's number
        self._sent = self._handled = 0
        self._parts: dict[int, Part] = {}
        with self._lock:
            self._enroll()
            self._changed.clear()  # the page as it opens has all
        super().__init__()
        self.on_msg(self._take)

    def whole(self) -> dict[str, Any]:
        """All that a browser needs to draw the page."""
        with self._lock:
            parts = {number: part.get_state() for number, part in self._parts.items()}
            return {
                "top": self.top.number,
                "sent": self._sent,
                "handled": self._handled,
                "parts": parts,
            }

    def _enroll(self) -> None:
        """Finds the parts that have come, of which all is to be sent, and those that have gone."""
        parts = {part.number: part for part in self.top.tree()}
        for number in self._parts.keys() - parts.keys():
            self._parts[number].page = None
            self._changed.pop(number, None)
        for number in parts.keys() - self._parts.keys():
            parts[number].page = self
            self._changed[number] = set(parts[number].synced)
        self._parts = parts

    def note(self, part: Part, name: str) -> None:
        """Sends a change of a part's trait, or keeps it for the end of `together`."""
        with self._lock:
            if part.page is not self:
                return  # it has gone meanwhile
            self._changed.setdefault(part.number, set()).add(name)
            if name == "children":
                self._enroll()
        if not _gathering.depth:
            self.flush()
        elif self not in _gathering.pages:
            _gathering.pages += (self,)

    def flush(self) -> None:
        """Sends all changes so far."""
        with self._lock:
            changed, self._changed = self._changed, {}
            parts = {}
            for number, names in changed.items():
                part = self._parts[number]
                parts[number] = {name: part.sent(name) for name in names} | {"view": part.view}
            if parts:
                self._sent += 1
                self.send({"sent": self._sent, "handled": self._handled, "parts": parts})

    def tell(self, part: Part, content: object, buffers: Sequence[bytes] | None) -> None:
        """Sends a part's own message, after all changes so far."""
        with self._lock:
            self.flush()
            self.send({"to": part.number, "content": content}, buffers)

    def _take(self, _: object, message: object, buffers: Sequence[Any]) -> None:
        """Handles a browser's message, which may say anything: all that a person does on the page
        comes as one."""
        with speaking(self.language), together():
            match message:
                case ["shown", int() as sent]:
                    if sent != self._sent:
                        self.send(self.whole())
                case [int() as number, int() as part, "set" | "act" as verb, content] if (
                    part in self._parts
                ):
                    self._handled = number or self._handled
                    if verb == "act":
                        self._parts[part].handle(content, buffers)
                    elif isinstance(content, dict):
                        self._parts[part].set_state(content)
            self.follow()

    def send(self, content: object, buffers: Sequence[bytes] | None = None) -> None:
        """Sends a message to the browsers, as `runtime.tell` does."""
        tell(self, content, buffers)

    def still(self) -> str:
        """The page as HTML that needs no script, see `explorer.app.still`."""
        return ""

    def _ipython_display_(self) -> None:
        """Two outputs, the page and its still, without which Voilà does: called for the last line
        of a cell."""
        live, _ = self._repr_mimebundle_() or ({}, {})
        still = [] if in_voila() else [{"text/html": self.still(), "text/plain": ""}]
        for bundle in (live, *still):
            display(bundle, raw=True)  # type: ignore[no-untyped-call]

    def follow(self) -> None:
        """Called when a browser's message was handled: whatever it changed is changed by then."""

    def close(self) -> None:
        """Ends what runs for the parts, and removes the page."""
        self.top.close()
        self.layout.close()
        super().close()
