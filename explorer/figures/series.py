"""Series to be drawn, from a profile's arrays: one middle and one band over depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.figures.palette import Design, designs
from explorer.profile import STREAM, Array, Profile

Reduce = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Series:
    """One statistic of one profile over depth; every array is `[site]`, values as they are, finite or not."""

    design: Design
    profile: Profile
    depth: Array
    """Depth in layers: 0 is the input, half layers lie between attention and MLP."""
    middle: Array
    low: Array
    high: Array
    note: str = ""
    """The reason why a prediction is unreliable, in part or as a whole."""

    @property
    def measured(self) -> bool:
        """Measured is drawn as dots with a band, predicted as a line."""
        return self.profile.origin == "measured"

    @property
    def name(self) -> str:
        """Measured or predicted, and the design."""
        return f"{self.design.label}, {self.profile.origin}".removeprefix(", ")

    @property
    def heading(self) -> str:
        """The same, escaped for plotly."""
        return f"{self.design.heading}, {self.profile.origin}".removeprefix(", ")

    @property
    def sample(self) -> str:
        """Of how many draws the band is the spread."""
        count = len(self.profile.seeds)
        return f"{count} seed" if count == 1 else f"{count} seeds"


def by_depth(profiles: Sequence[Profile], statistic: str, site: str, whose: Sequence[Design] = ()) -> list[Series]:
    """A statistic at one kind of site, or along the whole residual stream (no site), of every profile that has it.

    Mean and range over seeds; where there are heads, median and range over seeds and heads together.
    """
    return [
        spread(design, profile, *(profile.stream(statistic) if not site else (
            profile.depth(site), profile[statistic, site])), profile.notes.get(statistic, ""))
        for design, profile in zip(designs(profiles, whose), profiles, strict=True)
        if any((statistic, place) in profile.values for place in ([site] if site else STREAM))
    ]


def spread(design: Design, profile: Profile, depth: Array, values: Array, note: str = "") -> Series:
    """Reduces `[seed, site]` by the mean, `[seed, site, head]` by the median; values that are not finite stay so."""
    heads = values.ndim == 3
    draws = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        middle = np.median(draws, axis=0) if heads else np.mean(draws, axis=0)
        return Series(design, profile, depth, middle, np.min(draws, axis=0), np.max(draws, axis=0), note)


def drawable(values: Array, log: bool) -> NDArray[np.bool_]:
    """Mask of the values that have a place on the axis: finite, and above 0 on a logarithmic one."""
    return np.isfinite(values) & (values > 0) if log else np.isfinite(values)


def masked(values: Array, log: bool) -> Array:
    """The values, with a gap (nan) wherever there is no place on the axis."""
    return np.where(drawable(values, log), values, np.nan)


def runs(keep: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    """The places of each unbroken run of True."""
    places = np.flatnonzero(keep)
    if len(places):
        yield from np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)


def compact(values: Array) -> NDArray[Any]:
    """Half the bytes: float32, enough for a picture, unless a value would leave its range (predictions can)."""
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    limits = np.finfo(np.float32)
    fits = not len(size) or bool(size.max() < limits.max and size.min() > limits.tiny)
    return values.astype(np.float32) if fits else values
