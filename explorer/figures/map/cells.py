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
from explorer.figures.kit import (
    SLACK,
    Axis,
    colorbar,
    drawable,
    extremes,
    field_title,
    round_values,
)
from explorer.figures.palette import SEQUENTIAL, diverging
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.sweeping.cell import varied_specs
from explorer.sweeping.table import Table
from explorer.translation import spoken, translated
from explorer.vocabulary import Array

if TYPE_CHECKING:
    import xarray as xr

ALONE = 0.15
"""Half the width of a cell without a neighbor: decades, or the field's units."""
FAR = 8
"""Ratio of the last value to the first from which a field's values may get a logarithmic axis."""
Mask = NDArray[np.bool_]
"""Chosen cells, `[y, x]`, or `[x]` of a map of one axis."""


@dataclass(frozen=True, eq=False)
class Side:
    """One of the fields, and its values in the order of the picture."""

    spec: Spec
    values: list[Any]

    @property
    def numeric(self) -> bool:
        """Whether the field has numbers, and not names."""
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
        if isinstance(value, bool):
            return "on" if value else "off"
        return value if self.numeric else str(value)

    @property
    def edges(self) -> Array:
        """Ends of the cells, half-way between neighbors as the axis has it; positions where the
        cells have names."""
        if not self.numeric:
            return np.arange(len(self.values) + 1.0) - 0.5
        middles = self._positions
        if len(middles) == 1:
            return self._value(middles[0] + np.array([-ALONE, ALONE]))
        inner = (middles[:-1] + middles[1:]) / 2
        # the first and the last cell reach as far outwards as inwards
        first, last = 2 * middles[0] - inner[0], 2 * middles[-1] - inner[-1]
        return self._value(np.concatenate([[first], inner, [last]]))

    @property
    def axis(self) -> Axis:
        """The axis in the picture, from the first cell's edge to the last one's."""
        ends = self.edges[[0, -1]]
        low, high = (np.log10(ends) if self.log else ends).tolist()
        counts = self.spec.kind == "integer" and not self.log
        return Axis(field_title(self.spec), (low, high), log=self.log, counts=counts)

    def at(self, steps: Array) -> Array:
        """Values at positions counted in cells: 1.5 is half-way on the axis between the second and
        the third cell."""
        return self._value(np.interp(steps, np.arange(len(self.values)), self._positions))

    @property
    def _positions(self) -> Array:
        """Where the values lie on the axis: exponents where it is logarithmic."""
        return np.asarray(np.log10(self.values) if self.log else np.array(self.values, dtype=float))

    def _value(self, positions: Array) -> Array:
        """The values at positions on the axis."""
        return np.asarray(10.0**positions if self.log else positions)

    def number(self, index: int) -> str:
        """The value of a cell, by its index, as text."""
        return number(self.values[index], 4) if self.numeric else str(self.places[index])

    @property
    def reach(self) -> str:
        """The field in words, with its first and last value, or all of its names."""
        reach = ", ".join(map(str, self.places))
        if self.numeric:
            reach = f"{self.number(0)} to {self.number(-1)} {self.spec.about.unit}".rstrip()
        return f"{self.spec.about.label} ({reach})"

    def words(self, value: str) -> str:
        """A cell's value in words, with the field's name and unit.

        Args:
            value: as text, or a placeholder of plotly's hover text, as "%{x}".
        """
        return f"{self.spec.about.label} {value} {self.spec.about.unit}".rstrip()


def _geometric(values: Sequence[float]) -> bool:
    """Whether rising values are more evenly apart on a logarithmic axis than on a linear one, and
    reach far."""
    # clearly so: a quarter of the spread of steps, so that a few round numbers stay linear
    unevenness = _unevenness(np.array(values, dtype=float))
    return _unevenness(np.log(values)) < unevenness / 4 and values[-1] >= FAR * values[0]


def _unevenness(positions: Array) -> float:
    """Standard deviation of the steps between positions over their mean; 0 of a single step."""
    steps = np.diff(positions)
    return float(steps.std() / steps.mean()) if len(steps) > 1 else 0.0


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
    """Whether the map has predictions, and whether it has values of the other origin."""
    theory_done: Mask
    """Whether a cell's prediction was computed; one that failed was."""
    done: Mask
    """Whether the other value was."""
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
        """The cells that have a reason for having no number."""
        return np.asarray((self.failure != "") & ~np.isfinite(self.shown), dtype=bool)

    @property
    def shown(self) -> Array:
        """The numbers that give cells their colors, `[y, x]`: measured ones where there are, else
        predicted."""
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
    # the table's axes may be in any order, and their values too; the picture's are [y, x], rising
    upwards = fields[::-1]
    axes = [list(table.over).index(name) for name in upwards]
    order = np.ix_(*(orders[name] for name in upwards))
    shape = [len(sides[name].values) for name in upwards]
    scale = scales()[statistic]

    def values(variable: str, origin: str, missing: Any = np.nan) -> NDArray[Any]:
        """A variable of the table as `[y, x]`; `missing` throughout if the table has none."""
        if variable not in table.values or origin not in table.origins:
            return np.full(shape, missing)
        of_origin: NDArray[Any] = table.values[variable][table.origins.index(origin)]
        return of_origin.transpose(axes)[order]

    def done(origin: str) -> Mask:
        """The cells that were computed: those that took some time, or failed."""
        if "seconds" in table.values:
            computed = np.isfinite(values("seconds", origin))
        else:
            computed = ~np.isnan(values(statistic, origin))
        failed = values("failure", origin, "").astype(str) != ""
        return np.asarray(computed | failed, dtype=bool)

    observed = done(scale.origin)
    failures = [values("failure", origin, "") for origin in (scale.origin, "predicted")]
    return Cells(
        sides=tuple(sides.values()),
        scale=scale,
        predicted=values(statistic, "predicted").astype(float),
        observed=values(statistic, scale.origin).astype(float),
        low=values(f"{statistic}_low", scale.origin).astype(float),
        high=values(f"{statistic}_high", scale.origin).astype(float),
        asked=("predicted" in table.origins, scale.origin in table.origins),
        theory_done=done("predicted"),
        done=observed,
        # a cell shows its prediction, and why that failed, only until the other value is there
        failure=np.where(observed, *failures).astype(object),
    )


def _side(table: Table, name: str) -> tuple[Side, NDArray[np.intp]]:
    """A field of a table, and the order of its values in the picture, as indices: numbers rise,
    names stay in the table's order."""
    values = table.over[name]
    side = Side(varied_specs()[name], list(values))
    order = np.argsort(values, kind="stable") if side.numeric else np.arange(len(values))
    return replace(side, values=[values[index] for index in order]), order


def _check(table: Table, statistic: str, fields: tuple[str, ...]) -> None:
    """Raises ValueError unless a table has a statistic, and these fields and no others as axes."""
    statistics = [name for name in scales() if name in table.values]
    if statistic not in statistics:
        raise ValueError(f"statistic must be one of {', '.join(statistics)}; got {statistic!r}")
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
"""Decades, or units on a linear scale, that each side of the healthy value shows at least; a
logarithmic scale without one in all. A flat map must look flat."""
LEAST_LINEAR = 0.05
"""As `LEAST`, of a linear scale without a healthy value, in its units."""
TICKS, LINES = 7, 4
"""Ticks of a logarithmic color bar, and contour lines, at most about so many."""
FINE_TICKS = 2.5
"""A logarithmic color bar of fewer decades has ticks at 1, 2 and 5 of each."""
STOPS = 33
"""Colors of a diverging scale, between which a browser mixes evenly."""
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
    """Ends of the color scale, as exponents of ten where it is logarithmic; values beyond have the
    end's color: failures need no colors of their own."""
    levels: tuple[float, ...] = ()
    """Contour lines; empty: at decades, or at the color bar's ticks."""
    origin: str = "measured"
    """Origin of the values that theory is compared with: "measured", or a plug-in's."""

    def value(self, position: float) -> float:
        """The value at a position, which is an exponent of ten on a logarithmic scale."""
        return float(10.0**position) if self.log else position


def _end(end: End) -> Scale:
    """The scale of a statistic at the end of a stack."""
    healthy, words = end.row.healthy or (None, "")
    words = translated(words)
    return Scale(
        title=end.title,
        unit=f"{end.symbol} ({end.row.unit})",
        healthy=healthy,
        words=words,
        log=end.row.log,
        bounds=end.row.bounds,
        levels=LEVELS if end.row.bounded else (),
    )


def scales() -> Mapping[str, Scale]:
    """The statistics of a map, by name: ends of statistics, then what plug-ins add."""
    return _scales(spoken())


@cache
def _scales(_: str) -> Mapping[str, Scale]:
    """The scales in a language."""
    return {**{name: _end(end) for name, end in ENDS.items()}, **plugins.rows("scales")}


class Colors(NamedTuple):
    """The color scale of one map. On a logarithmic one, ends and positions are exponents of ten."""

    scale: Scale
    low: float
    high: float
    stops: list[list[Any]] | str
    """Plotly's color scale: pairs of a share of the way from low to high and a color, or a name."""
    beyond: tuple[bool, bool]
    """Whether values lie below `low`, and above `high`."""

    def z(self, values: Array) -> Array:
        """Positions of values on the scale; a value beyond an end, infinite or zero too, is moved
        to that end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            positions = np.log10(values) if self.scale.log else values
            return np.clip(positions, self.low, self.high)

    @property
    def bar(self) -> dict[str, Any]:
        """The color bar, labeled with values; ≤ and ≥ mark ends beyond which there are values."""
        positions = _ticks(self.scale, self.low, self.high)
        labels = [number(self.scale.value(position), 3) for position in positions]
        below, above = self.beyond
        has_two_ends = len(labels) > 1
        if below and has_two_ends:
            labels[0] = f"≤ {labels[0]}"
        if above and has_two_ends:
            labels[-1] = f"≥ {labels[-1]}"
        return colorbar(typeset(self.scale.unit), tickvals=positions, ticktext=labels)


def colors(scale: Scale, values: Array) -> Colors:
    """The color scale that holds all values that can be drawn.

    Around a healthy value it reaches at most `MOST_DECADES` to each side, and is diverging; without
    one it ends at the scale's `clip`. A statistic with two bounds has a scale from bound to
    bound."""
    positions = values[drawable(values, scale.log)]
    if scale.log:
        positions = np.log10(positions)
    lowest, highest = extremes(positions)
    if scale.healthy is None:
        low, high = max(lowest, scale.clip[0]), min(highest, scale.clip[1])
        least = LEAST if scale.log else LEAST_LINEAR
        air = max(0.0, least - (high - low)) / 2
        beyond = (lowest < low, highest > high)
        return Colors(scale, low - air, high + air, SEQUENTIAL, beyond)
    middle = float(np.log10(scale.healthy)) if scale.log else scale.healthy
    if np.isfinite(scale.bounds).all():
        low, high = scale.bounds
    else:
        far = MOST_DECADES if scale.log else np.inf
        low = max(min(lowest, middle - LEAST), round(middle) - far)
        high = min(max(highest, middle + LEAST), round(middle) + far)
    beyond = (lowest < low - SLACK, highest > high + SLACK)
    return Colors(scale, low, high, _stops(middle, low, high), beyond)


def contour_levels(scaled: Colors) -> list[float]:
    """Values of the contour lines: the scale's own, or decades, few enough to be legible."""
    if scaled.scale.levels:
        return list(scaled.scale.levels)
    positions = _ticks(scaled.scale, scaled.low, scaled.high, LINES)
    return [scaled.scale.value(position) for position in positions]


def _ticks(scale: Scale, low: float, high: float, most: int = TICKS) -> list[float]:
    """Positions of ticks between two ends of a color bar.

    On a logarithmic scale positions are exponents of ten: whole ones, every second or third where
    they would be more than `most`, or those of 1, 2 and 5 times a power over few decades. Else
    about five round numbers."""
    if not scale.log:
        positions = round_values(low, high, 5)
    else:
        decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
        if high - low < FINE_TICKS:
            positions = [power + float(np.log10(lead)) for power in decades for lead in (1, 2, 5)]
        else:
            stride = max(1, int(np.ceil((high - low) / most)))
            positions = [float(power) for power in decades if power % stride == 0]
    return [position for position in positions if low - SLACK <= position <= high + SLACK]


def _stops(middle: float, low: float, high: float) -> list[list[Any]]:
    """The part of the diverging colors between two ends, as plotly's pairs of share and color.

    The healthy value, `middle`, has the neutral color; equally far from it is equally dark."""
    far = max(middle - low, high - middle) or 1.0
    shares = np.linspace(0.0, 1.0, STOPS)
    distances = (low + shares * (high - low) - middle) / far  # −1 … 1
    return [list(stop) for stop in zip(shares.tolist(), diverging(distances), strict=True)]
