"""What every picture of a lab must have, and how a test finds a trace of it."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go

from explorer.figures.data import table
from explorer.labs.lab import Lab

MOST = 60_000
"""Characters of a picture as it travels."""


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The one trace of that name."""
    (trace,) = [trace for trace in figure.data if trace.name == name]
    return trace


def every(row: Lab, *results: object) -> None:
    """Draws every picture of a lab from each result, and asks of it what every picture must have."""
    for result in results:
        for plot in row.plots:
            must_be_whole(plot.draw(result))


def must_be_whole(figure: go.Figure) -> None:
    """Titled axes with finite ranges, words for who cannot see it, no paper of its own, data that travel, a table."""
    assert figure.layout.yaxis.title.text
    assert figure.layout.xaxis.title.text or figure.layout.xaxis.ticktext
    assert len(figure.layout.meta["description"]) > 40
    assert figure.layout.paper_bgcolor == "rgba(0, 0, 0, 0)"
    assert len(json.dumps(figure.to_plotly_json(), default=lambda array: array.tolist())) < MOST
    columns, rows = table(figure.to_dict())
    assert columns[:2] == ["series", "kind"]
    assert rows
    assert {row[1] for row in rows} <= {"measured", "theory", "mark"}
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        low, high = axis.range or (0, 1)
        assert np.isfinite((low, high)).all()
        assert low < high or figure.data[0].type == "heatmap"  # which may be read from the top
