"""The axes of a sweep: what is refused, in which order cells come, and which of them are the
same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from explorer import Config, ConfigError
from explorer.sweeping.grid import MOST_CELLS, Grid, coarse_to_fine

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, n_seeds=1)


def grid(over: Any, origins: Any = ("predicted",), statistics: Any = None) -> Grid:
    return Grid(SMALL, over, origins, statistics)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"over": {}}, "over must have 1 to 3 fields; got 0"),
        (
            {"over": {name: [1] for name in ("n_layers", "alpha", "causal", "n_ctx")}},
            "over must have 1 .* fields; got 4",
        ),
        pytest.param(
            {"over": {"depth": [1]}},
            "over must have fields of Config or Recipe; got 'depth'",
            marks=pytest.mark.plugins,
        ),
        pytest.param(
            {"over": {"learning_rate": [1.0]}},
            "origins must have trained to vary learning_rate",
            marks=pytest.mark.plugins,
        ),
        ({"over": {"alpha": []}}, "over must have at least one value of alpha; got none"),
        (
            {"over": {"alpha": [0.5, 1, 0.5]}},
            "over must have distinct values of alpha; got 0.5 twice",
        ),
        ({"over": {"alpha": [None, None]}}, "over must have distinct values of alpha; got None"),
        ({"over": {"alpha": 0.5}}, "over must have a list of values for each field; got 0.5"),
        ({"over": {"norm": "rms"}}, "over must have a list of values for each field; got 'rms'"),
        (
            {"over": {"alpha": [1], "n_layers": range(MOST_CELLS + 1)}},
            "at most 1,000,000 cells; got 1,000,001",
        ),
        (
            {"over": {"alpha": [1]}, "origins": ("guessed",)},
            "origins must be some of predicted, measured.*, each once; got 'guessed'",
        ),
        ({"over": {"alpha": [1]}, "origins": ()}, "origins must be some of .*; got none"),
        (
            {"over": {"alpha": [1]}, "statistics": ["second_moment", "color"]},
            "statistics must be some of .*; got 'color'",
        ),
        (
            {"over": {"alpha": [1]}, "statistics": ["logit_std@embed"]},
            "statistics must be some .*; got 'logit_std@embed'",
        ),
    ],
)
def test_what_makes_no_sweep_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        grid(**arguments)


def test_the_design_must_be_a_config() -> None:
    with pytest.raises(TypeError, match="config must be a Config; got 'gpt2'"):
        Grid("gpt2", {"alpha": [1]}, ("predicted",), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "order"), [(1, [0]), (2, [0, 1]), (5, [0, 4, 2, 1, 3]), (6, [0, 5, 2, 1, 3, 4])]
)
def test_a_row_comes_from_coarse_to_fine(count: int, order: list[int]) -> None:
    assert list(coarse_to_fine(count)) == order


def test_cells_come_predicted_first_and_then_from_coarse_to_fine() -> None:
    places = list(
        grid(
            {"alpha": np.linspace(0, 1, 9), "n_layers": range(1, 6)}, ("measured", "predicted")
        ).points
    )
    assert len(set(places)) == len(places) == 90
    assert {place[0] for place in places[:45]} == {1}, (
        "predicted is the second origin here, and comes first"
    )
    corners, thirds = {place[1:] for place in places[:4]}, {place[1:] for place in places[:9]}
    assert corners == {(0, 0), (0, 4), (8, 0), (8, 4)}
    assert thirds == {(one, other) for one in (0, 4, 8) for other in (0, 2, 4)}


@pytest.mark.plugins
def test_values_may_be_of_numpy_and_a_field_of_training_leaves_the_measured_cells_alike() -> None:
    both = grid(
        {"alpha": np.array([0.5, 1.0]), "learning_rate": np.logspace(-4, -2, 3)},
        ("measured", "trained"),
    )
    assert all(type(value) is float for values in both.over.values() for value in values)
    measured = {point.cell for place, point in both.points.items() if place[0] == 0}
    trained = {point.cell for place, point in both.points.items() if place[0] == 1}
    assert (len(measured), len(trained)) == (2, 6)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 2]),
        pd.Series([1, 2]),
        xr.DataArray([1, 2]),
        (1, np.int64(2)),
        range(1, 3),
        iter([1, 2]),
    ],
)
def test_values_may_come_as_any_array_or_sequence(values: Any) -> None:
    over = grid({"n_layers": values}, statistics="second_moment").over
    assert over == {"n_layers": [1, 2]}
    assert all(type(value) is int for value in over["n_layers"])


def test_a_refused_design_keeps_its_place_and_its_reason() -> None:
    points = grid({"n_heads": [2, 3]}).points
    assert points[0, 0].cell is not None
    assert points[0, 1].cell is None
    assert str(points[0, 1].error).startswith("d_model must be divisible by n_heads")


def test_keys_tell_designs_and_versions_apart() -> None:
    one = grid({"alpha": [0.5, 1.0]})
    keys = one.keys("1")
    assert len(set(keys.ravel())) == 2
    assert not set(keys.ravel()) & set(one.keys("2").ravel())
    assert np.array_equal(keys, grid({"alpha": [0.5, 1.0]}).keys("1"))


@pytest.mark.parametrize(
    "values", [[1, 2, 1.0], [True, 1], [float("nan"), float("nan")], [[1], [1]]]
)
def test_equal_values_are_one_label(values: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"distinct values of n_layers; got .* twice"):
        grid({"n_layers": values})
