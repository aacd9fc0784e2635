"""Designs side by side over depth: dots with the seeds' range are measured, lines are predicted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from explorer.figures.palette import HUES
from explorer.figures.parts import Array, Axis, Trace, axis, dots, line
from explorer.figures.series import compact
from explorer.labs.stacks import Line

MOST_DOTS = 49
"""Of one design; more would run into each other."""


def depth_axis(lines: Mapping[str, Line]) -> Axis:
    """Layers, from the input to the deepest."""
    return axis("depth (layers)", [np.zeros(1), *(one.depth for one in lines.values())], air=0.03)


def values(lines: Mapping[str, Line]) -> list[Array]:
    """All that is drawn, for an axis to hold."""
    return [part for one in lines.values() for part in (one.measured, one.predicted)]


def curves(lines: Mapping[str, Line], names: Mapping[str, str], sentence: str, *, log: bool = False,
           hues: Mapping[str, int] | None = None) -> list[Trace]:
    """A line and dots for each, in the hue of its place among the names; lines lie below all dots."""
    place = hues or {key: index for index, key in enumerate(names)}
    below = [
        line(one.depth, one.predicted, names[key], place[key], sentence, log=log) for key, one in lines.items()
    ]
    return below + [measured(one, names[key], place[key], sentence, log=log) for key, one in lines.items()]


def measured(one: Line, name: str, index: int, sentence: str, *, log: bool = False) -> Trace:
    """Means over seeds with their range."""
    step = -(-len(one.depth) // MOST_DOTS)
    seeds = one.measured[:, ::step]
    mean = seeds.mean(0)
    bars = {
        "type": "data", "symmetric": False, "color": HUES[index], "thickness": 1.2, "width": 0,
        "array": compact(seeds.max(0) - mean), "arrayminus": compact(mean - seeds.min(0)),
    }
    return dots(one.depth[::step], mean, name, index, sentence, log=log, error_y=bars)
