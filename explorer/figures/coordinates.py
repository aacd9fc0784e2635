"""The picture of a coordinate check: changes over width or depth, each over its own at the smallest size."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from explorer.display import shown
from explorer.figures import kit
from explorer.figures.palette import Look

if TYPE_CHECKING:
    from explorer.own.coordinates import CoordCheck, Size


def plot(check: CoordCheck, axis: str = "width") -> go.Figure:
    """Geometric means over seeds after the last step; the dotted line is no change of them, as μP and CompleteP ask.

    Args:
        check: what was measured.
        axis: "width" or "depth".
    Raises:
        ValueError: the axis is another one, or has one size only.
    """
    slopes = [row for row in check.slopes if row.axis == axis and row.asked is not None] if axis != "head" else []
    if not slopes:
        axes = dict.fromkeys(row.axis for row in check.slopes if row.axis != "head")
        raise ValueError(f"axis must be one over which slopes are: {', '.join(axes)}; got {shown(axis)}")
    last, other = max(row.step for row in slopes), "depth" if axis == "width" else "width"
    smallest = min(getattr(row, other) for row in check.sizes)
    rows = [row for row in check.sizes if row.step == last and getattr(row, other) == smallest]
    sizes = sorted({getattr(row, axis) for row in rows})
    series = {slope.quantity: _means(rows, slope.quantity, axis, sizes) for slope in slopes if slope.step == last}
    across = kit.axis(axis, [sizes], log=True)
    height = kit.axis(f"change, over that at {axis} {sizes[0]}", [*series.values(), [1.0]], log=True, least=1.0)
    traces = []
    for index, (quantity, values) in enumerate(series.items()):
        name = html.escape(quantity)
        words = kit.hover(name, f"{axis} %{{x}}: %{{y:.3g}}")
        traces += [kit.dots(sizes, values, Look(index), name, words, log=True),
                   kit.line(sizes, values, Look(index), name, words, log=True)]
    traces.append(kit.level(1.0, "asked for", across, height))
    figure = kit.picture(traces, across, height, kit.described(f"Changes over {axis}", traces[:-1:2]))
    return kit.alone(figure, "Coordinate check", f"changes after {last} steps, over {axis}")


def _means(rows: list[Size], quantity: str, axis: str, sizes: list[int]) -> list[float]:
    """Geometric means of a quantity's change at each size, over that at the first; nan where there is none."""
    with np.errstate(all="ignore"):
        means = [np.exp(np.mean(np.log([row.change for row in rows if row.quantity == quantity
                                        and getattr(row, axis) == size] or [np.nan]))) for size in sizes]
        return [float(mean / means[0]) for mean in means]
