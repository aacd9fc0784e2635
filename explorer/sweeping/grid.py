"""`Grid`: the axes of a sweep, and the cell at each of their points, or why there is none."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.display import must_be, shown
from explorer.ends import ENDS
from explorer.fields import Spec
from explorer.profile import STATISTICS
from explorer.sweeping.cell import ORIGINS, Cell, Training
from explorer.training.recipe import Recipe

MOST_AXES = 3
MOST_CELLS = 1_000_000
"""Cells of a sweep, at most."""

Place = tuple[int, ...]
"""A cell's indices: of its origin, then of its value on each axis."""


class Point(NamedTuple):
    """A place of the grid."""

    place: Place
    cell: Cell | None
    error: ConfigError | None = None
    """The refusal where there is no such design."""


class Grid:
    """Designs over some fields.

    Args:
        config: the design that is varied.
        over: one to three fields of `Config`, or of `Recipe` where cells are trained, each with
            distinct values.
        origins: rows of `ORIGINS`.
        statistics: see `Cell`; None is every end value.
        training: how cells are trained.
    Raises:
        TypeError: the config is none.
        ConfigError: no such field, origin or statistic, no values, twice the same, or too many;
            names which.
    """

    def __init__(
        self,
        config: Config,
        over: Mapping[str, Sequence[Any]],
        origins: Sequence[str],
        statistics: Sequence[str] | None,
        training: Training,
    ) -> None:
        self.config, self.training = must_be(Config, "config", config), training
        self.origins = (origins,) if isinstance(origins, str) else tuple(origins)
        names = tuple(ENDS) if statistics is None else statistics
        self.statistics = (names,) if isinstance(names, str) else tuple(names)
        self.over = {name: plain(values) for name, values in dict(over).items()}
        self._check()

    def _check(self) -> None:
        _distinct("origins", self.origins, ORIGINS)
        known = {
            **dict.fromkeys(ENDS),
            **{
                f"{row.name}@{site}": None
                for row in STATISTICS.values()
                if not row.by_position
                for site in row.sites
            },
        }
        _distinct("statistics", self.statistics, known)
        if not 1 <= len(self.over) <= MOST_AXES:
            raise ConfigError(f"over must have 1 to {MOST_AXES} fields; got {len(self.over)}")
        if len(self) > MOST_CELLS:
            raise ConfigError(f"over must have at most {MOST_CELLS:,} cells; got {len(self):,}")
        for name, values in self.over.items():
            if name not in self.specs:
                raise ConfigError(f"over must have fields of Config or Recipe; got {shown(name)}")
            if name not in Config.specs() and "trained" not in self.origins:
                raise ConfigError(
                    f"origins must have trained to vary {name}, a field of Recipe; got "
                    f"{', '.join(self.origins)}"
                )
            if not values:
                raise ConfigError(f"over must have at least one value of {name}; got none")
            if (twice := _repeated(values)) is not None:
                raise ConfigError(
                    f"over must have distinct values of {name}; got {shown(twice)} twice"
                )

    @property
    def specs(self) -> dict[str, Spec]:
        """Every field that can be varied; where both records have one of a name it is the
        design's."""
        return {**Recipe.specs(), **Config.specs()}

    @property
    def shape(self) -> tuple[int, ...]:
        """`[origin, *over]`."""
        return len(self.origins), *(len(values) for values in self.over.values())

    def __len__(self) -> int:
        """How many cells there are."""
        return math.prod(self.shape)

    def at(self, place: Place) -> dict[str, Any]:
        """The values of the fields at a place."""
        return {
            name: values[index]
            for (name, values), index in zip(self.over.items(), place[1:], strict=True)
        }

    @cached_property
    def points(self) -> dict[Place, Point]:
        """Every place, the predicted ones first, then from coarse to fine: both ends of each axis,
        its middle, …"""
        levels = [_levels(len(values)) for values in self.over.values()]
        places = sorted(
            product(*(range(count) for count in self.shape[1:])),
            key=lambda place: _order(
                [level[index] for level, index in zip(levels, place, strict=True)]
            ),
        )
        origins = sorted(
            range(len(self.origins)), key=lambda index: list(ORIGINS).index(self.origins[index])
        )
        designs = {place: self._design(self.at((0, *place))) for place in places}
        return {
            (origin, *place): self._point((origin, *place), designs[place])
            for origin in origins
            for place in places
        }

    def _design(self, values: Mapping[str, Any]) -> tuple[Config, Recipe] | ConfigError:
        """The design with some values, and its recipe, or the refusal of the rules."""
        fields = Config.specs()
        try:
            config = self.config.replace(
                **{name: value for name, value in values.items() if name in fields}
            )
            recipe = self.training.recipe.replace(
                **{name: value for name, value in values.items() if name not in fields}
            )
        except ConfigError as error:
            return error
        return config, recipe

    def _point(self, place: Place, design: tuple[Config, Recipe] | ConfigError) -> Point:
        origin = self.origins[place[0]]
        if isinstance(design, ConfigError):
            return Point(place, None, design)
        config, recipe = design
        training = self.training._replace(recipe=recipe) if origin == "trained" else None
        return Point(place, Cell(origin, config, self.statistics, training))

    def spec(self) -> dict[str, Any]:
        """All that decides the numbers but the version, as JSON has it."""
        record: dict[str, Any] = {
            "config": self.config.model_dump(),
            "over": self.over,
            "origins": list(self.origins),
            "statistics": list(self.statistics),
        }
        if "trained" in self.origins:
            recipe, task, steps = self.training
            record |= {"recipe": recipe.model_dump(), "task": task.model_dump(), "steps": steps}
        return dict(json.loads(json.dumps(record)))

    def keys(self, version: str) -> np.ndarray[Any, np.dtype[np.str_]]:
        """`[origin, *over]`: what each cell is, in 32 letters; equal ones have equal numbers."""
        keys = np.full(self.shape, "", dtype="<U32")
        for place, point in self.points.items():
            keys[place] = hashlib.sha256(
                f"{version} {point.cell or str(point.error)!r}".encode()
            ).hexdigest()[:32]
        return keys


def plain(values: Any) -> list[Any]:
    """Values as plain Python has them, of any sequence or array.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ConfigError(f"over must have a list of values for each field; got {shown(values)}")
    values = np.asarray(values).tolist() if hasattr(values, "__array__") else values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _repeated(values: Sequence[Any]) -> Any:
    """The first value that was there before; None if there is none."""
    earlier = set()
    for value in values:
        plain_one = isinstance(value, int | float | str) and value == value  # nan is unlike itself
        known = value if plain_one else repr(value)
        if known in earlier:
            return value
        earlier.add(known)
    return None


def _distinct(argument: str, names: Sequence[str], known: Mapping[str, object]) -> None:
    """Raises ConfigError unless the names are some of those known, each once."""
    unknown = [name for name in names if name not in known]
    if unknown or not names or len(set(names)) < len(names):
        raise ConfigError(
            f"{argument} must be some of {', '.join(known)}, each once; got "
            f"{', '.join(map(shown, unknown or names)) or 'none'}"
        )


def coarse_to_fine(count: int) -> Iterator[int]:
    """Places of a row: both ends first, then the middle, the middle of each half, and so on."""
    yield from (0, count - 1)[:count]
    gaps = [(0, count - 1)]
    for low, high in gaps:
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            gaps += [(low, middle), (middle, high)]


def _levels(count: int) -> list[int]:
    """How late each place of a row comes: 0 the ends, 1 the middle, 2 those of the halves, …"""
    levels = [0] * count
    for order, place in enumerate(coarse_to_fine(count)):
        levels[place] = max(order - 1, 0).bit_length()
    return levels


def _order(levels: Sequence[int]) -> tuple[int, int]:
    return max(levels), sum(levels)
