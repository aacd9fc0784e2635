"""`slider_steps(spec)`: the values that a slider steps over, from the field's lowest to its
highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from explorer.choices import Choices
from explorer.fields import Spec

FINEST = 200
"""Steps of a slider over real numbers; a hand on a 280-pixel slider cannot set more."""
TWOS_ONLY = ("n_heads", "n_kv_heads")
"""A number of heads must divide the width, and of key-value heads the heads; powers of two nearly
always do."""
Item = TypeVar("Item")


@cache
def sliders(kind: type[Choices]) -> Mapping[str, Spec]:
    """The fields of a record whose control is a slider."""
    return {name: spec for name, spec in kind.specs().items() if slider_steps(spec)}


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly chosen, with both ends."""
    count = min(len(items), most)
    return [items[round(place * (len(items) - 1) / max(count - 1, 1))] for place in range(count)]


def nearest(values: Sequence[float], value: float) -> float:
    """The value that is next to a point of a chart, which is drawn on numbers of fewer digits."""
    return min(values, key=lambda candidate: abs(candidate - value))


def slider_steps(spec: Spec) -> list[float]:
    """Rising values within the field's bounds; both bounds and the default are among them.

    Whole numbers on a logarithmic axis go 1, 2, 3, 4, 6, 8, 12, 16, …: powers of two and one and a
    half times those, which 4 and 8 heads divide from 16 and 32 up. Real numbers take even steps, as
    long as the field asks for, or of the logarithm on a logarithmic axis, rounded to three digits
    between the bounds. A range too long to step through, such as a seed's, or without bounds gives
    no steps, and so no slider."""
    if spec.kind == "integer":
        values = _octaves(spec) if spec.about.log else _whole(spec)
        return sorted({int(value) for value in (*values, *_ends(spec))}) if values else []
    if spec.kind == "number" and spec.bounded:
        rounded = (float(f"{value:.3g}") for value in _even(spec))
        return sorted({*(value for value in rounded if spec.low < value < spec.high), *_ends(spec)})
    return []


def _ends(spec: Spec) -> tuple[float, ...]:
    return spec.low, spec.high, spec.default


def _whole(spec: Spec) -> list[float]:
    return list(range(int(spec.low), int(spec.high) + 1)) if spec.high - spec.low <= FINEST else []


def _octaves(spec: Spec) -> list[float]:
    powers = [2.0**k for k in range(32)]
    steps = powers if spec.name in TWOS_ONLY else [*powers, *(1.5 * power for power in powers[1:])]
    return [step for step in steps if spec.low <= step <= spec.high]


def _even(spec: Spec) -> list[float]:
    if spec.about.log:
        return [spec.low * (spec.high / spec.low) ** (k / FINEST) for k in range(FINEST + 1)]
    span = spec.high - spec.low
    count = round(span / spec.about.step) if spec.about.step else FINEST
    return [spec.low + span * k / count for k in range(count + 1)]
