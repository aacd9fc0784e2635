"""A file that is too large for one message: it comes in parts, each of which is answered before the next is sent."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from explorer.app.widgets.file import LONGEST, FileEntry
from explorer.app.widgets.handing import size_words

PART = 1_000_000
"""Bytes of a part: a server takes messages of a few megabytes."""


class LargeFile(FileEntry):
    """The entry. A subclass says what becomes of the file, and when none is taken.

    A choice is the message `["begin", name, size]`, then `["part", offset]` with bytes beside it. Each is answered by
    `{"got": n}`, the bytes that are here; -1 ends it. The browser keeps within what `visits` lets a visitor send.

    Traits:
        part: bytes of a part.
    """

    part = traitlets.Int(PART).tag(sync=True)

    def __init__(self, **traits: object) -> None:
        self._name, self._size, self._held = "", 0, bytearray()
        super().__init__(**traits)

    def refusal(self) -> str:
        """The reason why no file is taken now; empty when one is."""
        return ""

    def _take(self, _: object, content: object, buffers: Sequence[bytes] | None) -> None:
        match content:
            case ["begin", str() as name, int() as size]:
                self.send({"got": self._begin(name[:LONGEST], size)})
            case ["part", int() as offset] if buffers:
                self.send({"got": self._add(offset, bytes(buffers[0]))})

    def _begin(self, name: str, size: int) -> int:
        """Prepares for a file; what there is of another one is dropped."""
        self._name, self._size, self._held = name, 0, bytearray()
        if refusal := self.refusal():
            self.refuse(refusal)
        elif not 0 < size <= self.most:
            most, got = size_words(self.most), size_words(size)
            self.refuse(f"Refused: {name} must have at most {most} to be sent, and not be empty; got {got}.")
        else:
            self._size = size
            with self.hold_sync():
                self.said, self.refused = f"Sending {name}, {size_words(size)} …", False
        return 0 if self._size else -1

    def _add(self, offset: int, part: bytes) -> int:
        """Adds a part; the last one ends the file."""
        if offset != len(self._held) or not 0 < len(part) <= min(self.part, self._size - offset):
            self._size = 0
            return -1
        self._held += part
        if len(self._held) == self._size:
            raw, self._held, self._size = bytes(self._held), bytearray(), 0
            self.read(self._name, raw)
            return len(raw)
        return len(self._held)
