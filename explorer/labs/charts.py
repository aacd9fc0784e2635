"""Charts of whole stacks: those of the Explore page and of the race, with a legend within the picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import LEGEND, Axis, drawable
from explorer.figures.layers import by_layer
from explorer.figures.palette import DASHES, SYMBOLS, LegendEntry
from explorer.figures.race import Course, Track
from explorer.figures.traces import Trace, error_bars
from explorer.labs.stacks import Pair
from explorer.labs.trained import Trained
from explorer.profile import Array


@dataclass(frozen=True)
class Variant(LegendEntry):
    """A design in one of several states: the design gives the hue, the state dash and symbol."""

    state: int = 0

    @property
    def dash(self) -> str:
        """Of the state."""
        return DASHES[self.state]

    @property
    def symbol(self) -> str:
        """Of the state."""
        return SYMBOLS[self.state]


def designs(names: Mapping[str, str], hues: Mapping[str, int] | None = None) -> dict[str, LegendEntry]:
    """Marks of each key: its name and its hue, the one of its place where none is given."""
    hues = hues or {key: index for index, key in enumerate(names)}
    return {key: LegendEntry(hues[key], None, name) for key, name in names.items()}


def side_by_side(statistic: str, pairs: Mapping[str, Pair], whose: Mapping[str, LegendEntry],
                 height: Axis | None = None, below: Sequence[Trace] = ()) -> go.Figure:
    """A chart of the Explore page with several designs, measured and predicted, and other traces below them."""
    profiles = [profile for pair in pairs.values() for profile in pair]
    looks = [whose[key] for key in pairs for _ in Pair._fields]
    return with_legend(by_layer(statistic, profiles, looks, height), whose.values(), below)


def with_legend(figure: go.Figure, whose: Iterable[LegendEntry], below: Sequence[Trace] = (), **more: Any) -> go.Figure:
    """The figure with one legend entry for each design, at its dots, and the traces `below` drawn under the others."""
    headings = {design.heading for design in whose}
    for trace in figure.data:
        name = trace.name.removesuffix(", measured")
        entry = name in headings and "markers" in (trace.mode or "")
        trace.update(showlegend=entry, name=name if entry else trace.name)
    figure = go.Figure([*below, *figure.data], figure.layout)
    return figure.update_layout(showlegend=True, legend=LEGEND | more, margin_t=34)


def seeds_range(index: int, middle: Array, values: Array) -> Trace:
    """Error bars of dots on a logarithmic axis, from the least to the largest of `[x, seed]` that can be drawn."""
    usable = np.where(drawable(values, log=True), values, middle[:, None])
    return error_bars(index, usable.max(1) - middle, middle - usable.min(1))


def course(trained: Trained[Any], whose: Mapping[str, LegendEntry]) -> Course:
    """The race of the contenders, to be drawn as races are."""
    tracks = (
        Track(whose[name], trained.histories[name], end.steps, end.reason, end.final_loss)
        for name, end in trained.ends.items()
    )
    return Course(tuple(tracks), trained.settings.steps, trained.levels)
