"""The drawing kit: what an axis holds, its ticks, and where marks stand on it."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import pytest

from explorer.figures.kit import (
    AIR,
    FEW,
    STEPS,
    Axis,
    alone,
    axis,
    depth_axis,
    described,
    dots,
    error_bars,
    level,
    line,
    picture,
    steady,
    upright,
)
from explorer.figures.palette import HUES, Look


@pytest.mark.parametrize(("log", "low", "high"), [(False, -2.0, 8.0), (True, 0.0, 3.0)])
def test_an_axis_holds_what_has_a_place_on_it_with_air_at_both_ends(
    log: bool, low: float, high: float
) -> None:
    found = axis(
        "x (1)",
        [[-2.0, np.nan], np.array([[1.0, 8.0], [np.inf, 0.0]]), 1000.0 if log else 1.0],
        log=log,
    )
    air, most = AIR * (high - low), (AIR + 1 / STEPS) * (high - low)
    assert low - most <= found.extent[0] <= low - air
    assert high + air <= found.extent[1] <= high + most


def test_a_flat_line_looks_flat_and_nothing_has_an_axis_too() -> None:
    flat = axis("q (1)", [[1.0, 1.0 + 1e-9]], log=True, least=1.0, air=0.0, top=0.5)
    assert flat.extent == (-0.5, 1.125)
    low, high = axis("q (1)", [], log=True).extent
    assert low < high


def test_an_axis_stays_while_what_it_holds_moves_a_little() -> None:
    ends = [
        axis("q (1)", [[1.0, 10 ** (2 + move)]], log=True).extent
        for move in np.arange(0.0, 1.0, 0.02)
    ]
    assert len(set(ends)) < len(ends) / 4
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 5e-324), (1e16, 1e16), (-1.7e308, 1.7e308), (1.0, 1.0 + 2e-16)]
)
def test_ends_are_numbers_where_floats_end(low: float, high: float) -> None:
    found = steady(low, high)
    assert found[0] <= low <= high <= found[1]
    assert np.isfinite(found).all()


def test_positions_are_values_also_where_these_are_beyond_floats() -> None:
    linear, log = Axis("x", (-1.0, 3.0)), Axis("x", (-2.0, 2.0), log=True)
    assert (linear.at(0.25), log.at(0.5)) == (0.0, 1.0)
    assert linear.above(1.0, 0.5) == pytest.approx(3.0)
    assert log.above(1.0, 0.25) == pytest.approx(10.0)
    assert log.ends.tolist() == pytest.approx([0.01, 100.0])
    assert np.isfinite(Axis("x", (-900.0, 900.0), log=True).ends).all()


@pytest.mark.parametrize(("most", "step"), [(3, 1), (FEW, 1), (24, None), (20_000, None)])
def test_an_axis_that_counts_has_whole_ticks(most: float, step: int | None) -> None:
    layout = Axis("step", (-0.5, most), counts=True).layout
    assert layout.get("dtick") == step
    assert layout["tickformat"] == ("~s" if most > 9999 else "~g")
    assert depth_axis(np.arange(most)).extent[0] < 0


@pytest.mark.parametrize(("extent", "labels"), [((-0.5, 0.5), "~g"), ((-8.0, 0.0), None)])
def test_wide_logarithmic_axes_are_labeled_in_powers(
    extent: tuple[float, float], labels: str | None
) -> None:
    layout = Axis("q", extent, log=True).layout
    assert layout.get("tickformat") == labels
    assert layout["nticks"] >= 3
    assert layout["minorloglabels"] == "complete"


def test_marks_stand_at_their_values_and_words_beside_them() -> None:
    across, height = Axis("x", (0.0, 10.0)), Axis("y", (-1.0, 1.0), log=True)
    mark = level(1.0, "kept", across, height, "left", lift=0.25)
    assert mark["x"] == [0.0, 10.0, None, 0.0]
    assert mark["y"] == pytest.approx([1.0, 1.0, None, 10**0.5])
    assert mark["text"][-1] == "kept"
    assert upright(3.0, "here", height, share=0.5)["y"] == pytest.approx([0.1, 1.0, 10.0])


def test_dots_and_lines_leave_out_what_has_no_place_and_keep_the_marks_of_their_index() -> None:
    found = dots([1, 2, 3], [0.0, np.inf, 2.0], Look(1), "W<sub>Q</sub>", "%{y}", log=True, size=12)
    found["error_y"] = error_bars(Look(1), [1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(found["y"], [np.nan, np.nan, 2.0])
    assert found["marker"]["color"] == HUES[1]
    assert (found["marker"]["size"], found["marker"]["symbol"]) == (12, "square")
    assert found["name"] == "W<sub>Q</sub>"
    assert found["error_y"]["symmetric"] is False
    row = line([1, 2], [1.0, 2.0], Look(1), "W<sub>Q</sub>", "%{y}")
    figure = picture([found, row], Axis("x", (0, 4)), Axis("y", (-1, 1), log=True), "two")
    assert [trace.showlegend for trace in figure.data] == [None, False]
    assert figure.layout.meta["description"] == "two"


def test_a_picture_in_words_gives_the_ends_and_extremes_of_what_is_drawn_and_leaves_out_the_scale() -> (
    None
):
    across, height = Axis("x", (0, 3)), Axis("y", (0, 3))
    traces = [
        level(1.0, "flat", across, height),
        upright(1.0, "here", height),
        dots([0, 1, 2], [1.5, np.nan, 0.5], Look(0), "γ", ""),
        dots([2], [3], Look(1), "x<sub>l</sub>", ""),
        line([0, 1, 2], [1, 3, 2], Look(2), "2<sup>−l</sup>", ""),
        line([0, 1], [0, 1], Look(0), "γ, predicted", ""),
    ]
    assert described("Both", traces) == (
        "Both. γ: 1.5 at 0, 0.5 at 2; lowest 0.5 at 2, highest 1.5 at 0; not finite at 1 of 3. x_l: 3 at 2. "
        "2^−l: 1 at 0, 2 at 2; lowest 1 at 0, highest 3 at 1. "
        "γ, predicted: 0 at 0, 1 at 1; lowest 0 at 0, highest 1 at 1."
    )
    assert (
        described("One", [dots([1], [np.inf], Look(0), "lost", "")])
        == "One. lost: no finite value."
    )


@pytest.mark.parametrize(
    ("theme", "paper", "text"),
    [
        ("plotly", "white", None),
        (None, "white", None),
        ("none", "white", None),
        ("plotly_dark", "rgb(17,17,17)", "#f2f5fa"),
        ("plotly_dark+presentation", "rgb(17,17,17)", "#f2f5fa"),
    ],
)
def test_outside_the_page_the_paper_is_that_of_plotly_s_theme(
    monkeypatch: pytest.MonkeyPatch, theme: str | None, paper: str, text: str | None
) -> None:
    monkeypatch.setattr(pio.templates, "default", theme)
    side = axis("x (1)", [[1.0, 2.0]])
    layout = alone(go.Figure(picture([], side, side, "")), "x", "y").layout
    assert (layout.paper_bgcolor, layout.font.color) == (paper, text)
    assert layout.xaxis.gridcolor == layout.yaxis.gridcolor == ("#283442" if text else None)
