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
from explorer.sweeping.cell import Cell, Settings, origins, varied_specs

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
            if name not in Config.specs():
                self._check_setting(name)
            if not values:
                raise ConfigError(f"over must have at least one value of {name}; got none")
            for twice in _repeated(values):
                raise ConfigError(
                    f"over must have distinct values of {name}; got {shown(twice)} twice"
                )

    def _check_setting(self, name: str) -> None:
        """Raises ConfigError unless settings of an origin of this sweep vary a field."""
        records = {origin: row.varied for origin, row in origins().items() if row.varied}
        having = [origin for origin, record in records.items() if name in record.specs()]
        if not having:
            kinds = [Config.__name__, *(record.__name__ for record in records.values())]
            raise ConfigError(f"over must have fields of {' or '.join(kinds)}; got {shown(name)}")
        if not set(having) & set(self.origins):
            raise ConfigError(
                f"origins must have {having[0]} to vary {name}, a field of "
                f"{records[having[0]].__name__}; got {', '.join(self.origins)}"
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
        places = sorted(
            product(*(range(count) for count in self.shape[1:])),
            key=lambda place: _order(
                [level[index] for level, index in zip(levels, place, strict=True)]
            ),
        )
        order = list(origins())
        numbers = sorted(
            range(len(self.origins)), key=lambda number: order.index(self.origins[number])
        )
        designs = {place: self._design(self.at((0, *place))) for place in places}
        return {
            (number, *place): self._point((number, *place), designs[place])
            for number in numbers
            for place in places
        }

    def _design(self, values: Mapping[str, Any]) -> tuple[Config, Settings | None] | ConfigError:
        """The design with some values, and the settings, or the refusal of the rules."""
        fields = Config.specs()
        try:
            config = self.config.replace(
                **{name: value for name, value in values.items() if name in fields}
            )
            settings = self.settings and self.settings.vary(
                {name: value for name, value in values.items() if name not in fields}
            )
        except ConfigError as error:
            return error
        return config, settings

    def _point(self, place: Place, design: tuple[Config, Settings | None] | ConfigError) -> Point:
        origin = self.origins[place[0]]
        if isinstance(design, ConfigError):
            return Point(place, None, design)
        config, settings = design
        own = settings if origins()[origin].settings else None
        return Point(place, Cell(origin, config, self.statistics, own))

    def spec(self) -> dict[str, Any]:
        """All that decides the numbers but the version, as JSON has it."""
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


def _repeated(values: Sequence[Any]) -> list[Any]:
    """The first value that was there before, alone in a list; an empty one if there is none."""
    earlier = set()
    for value in values:
        plain_one = isinstance(value, int | float | str) and value == value  # nan is unlike itself
        known = value if plain_one else repr(value)
        if known in earlier:
            return [value]
        earlier.add(known)
    return []


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
