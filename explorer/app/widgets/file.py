"""A file that a browser hands over. Nothing on this machine is opened."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from explorer.app.widgets.runtime import PageWidget, view

LONGEST = 60
"""Letters of a file's name that are shown."""


class FileEntry(PageWidget):
    """A file entry, and a button for what stands in the file's place. A subclass says what becomes of a file.

    Traits:
        label, about, accept, other: words of the entry, for a screen reader, kinds of files, words of the button.
        now: the file in use.
        said: the outcome of the last choice; `refused` if it was refused.
        own: whether it is a file of a person's own, so that there is a way back.
        most: bytes that make sense.

    A choice is a message: `["file", name]` with the file's bytes beside it, or `["other"]`.
    """

    _esm = view("file")
    label = traitlets.Unicode().tag(sync=True)
    about = traitlets.Unicode().tag(sync=True)
    accept = traitlets.Unicode().tag(sync=True)
    other = traitlets.Unicode().tag(sync=True)
    now = traitlets.Unicode().tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)
    own = traitlets.Bool(False).tag(sync=True)
    most = traitlets.Int().tag(sync=True)

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.on_msg(self._take)

    def _take(self, _: object, content: object, buffers: Sequence[bytes] | None) -> None:
        """Handles a choice; a message that is none is ignored."""
        match content:
            case ["file", str() as name] if buffers:
                self.read(name[:LONGEST], bytes(buffers[0]))
            case ["other"]:
                self.put_back()

    def read(self, name: str, raw: bytes) -> None:
        """Takes a file, of one byte more than `most` where it is longer."""
        raise NotImplementedError

    def put_back(self) -> None:
        """Takes what stands in a file's place."""
        raise NotImplementedError

    def refuse(self, sentence: str) -> None:
        """Says why the last choice will not do; what was used stays."""
        with self.hold_sync():
            self.said, self.refused = sentence, True
