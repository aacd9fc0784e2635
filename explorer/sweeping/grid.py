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
from explorer.sweeping.cell import Cell, Settings, origins, varied_specs
from explorer.vocabulary import STATISTICS

MOST_AXES = 3
MOST_CELLS = 1_000_000
"""Cells of a sweep, at most."""

Place = tuple[int, ...]
"""A cell's indices `[origin, *over]`: of its origin, then of its value on each axis."""
Asked = tuple[Config, Settings | None] | ConfigError
"""The design and settings at a point, or the refusal where there is no such design."""


class Point(NamedTuple):
    """One cell of the grid, with its place; the cell is None where there is no such design."""

    place: Place
    cell: Cell | None
    error: ConfigError | None = None
    """The refusal where there is no such design."""


class Grid:
    """Designs over some fields.

    Args:
        config: the design that is varied.
        over: one to three fields of `Config`, or of the settings of an origin, each with distinct
            values.
        names: the origins, of `origins()`.
        statistics: see `Cell`; None is every end value.
        settings: of the origin that has some; None is as they are by default.
    Raises:
        TypeError: the config is none.
        ConfigError: no such field, origin or statistic, no values, twice the same, or too many;
            names which.
    """

    def __init__(
        self,
        config: Config,
        over: Mapping[str, Sequence[Any]],
        names: Sequence[str],
        statistics: Sequence[str] | None,
        settings: Settings | None = None,
    ) -> None:
        self.config = must_be(Config, "config", config)
        self.origins = (names,) if isinstance(names, str) else tuple(names)
        wanted = tuple(ENDS) if statistics is None else statistics
        self.statistics = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        self.over = {name: plain(values) for name, values in dict(over).items()}
        self._check()
        self.settings = self._settings(settings)

    def _settings(self, given: Settings | None) -> Settings | None:
        """The settings of the origin that has some.

        Raises:
            TypeError: they are another origin's.
            ConfigError: no origin has any.
        """
        for name in self.origins:
            kind = origins()[name].settings
            if kind is not None:
                return kind() if given is None else must_be(kind, "settings", given)
        if given is not None:
            raise ConfigError(
                f"settings must be left out where no origin has any; got {shown(given)} for "
                f"{', '.join(self.origins)}"
            )
        return None

    def _check(self) -> None:
        """Raises ConfigError unless there is such a sweep."""
        _distinct("origins", self.origins, origins())
        statistics = list(ENDS)
        for row in STATISTICS.values():
            if not row.by_position:
                statistics += [f"{row.name}@{site}" for site in row.sites]
        _distinct("statistics", self.statistics, dict.fromkeys(statistics))
        if not 1 <= len(self.over) <= MOST_AXES:
            raise ConfigError(f"over must have 1 to {MOST_AXES} fields; got {len(self.over)}")
        if len(self) > MOST_CELLS:
            raise ConfigError(f"over must have at most {MOST_CELLS:,} cells; got {len(self):,}")
        for name, values in self.over.items():
            if name not in Config.specs():
                self._check_setting(name)
            if not values:
                raise ConfigError(f"over must have at least one value of {name}; got none")
            for twice in _repeated(values):
                raise ConfigError(
                    f"over must have distinct values of {name}; got {shown(twice)} twice"
                )

    def _check_setting(self, name: str) -> None:
        """Raises ConfigError unless an origin of this sweep has settings that vary a field."""
        records = {origin: row.varied for origin, row in origins().items() if row.varied}
        with_field = [origin for origin, record in records.items() if name in record.specs()]
        if not with_field:
            kinds = [Config.__name__, *(record.__name__ for record in records.values())]
            raise ConfigError(f"over must have fields of {' or '.join(kinds)}; got {shown(name)}")
        if not set(with_field) & set(self.origins):
            origin = with_field[0]
            raise ConfigError(
                f"origins must have {origin} to vary {name}, a field of "
                f"{records[origin].__name__}; got {', '.join(self.origins)}"
            )

    @property
    def specs(self) -> Mapping[str, Spec]:
        """Every field that can be varied."""
        return varied_specs()

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

        def coarseness(indices: tuple[int, ...]) -> tuple[int, int]:
            """How late a place comes: by its axis that comes last, then by the sum over axes."""
            levels_there = [level[index] for level, index in zip(levels, indices, strict=True)]
            return max(levels_there), sum(levels_there)

        places = sorted(product(*map(range, self.shape[1:])), key=coarseness)
        designs = {indices: self._design(self.at((0, *indices))) for indices in places}
        order = list(origins())
        points = {}
        for name in sorted(self.origins, key=order.index):
            number = self.origins.index(name)
            for indices in places:
                place = (number, *indices)
                points[place] = self._point(place, designs[indices])
        return points

    def _design(self, values: Mapping[str, Any]) -> Asked:
        """The design with some values of fields, and the settings, or the refusal of the rules."""
        of_config: dict[str, Any] = {}
        of_settings: dict[str, Any] = {}
        for name, value in values.items():
            if name in Config.specs():
                of_config[name] = value
            else:
                of_settings[name] = value
        try:
            config = self.config.replace(**of_config)
            return config, self.settings and self.settings.vary(of_settings)
        except ConfigError as error:
            return error

    def _point(self, place: Place, design: Asked) -> Point:
        """The cell of an origin at a place, if there is such a design; settings are given only to
        an origin that has some."""
        origin = self.origins[place[0]]
        if isinstance(design, ConfigError):
            return Point(place, None, design)
        config, settings = design
        own = settings if origins()[origin].settings else None
        return Point(place, Cell(origin, config, self.statistics, own))

    def spec(self) -> dict[str, Any]:
        """Everything that decides the numbers but the package's version, of types that JSON has."""
        record: dict[str, Any] = {
            "config": self.config.model_dump(),
            "over": self.over,
            "origins": list(self.origins),
            "statistics": list(self.statistics),
        }
        if self.settings:
            record |= self.settings.record()
        return dict(json.loads(json.dumps(record)))

    def keys(self, version: str) -> np.ndarray[Any, np.dtype[np.str_]]:
        """`[origin, *over]`: a hash of each cell, in 32 letters; equal ones have equal numbers.

        Args:
            version: of the package, which may change numbers.
        """
        keys = np.full(self.shape, "", dtype="<U32")
        for place, point in self.points.items():
            text = f"{version} {point.cell or str(point.error)!r}"
            keys[place] = hashlib.sha256(text.encode()).hexdigest()[:32]
        return keys


def plain(values: Any) -> list[Any]:
    """The values of any sequence or array as a list, with numbers of Python in place of numpy's.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ConfigError(f"over must have a list of values for each field; got {shown(values)}")
    if hasattr(values, "__array__"):
        values = np.asarray(values).tolist()
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _repeated(values: Sequence[Any]) -> list[Any]:
    """The first value that equals an earlier one, alone in a list; an empty list if all
    differ."""
    earlier = set()
    for value in values:
        is_nan = value != value  # nan is unlike itself
        # what cannot be in a set, or would not be found there, is compared by its text
        has_key = isinstance(value, int | float | str) and not is_nan
        key = value if has_key else repr(value)
        if key in earlier:
            return [value]
        earlier.add(key)
    return []


def _distinct(argument: str, names: Sequence[str], allowed: Mapping[str, object]) -> None:
    """Raises ConfigError unless the names of an argument are allowed ones, each once."""
    unknown = [name for name in names if name not in allowed]
    if unknown or not names or len(set(names)) < len(names):
        wrong = ", ".join(map(shown, unknown or names)) or "none"
        raise ConfigError(
            f"{argument} must be some of {', '.join(allowed)}, each once; got {wrong}"
        )


def coarse_to_fine(count: int) -> Iterator[int]:
    """Indices of a row of values: both ends first, then the middle, the middle of each half, and so
    on."""
    yield from (0, count - 1)[:count]
    gaps = [(0, count - 1)]
    for low, high in gaps:  # the list grows meanwhile
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            gaps += [(low, middle), (middle, high)]


def _levels(count: int) -> list[int]:
    """How late each index of a row comes: 0 the ends, 1 the middle, 2 the middles of the halves,
    …"""
    levels = [0] * count
    for order, index in enumerate(coarse_to_fine(count)):
        # after the two ends: 1 middle, 2 of halves, 4 of quarters
        levels[index] = max(order - 1, 0).bit_length()
    return levels
