"""`picture`: a plotly figure as an image that a notebook's file keeps, for readers without a
kernel."""

from __future__ import annotations

import base64
from html import escape

import numpy as np
import plotly.graph_objects as go

from explorer.display import shown
from explorer.figures.pages import image
from explorer.lessons.live import dressed

WIDTH, HEIGHT = 640, 320
"""Size of the image in pixels."""
SIDE, MARGIN = 220, 30
"""Side of a heat map, and the space around it, in pixels."""


class Picture:
    """A figure as a cell shows it.

    Args:
        figure: of lines and dots, or of heat maps, which are drawn side by side.
    """

    def __init__(self, figure: go.Figure) -> None:
        self.figure = figure

    def __repr__(self) -> str:
        names = ", ".join(trace.name or "no name" for trace in self.figure.data)
        return f"picture({names})"

    def _repr_html_(self) -> str:
        maps = [trace for trace in self.figure.data if trace.type == "heatmap"]
        if maps:
            return heat_maps(maps, self.figure.layout.title.text or "")
        title, figure = dressed(self.figure)
        return image(figure, title, WIDTH, HEIGHT)


def heat_maps(maps: list[go.Heatmap], title: str) -> str:
    """Heat maps side by side as an HTML `<img>`: white is 0, black is 1."""
    drawn = ""
    for place, trace in enumerate(maps):
        left = MARGIN + place * (SIDE + MARGIN)
        drawn += f'<text x="{left}" y="20">{escape(trace.name or "")}</text>'
        values = np.asarray(trace.z, dtype=float)
        height, width = SIDE / values.shape[0], SIDE / values.shape[1]
        for (row, column), value in np.ndenumerate(np.clip(values, 0, 1)):
            shade = round(255 * (1 - value))
            x, y = left + column * width, MARGIN + row * height
            size = f'width="{width:.1f}" height="{height:.1f}"'
            gray = f"rgb({shade},{shade},{shade})"
            drawn += f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{gray}"/>'
        frame = f'width="{SIDE}" height="{SIDE}" fill="none" stroke="#888"'
        drawn += f'<rect x="{left}" y="{MARGIN}" {frame}/>'
    total = f'width="{MARGIN + len(maps) * (SIDE + MARGIN)}" height="{SIDE + 2 * MARGIN}"'
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {total} '
        f'font-family="sans-serif" font-size="12" shape-rendering="crispEdges">'
        f'<rect width="100%" height="100%" fill="#fff"/>{drawn}</svg>'
    )
    content = base64.b64encode(picture.encode()).decode()
    return f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{content}">'


def picture(figure: go.Figure) -> Picture:
    """A figure as an image: nothing moves, and the notebook's file keeps it.

    Args:
        figure: of plotly, with lines and dots, or with heat maps of numbers from 0 to 1.
    Raises:
        TypeError: it is no plotly figure.

    Example:
        In a notebook::

            ex.picture(go.Figure().add_scatter(y=[1, 0.5, 0.25], name="signal"))
    """
    if not isinstance(figure, go.Figure):
        raise TypeError(f"figure must be a plotly figure; got {shown(figure)}")
    return Picture(figure)
