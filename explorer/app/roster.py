"""`Roster`: designs with a name and a hue of their own: pins on the charts, contenders of a race;
and its chips.

A design keeps its hue for as long as it is there, whatever becomes of the others; a hue that is
free again may be given to the next one. Messages from a browser come to `obey`, and are not
believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import traitlets
from pydantic import ConfigDict

from explorer.app.sentences import LONGEST_NAME, design_words, tidied, unique
from explorer.app.widgets.parts import Part, together
from explorer.config import Config
from explorer.figures.palette import HUES, LegendEntry, Look

MOST = len(HUES)
"""Most designs whose hues can be distinguished."""
LONGEST_TEXT = 1000
"""Letters of a name that are read: a browser can send any number."""


class RosterError(ValueError):
    """A change was refused; the message is one sentence, or empty where nobody can have wanted
    it."""


@dataclass(frozen=True)
class Entry:
    """A design in a roster; what else is known of it is added by its own kind of entry."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    """So that a link's state is refused where it says something else."""
    config: Config
    name: str = ""
    """The name that was given to it; empty where it is automatic."""
    visible: bool = True
    index: int = -1
    """Its hue, symbol and dash; below 0, the first that are free."""
    number: int = 0
    """Identifier for the browser; counts up, never used twice."""


Kind = TypeVar("Kind", bound=Entry)


class Roster(Generic[Kind]):
    """Entries, in the order they came. A kind of roster says what its entries are in the attributes
    below."""

    entry: type[Kind]
    """The class of its entries."""
    noun: ClassVar[str] = "design"
    full: ClassVar[str] = f"At most {MOST} designs: remove one first."
    first: ClassVar[int] = 0
    """The first hue that may be given."""
    recorded: ClassVar[Mapping[str, type]] = MappingProxyType(
        {"config": Config, "name": str, "visible": bool, "index": int}
    )
    """The fields of an entry that a person sets, and their types."""

    def __init__(self) -> None:
        self._entries: dict[int, Kind] = {}
        self._last = 0

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, number: object) -> bool:
        return number in self._entries

    def __getitem__(self, number: int) -> Kind:
        return self._entries[number]

    def automatic(self, _: Kind) -> str:
        """Name of an entry that was given none; empty where it must have one."""
        return ""

    def names(self) -> dict[int, str]:
        """Number to name, all different."""
        names = {entry.number: entry.name for entry in self if entry.name}
        for entry in self:
            if not entry.name:
                names[entry.number] = unique(self.automatic(entry), names.values())
        return {entry.number: names[entry.number] for entry in self}

    def designs(self) -> dict[int, LegendEntry]:
        """Number to name and marks."""
        names = self.names()
        return {
            entry.number: LegendEntry(entry.index, entry.config, names[entry.number])
            for entry in self
        }

    def add(self, entry: Kind) -> Kind:
        """Adds an entry, which gets a number, and a hue where its own is taken.

        Raises:
            RosterError: there is no hue left.
        """
        free = sorted(set(range(self.first, MOST)) - {other.index for other in self})
        if not free:
            raise RosterError(self.full)
        self._last += 1
        self._entries[self._last] = replace(
            entry,
            number=self._last,
            index=entry.index if entry.index in free else free[0],
        )
        return self._entries[self._last]

    def change(self, number: int, **fields: Any) -> None:
        """Changes some fields of an entry."""
        self._entries[number] = replace(self._entries[number], **fields)

    def remove(self, number: int) -> str:
        """Removes an entry, whose hue is free again; gives its name."""
        name = self.names()[number]
        del self._entries[number]
        return name

    def rename(self, number: int, text: str) -> str:
        """Gives an entry a name; an empty one restores the automatic name.

        Returns:
            A message for the page; empty when the name is taken as it was given.
        Raises:
            RosterError: the name is another's, or empty where there is no automatic one.
        """
        wanted, names = tidied(text[:LONGEST_TEXT]), self.names()
        name, current = wanted[:LONGEST_NAME].rstrip(), quoted(names.pop(number))
        if name and name in names.values():
            raise RosterError(
                f"Another {self.noun} is called {quoted(name)}; this one keeps {current}."
            )
        if not name and not self.automatic(self[number]):
            raise RosterError(f"A design needs a name; this one keeps {current}.")
        self.change(number, name=name)
        if not name:
            return f"Automatic name: {quoted(self.names()[number])}."
        return (
            f"Names have at most {LONGEST_NAME} letters: cut to {quoted(name)}."
            if name != wanted
            else ""
        )

    def obey(self, message: object) -> str:
        """Makes the change of a chip: `["name", 3, "Deep"]`, `["show", 3]`, `["hide", 3]` or
        `["remove", 3]`.

        Returns:
            A message for the page.
        Raises:
            RosterError: it is refused, or no chip sends such a message.
        """
        match message:
            case ["name", int() as number, str() as text] if number in self:
                return self.rename(number, text)
            case ["show" | "hide" as verb, int() as number] if number in self:
                self.change(number, visible=verb == "show")
                return ""
            case ["remove", int() as number] if number in self:
                return f"Removed {quoted(self.remove(number))}."
        raise RosterError("")

    @property
    def entries(self) -> tuple[Kind, ...]:
        """A person's settings of each entry, for `restore`."""
        return tuple(
            self.entry(**{name: getattr(entry, name) for name in self.recorded}) for entry in self
        )

    def restore(self, entries: Iterable[Kind]) -> list[str]:
        """Replaces all entries.

        Returns:
            A sentence for each entry that was refused, or was called like another one.
        """
        self._entries.clear()
        sentences: list[str] = []
        for number, entry in enumerate(entries, start=1):
            where, name = (
                f"{self.noun} {number}",
                tidied(entry.name[:LONGEST_TEXT])[:LONGEST_NAME].rstrip(),
            )
            if name and name in {other.name for other in self}:
                sentences.append(f"{where}: another {self.noun} is called {quoted(name)}")
                name = ""
            try:
                self.add(replace(entry, name=name))
            except RosterError as error:
                sentences.append(f"{where}: {error}")
        return sentences


def quoted(name: str) -> str:
    """A name within a sentence."""
    return f"“{name}”"


class RosterBox(Part):
    """Chips with a swatch, a name that can be edited, a line of words, and buttons.

    Traits:
        noun: word for an entry, as labels for screen readers have it.
        heading: title of the list.
        verbs: the buttons of a chip: `hide` (`show` where it is hidden), `load`, `remove`.
        entries: `[{number, name, about, visible, selected, hue, symbol, dash}]`.
        choices: designs to add, `[{group, value, label}]`; without any, the current design can be
            pinned, and with them `about` is a button that selects an entry.
        now: the current design, `{name, hue, symbol, dash}`.
        marks: phrases beside it: what dots and lines mean.
        said: result of the last click, where it needs words; read out.
        longest: letters of a name that make sense.
        answers: counts the messages that were answered, so that each answer is noticed.

    A click is a message, `["pin"]`, `["add", "preset:rezero"]`, or a verb and a number, as in
    `["select", 3]`."""

    view = "roster_box"
    noun = traitlets.Unicode().tag(sync=True)
    heading = traitlets.Unicode().tag(sync=True)
    verbs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    entries = traitlets.List(traitlets.Dict()).tag(sync=True)
    choices = traitlets.List(traitlets.Dict()).tag(sync=True)
    now = traitlets.Dict().tag(sync=True)
    marks = traitlets.List(traitlets.Unicode()).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    longest = traitlets.Int(LONGEST_NAME).tag(sync=True)
    answers = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, on_click: Callable[[object], None] = lambda message: None, **traits: Any
    ) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _, message, __: on_click(message))

    def answer(self, said: str) -> None:
        """Ends a click: in words, or without any where what happened is seen."""
        with together():
            self.said, self.answers = said, self.answers + 1

    def show(self, roster: Roster[Kind], about: Callable[[Kind], str], selected: int = 0) -> None:
        """Updates the chips; `about` gives the words of each."""
        designs = roster.designs()
        self.entries = [
            {
                "number": entry.number,
                "name": designs[entry.number].label,
                "about": about(entry),
                "visible": entry.visible,
                "selected": entry.number == selected,
                **swatch(designs[entry.number]),
            }
            for entry in roster
        ]


def swatch(look: Look) -> dict[str, str]:
    """The marks of a design."""
    return {"hue": look.hue, "symbol": look.symbol, "dash": look.dash}


def legend_entry(design: LegendEntry, name: str, config: Config) -> dict[str, str]:
    """A design in the legend of a picture that is saved."""
    return {"name": name, "about": design_words(config), **swatch(design)}
