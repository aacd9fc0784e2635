"""A saved race that is opened again: the control for its file, and its contents for the panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import traitlets

from explorer.app.race.plan import OWN, Plan
from explorer.app.race.preparation import Start
from explorer.app.roster import MOST
from explorer.app.widgets.file import LONGEST, FileEntry
from explorer.app.widgets.handing import size_words
from explorer.app.widgets.record import changed, record
from explorer.choices import ConfigError
from explorer.figures.palette import Design
from explorer.figures.race import CURVES, Course
from explorer.figures.race_maps import MAPS, layer_map
from explorer.text import prose

# A file that is too large for one message: it comes in parts, each of which is answered before the next is sent.


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


if TYPE_CHECKING:
    from explorer.training.race import Outcome, Race

LARGEST_BYTES = 100_000_000
"""Largest file: two minutes at the rate at which a server lets a visitor send."""
NOTE = "A race that was saved here or in Python opens where it stood, and goes on."


class Opened(NamedTuple):
    """A race from a file."""

    race: Race
    start: Start
    outcomes: list[Outcome]
    state: dict[str, Any]
    """The choices that would start it again, as `Preparation.restore` takes them."""


class RaceFile(LargeFile):
    """The entry.

    Args:
        refusal: says why no race can be opened now; empty when one can.
        take: is given the name and the bytes.
    """

    def __init__(self, refusal: Callable[[], str], take: Callable[[str, bytes], None]) -> None:
        super().__init__(label="Open a saved race", about="File of a saved race", accept=".zip,application/zip",
                         said=NOTE, most=LARGEST_BYTES)
        self._refusal, self._receive = refusal, take

    def refusal(self) -> str:
        """The reason why no race can be opened now."""
        return self._refusal()

    def read(self, name: str, raw: bytes) -> None:
        """Hands the file on."""
        if refusal := self.refusal():
            self.refuse(refusal)
        else:
            self.said = f"Reading {name} …"
            self._receive(name, raw)

    def put_back(self) -> None:
        """There is nothing in its place."""


def opened(raw: bytes, name: str) -> Opened:
    """Reads a race, and draws it once, so that a file with strange numbers is refused here. Imports torch.

    Raises:
        ConfigError: it is no race, or none that this page can show and run.
    """
    from explorer.training.archive import from_bytes

    race = from_bytes(raw, name)
    if len(race.contenders) > MOST:
        raise ConfigError(f"{name} must have at most {MOST} contenders to be shown; got {len(race.contenders)}")
    start = start_of(race)
    try:
        outcomes = race.verdict()
        course = Course.of(race, start.designs, outcomes)
        for curve in CURVES:
            curve.draw(course)
        for row in MAPS.values():
            layer_map(course, 0, row)
    except Exception as error:  # noqa: BLE001 - numbers from anybody
        raise ConfigError(f"{name} must have the readings of a race; got others ({type(error).__name__})") from None
    return Opened(race, start, outcomes, state_of(start))


def start_of(race: Race) -> Start:
    """Everything that the race started with.

    Raises:
        ConfigError: its size is none that the page's controls have.
    """
    first = race.contenders[0].config
    plan = Plan(
        **race.task.model_dump() | {name: getattr(first, name) for name in (*OWN, "n_ctx", "batch_size")},
        steps=race.steps, every=race.every,
        own_size=any(getattr(item.config, name) != getattr(first, name) for item in race.contenders for name in OWN),
    )
    text, usual = race.data.text, prose()
    own = text.vocabulary != usual.vocabulary or not np.array_equal(text.codes, usual.codes)
    designs = tuple(Design(place, contender.config, contender.name) for place, contender in enumerate(race.contenders))
    return Start(designs, tuple(contender.recipe for contender in race.contenders), plan, text if own else None)


def state_of(start: Start) -> dict[str, Any]:
    """The choices that start such a race."""
    contenders = [
        {"config": changed(design.config), "name": design.label, "recipe": changed(recipe), "sized": True,
         "index": design.index}
        for design, recipe in zip(start.designs, start.recipes, strict=True) if design.config
    ]
    return record(contenders=contenders, plan=changed(start.plan), selected=0)
