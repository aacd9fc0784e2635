"""`TakeHome`: a fold with what a panel gives as a file; what is text is shown on the page, too, to be copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import traitlets

from explorer.app.widgets.handing import hand_over, size_words
from explorer.app.widgets.runtime import PageWidget, view
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import ConfigError


class File(NamedTuple):
    """A file that is offered."""

    label: str
    words: str
    """Its content, in a short sentence."""
    name: str
    media: str
    write: Callable[[], str | bytes]
    """The text, or bytes that nobody reads here, as the page stands; may refuse by a `ConfigError`."""
    shown: bool = True
    """Whether a person may want to read it here."""


class TakeHome(PageWidget):
    """The fold. Any thread; the functions that write take the lock of their panel.

    Args:
        files: the offered files, a row each.

    Traits:
        rows: `[{label, words, shown}]`.
        text, reading: what is read, and the place of its row; below 0 none is.
        note: the outcome of the last press; `refused` if it was refused.

    A press is the message `["save", place]` or `["show", place]`.
    """

    _esm = view("takehome")
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    reading = traitlets.Int(-1).tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)

    def __init__(self, files: Sequence[File]) -> None:
        self._files = tuple(files)
        rows = [{"label": file.label, "words": file.words, "shown": file.shown} for file in files]
        super().__init__(rows=rows)
        self.on_msg(lambda _, content, __: self._press(content))

    def forget(self) -> None:
        """Closes the text that is read, once the page shows something else."""
        if self.reading >= 0 or self.note:
            self._say(-1, "", "")

    def _press(self, content: object) -> None:
        """Handles a press; a message that is none is ignored."""
        match content:
            case ["save" | "show" as verb, int() as place] if 0 <= place < len(self._files):
                file = self._files[place]
                try:
                    text = file.write()
                    if verb == "show" and file.shown and isinstance(text, str):
                        self._say(place, text, "")
                    else:
                        raw = text.encode() if isinstance(text, str) else text
                        hand_over(self, file.name, file.media, raw)
                        self._say(self.reading, self.text, f"Saved {file.name}, {size_words(len(raw))}.")
                except ConfigError as error:
                    self._say(-1, "", f"Refused: {refusal_in_words(error)}.", refused=True)

    def _say(self, place: int, text: str, note: str, *, refused: bool = False) -> None:
        self.text, self.reading, self.note, self.refused = text, place, note, refused
