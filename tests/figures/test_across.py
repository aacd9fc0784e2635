"""Maps of one axis: datasets written by hand in, lines, dots and marks out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from handmade import traces

from explorer.figures.across import across
from explorer.figures.map.cells import scales
from explorer.figures.palette import HUES

VARIANCES = [0.001, 1.0, 1000.0]
NAN, INF = np.nan, np.inf


def made(
    predicted: list[float],
    measured: list[float],
    *,
    failures: dict[tuple[int, int], str] | None = None,
    to_come: tuple[tuple[int, int], ...] = (),
    origin: str = "measured",
    statistic: str = "second_moment",
    **field: list[Any],
) -> xr.Dataset:
    """A sweep over one field; seeds stand at half the mean and at twice it.

    Args:
        failures: reasons by place `(origin, value)`.
        to_come: places of the cells that are not computed yet.
    """
    ((name, values),) = (field or {"init_variance": VARIANCES}).items()
    dims = ("origin", name)
    middle = np.array([predicted, measured], dtype=float)
    seconds, failure = np.ones(middle.shape), np.full(middle.shape, "", dtype=object)
    for place in to_come:
        middle[place] = seconds[place] = NAN
    for place, reason in (failures or {}).items():
        middle[place], failure[place] = NAN, reason
    return xr.Dataset(
        {
            statistic: (dims, middle),
            f"{statistic}_low": (dims, middle / 2),
            f"{statistic}_high": (dims, middle * 2),
            "seconds": (dims, seconds),
            "failure": (dims, failure.astype(str)),
        },
        {"origin": ["predicted", origin], name: values},
    )


def drawn(dataset: xr.Dataset, **more: Any) -> go.Figure:
    return across(dataset, "second_moment", x="init_variance", **more)


def test_lines_are_predicted_dots_measured_and_both_axes_follow_their_rows() -> None:
    figure = drawn(made([1e-6, 1, 1e6], [0.002, 2, 2000]), now={"init_variance": 1.0, "alpha": 2.0})
    found = traces(figure)
    np.testing.assert_allclose(found["predicted"].y, [1e-6, 1, 1e6], rtol=1e-6)
    np.testing.assert_allclose(found["measured"].y, [0.002, 2, 2000], rtol=1e-6)
    np.testing.assert_allclose(found["measured"].error_y.array, [0.002, 2, 2000], rtol=1e-6)
    np.testing.assert_allclose(found["measured"].error_y.arrayminus, [0.001, 1, 1000], rtol=1e-6)
    assert (found["measured"].mode, found["predicted"].mode) == ("markers", "lines")
    assert found["measured"].marker.color == found["predicted"].line.color == HUES[0]
    assert found["predicted"].line.dash == "solid"
    assert found["now"].x == (1.0, 1.0, 1.0)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert figure.layout.xaxis.title.text == "Init variance σ² (× rule)"
    assert figure.layout.yaxis.title.text == "q = mean x² (input² units)"
    assert "measured: 0.002 at 0.001, 2,000 at 1,000" in figure.layout.meta["description"]


def test_the_legend_names_the_line_the_dots_and_the_marks() -> None:
    failed = {(0, 2): "no", (1, 2): "no"}
    figure = drawn(made([1, 2, 3], [1, INF, 3], failures=failed), now={"init_variance": 1.0})
    assert figure.layout.showlegend
    named = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert named == ["predicted", "measured", "measured, not finite", "failed"]


def test_a_field_with_zero_has_an_even_axis_and_values_rise() -> None:
    dataset = made([3, 1], [3, 1], alpha=[4.0, 0.0])
    figure = across(dataset, "second_moment", x="alpha", now={"alpha": 4.0})
    assert figure.layout.xaxis.type is None
    assert figure.layout.xaxis.range[0] < 0 < 4 < figure.layout.xaxis.range[1]
    assert figure.layout.xaxis.title.text == "Residual α"
    assert traces(figure)["predicted"].x.tolist() == [0, 4]
    assert traces(figure)["predicted"].y.tolist() == [1, 3]


def test_a_failure_is_a_gap_that_is_crossed_out_with_its_reason() -> None:
    reason = "Width <b> must be divisible"
    found = traces(drawn(made([1, 2, 3], [1, 2, 3], failures={(0, 1): reason, (1, 1): reason})))
    np.testing.assert_array_equal(np.isnan(found["predicted"].y), [False, True, False])
    assert found["measured"].x.tolist() == pytest.approx([0.001, 1000])
    assert list(found["failed"].x) == [1]
    assert found["failed"].hovertext == (
        "Init variance 1 × rule<br>Width &lt;b&gt; must be divisible",
    )


def test_what_is_not_there_yet_is_no_gap() -> None:
    early = drawn(made([1, 2, 3], [1, 2, 3], to_come=((0, 1), (1, 0), (1, 1), (1, 2))))
    assert traces(early)["predicted"].x.tolist() == pytest.approx([0.001, 1000])
    assert set(traces(early)) == {"q = 1", "predicted"}
    nothing = made([1], [1], to_come=((0, 0), (1, 0)), init_variance=[1.0])
    assert drawn(nothing).layout.annotations[0].text == "Nothing has been computed yet."


def test_values_without_a_place_on_the_axis_stand_at_its_ends() -> None:
    figure = drawn(made([NAN, 1, INF], [1, INF, 0]))
    found = traces(figure)
    low, high = (10.0**end for end in figure.layout.yaxis.range)
    up, down = found["measured, not finite"], found["measured, 0, below a log axis"]
    assert (list(up.x), list(down.x)) == ([1], [1000])
    assert low < down.y[0] < 1 < up.y[0] < high
    assert (up.marker.symbol, down.marker.symbol) == ("triangle-up-open", "triangle-down-open")
    assert up.hovertext == ("Init variance 1 × rule<br>measured: inf",)
    assert list(found["predicted, not finite"].x) == [1000], "nan: the theory does not cover it"


def test_a_value_beyond_the_ends_of_a_log_scale_has_one_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such ends are exponents of ten, here 0.001 and 1000; 0 has a reason of its own."""
    scale = scales()["second_moment"]._replace(clip=(-3.0, 3.0))
    module = import_module("explorer.figures.map.cells")
    monkeypatch.setattr(module, "scales", lambda: {"second_moment": scale})
    found = traces(drawn(made([10, 10, 10], [0, 1e-5, 1e5])))
    marked = {name: list(trace.x) for name, trace in found.items() if name.startswith("measured, ")}
    assert marked == {
        "measured, above the axis": [1000],
        "measured, 0, below a log axis": [0.001],
        "measured, below the axis": [1],
    }
    assert "predicted, above the axis" not in found


def test_an_unreliable_theory_is_dotted_and_one_without_numbers_has_no_line() -> None:
    dataset = made([1, 2, 3], [1, 2, 3])
    assert traces(drawn(dataset, noted=True))["predicted"].line.dash == "dot"
    assert "predicted" not in traces(drawn(made([NAN] * 3, [1, 2, 3])))


@pytest.mark.plugins
def test_trained_cells_are_dots_alone_and_a_loss_far_off_stands_at_the_end() -> None:
    """A held-out loss of 10¹² would take the whole axis from the others."""
    dataset = made(
        [NAN] * 3,
        [2.5, 1e12, 3.0],
        to_come=((0, 0), (0, 1), (0, 2)),
        origin="trained",
        statistic="held_out_loss",
        learning_rate=[1e-4, 1e-3, 1e-2],
    ).drop_vars(["held_out_loss_low", "held_out_loss_high"])
    figure = across(dataset.sel(origin=["trained"]), "held_out_loss", x="learning_rate")
    found = traces(figure)
    assert set(found) == {"trained", "trained, above the axis"}
    assert np.isnan(found["trained"].y).tolist() == [False, True, False]
    assert found["trained"].error_y.array is None
    assert found["trained, above the axis"].hovertext == ("Learning rate 0.001<br>trained: 10¹²",)
    assert figure.layout.yaxis.range[1] < 4.6
    assert figure.layout.yaxis.title.text == "loss (nats/character)"


def test_of_two_fields_one_is_chosen_first_and_names_have_no_line() -> None:
    square = made([1, 2, 3], [1, 2, 3]).expand_dims(alpha=[0.5, 1.0])
    with pytest.raises(
        ValueError, match=r"^a map of one axis has one field; choose a value of alpha"
    ):
        drawn(square)
    assert drawn(square.sel(alpha=0.5)).data
    named = made([1, 2], [1, 2], norm_placement=["pre", "post"])
    with pytest.raises(ValueError, match=r"^x must be a field of numbers; got 'norm_placement'$"):
        across(named, "second_moment", x="norm_placement")
