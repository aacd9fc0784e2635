"""`Plan`: the choices of a map: its axes, the statistic, and the computation. No widgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from pydantic import model_validator

from explorer.app.sentences import lowered
from explorer.app.widgets.slider_steps import slider_steps, sliders, thinned
from explorer.choices import Choices
from explorer.config import Config
from explorer.ends import ENDS
from explorer.fields import Option, Spec, setting
from explorer.figures.map.cells import scales
from explorer.numbers import listed
from explorer.sweeping.cell import Origin, origins

# The fields that a map may have on its axes, their usual ranges, and the values between two ends.
# Pure functions.


MOST_VALUES = 60
"""Values of an axis, at most."""
DIVIDE = ("d_model", "n_heads", "n_kv_heads", "head_size")
"""Sizes that must divide each other, as the steps of their sliders do."""
USUAL: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "n_layers": (1, 64),
        "d_model": (16, 256),
        "n_heads": (1, 16),
        "n_ctx": (2, 256),
        "batch_size": (1, 16),
        "init_variance": (0.25, 4),
        "alpha": (0, 1.5),
        "input_second_moment": (1e-4, 1e4),
        "bias_variance": (0, 2),
        **{name: ends for row in origins().values() for name, ends in row.usual.items()},
    }
)
"""First and last value where it is not the whole range: what is of interest, and does not take
hours."""


@cache
def axis_fields() -> Mapping[str, Spec]:
    """The fields with a slider, by name, which an axis may vary: the design's, then those of each
    origin's own settings, such as the learning rate of a training."""
    fields = dict(sliders(Config))
    for origin in origins().values():
        if origin.varied is not None:
            fields |= sliders(origin.varied)
    return fields


def field_options() -> dict[str, Option]:
    """The fields of `axis_fields` as the options of a list."""
    return {
        name: Option(
            f"{spec.low:g} to {spec.high:g} {spec.about.unit}".rstrip(), label=_label(name, spec)
        )
        for name, spec in axis_fields().items()
    }


def _label(name: str, spec: Spec) -> str:
    origin = origin_of(name)
    return f"{spec.about.label} ({origin})" if origin else spec.about.label


def origin_of(field: str) -> str:
    """The origin whose settings have a field; empty where the field is one of a design."""
    if field in Config.specs():
        return ""
    return next(
        name for name, row in origins().items() if row.varied and field in row.varied.specs()
    )


def usual(name: str) -> tuple[float, float]:
    """First and last value of a field on an axis, until somebody says otherwise."""
    spec = axis_fields()[name]
    return USUAL.get(name, (spec.low, spec.high))


def axis_values(name: str, first: float, last: float, count: int) -> tuple[float, ...]:
    """About so many values between two, both among them: even on the field's axis, and rounded to
    three digits.

    Of whole numbers there may be fewer.
    """
    spec = axis_fields()[name]
    if name in DIVIDE:
        between = [step for step in slider_steps(spec) if first < step < last]
        return tuple(thinned([int(first), *map(int, between), int(last)], count))
    if spec.kind == "integer" and last - first < count:
        return tuple(range(int(first), int(last) + 1))
    even = (
        np.geomspace(first, last, count)
        if spec.about.log and first > 0
        else np.linspace(first, last, count)
    )
    if spec.kind == "integer":
        return tuple(sorted({int(first), *map(round, even[1:-1].tolist()), int(last)}))
    return tuple(sorted({first, *(float(f"{value:.3g}") for value in even[1:-1].tolist()), last}))


@dataclass(frozen=True, kw_only=True)
class Compute(Option):
    """A computation of every cell, with the origins of its values."""

    origins: tuple[str, ...]
    shows: str = "measured"
    """The origin of the statistics that a map of it can have: see `Scale.origin`."""


COMPUTE: dict[str, Compute] = {
    "theory": Compute("what theory predicts, at once", label="theory", origins=("predicted",)),
    "measured": Compute(
        "theory at once, then each cell is measured, coarse to fine",
        label="and measured",
        origins=("predicted", "measured"),
    ),
    **{
        name: Compute(row.words, label=name, origins=(name,), shows=name, uses=("steps",))
        for name, row in origins().items()
        if row.words
    },
}
FIELDS = field_options()
NOTHING = "none"
"""Stands for the field upwards in a map of one axis."""
UPWARDS = {NOTHING: Option("one axis: a line and dots", label="nothing"), **FIELDS}
STATISTICS = {
    name: Option(f"healthy: {row.words}" if row.words else "", label=row.title)
    for name, row in scales().items()
}
SIDES = {"x": "across", "y": "up"}


class Job(NamedTuple):
    """All that decides the numbers of a map. Another statistic is another picture of the same
    numbers, but for those of the backward pass: without it a cell takes half the time."""

    config: Config
    over: tuple[tuple[str, tuple[float, ...]], ...]
    """Field and values: across, then up if there is a second axis."""
    origins: tuple[str, ...]
    steps: int | None
    """Of each cell; None where cells take no steps."""
    statistics: tuple[str, ...]

    @property
    def fields(self) -> dict[str, tuple[float, ...]]:
        """Fields and values, as `sweep` takes them."""
        return dict(self.over)


class Plan(Choices):
    """The axes, the statistic and the computation.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or choices that exclude
            each other.
    """

    statistic: str = setting(
        Origin.first,
        "Statistic",
        "Map",
        "Number that is drawn of each cell.",
        pinned=True,
        options=STATISTICS,
    )
    compute: str = setting(
        "measured",
        "Cells are",
        "Map",
        "Where the numbers of the cells come from.",
        pinned=True,
        options=COMPUTE,
    )
    x: str = setting("init_variance", "Across", "Map", "Field across.", pinned=True, options=FIELDS)
    x_from: float = setting(
        usual("init_variance")[0], "Across from", "Map", "First value across.", pinned=True
    )
    x_to: float = setting(
        usual("init_variance")[1], "Across to", "Map", "Last value across.", pinned=True
    )
    x_count: int = setting(
        24,
        "Values across",
        "Map",
        "Number of values across; of whole numbers there may be fewer.",
        2,
        MOST_VALUES,
        pinned=True,
    )
    y: str = setting("n_layers", "Up", "Map", "Field upwards.", pinned=True, options=UPWARDS)
    y_from: float = setting(
        usual("n_layers")[0], "Up from", "Map", "First value upwards.", pinned=True
    )
    y_to: float = setting(usual("n_layers")[1], "Up to", "Map", "Last value upwards.", pinned=True)
    y_count: int = setting(
        16,
        "Values up",
        "Map",
        "Number of values upwards; of whole numbers there may be fewer.",
        2,
        MOST_VALUES,
        pinned=True,
    )
    steps: int = setting(
        100,
        "Steps",
        "Map",
        "Steps of each cell, where cells take steps.",
        1,
        1000,
        pinned=True,
        log=True,
    )

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides with a field: across, and up unless the map has one axis."""
        return tuple(side for side in SIDES if getattr(self, side) != NOTHING)

    @model_validator(mode="after")
    def _agree(self) -> Plan:
        if self.x == self.y:
            raise self.refusal(
                f"{{y}} must be another field than {{x}}; got {FIELDS[self.y].label} twice"
            )
        for side in self.sides:
            self._check_side(side)
        shows = COMPUTE[self.compute].shows
        if scales()[self.statistic].origin != shows:
            raise self.refusal(f"{{statistic}} must be one of {shows} cells; got {{statistic=}}")
        return self

    def _check_side(self, side: str) -> None:
        name, first, last = (getattr(self, f"{side}{part}") for part in ("", "_from", "_to"))
        spec = axis_fields()[name]
        origin = origin_of(name)
        if origin and self.compute != origin:
            raise self.refusal(
                f"{{{side}}} must be a field of the design unless cells are {origin}; got "
                f"{spec.about.label}"
            )
        for part, value in (("from", first), ("to", last)):
            whole = spec.kind != "integer" or value == int(value)
            if not (whole and spec.low <= value <= spec.high):
                raise self.refusal(
                    f"{{{side}_{part}}} must be {spec.rule()}, as {spec.about.label}; got {value:g}"
                )
        if first >= last:
            raise self.refusal(
                f"{{{side}_from}} must be less than {{{side}_to}}; got {first:g} and {last:g}"
            )

    def job(self, config: Config) -> Job:
        """The numbers that the map of a design needs."""
        over = tuple(
            (
                getattr(self, side),
                axis_values(
                    *(getattr(self, f"{side}{part}") for part in ("", "_from", "_to", "_count"))
                ),
            )
            for side in self.sides
        )
        compute = COMPUTE[self.compute]
        return Job(
            config,
            over,
            compute.origins,
            self.steps if "steps" in compute.uses else None,
            together(self.statistic),
        )


def together(statistic: str) -> tuple[str, ...]:
    """The statistics that come with one: all, or those that need no backward pass."""
    backward = statistic in ENDS and ENDS[statistic].row.backward
    return tuple(name for name, end in ENDS.items() if backward or not end.row.backward)


def fitted(before: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    """A person's choices with what goes along with them: another field has its own range, the other
    axis' field changes places with it, and a statistic brings the cells that have it."""
    chosen = dict(values)
    sides = list(SIDES)
    for side, other in (sides, sides[::-1]):
        name = chosen.get(side)
        if name == getattr(before, side) or name not in FIELDS:
            continue
        swaps = name == getattr(before, other) and chosen.get(other) == name
        if swaps and getattr(before, side) != NOTHING:
            for part in ("", "_from", "_to", "_count"):
                chosen[other + part], chosen[side + part] = (
                    getattr(before, side + part),
                    getattr(before, other + part),
                )
        else:
            chosen[f"{side}_from"], chosen[f"{side}_to"] = usual(str(name))
            chosen["compute"] = origin_of(str(name)) or chosen.get("compute")
    return _agreeing(before, chosen)


def _agreeing(before: Plan, chosen: dict[str, Any]) -> dict[str, Any]:
    """Choices whose statistic is one that the computed cells have.

    Where it is not, the computation follows a statistic that was changed; else the statistic
    follows the computation."""
    statistic, compute = chosen.get("statistic"), chosen.get("compute")
    if statistic not in STATISTICS or compute not in COMPUTE:
        return chosen  # to be refused as such
    wanted, shown = scales()[statistic].origin, COMPUTE[compute].shows
    if wanted == shown:
        return chosen
    if statistic != before.statistic:
        return chosen | {"compute": wanted}  # a row of COMPUTE has the name of each origin
    return chosen | {"statistic": origins()[shown].first}


def place_of(config: Config, plan: Plan) -> dict[str, float] | None:
    """A design's value of the field of each axis; None where one is outside its axis."""
    place = {}
    for side in plan.sides:
        field = getattr(plan, side)
        value = _value(field, config)
        if not getattr(plan, f"{side}_from") <= value <= getattr(plan, f"{side}_to"):
            return None
        place[field] = value
    return place


def _value(name: str, config: Config) -> float:
    if origin_of(name):
        return float(axis_fields()[name].default)
    return float(getattr(config, name))


def title(plan: Plan) -> str:
    """Title of the map's card."""
    fields = [axis_fields()[getattr(plan, side)].about.label for side in plan.sides]
    return f"{scales()[plan.statistic].title} over {listed(map(lowered, fields))}"


def over(field: str, config: Config) -> Plan:
    """A map of one axis over a field of a design: its usual range, and the design's own value."""
    first, last = usual(field)
    value = getattr(config, field)
    return Plan(x=field, x_from=min(first, value), x_to=max(last, value), y=NOTHING)


FIRST_DESIGN = Config(
    norm_placement="none", residual="absent", d_model=64, n_ctx=32, batch_size=2, n_seeds=2
)
"""The design of the first map, of a size that is measured within a tenth of a second or so."""


class MapPart(NamedTuple):
    """Settings of the Map panel: the design that is varied, and the plan."""

    design: Config = FIRST_DESIGN
    plan: Plan = Plan()
