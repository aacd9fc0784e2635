"""Choices for the next race: its contenders, their recipes, the size and the task of all, the
text."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from explorer.app.explore.selections import named_options
from explorer.app.roster import RosterBox, RosterError, quoted
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.files import FileEntry
from explorer.app.widgets.parts import Part, Words
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.figures.palette import LegendEntry
from explorer.schemes.preset import PRESETS
from explorer.text import LARGEST_BYTES, Text, decode
from explorer_race.history import Terms
from explorer_race.page.lineup import Contender, Lineup, Plan, RacePart, named_design, recipe_words
from explorer_race.recipe import Recipe, idle
from explorer_race.tasks import Data

HEADING, WHILE_RUNNING = "Contenders", "Contenders of the next race"
PROSE = "Python's own prose"


class TextFile(FileEntry):
    """The entry, and `text`: the file's content, or None for Python's prose.

    Args:
        check: raises ConfigError for a text that the next race could not learn.
    """

    def __init__(self, check: Callable[[Text], object] = lambda text: None) -> None:
        super().__init__(
            label="Text",
            about="Text file of your own, UTF-8",
            accept=".txt,.md,.csv,text/*",
            other="Use Python's prose",
            now=PROSE,
            most=LARGEST_BYTES,
        )
        self.text: Text | None = None
        self._check = check

    def receive(self, name: str, raw: bytes) -> None:
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

    def _use(self, text: Text | None, words: str) -> None:
        self.text = text
        self.use(words, f"The next race learns {words}.", own=text is not None)


class Start(NamedTuple):
    """Everything that a race starts with: nothing that moves later changes it."""

    designs: tuple[LegendEntry, ...]
    """The marks and the name of each contender, and its config in the size of the race."""
    recipes: tuple[Recipe, ...]
    plan: Plan
    text: Text | None = None

    @classmethod
    def of(cls, lineup: Lineup, plan: Plan, text: Text | None = None) -> Start:
        """A line-up in the size that a plan gives it.

        Raises:
            ConfigError: a design cannot have the size.
        """
        designs = lineup.designs()
        sized = (
            replace(designs[entry.number], config=plan.sized(entry.config, own=entry.sized))
            for entry in lineup
        )
        return cls(tuple(sized), tuple(entry.recipe for entry in lineup), plan, text)

    @property
    def saved_bytes(self) -> int:
        """About the size of the saved race: every weight with two moments."""
        return sum(
            12 * design.config.sizes.n_parameters for design in self.designs if design.config
        )

    @property
    def terms(self) -> Terms:
        """These choices without marks, the designs as the task has them."""
        plan = self.plan
        return Terms(
            [
                (design.label, plan.task.fit(design.config), recipe)
                for design, recipe in zip(self.designs, self.recipes, strict=True)
                if design.config
            ],
            plan.task,
            plan.steps,
            plan.every,
            self.text,
            plan.spectra,
            plan.positions,
        )


class Preparation:
    """The controls beside the pictures.

    Args:
        lineup: the contenders at first.
        plan: the task and the steps at first.
        on_change: called when anything was changed, or refused.
    """

    def __init__(self, lineup: Lineup, plan: Plan, on_change: Callable[[], None]) -> None:
        self.lineup, self._on_change = lineup, on_change
        self.selected = 0
        self._offered: dict[str, Contender] = {}
        self.recipe_heading = Words().add_class("ex-side-heading")
        self.contenders = RosterBox(
            self._click, noun="contender", heading=HEADING, verbs=["remove"]
        )
        first = next((entry.recipe for entry in lineup), Recipe())
        self.recipe: Controls[Recipe] = Controls(first, self._tune, label="Recipe")
        self.plan: Controls[Plan] = Controls(plan, on_change, label="Size and task")
        self.text = TextFile(self._check)
        common = Words(value="<h3>Size and task, of all</h3>").add_class("ex-side-heading")
        self.side = Part(
            [
                self.contenders,
                self.recipe_heading,
                self.recipe,
                common,
                self.plan,
                self.text,
            ]
        ).add_class("ex-side")
        self.welcome(())

    @property
    def refused(self) -> Controls[Any] | None:
        """The controls that hold a refused choice."""
        return next((controls for controls in (self.recipe, self.plan) if controls.refusal), None)

    @property
    def refusal(self) -> str:
        """The reason why no race can be started; empty when one can."""
        if not len(self.lineup):
            return "a race needs a contender; add one"
        return self.refused.refusal if self.refused else ""

    def start(self) -> Start:
        """Everything that a race starts with.

        Raises:
            ConfigError: there is a refusal, or a design cannot have the size.
        """
        if self.refusal:
            raise ConfigError(self.refusal)
        return Start.of(self.lineup, self.plan.config, self.text.text)

    @property
    def part(self) -> RacePart:
        """All that is set, but for a text of one's own."""
        numbers = [entry.number for entry in self.lineup]
        return RacePart(
            self.lineup.entries, self.plan.config, numbers.index(self.selected) if numbers else 0
        )

    def restore(self, part: RacePart) -> None:
        """Replaces the contenders, and sets the controls."""
        self.lineup.restore(part.contenders)
        self.selected = [*(entry.number for entry in self.lineup), 0][part.selected]
        self.plan.apply(part.plan.model_dump())
        self._follow()
        self._on_change()

    def undo(self) -> None:
        """Undoes refused choices."""
        while refused := self.refused:
            refused.apply({})

    def welcome(self, designs: Sequence[tuple[str, Config]]) -> None:
        """Offers designs, by name, beside the named ones."""
        named = [option | {"value": f"preset:{option['value']}"} for option in named_options()]
        pinned = [
            {
                "value": f"pin:{number}",
                "label": name,
                "formula": "",
                "group": "Explore page",
                "find": name,
            }
            for number, (name, _) in enumerate(designs)
        ]
        self._offered = {f"preset:{name}": named_design(name) for name in PRESETS} | {
            f"pin:{number}": Contender(config, base=name, sized=True)
            for number, (name, config) in enumerate(designs)
        }
        self.contenders.choices = named + pinned
        self._follow()

    def _check(self, text: Text) -> None:
        """Raises ConfigError if a text cannot be learned as the controls have it: too repetitive,
        too short."""
        plan = self.plan.config
        Data(plan.task, text, plan.n_ctx, plan.batch_size)

    def _click(self, message: object) -> None:
        """Handles a click on the contenders; messages that make no sense are ignored."""
        try:
            said = self._obey(message)
        except RosterError as error:
            said = str(error)
        self._follow()
        self.contenders.answer(said)
        self._on_change()

    def _obey(self, message: object) -> str:
        match message:
            case ["add", str() as key] if key in self._offered:
                self.selected = self.lineup.add(self._offered[key]).number
                return f"Added {quoted(self.lineup.names()[self.selected])}; its recipe is shown below."
            case ["select", int() as number] if number in self.lineup:
                self.selected = number
                return ""
        return self.lineup.obey(message)

    def _follow(self) -> None:
        """Updates the list of contenders, and shows the recipe of the selected one in the
        controls."""
        if self.selected not in self.lineup:
            self.selected = next((entry.number for entry in self.lineup), 0)
        self.contenders.show(self.lineup, lambda entry: recipe_words(entry.recipe), self.selected)
        name = self.lineup.names().get(self.selected, "")
        self.recipe_heading.value = f"<h3>Recipe{' of ' * bool(name)}{html.escape(name)}</h3>"
        if self.selected in self.lineup:
            self.recipe.apply(self.lineup[self.selected].recipe.model_dump())
            reasons = idle(self.lineup[self.selected].config)
            self.recipe.rule_out({field: reason for field, (reason, _) in reasons.items()})

    def _tune(self) -> None:
        """Handles a change of the recipe's controls."""
        recipe = self.recipe.config
        of_selected = not self.recipe.refusal and self.selected in self.lineup
        if of_selected and self.lineup[self.selected].recipe != recipe:
            self.lineup.change(self.selected, recipe=recipe)
            self._follow()
        self._on_change()
