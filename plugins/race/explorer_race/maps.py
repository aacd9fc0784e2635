"""Heat maps of one contender, layer by layer and step by step, on a color scale that all contenders
share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from explorer.figures.kit import Axis, colorbar, compact, drawable, headline, masked, sheet
from explorer.figures.palette import SEQUENTIAL
from explorer.numbers import number
from explorer.sites import BRANCHES, STREAM
from explorer.vocabulary import Array
from explorer_race.figures import Course, Read, Track, series, stride
from explorer_race.history import TRAINING, History

MOST_COLUMNS, MOST_ROWS = 200, 64
"""Cells that are sent to a browser; of more readings or layers, every second, fourth, … is."""
TICKS = 5


class Grid(NamedTuple):
    """One statistic over steps and depth."""

    steps: Array
    """`[reading]`"""
    depth: Array
    """`[row]`, in layers, evenly apart; half layers lie between attention and MLP."""
    values: Array
    """`[reading, row]`, not finite where there is none."""


class Map(NamedTuple):
    """One statistic that can be shown over steps and depth."""

    name: str
    title: str
    unit: str
    """Symbol and unit, the title of the color scale."""
    source: Read
    """From a contender's history to the steps and the values, `[reading, row]`; no values where
    there are none."""
    log: bool = False
    each: str = "depth"
    """A row of it: a depth in layers, or a token of the last layer."""
    halves: bool = False
    """Whether rows are the stream's half layers from 0, the input; else they are layers or tokens
    from 1."""

    def grid(self, history: History) -> Grid:
        """The values of a contender, `MOST_COLUMNS` and `MOST_ROWS` of them at most."""
        steps, values = self.source(history)
        if not values.size:
            return Grid(np.zeros(0), np.zeros(0), np.zeros((0, 0)))
        columns, rows = stride(len(steps), MOST_COLUMNS), stride(values.shape[1], MOST_ROWS)
        places = np.arange(float(values.shape[1]))
        depth = places / 2 if self.halves else places + 1
        return Grid(steps[::columns], depth[::rows], values[::columns, ::rows])


def layer_map(course: Course, chosen: int, row: Map) -> go.Figure:
    """A statistic of one contender, step × layer; the color scale holds what all of them have.

    Args:
        chosen: the contender's place in the course.
    """
    grids = [row.grid(track.history) for track in course.tracks]
    track, grid = course.tracks[chosen], grids[chosen]
    low, high = extent(
        [shown for shown, other in zip(grids, course.tracks, strict=True) if not other.retired]
        or grids,
        row.log,
    )
    values = masked(grid.values, row.log).T
    z = np.log10(values) if row.log else values
    heading, words = _words(track, row, grid)
    heat: dict[str, Any] = {
        "type": "heatmap",
        "name": track.name,
        "z": compact(z),
        "customdata": compact(grid.values.T),
        "x": compact(grid.steps),
        "y": compact(grid.depth),
        "zmin": low,
        "zmax": high,
        "colorscale": SEQUENTIAL,
        "hoverongaps": False,
        "colorbar": scale(low, high, row),
        "hovertemplate": f"step %{{x}}, {row.each} %{{y}}: %{{customdata:.3g}}<extra>{track.name}</extra>",
    }
    depth = Axis(
        "depth (layers)" if row.each == "depth" else "token position, last layer",
        _rows(grid),
        counts=True,
    )
    across, up = (axis.layout | {"showgrid": False} for axis in (course.axis, depth))
    return go.Figure(
        {"data": [heat] if z.size else [], "layout": sheet(across, up, words, **headline(heading))}
    )


def extent(grids: list[Grid], log: bool) -> tuple[float, float]:
    """The ends of the color scale, exponents on a logarithmic one: all values but the last
    hundredth at each end."""
    finite = np.concatenate([np.empty(0), *(grid.values.ravel() for grid in grids)])
    finite = finite[drawable(finite, log)]
    if not len(finite):
        return (-1.0, 0.0) if log else (0.0, 1.0)
    low, high = np.quantile(np.log10(finite) if log else finite, (0.01, 0.99)).tolist()
    slack = max(0.0, (0.3 if log else 1e-3) - (high - low)) / 2  # a flat picture must look flat
    return low - slack, high + slack


def scale(low: float, high: float, row: Map) -> dict[str, Any]:
    """The color bar, labeled with the values themselves."""
    at = np.linspace(low, high, TICKS)
    words = [number(10.0**value if row.log else value, 2) for value in at]
    return colorbar(row.unit, tickvals=at.tolist(), ticktext=words)


def _words(track: Track, row: Map, grid: Grid) -> tuple[str, str]:
    """The title of the picture, and the picture in words."""
    end = f", diverged at step {track.step:,}" if track.retired else ""
    if not grid.values.size:
        return f"{track.name}: has none", f"{row.title} of {track.design.label}: there is none."
    each = row.each.replace("depth", "layer")
    first, last = (
        f"step {grid.steps[at]:.0f}: {number(grid.values[at][0])} in the first and "
        f"{number(grid.values[at][-1])} in the last {each}"
        for at in (0, -1)
    )
    return f"{track.name}{end}", f"{row.title} of {track.design.label}{end}. At {first}; at {last}."


def _rows(grid: Grid) -> tuple[float, float]:
    """The vertical extent: half a cell beyond the outermost rows."""
    depth = grid.depth if len(grid.depth) else np.ones(1)
    half = (depth[1] - depth[0]) / 2 if len(depth) > 1 else 0.5
    return float(depth[0] - half), float(depth[-1] + half)


# --- what can be shown ----------------------------------------------------------------------------


def along_stream(history: History, statistic: str) -> tuple[Array, Array]:
    """A statistic of the residual stream: the input, then after each attention and each MLP."""
    (steps, embed), (_, middle), (_, after) = (series(history, statistic, site) for site in STREAM)
    if not len(steps):
        return steps, embed
    return steps, np.concatenate(
        [embed, np.stack([middle, after], axis=2).reshape(len(steps), -1)], axis=1
    )


def by_layer(history: History, statistic: str, site: str) -> tuple[Array, Array]:
    """A statistic of a site within each layer; of several heads, the median."""
    steps, values = series(history, statistic, site)
    return steps, np.median(values, axis=2) if values.ndim == 3 else values


def by_position(history: History, statistic: str) -> tuple[Array, Array]:
    """A statistic of each token in the last layer."""
    steps, values = series(history, statistic, TRAINING[statistic].sites[0])
    return steps, values[:, -1] if len(steps) else values


def over_matrices(history: History, statistic: str) -> tuple[Array, Array]:
    """A statistic of the matrices: the median over a layer's."""
    steps, values = history.matrices(statistic)
    return steps, np.median(values, axis=0) if len(steps) else values


def _map(statistic: str, title: str = "", source: Read | None = None, name: str = "") -> Map:
    """The map of a statistic: of the stream, or of its one site, where `source` says no other."""
    row = TRAINING[statistic]
    own = (
        partial(along_stream, statistic=statistic)
        if row.on_stream
        else partial(by_layer, statistic=statistic, site=row.sites[0])
    )
    return Map(
        name or statistic,
        title or row.label,
        f"{row.symbol} ({row.unit})",
        source or own,
        row.log,
        halves=row.on_stream and source is None,
    )


MAPS: Mapping[str, Map] = MappingProxyType(
    {
        row.name: row
        for row in (
            _map(
                "parameter_gradient",
                "Gradient by the weights",
                History.layer_gradient,
                name="weight_gradient",
            ),
            _map("stream_gradient", "Gradient by the stream"),
            *(
                _map(name, source=partial(over_matrices, statistic=name))
                for name in ("update_ratio", "update_spectral_norm", "update_stable_rank")
            ),
            _map("second_moment", "Second moment of the stream"),
            *map(_map, ("token_correlation", "max_abs", "kurtosis")),
            _map("attention_entropy_normalized", name="attention_entropy"),
            _map("logit_std"),
            *map(_map, ("largest_possible_logit", "logit_rank")),
            *(
                _map(name, source=partial(by_position, statistic=name))._replace(each="token")
                for name, row in TRAINING.items()
                if row.by_position
            ),
            *(
                _map(
                    "alpha",
                    f"α of the {branch} branches",
                    partial(by_layer, statistic="alpha", site=site),
                    f"alpha_{branch.lower()}",
                )
                for site, branch in zip(BRANCHES, ("attention", "MLP"), strict=True)
            ),
        )
    }
)
"""The statistics of a heat map, a row each."""
