"""`Lineup` and `Plan`: contenders of the next race, its size and its task. No widgets, no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from pydantic import model_validator

from explorer.app.roster import MOST, Entry, Roster
from explorer.app.sentences import cut, lowered, name_of, tidied
from explorer.app.widgets.wording import in_words
from explorer.config import Config, preset
from explorer.fields import setting
from explorer.memory import environment
from explorer.schemes.preset import PRESETS
from explorer_race.recipe import Recipe
from explorer_race.tasks import Task

USUAL = Recipe(learning_rate=5e-4)
"""Recipe of a new contender. At 1e-3 warm-up rescues Post-LN in fewer draws."""
WARMUP = 300
"""Steps of warm-up that rescue it: at 12 layers of width 64, after 500 steps, seeds 0, 1 and 2
stand at 3.15, 2.77 and
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
    """The contenders; those without a given name are named by their design and their recipes'
    differences."""

    entry = Contender
    noun = "contender"
    full = f"At most {MOST} contenders race: remove one first."
    recorded = MappingProxyType({**Roster.recorded, "recipe": Recipe, "base": str, "sized": bool})

    def add(self, entry: Contender) -> Contender:
        """Adds a contender; see `Roster`."""
        return super().add(replace(entry, base=cut(tidied(entry.base)) or name_of(entry.config)))

    def automatic(self, entry: Contender) -> str:
        """The design's name, and of the recipe what sets it apart from the others of that
        design."""
        kin = [other for other in self if other.base == entry.base and other.number != entry.number]
        fields = [
            name
            for name in Recipe.specs()
            if any(getattr(other.recipe, name) != getattr(entry.recipe, name) for other in kin)
        ]
        return cut(", ".join([entry.base, *(field_words(name, entry.recipe) for name in fields)]))


def named_design(name: str, recipe: Recipe = USUAL) -> Contender:
    """A contender from the list of named designs."""
    return Contender(preset(name), base=PRESETS[name].title, recipe=recipe)


def first_lineup() -> Lineup:
    """Contenders when a page is opened: Post-LN without and with warm-up, and two designs that need
    none."""
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
        field_words(name, recipe)
        for name in Recipe.specs()
        if name not in ("optimizer", "learning_rate", "warmup")
        and getattr(recipe, name) != getattr(USUAL, name)
    ]
    warmup = [f"T {recipe.warmup}"] if recipe.warmup > 1 else []
    return ", ".join(
        [f"{in_words(recipe.optimizer)} {in_words(recipe.learning_rate)}", *warmup, *more]
    )


# The plan of a race: size and task, one record for all contenders.


USUAL_STEPS, LONGEST = 500, 100_000
"""Steps of a race at first, which no limit forbids, and at most; EXPLORER_RACE_STEPS lowers the
limit."""
OWN = ("n_layers", "d_model", "n_heads")
"""Sizes that a pinned design may keep; sequences and batches are the same for all."""


class Plan(Task):
    """Task, size of the models, and number of steps.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or sizes that exclude
            each other.
    """

    n_layers: int = setting(
        12,
        "Depth",
        "Size",
        "Layers of every contender.",
        1,
        128,
        symbol="N",
        unit="layers",
        log=True,
        pinned=True,
    )
    d_model: int = setting(
        64,
        "Width",
        "Size",
        "Width of every contender's residual stream.",
        8,
        1024,
        symbol="d",
        unit="features",
        log=True,
        pinned=True,
    )
    steps: int = setting(
        USUAL_STEPS,
        "Steps",
        "Race",
        "Steps of each contender, and length of a decay.",
        1,
        LONGEST,
        log=True,
        pinned=True,
    )
    n_heads: int = setting(
        4, "Heads", "Size", "Attention heads; they divide the width.", 1, 64, log=True
    )
    n_ctx: int = setting(
        64,
        "Sequence length",
        "Size",
        "Characters in a sequence.",
        2,
        1024,
        symbol="n",
        unit="characters",
        log=True,
    )
    batch_size: int = setting(
        16,
        "Batch size",
        "Size",
        "Sequences in a batch.",
        1,
        256,
        symbol="B",
        unit="sequences",
        log=True,
    )
    own_size: bool = setting(
        False,
        "Pinned designs keep their size",
        "Size",
        "Depth, width and heads of a pinned design are its own; off: all have those given here.",
    )
    every: int = setting(
        10,
        "Instruments every",
        "Task",
        "Steps between readings of gradients, updates, attention and the held-out loss.",
        1,
        1000,
        symbol="k",
        unit="steps",
        log=True,
    )

    spectra: bool = setting(
        False,
        "Spectra of matrices",
        "Task",
        "Also reads the largest singular value and "
        "stable rank of each update, and each head's largest possible logit.",
        advanced=True,
    )
    positions: bool = setting(
        False,
        "Statistics by position",
        "Task",
        "Also reads second moment, correlation, entropy and attention received by token position.",
        advanced=True,
    )
    seed: int = setting(
        1,
        "Seed",
        "Task",
        "Seed of the weights and of the batches; the batches are the same for all.",
        0,
        2**31 - 1,
    )

    @model_validator(mode="after")
    def _sizes_agree(self) -> Plan:
        self.fit(self.sized(Config(), own=False))  # which refuses in the same words
        most = max(USUAL_STEPS, int(environment("EXPLORER_RACE_STEPS", LONGEST)))
        if self.steps > most:
            raise self.refusal(
                f"{{steps}} must be at most {most} on this server; got {self.steps}", steps=most
            )
        return self

    @property
    def task(self) -> Task:
        """The task alone."""
        return Task(**{name: getattr(self, name) for name in Task.specs()})

    def sized(self, config: Config, *, own: bool) -> Config:
        """A design in the plan's size.

        Args:
            own: whether the design has a size of its own, which counts where `own_size` says so.
        """
        names = ("n_ctx", "batch_size", "seed", *(() if own and self.own_size else OWN))
        return config.replace(**{name: getattr(self, name) for name in names})


class RacePart(NamedTuple):
    """Settings of the Race panel."""

    contenders: tuple[Contender, ...] = first_lineup().entries
    plan: Plan = Plan()
    selected: int = 0
    """Position of the contender whose recipe is shown, from 0."""
