"""Pictures of a race: pure functions from a `Course` to plotly figures.

A contender keeps its hue, dash and symbol in every figure. Curves of any length travel as a few hundred points.
`CURVES` and `MAPS` hold one row a picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from explorer.figures.axes import alone
from explorer.figures.palette import Design
from explorer.figures.training.course import Course, Track
from explorer.figures.training.curves import CURVES
from explorer.figures.training.maps import MAPS, Map, layer_map

if TYPE_CHECKING:
    from explorer.training.race import Race

__all__ = ["CURVES", "MAPS", "Course", "Map", "Track", "layer_map", "plot"]


def plot(race: Race, curve: str = "held_out_loss") -> go.Figure:
    """One picture of a race by itself, with a title and a legend: see `Race.plot`."""
    row = next((row for row in CURVES if row.name == curve), None)
    if row is None:
        raise ValueError(f"curve must be one of {', '.join(row.name for row in CURVES)}; got {curve!r}")
    designs = [Design(number, contender.config, contender.name) for number, contender in enumerate(race.contenders)]
    figure = alone(row.draw(Course.of(race, designs, race.verdict())), row.title, row.caption)
    names = [design.heading for design in designs]
    return figure.for_each_trace(lambda trace: trace.update(showlegend=True), lambda trace: trace.name in names)
