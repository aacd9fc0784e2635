"""The text that is learned: a file that a browser hands over, or Python's prose. Nothing on this machine is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anywidget
import traitlets

from explorer.app.widgets.controls import said
from explorer.app.widgets.source import source
from explorer.choices import ConfigError
from explorer.text import LARGEST_BYTES, Text, decode

PROSE = "Python's own prose"
LONGEST = 60
"""Letters of a file's name that are shown."""


class TextFile(anywidget.AnyWidget):
    """A file entry, and `text`: its content, or None for Python's prose.

    Args:
        check: raises ConfigError for a text that the next race could not learn.

    Traits:
        now: which text it is.
        said: what came of the last choice; `refused` if it was refused.
        own: whether it is a file of a person's own.
        most: bytes that make sense.

    A choice is a message: `["text", name]` with the file's bytes beside it, or `["prose"]`.
    """

    _esm = source("widgets/marks.js", "race/textfile.js")
    now = traitlets.Unicode(PROSE).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)
    own = traitlets.Bool(False).tag(sync=True)
    most = traitlets.Int(LARGEST_BYTES).tag(sync=True)

    def __init__(self, check: Callable[[Text], object] = lambda text: None) -> None:
        super().__init__()
        self.text: Text | None = None
        self._check = check
        self.on_msg(self._take)

    def _take(self, _: object, content: object, buffers: Sequence[bytes] | None) -> None:
        """Handles a file from a browser; refused unless it is a text."""
        match content:
            case ["text", str() as name] if buffers:
                self._read(name[:LONGEST], bytes(buffers[0]))
            case ["prose"]:
                self._use(None, PROSE)

    def _read(self, name: str, raw: bytes) -> None:
        self.said = f"Reading {name} …"
        try:
            text = decode(raw)
            self._check(text)
        except ConfigError as error:
            with self.hold_sync():
                self.said, self.refused = f"Refused: {name}: {said(error)}. It stays {self.now}.", True
        else:
            self._use(text, f"{name}, {len(text.codes):,} characters")

    def _use(self, text: Text | None, words: str) -> None:
        self.text = text
        with self.hold_sync():
            self.now, self.own, self.refused = words, text is not None, False
            self.said = f"The next race learns {words}."
