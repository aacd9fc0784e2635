"""`Lineup`: the contenders of the next race, each a design with a recipe. No widgets, no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from explorer.app.design_names import cut, lowered, name_of, tidied
from explorer.app.roster import MOST, Entry, Roster
from explorer.app.widgets.wording import in_words
from explorer.config import preset
from explorer.schemes.preset import PRESETS
from explorer.training.recipe import Recipe

USUAL = Recipe(learning_rate=5e-4)
"""Recipe of a new contender. At 1e-3 warm-up rescues Post-LN in fewer draws."""
WARMUP = 300
"""Steps of warm-up that rescue it: at 12 layers of width 64, after 500 steps, seeds 0, 1 and 2 stand at 3.15, 2.77 and
2.65 nats held out, and without warm-up at 3.25, 3.24 and 3.18; the unigram's level is 3.26."""


@dataclass(frozen=True)
class Contender(Entry):
    """A design, its training, and where it came from; the race may decide about its size."""

    base: str = ""
    """Name of its design, which starts its automatic name."""
    recipe: Recipe = USUAL
    sized: bool = False
    """Whether its size is its own: a pinned design has one, a named one has not."""


class Lineup(Roster[Contender]):
    """The contenders; those without a given name are named by their design and their recipes' differences."""

    entry = Contender
    noun = "contender"
    full = f"At most {MOST} contenders race: remove one first."
    recorded = MappingProxyType({**Roster.recorded, "recipe": Recipe, "base": str, "sized": bool})

    def add(self, entry: Contender) -> Contender:
        """Adds a contender; see `Roster`."""
        return super().add(replace(entry, base=cut(tidied(entry.base)) or name_of(entry.config)))

    def automatic(self, entry: Contender) -> str:
        """The design's name, and of the recipe what sets it apart from the others of that design."""
        kin = [other for other in self if other.base == entry.base and other.number != entry.number]
        fields = [
            name for name in Recipe.specs()
            if any(getattr(other.recipe, name) != getattr(entry.recipe, name) for other in kin)
        ]
        return cut(", ".join([entry.base, *(field_words(name, entry.recipe) for name in fields)]))


def named_design(name: str, recipe: Recipe = USUAL) -> Contender:
    """A contender from the list of named designs."""
    return Contender(preset(name), base=PRESETS[name].title, recipe=recipe)


def first_lineup() -> Lineup:
    """Contenders when a page is opened: Post-LN without and with warm-up, and two designs that need none."""
    lineup = Lineup()
    for name, warmup in (("post_ln", 1), ("post_ln", WARMUP), ("pre_ln", 1), ("rezero", 1)):
        lineup.add(named_design(name, USUAL.replace(warmup=warmup)))
    return lineup


def field_words(name: str, recipe: Recipe) -> str:
    """One choice of a recipe in words, for a name."""
    value = getattr(recipe, name)
    if name == "warmup":
        return f"warm-up {value}" if value > 1 else "no warm-up"
    label = Recipe.specs()[name].about.label
    return in_words(value) if isinstance(value, str) else f"{lowered(label)} {in_words(value)}"


def recipe_words(recipe: Recipe) -> str:
    """A recipe in a line: 'adam 0.0005, T 300'; usual values are left out."""
    more = [
        field_words(name, recipe) for name in Recipe.specs()
        if name not in ("optimizer", "learning_rate", "warmup") and getattr(recipe, name) != getattr(USUAL, name)
    ]
    warmup = [f"T {recipe.warmup}"] if recipe.warmup > 1 else []
    return ", ".join([f"{in_words(recipe.optimizer)} {in_words(recipe.learning_rate)}", *warmup, *more])
