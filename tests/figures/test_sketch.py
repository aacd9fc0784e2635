"""Lines without a script: each point lies where its axis puts it, and ticks are round and within
the frame."""

from __future__ import annotations

import base64
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from explorer.config import Config
from explorer.figures import FIGURES
from explorer.figures.kit import Axis, picture
from explorer.figures.pages import image, place, ticks
from explorer.theory import predict


def drawn(x: list[float], y: list[float], *, log: bool = False) -> go.Figure:
    """A line in a frame from 0 to 10 across, and 1 to 100 up."""
    height = Axis("up", (0.0, 2.0), log=True) if log else Axis("up", (1.0, 100.0))
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": "#123456", "dash": "dot"},
    }
    return picture([line], Axis("across", (0.0, 10.0)), height, "A line.")


def sketch(figure: go.Figure) -> str:
    """The SVG within an image."""
    return base64.b64decode(image(figure, "A line").partition("base64,")[2]).decode()


def points(markup: str) -> list[tuple[str, float, float]]:
    path = re.findall(r'<path d="([^"]*)"', markup)[-1]
    return [(way, float(x), float(y)) for way, x, y in re.findall(r"([ML])(\S+) (\S+)", path)]


def test_a_point_lies_where_its_axis_puts_it() -> None:
    assert points(sketch(drawn([0, 5, 10], [1, 10, 100], log=True))) == [
        ("M", 0, 100),
        ("L", 50, 50),
        ("L", 100, 0),
    ]
    assert points(sketch(drawn([0, 10], [1, 100]))) == [("M", 0, 100), ("L", 100, 0)]


def test_names_in_the_legend_have_the_room_of_their_letters() -> None:
    figure = go.Figure().add_scatter(name="loss").add_scatter(name="损失").add_scatter(name="end")
    figure.update_layout(drawn([0, 1], [1, 2]).layout, showlegend=True)
    places = [float(x) for x in re.findall(r'<text x="(\S+)" y="40"', sketch(figure))]
    assert np.diff(places).tolist() == [4 * 8 + 16, 2 * 12 + 16]


def test_a_line_breaks_where_a_value_has_no_place() -> None:
    found = points(sketch(drawn([0, 2, 4, 6, 10], [1, 10, 0, 10, np.nan], log=True)))
    assert found == [("M", 0, 100), ("L", 20, 50), ("M", 60, 50)]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (Axis("", (0.0, 10.0)), [0, 2, 4, 6, 8, 10]),
        (Axis("", (-0.06, 1.12)), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis("", (-0.1, 1.4), log=True), [1, 2, 5, 10, 20]),
        (Axis("", (-3.2, 1.4), log=True), [0.001, 0.01, 0.1, 1, 10]),
    ],
)
def test_ticks_are_round(axis: Axis, expected: list[float]) -> None:
    layout = go.Figure(layout={"xaxis": axis.layout}).layout.xaxis
    assert ticks(layout) == pytest.approx(expected)
    assert all(0 <= at <= 100 for at in place(np.array(expected), layout))


def test_every_line_of_the_theory_is_drawn_in_its_hue() -> None:
    profile = predict(Config())
    for row in FIGURES.values():
        figure = row.draw([profile])
        if lines := [trace for trace in figure.data if "lines" in trace.mode]:
            markup = sketch(figure)
            assert markup.count("<path d=") == len(lines) + 1  # and the grid
            assert all(trace.line.color in markup for trace in lines)
