"""The browser's side of files: of those that the kernel hands over it asks for each part, others it
brings in parts."""

from __future__ import annotations

from typing import Any

from explorer.app.widgets.files import PART, FileEntry

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
            files.append(
                ({name: about[name] for name in ("file", "media")}, b"".join(coming.pop(number)))
            )
    return files


def bring(entry: FileEntry, name: str, raw: bytes, part: int = PART) -> list[int]:
    """Brings a file, each part after the answer to the one before; gives the answers."""
    answers: list[int] = []
    entry.send = lambda content, buffers=None: answers.append(content["got"])  # type: ignore[method-assign]
    entry.handle(["begin", name, len(raw)], [])
    for start in range(0, len(raw), part):
        if answers[-1] < 0:
            break
        entry.handle(["part", start], [memoryview(raw[start : start + part])])
    return answers
