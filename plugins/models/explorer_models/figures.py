"""The picture of a coordinate check: changes over width or depth, each over its own at the smallest
size."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from explorer.figures import kit
from explorer.figures.palette import Look

if TYPE_CHECKING:
    from explorer_models.coordinates import Axis, CoordCheck


def plot(check: CoordCheck, axis: Axis = "width") -> go.Figure:
    """Changes after the last step, geometric means over seeds; the dotted line is what μP and
    CompleteP ask for.

    Args:
        check: what was measured.
        axis: "width" or "depth".
    Raises:
        ValueError: the axis is another one, or has one size only.
    """
    last = max(row.step for row in check.sizes)
    names = [row.quantity for row in check.slopes if (row.axis, row.step) == (axis, last)]
    if not names:
        axes = ", ".join(dict.fromkeys(row.axis for row in check.slopes if row.step == last))
        raise ValueError(f"axis must be one with two sizes or more: {axes}; got {axis!r}")
    shapes = []
    for name in names:
        points = check.points(name, axis, last)
        sizes = sorted({getattr(row, axis) for row in points})
        with np.errstate(all="ignore"):
            logs = [
                np.mean(np.log([row.change for row in points if getattr(row, axis) == size]))
                for size in sizes
            ]
            shapes.append((html.escape(name), sizes, np.exp(np.array(logs) - logs[0])))
    across = kit.axis(axis, [sizes for _, sizes, _ in shapes], log=True)
    height = kit.axis(
        "change, over that at the smallest", [[1.0], *(y for *_, y in shapes)], log=True, least=1.0
    )
    dots = [
        kit.dots(
            x, y, Look(index), name, kit.hover(name, f"{axis} %{{x}}: %{{y:.3g}}"), log=True, size=6
        )
        | {"mode": "lines+markers", "line": {"color": Look(index).hue}}
        for index, (name, x, y) in enumerate(shapes)
    ]
    figure = kit.picture(
        [*dots, kit.level(1.0, "asked for", across, height)],
        across,
        height,
        kit.described(f"Changes over {axis}", dots),
    )
    return kit.alone(figure, "Coordinate check", f"changes after {last} steps, over {axis}")
