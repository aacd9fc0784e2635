"""What every picture of a lab must have, and how a test finds a trace of it."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go

MOST = 60_000
"""Characters of a picture as it travels."""


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The one trace of that name."""
    (trace,) = [trace for trace in figure.data if trace.name == name]
    return trace


def must_be_whole(figure: go.Figure) -> None:
    """Titled axes with finite ranges, words for who cannot see it, no paper of its own, and data that travel."""
    assert figure.layout.yaxis.title.text
    assert figure.layout.xaxis.title.text or figure.layout.xaxis.ticktext
    assert len(figure.layout.meta["description"]) > 40
    assert figure.layout.paper_bgcolor == "rgba(0, 0, 0, 0)"
    assert len(json.dumps(figure.to_plotly_json(), default=lambda array: array.tolist())) < MOST
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        low, high = axis.range or (0, 1)
        assert np.isfinite((low, high)).all()
        assert low < high or figure.data[0].type == "heatmap"  # which may be read from the top
