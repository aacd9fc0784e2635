"""The browser's side of a file that the kernel hands over: it asks for each part, and puts them together."""

from __future__ import annotations

from typing import Any

from explorer.app.widgets.files import PART

File = tuple[dict[str, str], bytes]


def handed(widget: Any, *messages: object) -> list[File]:
    """The files that messages to a widget are answered with."""
    sent: list[tuple[dict[str, Any], bytes]] = []
    widget.send = lambda content, buffers: sent.append((content, *buffers))
    for message in messages:
        widget.handle(message, [])
    files: list[File] = []
    coming: dict[str, list[bytes]] = {}
    for about, part in sent:  # which grows as parts are asked for
        assert len(part) <= PART
        number, left = about.get("number", ""), about.get("left", 0)
        parts = coming.setdefault(number, [])
        parts.append(part)
        if left:
            widget.handle(["more", number, len(parts)], [])
        else:
            files.append(({name: about[name] for name in ("file", "media")}, b"".join(coming.pop(number))))
    return files
