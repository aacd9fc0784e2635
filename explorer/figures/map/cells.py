"""Cells of a map: its fields and where their cells lie, what a dataset of `explorer.sweep` has in
them, and colors.

A row of `scales()` says the healthy value of a statistic, and the scale around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer import plugins
from explorer.ends import ENDS, End
from explorer.fields import Spec
from explorer.figures.kit import SLACK, Axis, colorbar, drawable, field_title, round_values
from explorer.figures.palette import DIVERGING, SEQUENTIAL
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array
from explorer.sweeping.cell import varied_specs
from explorer.sweeping.table import Table

if TYPE_CHECKING:
    import xarray as xr

ALONE = 0.15
"""Half the width of a cell without a neighbor: decades, or the field's units."""
FAR = 8
"""Ratio of the last value to the first from which values may ask for a logarithmic axis."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Side:
    """One of the fields, and its values in the order of the picture."""

    spec: Spec
    values: list[Any]

    @property
    def numeric(self) -> bool:
        """Whether it has an axis of numbers, and not of names."""
        return self.spec.kind in ("integer", "number")

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic: where its slider is, or where the values themselves lie
        so."""
        if not self.numeric or self.values[0] <= 0:
            return False
        return (self.spec.about.log and self.spec.low > 0) or _geometric(self.values)

    @property
    def places(self) -> list[Any]:
        """The middle of each cell: numbers, or names."""
        return [self.place(value) for value in self.values]

    def place(self, value: Any) -> Any:
        """A value as the axis has it: a number, or a name."""
        return (
            ("off", "on")[value]
            if isinstance(value, bool)
            else value
            if self.numeric
            else str(value)
        )

    @property
    def edges(self) -> Array:
        """Ends of the cells, half-way between neighbors as the axis has it; positions where the
        cells have names."""
        if not self.numeric:
            return np.arange(len(self.values) + 1.0) - 0.5
        at = self._even
        inner = (at[:-1] + at[1:]) / 2
        first, last = (inner[0], inner[-1]) if len(inner) else (at[0] + ALONE, at[0] - ALONE)
        return self._value(np.concatenate([[2 * at[0] - first], inner, [2 * at[-1] - last]]))

    @property
    def axis(self) -> Axis:
        """From the first cell's edge to the last one's."""
        ends = self.edges[[0, -1]]
        low, high = (np.log10(ends) if self.log else ends).tolist()
        counts = self.spec.kind == "integer" and not self.log
        return Axis(field_title(self.spec), (low, high), log=self.log, counts=counts)

    def at(self, steps: Array) -> Array:
        """Values at fractions of a step between cells, even on the axis."""
        return self._value(np.interp(steps, np.arange(len(self.values)), self._even))

    @property
    def _even(self) -> Array:
        """Values as the axis spaces them."""
        return np.asarray(np.log10(self.values) if self.log else np.array(self.values, dtype=float))

    def _value(self, even: Array) -> Array:
        return np.asarray(10.0**even if self.log else even)

    def number(self, at: int) -> str:
        """A cell's value, by its place."""
        return number(self.values[at], 4) if self.numeric else str(self.places[at])

    @property
    def reach(self) -> str:
        """The field with its first and last value, or all of its names."""
        ends = f"{self.number(0)} to {self.number(-1)} {self.spec.about.unit}".rstrip()
        return f"{self.spec.about.label} ({ends if self.numeric else ', '.join(self.places)})"

    def words(self, value: str) -> str:
        """A cell's value in a sentence of plotly's hover text, where `value` stands for it."""
        return f"{self.spec.about.label} {value} {self.spec.about.unit}".rstrip()


def _geometric(values: Sequence[float]) -> bool:
    """Whether values that rise are more evenly apart on a logarithmic axis than on an even one."""
    steps = np.diff(np.array(values, dtype=float)), np.diff(np.log(values))
    uneven, uneven_log = (
        float(step.std() / step.mean()) if len(step) > 1 else 0.0 for step in steps
    )
    return uneven_log < uneven / 4 and values[-1] >= FAR * values[0]


@dataclass(frozen=True, eq=False)
class Cells:
    """A map, `[y, x]` throughout, or `[x]` where it has one axis; nan where a number is not
    there."""

    sides: tuple[Side, ...]
    """The field across, and the one upwards if there is one."""
    scale: Scale
    predicted: Array
    observed: Array
    """Measured, or of another origin than theory."""
    low: Array
    high: Array
    """Lowest and highest value of the seeds."""
    asked: tuple[bool, bool]
    """Whether the map has predictions, and whether it has anything else."""
    theory_done: Mask
    done: Mask
    """Whether a cell was computed; one that failed was."""
    failure: NDArray[np.object_]
    """Why a cell has no values; "" where it has, or is still to come."""

    @property
    def x(self) -> Side:
        """The field across."""
        return self.sides[0]

    @property
    def y(self) -> Side:
        """The field upwards."""
        return self.sides[1]

    @property
    def failed(self) -> Mask:
        """Cells without a number, for a reason."""
        return np.asarray((self.failure != "") & ~np.isfinite(self.shown), dtype=bool)

    @property
    def shown(self) -> Array:
        """The number that gives a cell its color."""
        return np.where(self.done, self.observed, self.predicted)


def cells(numbers: xr.Dataset | Table, statistic: str, *fields: str) -> Cells:
    """Reads one map.

    Args:
        numbers: as `explorer.sweep` gives them, or the table of a `Sweep`.
        statistic: a name of `scales()`.
        fields: the field across, and the one upwards; one alone for a map of one axis.
    Raises:
        ValueError: there is no such statistic or field, or there are other fields as well.
    """
    table = numbers if isinstance(numbers, Table) else Table.of(numbers)
    _check(table, statistic, fields)
    sides, orders = {}, {}
    for name in fields:
        sides[name], orders[name] = _side(table, name)
    upwards = fields[::-1]
    axes = [list(table.over).index(name) for name in upwards]
    shape = [len(sides[name].values) for name in upwards]
    scale = scales()[statistic]

    def values(variable: str, origin: str, missing: Any = np.nan) -> NDArray[Any]:
        if variable not in table.values or origin not in table.origins:
            return np.full(shape, missing)
        of_origin: NDArray[Any] = table.values[variable][table.origins.index(origin)]
        return of_origin.transpose(axes)[np.ix_(*(orders[name] for name in upwards))]

    def done(origin: str) -> Mask:
        known = (
            np.isfinite(values("seconds", origin))
            if "seconds" in table.values
            else ~np.isnan(values(statistic, origin))
        )
        return np.asarray(known | (values("failure", origin, "").astype(str) != ""), dtype=bool)

    other = done(scale.origin)
    failure = np.where(
        other, values("failure", scale.origin, ""), values("failure", "predicted", "")
    ).astype(object)
    return Cells(
        tuple(sides.values()),
        scale,
        values(statistic, "predicted").astype(float),
        values(statistic, scale.origin).astype(float),
        values(f"{statistic}_low", scale.origin).astype(float),
        values(f"{statistic}_high", scale.origin).astype(float),
        ("predicted" in table.origins, scale.origin in table.origins),
        done("predicted"),
        other,
        failure,
    )


def _side(table: Table, name: str) -> tuple[Side, NDArray[np.intp]]:
    """A field, and the places of its values in its order: numbers rise, names keep theirs."""
    values = table.over[name]
    side = Side(varied_specs()[name], list(values))
    order = np.argsort(values, kind="stable") if side.numeric else np.arange(len(values))
    return replace(side, values=[values[place] for place in order]), order


def _check(table: Table, statistic: str, fields: tuple[str, ...]) -> None:
    """Raises ValueError unless a table has a statistic, and these fields and no others as axes."""
    known = [name for name in scales() if name in table.values]
    if statistic not in known:
        raise ValueError(f"statistic must be one of {', '.join(known)}; got {statistic!r}")
    for axis, field in zip("xy", fields, strict=False):  # a map of one axis has no y
        if field not in table.over:
            raise ValueError(f"{axis} must be one of {', '.join(table.over)}; got {field!r}")
    if len(set(fields)) < len(fields):
        raise ValueError(f"x and y must be two fields; got {fields[0]!r} twice")
    others = [field for field in table.over if field not in fields]
    if others:
        rule = "a map has two fields" if len(fields) > 1 else "a map of one axis has one field"
        raise ValueError(
            f"{rule}; choose a value of {' and '.join(others)} first, as dataset.sel({others[0]}=…)"
        )


MOST_DECADES = 6.0
"""Decades on each side of the healthy value that have colors of their own: 10⁻³⁰⁰ and 10⁻¹⁰ are
equally dead."""
LEAST = 0.5
"""Decades that each side shows at least: a flat map must look flat."""
TICKS, LINES, FINE_TICKS = 7, 4, 2.5
"""About as many ticks and contour lines are made; over fewer decades than the last number, of 1, 2
and 5."""
STOPS = 33
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Contour lines of shares between 0 and 1."""


class Scale(NamedTuple):
    """How a statistic is colored."""

    title: str
    unit: str
    """Symbol and unit, for the color bar."""
    healthy: float | None = None
    """The value that has the neutral color; None where no value is healthy by itself, and colors
    only rise."""
    words: str = ""
    """Words for the healthy value."""
    log: bool = False
    bounds: tuple[float, float] = (-np.inf, np.inf)
    clip: tuple[float, float] = (-np.inf, np.inf)
    """Ends of the color scale; values beyond have the end's color: failures need no colors of their
    own."""
    levels: tuple[float, ...] = ()
    """Contour lines; empty: at decades, or at the color bar's ticks."""
    origin: str = "measured"
    """Origin of the values that theory is compared with: "measured", or a plug-in's."""


def _end(end: End) -> Scale:
    """The scale of a statistic at the end of a stack."""
    healthy, words = end.row.healthy or (None, "")
    return Scale(
        end.title,
        f"{end.symbol} ({end.row.unit})",
        healthy,
        words,
        end.row.log,
        end.row.bounds,
        levels=LEVELS if end.row.bounded else (),
    )


@cache
def scales() -> Mapping[str, Scale]:
    """The statistics of a map, by name: ends of statistics, then what plug-ins add."""
    return {**{name: _end(end) for name, end in ENDS.items()}, **plugins.rows("scales")}


class Colors(NamedTuple):
    """The scale that one map has. On a logarithmic one, z and extent are exponents."""

    scale: Scale
    low: float
    high: float
    stops: list[list[Any]] | str
    beyond: tuple[bool, bool]
    """Whether values lie below and above."""

    def z(self, values: Array) -> Array:
        """Places on the scale; what lies beyond an end, infinite or zero too, has that end's
        color."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(np.log10(values) if self.scale.log else values, self.low, self.high)

    @property
    def bar(self) -> dict[str, Any]:
        """The color bar, labeled with the values themselves, and the healthy one's word."""
        at = _ticks(self.scale, self.low, self.high)
        words = [number(10.0**value if self.scale.log else value, 3) for value in at]
        ends = ("≤ " * self.beyond[0], "≥ " * self.beyond[1])
        words[0], words[-1] = (
            ends[0] + words[0],
            (ends[1] + words[-1] if len(words) > 1 else words[-1]),
        )
        return colorbar(typeset(self.scale.unit), tickvals=at, ticktext=words)


def colors(scale: Scale, values: Array) -> Colors:
    """The scale that holds all values that can be drawn, up to `MOST_DECADES` from the healthy one;
    from end to end where a statistic is bounded."""
    held = values[drawable(values, scale.log)]
    held = np.log10(held) if scale.log else held
    low, high = (float(held.min()), float(held.max())) if len(held) else (0.0, 1.0)
    if scale.healthy is None:
        ends = max(low, scale.clip[0]), min(high, scale.clip[1])
        air = max(0.0, LEAST * (1.0 if scale.log else 0.1) - (ends[1] - ends[0])) / 2
        return Colors(
            scale,
            ends[0] - air,
            ends[1] + air,
            SEQUENTIAL,
            (low < scale.clip[0], high > scale.clip[1]),
        )
    middle = float(np.log10(scale.healthy)) if scale.log else scale.healthy
    far = MOST_DECADES if scale.log else np.inf
    ends = (
        max(min(low, middle - LEAST), round(middle) - far),
        min(max(high, middle + LEAST), round(middle) + far),
    )
    if np.isfinite(scale.bounds).all():
        ends = scale.bounds
    return Colors(
        scale, *ends, _stops(middle, *ends), (low < ends[0] - SLACK, high > ends[1] + SLACK)
    )


def contour_levels(scaled: Colors) -> list[float]:
    """Values of the contour lines: the row's, or decades, few enough to be legible, the healthy
    value among them."""
    if scaled.scale.levels:
        return list(scaled.scale.levels)
    at = _ticks(scaled.scale, scaled.low, scaled.high, LINES)
    return [float(10.0**value) if scaled.scale.log else value for value in at]


def _ticks(scale: Scale, low: float, high: float, most: int = TICKS) -> list[float]:
    """Whole decades, or 1, 2 and 5 of each where there are few; even numbers on a scale that is not
    logarithmic."""
    if scale.log:
        decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
        stride = max(1, int(np.ceil((high - low) / most)))
        at = [float(power) for power in decades if power % stride == 0]
        if high - low < FINE_TICKS:
            at = [power + float(np.log10(lead)) for power in decades for lead in (1, 2, 5)]
    else:
        at = round_values(low, high, 5)
    return [value for value in at if low - SLACK <= value <= high + SLACK]


def _stops(middle: float, low: float, high: float) -> list[list[Any]]:
    """The part of the diverging colors between two ends: equally far from the healthy value is
    equally dark."""
    far = max(middle - low, high - middle) or 1.0
    share = np.linspace(0.0, 1.0, STOPS)
    at = np.clip(0.5 + (low + share * (high - low) - middle) / far / 2, 0.0, 1.0) * (
        len(DIVERGING) - 1
    )
    named = np.array([[int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in DIVERGING])
    mixed = (
        np.rint([np.interp(at, np.arange(len(named)), channel) for channel in named.T])
        .astype(int)
        .T
    )
    return [
        [float(x), f"#{red:02x}{green:02x}{blue:02x}"]
        for x, (red, green, blue) in zip(share, mixed, strict=True)
    ]
