"""Maps: datasets written by hand in, colors, contour lines and signs out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from handmade import traces

from explorer.config import Config
from explorer.ends import ENDS
from explorer.figures.map import contour, heat_map
from explorer.figures.map.cells import Side, colors, scales
from explorer.figures.palette import DIVERGING
from explorer.vocabulary import Array

MEASURED, PREDICTED = "Second moment, measured", "Second moment, predicted"
DEPTHS, VARIANCES = [1, 2, 4, 8, 16], [0.01, 0.1, 1.0, 10.0]


def growing() -> Array:
    """`[depth, variance]`: q = (10 σ²)^log₂ depth, by hand."""
    return np.array(
        [[(10 * variance) ** np.log2(depth) for variance in VARIANCES] for depth in DEPTHS]
    )


def made(
    measured: Array | None = None,
    *,
    failure: dict[tuple[int, int], str] | None = None,
    statistic: str = "second_moment",
    **coordinates: Any,
) -> xr.Dataset:
    """Predictions in all cells; measured where there is a number, half of it and twice it the
    seeds' ends."""
    coordinates = coordinates or {"n_layers": DEPTHS, "init_variance": VARIANCES}
    theory = growing()
    other = np.full_like(theory, np.nan) if measured is None else measured
    reasons = np.full((2, *theory.shape), "", dtype=object)
    for at, reason in (failure or {}).items():
        reasons[1][at] = reason
    dims = ("origin", *coordinates)
    seconds = np.stack([np.ones_like(theory), np.where(np.isnan(other), np.nan, 1.0)])
    every = {
        "": np.stack([theory, other]),
        "_low": np.stack([theory, other / 2]),
        "_high": np.stack([theory, other * 2]),
    }
    return xr.Dataset(
        {f"{statistic}{end}": (dims, values) for end, values in every.items()}
        | {"failure": (dims, reasons.astype(str)), "seconds": (dims, seconds)},
        coords={"origin": ["predicted", "measured"], **coordinates},
    )


def drawn(dataset: xr.Dataset, **more: Any) -> go.Figure:
    return heat_map(dataset, "second_moment", x="init_variance", y="n_layers", **more)


@pytest.mark.plugins
def test_each_statistic_of_the_ends_has_a_scale() -> None:
    assert set(scales()) == {*ENDS, "held_out_loss", "loss_drop", "feature_change"}
    for name in ENDS:
        assert scales()[name].log == ENDS[name].row.log


def test_colors_are_exponents_and_numbers_stand_beside_them() -> None:
    values = growing()
    values[0, 0] = np.nan
    figure = drawn(made(values))
    found = traces(figure)
    shown = found[MEASURED]
    expected = np.clip(np.log10(growing()), -6, 6)
    expected[0, 0] = np.nan
    np.testing.assert_allclose(shown.z, expected, atol=1e-6)
    np.testing.assert_allclose(shown.customdata[..., 0], values, rtol=1e-6)
    np.testing.assert_allclose(shown.customdata[..., 1], values / 2, rtol=1e-6)
    np.testing.assert_allclose(shown.customdata[..., 3], growing(), rtol=1e-6)
    assert list(shown.x) == VARIANCES
    assert list(shown.y) == DEPTHS
    # theory has its color in the one cell where nothing was measured
    assert np.argwhere(np.isfinite(found[PREDICTED].z)).tolist() == [[0, 0]]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert figure.layout.xaxis.title.text == "Init variance σ² (× rule)"
    np.testing.assert_allclose(figure.layout.xaxis.range, [-2.5, 1.5])
    np.testing.assert_allclose(figure.layout.yaxis.range, np.log10([2**-0.5, 2**4.5]))


def test_the_scale_says_numbers_and_its_middle_is_healthy() -> None:
    """From 10⁻⁴ to 10⁸: what lies beyond 10⁶ has the last color, and the scale says so. q = 1 is
    gray."""
    shown = traces(drawn(made(growing())))[MEASURED]
    assert (shown.zmin, shown.zmax) == (-4, 6)
    words = dict(zip(shown.colorbar.tickvals, shown.colorbar.ticktext, strict=True))
    assert (words[-4], words[0], words[6]) == ("0.0001", "1", "≥ 10⁶")
    stops = {round(float(at * 10 - 4), 6): color for at, color in shown.colorscale}
    assert stops[-4 + 10 * 1] == DIVERGING[-1]
    middle = [int(part, 16) for part in (DIVERGING[3][1:3], DIVERGING[3][3:5], DIVERGING[3][5:])]
    nearest = stops[min(stops, key=abs)]
    near = [int(part, 16) for part in (nearest[1:3], nearest[3:5], nearest[5:])]
    assert np.abs(np.array(near) - middle).max() < 12


@pytest.mark.parametrize(
    ("statistic", "values", "ends", "healthy"),
    [
        ("second_moment", [1.0, 1.0], (-0.5, 0.5), 0.0),
        ("activation_gradient", [1e-3, 1.0], (-3.0, 0.5), 0.0),
        ("attention_entropy_normalized", [0.5, 0.9], (0.0, 1.0), 1.0),
        ("token_correlation", [0.5, 0.9], (0.0, 1.0), 0.0),
        ("second_moment", [1e-300, np.inf], (-6.0, 0.5), 0.0),
    ],
)
def test_a_side_is_as_long_as_its_values_need(
    statistic: str, values: list[float], ends: tuple[float, float], healthy: float
) -> None:
    found = colors(scales()[statistic], np.array(values))
    assert (found.low, found.high) == pytest.approx(ends)
    assert isinstance(found.stops, list)
    share = (healthy - found.low) / (found.high - found.low)
    nearest = min(found.stops, key=lambda stop: abs(stop[0] - share))
    if nearest[0] == share:
        assert nearest[1] == DIVERGING[3]


def test_a_statistic_without_a_healthy_value_has_colors_that_only_rise() -> None:
    found = colors(scales()["parameter_gradient"], np.array([0.01, 100.0]))
    assert (found.low, found.high, found.stops) == (-2, 2, "Cividis")


def test_a_failure_is_crossed_out_with_its_reason_escaped() -> None:
    values = growing()
    values[2, 1] = np.nan
    found = traces(drawn(made(values, failure={(2, 1): "Width <b> must be divisible by heads"})))
    assert (list(found["failed"].x), list(found["failed"].y)) == ([0.1], [4])
    assert found["no value"].text[2][1] == "Width &lt;b&gt; must be divisible by heads"
    assert np.argwhere(np.isfinite(found["no value"].z)).tolist() == [[2, 1]]
    assert len(found["measured"].x) == 19
    assert "failed" not in traces(drawn(made(growing())))


def test_what_is_not_finite_has_the_last_color_and_an_arrow_and_a_zero_the_first() -> None:
    values = growing()
    values[4, 3], values[4, 0] = np.inf, 0.0
    found = traces(drawn(made(values)))
    assert (list(found["not finite"].x), list(found["not finite"].y)) == ([10.0], [16])
    assert (list(found["0, below a log scale"].x), list(found["0, below a log scale"].y)) == (
        [0.01],
        [16],
    )
    heat = found[MEASURED]
    assert (heat.z[4][3], heat.z[4][0]) == (heat.zmax, heat.zmin)


def test_a_measured_nan_is_gray_and_says_so() -> None:
    """It was computed: it has seconds, and no reason."""
    dataset = made(growing())
    dataset["second_moment"][1, 3, 3] = np.nan
    found = traces(drawn(dataset))
    assert found["no value"].text[3][3] == "not a number (nan)"
    assert list(found["not finite"].y) == [8]


def test_dots_are_on_measured_cells_only_and_what_is_to_come_is_blank() -> None:
    values = np.full_like(growing(), np.nan)
    values[1, 2] = 3.0
    dataset = made(values)
    dots = traces(drawn(dataset))["measured"]
    assert (list(dots.x), list(dots.y)) == ([1.0], [2])
    figure = drawn(dataset.sel(origin=["measured"]))
    assert [trace.name for trace in figure.data] == [MEASURED, "measured"]
    assert np.isfinite(figure.data[0].z).sum() == 1
    blank = drawn(dataset.isel(init_variance=[0]).sel(origin=["measured"]))
    assert blank.layout.annotations[0].text == "Nothing has been computed yet."


# --- contour lines --------------------------------------------------------------------------------


def test_contours_lie_where_the_theory_has_their_value() -> None:
    """By hand: q = (10 σ²)^log₂ N is 100 at σ² = 1, N = 4, and at σ² = 10, N = 2."""
    found = traces(drawn(made(growing())))
    name = next(name for name in found if name == "predicted 1,000")
    x, y = np.array(found[name].x, float), np.array(found[name].y, float)
    on_cells = {(round(a, 3), round(b, 3)) for a, b in zip(x, y, strict=True)}
    assert {(1.0, 8.0)} <= on_cells  # (10)³
    exponent = np.log10(10 * x) * np.log2(y)
    # between cells it is linear on the axes, the product is not
    assert np.nanmax(np.abs(exponent - 3)) < 0.3
    assert "1,000" in found["theory's values"].text


def test_a_plane_has_straight_contours_a_cone_closed_ones() -> None:
    row, column = np.mgrid[:6, :7].astype(float)
    (line,) = contour(2 * row + column, 5.5)
    np.testing.assert_allclose(2 * line[:, 0] + line[:, 1], 5.5)
    (ring,) = contour(np.hypot(row - 2.5, column - 3), 2.0)
    np.testing.assert_array_equal(ring[0], ring[-1])
    np.testing.assert_allclose(np.hypot(ring[:, 0] - 2.5, ring[:, 1] - 3), 2.0, atol=0.1)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([[1, 0], [0, 1]], [{(0.0, 0.5), (0.5, 1.0)}, {(1.0, 0.5), (0.5, 0.0)}]),
        ([[1, 0], [0, 0.2]], [{(0.0, 0.5), (0.5, 0.0)}]),
    ],
)
def test_saddles_join_what_the_mean_says(
    values: list[list[float]], ends: list[set[tuple[float, float]]]
) -> None:
    lines = contour(np.array(values, float), 0.5)
    assert [{tuple(point) for point in line.tolist()} for line in lines] == ends


def test_contours_stop_where_a_value_is_not_finite() -> None:
    row, column = np.mgrid[:5, :5].astype(float)
    values = row + 0 * column
    values[2, 2] = np.nan
    lines = contour(values, 1.5)
    assert len(lines) == 2
    assert sorted(sorted(line[:, 1].tolist()) for line in lines) == [[0.0, 1.0], [3.0, 4.0]]


# --- fields ---------------------------------------------------------------------------------------


def test_names_keep_their_order_and_nothing_lies_between_them() -> None:
    dataset = made(growing(), n_layers=DEPTHS, norm_placement=["none", "pre", "post", "peri"])
    figure = heat_map(dataset, "second_moment", x="norm_placement", y="n_layers")
    assert figure.layout.xaxis.type == "category"
    assert list(figure.layout.xaxis.range) == [-0.5, 3.5]
    assert list(figure.data[0].x) == ["none", "pre", "post", "peri"]
    assert not any(str(trace.name).startswith("predicted ") for trace in figure.data)


def test_a_field_with_zero_has_an_even_axis_and_numbers_rise() -> None:
    side = Side(Config.specs()["alpha"], [0.0, 1.0, 4.0])
    np.testing.assert_allclose(side.edges, [-0.5, 0.5, 2.5, 5.5])
    assert not side.axis.log
    dataset = made(growing()).isel(n_layers=[3, 0, 4, 1, 2], init_variance=[2, 0, 3, 1])
    heat = drawn(dataset).data[1]
    assert (list(heat.x), list(heat.y)) == (VARIANCES, DEPTHS)
    np.testing.assert_allclose(heat.customdata[..., 0], growing(), rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([0.0625, 0.125, 0.25, 0.5, 1.0, 2.0], True),
        ([0.5, 1.0, 1.5, 2.0, 4.0], False),
        ([0.5, 1.0, 2.0], False),
        ([0.0, 0.125, 0.5, 2.0], False),
        ([1.0], False),
    ],
)
def test_an_even_sliders_field_has_the_axis_of_its_values(values: list[float], log: bool) -> None:
    assert Side(Config.specs()["alpha"], values).log == log


def test_switches_are_off_and_on() -> None:
    side = Side(Config.specs()["causal"], [False, True])
    assert side.places == ["off", "on"]
    assert side.edges.tolist() == [-0.5, 0.5, 1.5]


def test_a_star_marks_the_page() -> None:
    star = traces(drawn(made(growing()), now={"n_layers": 12, "init_variance": 1.0}))["now"]
    assert (star.x, star.y) == ((1.0,), (12,))
    assert "now" not in traces(drawn(made(growing()), now={"n_layers": 12}))


def test_it_is_said_in_words() -> None:
    values = growing()
    values[4, 3] = np.inf
    said = drawn(made(values)).layout.meta["description"]
    assert said.startswith(
        "Second moment over Init variance (0.01 to 10 × rule) and Depth (1 to 16 layers). "
        "Measured: 20 of 20 cells, lowest 0.0001 at Init variance 0.01 × rule, Depth 16 layers, "
        "highest 10⁶ at Init variance 10 × rule, Depth 8 layers; not finite in 1. Predicted: 20 of "
        "20 cells,"
    )


def test_a_large_map_travels_light() -> None:
    size = 40
    values = np.exp(np.random.default_rng(0).normal(size=(2, size, size)))
    dims = ("origin", "n_layers", "init_variance")
    dataset = xr.Dataset(
        dict.fromkeys(
            ("second_moment", "second_moment_low", "second_moment_high", "seconds"), (dims, values)
        ),
        coords={
            "origin": ["predicted", "measured"],
            "n_layers": np.arange(1, size + 1),
            "init_variance": np.geomspace(1e-3, 1e3, size),
        },
    )
    sent = len(json.dumps(drawn(dataset).to_plotly_json(), default=lambda array: array.tolist()))
    assert sent < 500_000


@pytest.mark.parametrize(
    ("statistic", "x", "y", "words"),
    [
        (
            "nothing",
            "n_layers",
            "init_variance",
            "statistic must be one of second_moment; got 'nothing'",
        ),
        (
            "kurtosis",
            "n_layers",
            "init_variance",
            "statistic must be one of second_moment; got 'kurtosis'",
        ),
        (
            "second_moment",
            "alpha",
            "init_variance",
            "x must be one of n_layers, init_variance; got 'alpha'",
        ),
        (
            "second_moment",
            "n_layers",
            "origin",
            "y must be one of n_layers, init_variance; got 'origin'",
        ),
        (
            "second_moment",
            "n_layers",
            "n_layers",
            "x and y must be two fields; got 'n_layers' twice",
        ),
    ],
)
def test_what_is_not_there_is_refused(statistic: str, x: str, y: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}$"):
        heat_map(made(growing()), statistic, x=x, y=y)


def test_of_three_fields_one_is_chosen_first() -> None:
    cube = made(growing()).expand_dims(alpha=[0.5, 1.0])
    with pytest.raises(
        ValueError,
        match=r"^a map has two fields; choose a value of alpha first, as dataset.sel\(alpha="
        r"…\)$",
    ):
        drawn(cube)
    assert drawn(cube.sel(alpha=0.5)).data


@pytest.mark.plugins
def test_a_trained_map_has_the_lines_of_another_statistic() -> None:
    """Colors are of the trained loss, the lines of the predicted second moment."""
    dataset = made(growing())
    trained = dataset.sel(origin=["measured"]).assign_coords(origin=["trained"])
    both = xr.concat(
        [dataset.sel(origin=["predicted"]), trained], "origin", coords="minimal", compat="override"
    )
    both["loss_drop"] = both["second_moment"].where(both["origin"] == "trained") / 1e6
    figure = heat_map(both, "loss_drop", x="init_variance", y="n_layers", lines="second_moment")
    found = traces(figure)
    np.testing.assert_allclose(
        found["Loss below the unigram's, trained"].customdata[..., 0], growing() / 1e6
    )
    assert found["theory: q = mean x²"].showlegend
    assert "predicted 1,000" in found
    assert "trained" in found


def test_contours_of_the_colors_own_statistic_need_no_legend() -> None:
    assert not drawn(
        made(growing())
    ).layout.showlegend  # dots are measured and lines theory on every page


@pytest.mark.plugins
def test_a_loss_far_above_the_unigrams_takes_no_colors_from_the_others() -> None:
    found = colors(scales()["loss_drop"], np.array([-1e12, 0.2, 0.4]))
    assert (found.low, found.high, found.beyond) == (-0.1, 0.4, (True, False))
    assert found.bar["ticktext"][0] == "≤ -0.1"
    np.testing.assert_allclose(found.z(np.array([-np.inf, 0.2])), [-0.1, 0.2])


def test_few_cells_have_a_tick_each() -> None:
    figure = drawn(made(growing()))
    assert list(figure.layout.yaxis.tickvals) == DEPTHS
    assert list(figure.layout.xaxis.ticktext) == ["0.01", "0.1", "1", "10"]
