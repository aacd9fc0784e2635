"""Choices for the next race: its contenders, their recipes, the size and the task of all, the text."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import ipywidgets as widgets

from explorer.app.race.contenders import HEADING, WHILE, ContenderBox, Contenders
from explorer.app.race.lineup import Lineup
from explorer.app.race.plan import Plan
from explorer.app.race.textfile import TextFile
from explorer.app.widgets.controls import Controls
from explorer.config import Config
from explorer.figures.palette import Design
from explorer.text import Text
from explorer.training.recipe import Recipe
from explorer.training.tasks import Data


class Start(NamedTuple):
    """Everything that a race starts with: nothing that moves later changes it."""

    lineup: tuple[tuple[Design, Config, Recipe], ...]
    """The marks and the name of each contender, its design, and its recipe."""
    plan: Plan
    text: Text | None

    @property
    def designs(self) -> list[Design]:
        """Marks and names."""
        return [design for design, _, _ in self.lineup]


class Preparation:
    """The controls beside the pictures.

    Args:
        lineup: who is in it at first.
        plan: what they learn at first, and for how long.
        lock: keeps other threads out.
        on_change: called when anything was changed, or refused.
    """

    def __init__(self, lineup: Lineup, plan: Plan, lock: AbstractContextManager[object],
                 on_change: Callable[[], None]) -> None:
        self._lock, self._on_change = lock, on_change
        self._heading = widgets.HTML().add_class("ex-side-heading")
        self.recipe: Controls[Recipe] = Controls(next((entry.recipe for entry in lineup), Recipe()), self._tune,
                                                 label="Recipe")
        self.plan: Controls[Plan] = Controls(plan, on_change, label="Size and task")
        self.text = TextFile(self._learn)
        self.contenders = Contenders(lineup, ContenderBox(self._click), self._follow)
        common = widgets.HTML("<h3>Size and task, of all</h3>").add_class("ex-side-heading")
        self.box = widgets.Box([
            self.contenders.box, self._heading, self.recipe, common, self.plan, self.text,
        ]).add_class("ex-side")

    @property
    def refusal(self) -> str:
        """The reason why no race can be started; empty when one can."""
        if not len(self.contenders.lineup):
            return "a race needs a contender; add one"
        return self.recipe.refusal or self.plan.refusal

    def start(self) -> Start:
        """Everything that a race starts with.

        Raises:
            ConfigError: a design cannot have the size.
        """
        lineup, plan = self.contenders.lineup, self.plan.config
        return Start(tuple(
            (design, plan.sized(entry.config, own=entry.sized), entry.recipe)
            for entry, design in zip(lineup, lineup.designs(), strict=True)
        ), plan, self.text.text)

    def undo(self) -> None:
        """Undoes refused choices."""
        for controls in (self.recipe, self.plan):
            if controls.refusal:
                controls.apply({})

    def meanwhile(self, *, running: bool) -> None:
        """Sets the heading: these are the contenders of the next race while one runs."""
        self.contenders.box.heading = WHILE if running else HEADING

    def welcome(self, designs: Sequence[tuple[str, Config]]) -> None:
        """Offers designs, by name, beside the named ones."""
        with self._lock:
            self.contenders.welcome(designs)

    def _learn(self, text: Text) -> None:
        """Raises ConfigError if a text cannot be learned as the controls have it: too repetitive, too short."""
        plan = self.plan.config
        Data(plan.task, text, plan.n_ctx, plan.batch_size)

    def _click(self, content: object) -> None:
        """Handles a click on the contenders."""
        with self._lock:
            self.contenders.obey(content)
            self._on_change()

    def _follow(self, contenders: Contenders) -> None:
        """Shows the recipe of the selected contender in the controls."""
        if contenders.selected not in contenders.lineup:
            self._heading.value = "<h3>Recipe</h3>"
            return
        entry = contenders.lineup[contenders.selected]
        self._heading.value = f"<h3>Recipe of {html.escape(contenders.lineup.names()[entry.number])}</h3>"
        if self.recipe.config != entry.recipe or self.recipe.refusal:
            self.recipe.config = entry.recipe
            self.recipe.apply({})

    def _tune(self) -> None:
        """Handles a change of the recipe's controls."""
        with self._lock:
            if not self.recipe.refusal:
                self.contenders.train(self.recipe.config)
            self._on_change()
