"""The text that is learned: a file that a browser hands over, or Python's prose."""

from __future__ import annotations

from collections.abc import Callable

from explorer.app.widgets.file import FileEntry
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import ConfigError
from explorer.text import LARGEST_BYTES, Text, decode

PROSE = "Python's own prose"


class TextFile(FileEntry):
    """The entry, and `text`: the file's content, or None for Python's prose.

    Args:
        check: raises ConfigError for a text that the next race could not learn.
    """

    def __init__(self, check: Callable[[Text], object] = lambda text: None) -> None:
        super().__init__(label="Text", about="Text file of your own, UTF-8", accept=".txt,.md,.csv,text/*",
                         other="Use Python's prose", now=PROSE, most=LARGEST_BYTES)
        self.text: Text | None = None
        self._check = check

    def read(self, name: str, raw: bytes) -> None:
        """Learns the file, if it is a text."""
        self.said = f"Reading {name} …"
        try:
            text = decode(raw)
            self._check(text)
        except ConfigError as error:
            self.refuse(f"Refused: {name}: {refusal_in_words(error)}. It stays {self.now}.")
        else:
            self._use(text, f"{name}, {len(text.codes):,} characters")

    def put_back(self) -> None:
        """Learns Python's prose."""
        self._use(None, PROSE)

    def take(self, text: Text | None) -> None:
        """Learns the text of a race, None for Python's prose; a file's name is not known then."""
        if text is not None or self.text is not None:
            self._use(text, f"the text of the opened race, {len(text.codes):,} characters" if text else PROSE)

    def _use(self, text: Text | None, words: str) -> None:
        self.text = text
        with self.hold_sync():
            self.now, self.own, self.refused = words, text is not None, False
            self.said = f"The next race learns {words}."
