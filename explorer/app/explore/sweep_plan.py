"""The values of a sweep, and the designs that stand at them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from explorer.app.widgets.slider_steps import slider_steps
from explorer.app.widgets.wording import refusal_in_words
from explorer.config import Config, ConfigError
from explorer.fields import Spec
from explorer.figures.palette import Design

MOST_LINE, MOST_DOTS = 41, 11
"""Values at which theory is asked, and at most measured: every fourth of them."""
Item = TypeVar("Item")


class Spot(NamedTuple):
    """A value of the field, and the design there, or why the rules refuse it."""

    value: float
    config: Config | None
    refusal: str = ""


class Task(NamedTuple):
    """A sweep: the field, and the designs, the current one first, then the pins."""

    field: str
    designs: tuple[Design, ...]


Plan = Mapping[Design, Sequence[Spot]]
"""Each design at the values of the field, in rising order."""


def sweepable() -> dict[str, Spec]:
    """The fields whose control is a slider."""
    return {name: spec for name, spec in Config.specs().items() if slider_steps(spec)}


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many, evenly chosen, both ends among them."""
    count = min(len(items), most)
    return [items[round(place * (len(items) - 1) / max(count - 1, 1))] for place in range(count)]


def nearest(values: Sequence[float], value: float) -> float:
    """The value that is next to a point of a chart, which is drawn on numbers of fewer digits."""
    return min(values, key=lambda one: abs(one - value))


def planned(task: Task) -> Plan:
    """The plan of a sweep."""
    return {design: spots(design.config, task.field) for design in task.designs if design.config}


def spots(config: Config, field: str) -> list[Spot]:
    """A design at the values of a field's slider, in rising order."""
    return [_spot(config, field, value) for value in thinned(slider_steps(Config.specs()[field]), MOST_LINE)]


def _spot(config: Config, field: str, value: float) -> Spot:
    try:
        return Spot(value, config.replace(**{field: value}))
    except ConfigError as error:
        return Spot(value, None, refusal_in_words(error))


def alike(config: Config, other: Config, field: str) -> bool:
    """Whether two designs differ in no other field."""
    return config.model_dump(exclude={field}) == other.model_dump(exclude={field})
