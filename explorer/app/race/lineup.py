"""`Lineup`: the contenders of the next race, each with a name, marks and a recipe. No widgets, no torch.

A contender keeps its hue for as long as it is in the lineup, whatever becomes of the others; a hue that is free again
may be given to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from explorer.app.named import LONGEST_NAME, cut, lowered, tidied
from explorer.app.widgets.controls import shown
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.figures.palette import HUES, Design
from explorer.presets import PRESETS, preset
from explorer.training.recipe import Recipe

MOST = len(HUES)
"""Contenders, at most."""
USUAL = Recipe(learning_rate=5e-4)
"""Recipe of a new contender. At 1e-3 warm-up rescues Post-LN in fewer draws."""
WARMUP = 300
"""Steps of warm-up that rescue it: at 12 layers of width 64, after 500 steps, seeds 0, 1 and 2 stand at 3.15, 2.77 and
2.65 nats held out, and without warm-up at 3.25, 3.24 and 3.18; the unigram's level is 3.26."""


class LineupError(ConfigError):
    """A change of the lineup was refused; the message is one sentence."""


@dataclass(frozen=True)
class Entry:
    """One contender."""

    number: int
    """Identifier for the browser; counts up, never used twice."""
    index: int
    """Its hue, symbol and dash."""
    base: str
    """Name of its design."""
    config: Config
    """Its design; the race may decide about its size."""
    recipe: Recipe
    sized: bool = False
    """Whether its size is its own: a pinned design has one, a named one has not."""
    given: str = ""
    """Name given by a person; empty where the name is automatic."""


class Lineup:
    """The contenders, in the order they came."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._last = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, number: object) -> bool:
        return number in self._entries

    def __getitem__(self, number: int) -> Entry:
        return self._entries[number]

    def add(self, base: str, config: Config, recipe: Recipe, *, sized: bool = False) -> Entry:
        """Adds a contender.

        Raises:
            LineupError: there is no hue left.
        """
        free = sorted(set(range(MOST)) - {entry.index for entry in self})
        if not free:
            raise LineupError(f"At most {MOST} contenders race: remove one first.")
        self._last += 1
        entry = Entry(self._last, free[0], base, config, recipe, sized)
        self._entries[entry.number] = entry
        return entry

    def remove(self, number: int) -> Entry:
        """Removes a contender; its hue is free again."""
        return self._entries.pop(number)

    def train(self, number: int, recipe: Recipe) -> None:
        """Gives a contender another recipe."""
        self._entries[number] = replace(self._entries[number], recipe=recipe)

    def rename(self, number: int, text: str) -> str:
        """Gives a contender a name; an empty one restores the automatic name.

        Returns:
            A message for the page; empty when the name is taken as it was given.
        Raises:
            LineupError: the name is another's.
        """
        name = tidied(text)
        taken = name[:LONGEST_NAME].rstrip()
        holder = next((other for other, held in self.names().items() if held == taken and other != number), None)
        if taken and holder is not None:
            raise LineupError(f"Another contender is called “{taken}”; this one keeps “{self.names()[number]}”.")
        self._entries[number] = replace(self._entries[number], given=taken)
        if not taken:
            return f"Automatic name: “{self.names()[number]}”."
        return f"Names have at most {LONGEST_NAME} letters: cut to “{taken}”." if taken != name else ""

    def names(self) -> dict[int, str]:
        """Number to name, all different: given ones, or the design's and, where several share it, the recipe's."""
        names: dict[int, str] = {entry.number: entry.given for entry in self if entry.given}
        for entry in self:
            if entry.given:
                continue
            name = self._automatic(entry)
            others = set(names.values())
            count = 1
            while (numbered := name if count == 1 else f"{name} ({count})") in others:
                count += 1
            names[entry.number] = numbered
        return {entry.number: names[entry.number] for entry in self}

    def designs(self) -> list[Design]:
        """The marks and the name of each."""
        names = self.names()
        return [Design(entry.index, entry.config, names[entry.number]) for entry in self]

    def _automatic(self, entry: Entry) -> str:
        """The design's name, and of the recipe what sets it apart from the others of that design."""
        kin = [other for other in self if other.base == entry.base and other.number != entry.number]
        fields = [
            name for name in Recipe.specs()
            if any(getattr(other.recipe, name) != getattr(entry.recipe, name) for other in kin)
        ]
        name = ", ".join([entry.base, *(field_words(name, entry.recipe) for name in fields)])
        return cut(name)


def usual() -> Lineup:
    """Contenders when a page is opened: Post-LN without and with warm-up, and two designs that need none."""
    lineup = Lineup()
    for name, warmup in (("post_ln", 1), ("post_ln", WARMUP), ("pre_ln", 1), ("rezero", 1)):
        lineup.add(PRESETS[name].title, preset(name), USUAL.replace(warmup=warmup))
    return lineup


def field_words(name: str, recipe: Recipe) -> str:
    """One choice of a recipe in words, for a name."""
    value = getattr(recipe, name)
    if name == "warmup":
        return f"warm-up {value}" if value > 1 else "no warm-up"
    label = Recipe.specs()[name].about.label
    return shown(value) if isinstance(value, str) else f"{lowered(label)} {shown(value)}"


def recipe_words(recipe: Recipe) -> str:
    """A recipe in a line: 'adam 0.0005, T 300'; usual values are left out."""
    more = [
        field_words(name, recipe) for name in Recipe.specs()
        if name not in ("optimizer", "learning_rate", "warmup") and getattr(recipe, name) != getattr(USUAL, name)
    ]
    warmup = [f"T {recipe.warmup}"] if recipe.warmup > 1 else []
    return ", ".join([f"{shown(recipe.optimizer)} {shown(recipe.learning_rate)}", *warmup, *more])
