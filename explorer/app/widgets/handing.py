"""Files for a person to keep: the kernel makes the bytes, and the browser saves them."""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import uuid4
from weakref import WeakKeyDictionary

from ipywidgets import Widget

from explorer.choices import ConfigError

MOST, PART = 200_000_000, 1_000_000
"""Bytes of a file that goes through a browser's connection, and of each of its parts: a server keeps no more for a
visitor who does not read."""
AT_ONCE = 4
"""Files of a widget that may be on their way; a browser that has gone never asks for the rest of one."""
_coming: WeakKeyDictionary[Widget, list[Callable[..., None]]] = WeakKeyDictionary()
"""For each file that is on its way, by widget: the function that sends the next part."""


def hand_over(widget: Widget, name: str, media: str, content: bytes) -> None:
    """Sends a file to the views of a widget, which save it by `savesFiles`: each part when the last one has come.

    Raises:
        ConfigError: it is too large for that.
    """
    if len(content) > MOST:
        raise ConfigError(f"{name} must have at most {size_words(MOST)} to go through a browser; "
                          f"got {size_words(len(content))}")
    parts, number = max(1, math.ceil(len(content) / PART)), uuid4().hex
    sent = 0

    def send(_: object = None, message: object = None, __: object = None) -> None:
        nonlocal sent
        if message in (None, ["more", number, sent]):
            sent += 1
            part = content[(sent - 1) * PART : sent * PART]
            more = {"number": number, "left": parts - sent} if parts > 1 else {}
            widget.send({"file": name, "media": media, **more}, [part])
            if sent == parts and send in coming:
                end(send)

    def end(sender: Callable[..., None]) -> None:
        coming.remove(sender)
        widget.on_msg(sender, remove=True)

    coming = _coming.setdefault(widget, [])
    if parts > 1:
        if len(coming) == AT_ONCE:
            end(coming[0])
        coming.append(send)
        widget.on_msg(send)
    send()


def size_words(count: int) -> str:
    """'31 kB' or '2.4 MB'."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"
