"""Set-ups of a race: a question each, with the contenders, recipes and plan that answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from explorer.app.race.buttons import ButtonRow, button
from explorer.app.race.lineup import USUAL, Contender, Lineup, first_lineup, named_design
from explorer.app.race.plan import Plan
from explorer.app.widgets.record import changed, record


class Setup(NamedTuple):
    """One set-up, as a row of data."""

    name: str
    title: str
    words: str
    """The question, and about how long the race takes."""
    lineup: Callable[[], Lineup]
    plan: Mapping[str, Any] = MappingProxyType({})
    """Fields of `Plan` that differ from the defaults."""

    def state(self) -> dict[str, Any]:
        """The record that `Preparation.restore` reads."""
        return record(contenders=self.lineup().state(), plan=changed(Plan(**self.plan)), selected=0)


def lineup_of(contenders: Sequence[Contender]) -> Lineup:
    """A line-up of these."""
    lineup = Lineup()
    for contender in contenders:
        lineup.add(contender)
    return lineup


def _deep() -> Lineup:
    warm = USUAL.replace(warmup=50)
    return lineup_of([named_design(name, warm) for name in ("post_ln", "pre_ln", "deepnorm", "rezero")])


def _alphas() -> Lineup:
    """α in front of each branch of a stack with norms after its sums: at 1 throughout, it is Post-LN."""
    base = named_design("rezero")
    config = base.config.replace(norm_placement="post")
    rows: tuple[tuple[str, dict[str, float]], ...] = (
        ("learned", {}), ("own_rate", {"alpha_rate": 10.0}), ("ramp", {"alpha_step": 1 / 300}), ("fixed", {}),
    )
    return lineup_of([
        Contender(config, base="ReZero, Post-LN", recipe=USUAL.replace(alpha_schedule=schedule, **more), sized=False)
        for schedule, more in rows
    ])


SETUPS: Mapping[str, Setup] = MappingProxyType({
    row.name: row
    for row in (
        Setup("warmup", "Why warm-up",
              "Why does Post-LN need warm-up, and Pre-LN and ReZero none? 12 layers, 500 steps: one to three minutes.",
              first_lineup),
        Setup("depth", "Depth 48",
              "Which designs still learn at 48 layers? All warm up for 50 of 200 steps: two to five minutes.", _deep,
              MappingProxyType({"n_layers": 48, "steps": 200})),
        Setup("alpha", "Learned or ramped α",
              "Should α of x + αF(x) be learned from 0, or raised to 1 by even steps? 12 layers, 400 steps: one to "
              "three minutes.", _alphas, MappingProxyType({"steps": 400})),
    )
})
"""Set-ups by name, in the order of their buttons."""


class Prepared(Protocol):
    """Choices of a panel that a button makes."""

    @property
    def name(self) -> str:
        """Name in its button's message."""

    @property
    def title(self) -> str:
        """Title of its button."""

    @property
    def words(self) -> str:
        """The question that they answer."""

    def state(self) -> dict[str, Any]:
        """The record that the panel restores."""


class SetupRow(ButtonRow):
    """A button for each set-up, and the question of the one that was pressed last.

    Args:
        label: of the set-ups, for a screen reader.
        setups: by name, in the order of their buttons.
        restore: makes the choices of a record.
    """

    def __init__(self, label: str, setups: Mapping[str, Prepared], restore: Callable[[object], object]) -> None:
        super().__init__(label, self._press, links=True)
        self._setups, self._restore = setups, restore
        self.buttons = [button(row.name, row.title, enabled=True, title=row.words) for row in setups.values()]

    def _press(self, name: str) -> None:
        """Handles a press in a browser, which may say anything."""
        if name in self._setups:
            self._restore(self._setups[name].state())
            self.note = self._setups[name].words
