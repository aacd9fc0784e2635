"""A profile at a glance, as a notebook's cell shows it: the verdict, and four charts in one figure."""

from __future__ import annotations

import html
import json
import textwrap
from typing import Any

import plotly.graph_objects as go

from explorer.diagnosis import diagnose
from explorer.figures import FIGURES
from explorer.figures.words import typeset
from explorer.profile import Profile
from explorer.theory import predict

SHOWN = ("second_moment", "gradient_by_layer", "attention_entropy", "token_correlation")
MIME = "application/vnd.plotly.v1+json"
CONFIG = {"responsive": True, "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
LINE = 150
"""Letters of a line of the verdict."""
PLACES = tuple((across, up) for up in ([0.58, 1.0], [0.0, 0.42]) for across in ([0.0, 0.46], [0.54, 1.0]))
"""Across and up, as parts of the figure."""


def glance(profile: Profile) -> dict[str, Any]:
    """The figure as a cell's output, by its mime type."""
    return {MIME: {**json.loads(overview(profile).to_json()), "config": CONFIG}}


def overview(profile: Profile) -> go.Figure:
    """The first finding, and charts of what the profile has, with theory's line where a config or a twin gives one."""
    twin = profile.config or profile.twin
    profiles = [profile] if twin is None or profile.origin == "predicted" else [predict(twin), profile]
    rows = [FIGURES[name] for name in SHOWN if FIGURES[name].statistic in profile]
    data: list[Any] = []
    finding = diagnose(profile)[0]
    evidence = "<br>".join(textwrap.wrap(finding.details, LINE))
    evidence = html.escape(evidence).replace("&lt;br&gt;", "<br>")
    title = {"text": typeset(html.escape(finding.meaning)), "subtitle": {"text": typeset(evidence)}}
    layout: dict[str, Any] = {
        "height": 580, "margin": {"t": 130, "l": 60, "r": 20, "b": 50}, "template": "plotly_white", "title": title,
        "paper_bgcolor": "white", "showlegend": False, "annotations": [],
    }
    for number, (row, (across, up)) in enumerate(zip(rows, PLACES, strict=False), start=1):
        drawn, own = row.draw(profiles), "" if number == 1 else str(number)
        axes = {f"xaxis{own}": {**drawn.layout.xaxis.to_plotly_json(), "domain": across, "anchor": f"y{own}"},
                f"yaxis{own}": {**drawn.layout.yaxis.to_plotly_json(), "domain": up, "anchor": f"x{own}"}}
        layout |= axes
        layout["annotations"].append({"text": f"<b>{row.title}</b>", "x": across[0], "y": up[1], "xref": "paper",
                                      "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False})
        data += [{**trace.to_plotly_json(), "xaxis": f"x{own}", "yaxis": f"y{own}"} for trace in drawn.data]
    return go.Figure({"data": data, "layout": layout})
