"""Files: those a person takes home, and those a browser hands over. Nothing on this machine is
opened.

The kernel makes the bytes of a file, and the browser saves them; text is shown on the page, too, to
be copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

import traitlets

from explorer.app.widgets.parts import Part, together
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import ConfigError

MOST, PART = 200_000_000, 1_000_000
"""Bytes of a file that goes through a browser's connection, and of each of its parts: a server
keeps no more for a visitor who does not read."""
AT_ONCE = 4
"""Files of a part that may be on their way; a browser that has gone never asks for the rest of
one."""
_coming: WeakKeyDictionary[Part, list[Callable[..., None]]] = WeakKeyDictionary()
"""By part of the page, its files that are on their way, the oldest first: of each the function that
listens to the browser and sends the next part."""


def hand_over(owner: Part, name: str, media: str, content: bytes) -> None:
    """Sends a file to the page of `owner`; `receiveFile` of `parts.js` saves it.

    A file of several parts is sent part by part: the browser asks for the next one when a part has
    arrived, by the message `["more", number, sent]` with the file's number and how many parts it
    has. A file that it does not ask for any more is dropped when `AT_ONCE` others are on their way.

    Args:
        owner: the part of the page whose channel is used.
        name, media: the file's name and media type.
        content: its bytes.
    Raises:
        ConfigError: it is too large for that.
    """
    if len(content) > MOST:
        raise ConfigError(
            f"{name} must have at most {size_words(MOST)} to go through a browser; "
            f"got {size_words(len(content))}"
        )
    count, number = max(1, math.ceil(len(content) / PART)), uuid4().hex
    sent = 0

    def send_next() -> None:
        """Sends the next part; after the last one the browser's messages are not heard."""
        nonlocal sent
        part = content[sent * PART : (sent + 1) * PART]
        sent += 1
        more = {"number": number, "left": count - sent} if count > 1 else {}
        owner.send({"file": name, "media": media, **more}, [part])
        if sent == count and answer in coming:
            end(answer)

    def answer(_owner: Part, message: object, _buffers: object) -> None:
        """Sends the next part if the browser asks for it, rather than for another file's."""
        if message == ["more", number, sent]:
            send_next()

    def end(listener: Callable[..., None]) -> None:
        """Ends the sending of a file, this one or another of `owner`."""
        coming.remove(listener)
        owner.on_msg(listener, remove=True)

    coming = _coming.setdefault(owner, [])
    if count > 1:
        if len(coming) == AT_ONCE:
            end(coming[0])  # the oldest: its browser may have gone
        coming.append(answer)
        owner.on_msg(answer)
    send_next()


def size_words(count: int) -> str:
    """'31 kB' or '2.4 MB'."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"


class File(NamedTuple):
    """A file that is offered."""

    label: str
    words: str
    """Its content, in a short sentence."""
    name: str
    media: str
    write: Callable[[], str | bytes]
    """The text, or bytes that nobody reads here, as the page stands; may refuse by a
    `ConfigError`."""
    shown: bool = True
    """Whether a person may want to read it here."""

    def hand_to(self, owner: Part) -> str:
        """Writes the file, and sends it to the views of `owner`; gives the words for that.

        Raises:
            ConfigError: it cannot be written now, or is too large.
        """
        content = self.write()
        raw = content.encode() if isinstance(content, str) else content
        hand_over(owner, self.name, self.media, raw)
        return f"Saved {self.name}, {size_words(len(raw))}."


class TakeHome(Part):
    """The fold.

    Args:
        files: the offered files, a row each.

    Traits:
        rows: `[{label, words, shown}]`.
        text, reading: what is read, and the place of its row; below 0 none is.
        note: the outcome of the last press; `refused` if it was refused.

    A press is the message `["save", place]` or `["show", place]`.
    """

    view = "takehome"
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
                    if verb == "show" and file.shown and isinstance(text := file.write(), str):
                        self._say(place, text, "")
                    else:
                        self._say(self.reading, self.text, file.hand_to(self))
                except ConfigError as error:
                    self._say(-1, "", f"Refused: {refusal_in_words(error)}.", refused=True)

    def _say(self, place: int, text: str, note: str, *, refused: bool = False) -> None:
        self.text, self.reading, self.note, self.refused = text, place, note, refused


LONGEST = 60
"""Letters of a file's name that are shown."""


class FileEntry(Part):
    """A file entry, and a button for what stands in the file's place. A subclass says what becomes
    of a file.

    A file comes in parts, each answered before the next is sent: the message `["begin", name,
    size]`, then `["part", offset]` with bytes beside it. Each is answered by `{"got": n}`, the
    bytes that are here; -1 ends it. `["other"]` is the button.

    Traits:
        label, about, accept, other: words of the entry, for a screen reader, kinds of files, words
            of the button.
        now: the file in use.
        said: the outcome of the last choice; `refused` if it was refused.
        own: whether it is a file of a person's own, so that there is a way back.
        most: the largest number of bytes; `part` those of a part.
    """

    view = "file"
    label = traitlets.Unicode().tag(sync=True)
    about = traitlets.Unicode().tag(sync=True)
    accept = traitlets.Unicode().tag(sync=True)
    other = traitlets.Unicode().tag(sync=True)
    now = traitlets.Unicode().tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)
    own = traitlets.Bool(False).tag(sync=True)
    most = traitlets.Int().tag(sync=True)
    part = traitlets.Int(PART).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        self._name, self._size, self._held = "", 0, bytearray()
        super().__init__(**traits)
        self.on_msg(self._take)

    def receive(self, name: str, raw: bytes) -> None:
        """Takes a file of at most `most` bytes."""
        raise NotImplementedError

    def put_back(self) -> None:
        """Takes what stands in a file's place."""
        raise NotImplementedError

    def use(self, words: str, said: str = "", *, own: bool) -> None:
        """Says which file is used from now on, and whether it is a person's own."""
        with together():
            self.now, self.own, self.said, self.refused = words, own, said, False

    def refuse(self, sentence: str) -> None:
        """Says why the last choice will not do; what was used stays."""
        with together():
            self.said, self.refused = sentence, True

    def _take(self, _: object, content: object, buffers: Sequence[bytes] | None) -> None:
        """Handles a choice; a message that is none is ignored."""
        match content:
            case ["begin", str() as name, int() as size]:
                self.send({"got": self._begin(name[:LONGEST], size)})
            case ["part", int() as offset] if buffers:
                self.send({"got": self._add(offset, bytes(buffers[0]))})
            case ["other"]:
                self.put_back()

    def _begin(self, name: str, size: int) -> int:
        """Prepares for a file; what there is of another one is dropped."""
        self._name, self._size, self._held = name, 0, bytearray()
        if not 0 < size <= self.most:
            most, got = size_words(self.most), size_words(size)
            self.refuse(
                f"Refused: {name} must have at most {most} to be sent, and not be empty; got {got}."
            )
        else:
            self._size = size
            with together():
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
            self.receive(self._name, raw)
            return len(raw)
        return len(self._held)
