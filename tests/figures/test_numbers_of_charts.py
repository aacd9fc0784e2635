"""A chart's numbers as a table: those of the profile, each with its unit, and nothing that a
spreadsheet would run."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from explorer import measure, predict
from explorer.config import Config
from explorer.figures import FIGURES, LegendEntry, row_of
from explorer.figures.data import guarded, to_csv, unpacked, untagged
from explorer.profile import Profile

SMALL = Config(n_layers=3, d_model=16, n_heads=2, n_ctx=8, batch_size=2, n_seeds=3)


def table(figure: go.Figure | dict[str, Any]) -> list[dict[str, str]]:
    text = to_csv(figure.to_dict() if isinstance(figure, go.Figure) else figure)
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture(scope="module")
def measured() -> Profile:
    return measure(SMALL, pattern_of=(2, 1))


def test_the_numbers_of_a_chart_are_the_profile_s(measured: Profile) -> None:
    predicted = predict(SMALL)
    rows = table(FIGURES["second_moment"].draw([predicted, measured]))
    assert list(rows[0]) == [
        "series",
        "kind",
        "depth (layers)",
        "q = mean x² (input² units)",
        "lowest",
        "highest",
        "standard error",
    ]
    depth, values = measured.stream("second_moment")
    dots = [row for row in rows if row["kind"] == "measured"]
    assert {row["series"] for row in dots} == {"measured"}
    for heading, expected in (
        ("depth (layers)", depth),
        ("q = mean x² (input² units)", values.mean(axis=0)),
        ("lowest", values.min(axis=0)),
        ("highest", values.max(axis=0)),
        ("standard error", values.std(axis=0, ddof=1) / len(values) ** 0.5),
    ):
        assert [np.float32(row[heading]) for row in dots] == expected.astype(np.float32).tolist()
    lines = [row for row in rows if row["kind"] == "theory"]
    expected = predicted.stream("second_moment")[1][0].astype(np.float32).tolist()
    assert [np.float32(row["q = mean x² (input² units)"]) for row in lines] == expected
    assert {row["lowest"] for row in lines} == {""}


def test_the_numbers_of_a_heat_map(measured: Profile) -> None:
    rows = table(FIGURES["attention_pattern"].draw([measured]))
    assert list(rows[0]) == [
        "series",
        "kind",
        "key position (tokens)",
        "query position (tokens)",
        "weight (share of its row)",
    ]
    assert measured.pattern is not None
    found = np.array([row["weight (share of its row)"] for row in rows], np.float32).reshape(8, 8)
    np.testing.assert_array_equal(found, measured.pattern.astype(np.float32))
    assert (rows[9]["key position (tokens)"], rows[9]["query position (tokens)"]) == ("1.0", "1.0")


@pytest.mark.parametrize("name", ["gradient_by_matrix", "token_correlation", "attention_entropy"])
def test_every_figure_has_a_number_for_each_of_its_dots(name: str, measured: Profile) -> None:
    figure = row_of(name).draw([measured])
    dots = sum(len(trace.x) for trace in figure.data if "markers" in (trace.mode or ""))
    rows = table(figure)
    assert sum(row["kind"] == "measured" for row in rows) == dots > 0
    assert all(row["lowest"] and row["highest"] for row in rows if row["kind"] == "measured")


def test_what_an_axis_has_no_place_for_stands_as_it_is() -> None:
    values = np.array([[1.0, 0.0, np.inf, np.nan]])
    for origin, kind in (("measured", "measured"), ("predicted", "theory")):
        profile = Profile(origin, {("second_moment", "resid_post"): values}, seeds=(0,))
        rows = [
            row for row in table(FIGURES["second_moment"].draw([profile])) if row["kind"] == kind
        ]
        assert [row["q = mean x² (input² units)"] for row in rows] == ["1.0", "0.0", "inf", "nan"]


def test_names_are_text_and_no_formula() -> None:
    profile = Profile("measured", {("second_moment", "resid_post"): np.ones((1, 2))}, seeds=(0,))
    names = [
        '=HYPERLINK("http://evil.example","x")',
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "  =1",
        "＝1",
        'a, "b" <i> & W_Q',
    ]
    for name in names:
        for row in table(FIGURES["second_moment"].draw([profile], [LegendEntry(0, None, name)])):
            said = row["series"]
            if row["kind"] == "measured":
                assert name.strip() in said
            assert said[0] not in "=+-@\t＝"
            assert said.lstrip()[0] not in "=+-@＝"
    assert guarded("−x") == "−x"
    assert untagged("‖∂L/∂W<sub>Q</sub>‖ 2<sup>−l/2</sup> &lt;b&gt;") == "‖∂L/∂W_Q‖ 2^−l/2 <b>"


def test_error_bars_become_ends_and_marks_keep_no_words() -> None:
    bars = {
        "array": np.array([1.0, 2.0]),
        "arrayminus": np.array([0.5, 0.25]),
        "type": "data",
        "symmetric": False,
    }
    figure = go.Figure(
        [
            {
                "type": "scatter",
                "mode": "markers",
                "name": "a",
                "x": [1, 2],
                "y": [3.0, None],
                "error_y": bars,
            },
            {
                "type": "scatter",
                "mode": "lines+text",
                "name": "even",
                "x": [0, 4, None, 4],
                "y": [1, 1, None, 1.1],
                "text": ["", "", "", "even"],
                "hoverinfo": "skip",
            },
        ]
    )
    figure.data[0].y = [3.0, 4.0]
    rows = [list(row.values()) for row in table(figure)]
    assert rows == [
        ["a", "measured", "1", "3.0", "2.5", "4.0"],
        ["a", "measured", "2", "4.0", "3.75", "6.0"],
        ["even", "mark", "0", "1", "", ""],
        ["even", "mark", "4", "1", "", ""],
    ]


def test_typed_arrays_of_every_kind_and_no_others() -> None:
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"):
        packed = go.Figure({"data": [{"y": np.array([1, 2, 120], dtype)}]}).to_dict()["data"][0][
            "y"
        ]
        assert unpacked(packed) == [1, 2, 120]
    with pytest.raises(ValueError, match="dtype must be one of"):
        unpacked({"bdata": "AA==", "dtype": "O"})
    assert table({})[:] == []
