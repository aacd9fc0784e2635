"""A statistic at the end of a stack against a field: known numbers in, traces out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from handmade import measured, predicted, small, stream

from explorer.config import Config
from explorer.ends import ENDS, Ending, endings
from explorer.figures.across import Point, Swept, across
from explorer.figures.palette import HUES, LegendEntry

SPEC = Config.specs()["init_variance"]
Q = ENDS["second_moment"]


def ending(
    middle: float, low: float = 0.0, high: float = 0.0, seeds: int = 3, note: str = ""
) -> Ending:
    return Ending(middle, low or middle, high or middle, seeds, note=note)


def drawn(
    swept: list[Swept], now: float | None = None, field: str = "init_variance"
) -> dict[str, Any]:
    return {trace.name: trace for trace in across(Config.specs()[field], Q, swept, now).data}


def alone(line: list[Point], dots: list[Point]) -> list[Swept]:
    return [Swept(LegendEntry(0, small(4), ""), line, dots)]


def test_the_end_of_a_profile_is_its_last_layer_over_the_seeds() -> None:
    """By hand: q doubles a layer, and seeds stand at half of it, at it, and half above it."""
    found = endings(measured(4))
    assert found["second_moment"] == Ending(16.0, 8.0, 24.0, 3, error=8 / 3**0.5)
    assert found["activation_gradient"].middle == pytest.approx(1.0)
    assert found["attention_entropy_normalized"] == Ending(0.6, 0.2, 1.0, 3, error=0.0)
    assert found["token_correlation"].middle == 1.0
    assert found["parameter_gradient"].middle == pytest.approx(1e5, rel=1e-12)
    assert found["parameter_gradient"].where == "W_out, layer 1"
    assert endings(predicted(4))["second_moment"] == Ending(16.0, 16.0, 16.0, 0)


def test_what_stops_being_finite_stays_so() -> None:
    growth = stream("second_moment", np.array([1, 1, 1, 1, np.inf]))
    assert endings(measured(2, values=growth))["second_moment"].middle == np.inf


def test_lines_are_predicted_dots_measured_and_both_axes_follow_their_rows() -> None:
    values = [0.001, 1.0, 1000.0]
    line = [Point(value, ending(value**2, seeds=0)) for value in values]
    dots = [Point(value, ending(2 * value, value, 4 * value)) for value in values]
    figure = across(SPEC, Q, alone(line, dots), 1.0)
    traces = {trace.name: trace for trace in figure.data}
    np.testing.assert_allclose(traces["predicted"].y, [1e-6, 1, 1e6], rtol=1e-6)
    np.testing.assert_allclose(traces["measured"].y, [0.002, 2, 2000], rtol=1e-6)
    np.testing.assert_allclose(traces["measured"].error_y.array, [0.002, 2, 2000], rtol=1e-6)
    np.testing.assert_allclose(traces["measured"].error_y.arrayminus, [0.001, 1, 1000], rtol=1e-6)
    assert (traces["measured"].mode, traces["predicted"].mode) == ("markers", "lines")
    assert traces["now"].x == (1.0, 1.0, 1.0)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert figure.layout.xaxis.title.text == "Init variance σ² (× rule)"
    assert figure.layout.yaxis.title.text == "q = mean x² (input² units)"
    assert "measured: 0.002 at 0.001, 2,000 at 1,000" in figure.layout.meta["description"]


def test_a_field_with_zero_has_an_even_axis() -> None:
    points = [Point(value, ending(1.0)) for value in (0.0, 4.0)]
    figure = across(Config.specs()["alpha"], Q, alone(points, []))
    assert figure.layout.xaxis.type is None
    assert figure.layout.xaxis.range[0] < 0 < 4 < figure.layout.xaxis.range[1]
    assert figure.layout.xaxis.title.text == "Residual α"


def test_a_refused_value_is_a_gap_that_is_crossed_out_with_its_reason() -> None:
    line = [
        Point(1, ending(1.0)),
        Point(2, None, "Width <b> must be divisible"),
        Point(3, ending(3.0)),
    ]
    traces = drawn(alone(line, []))
    np.testing.assert_array_equal(np.isnan(traces["predicted"].y), [False, True, False])
    assert list(traces["left out"].x) == [2]
    assert traces["left out"].hovertext == ("Init variance 2: Width &lt;b&gt; must be divisible",)


def test_what_is_not_there_yet_is_no_gap() -> None:
    traces = drawn(
        alone([Point(1, ending(1.0)), Point(2), Point(3, ending(3.0))], [Point(1), Point(3)])
    )
    assert traces["predicted"].x.tolist() == [1, 3]
    assert "measured" not in traces
    assert "left out" not in traces


def test_values_without_a_place_on_the_axis_stand_at_its_ends() -> None:
    dots = [Point(1, ending(1.0)), Point(2, ending(np.inf)), Point(3, ending(0.0))]
    figure = across(SPEC, Q, alone([], dots))
    traces = {trace.name: trace for trace in figure.data}
    low, high = (10.0**end for end in figure.layout.yaxis.range)
    up, down = traces["measured, not finite"], traces["measured, 0, below a log axis"]
    assert (list(up.x), list(down.x)) == ([2], [3])
    assert low < down.y[0] < 1 < up.y[0] < high
    assert (up.marker.symbol, down.marker.symbol) == ("triangle-up-open", "triangle-down-open")
    assert up.hovertext == ("measured: not finite at 2",)


def test_what_theory_does_not_cover_is_a_gap_and_an_unreliable_line_is_dotted() -> None:
    note = "first order only"
    line = [Point(1, ending(1.0, note=note)), Point(2, ending(np.nan, note=note))]
    traces = drawn(alone(line, []))
    assert traces["predicted"].line.dash == "dot"
    assert not any("not finite" in name for name in traces)


def test_designs_keep_their_hues() -> None:
    points = [Point(value, ending(value)) for value in (1.0, 2.0)]
    now, other = LegendEntry(0, small(4), "now"), LegendEntry(2, small(3), "Deep <i>")
    traces = drawn([Swept(now, points, points), Swept(other, points)])
    assert traces["now, predicted"].line.color == traces["now, measured"].marker.color == HUES[0]
    assert traces["Deep &lt;i&gt;, predicted"].line.color == HUES[2]


def test_a_design_without_attention_says_so() -> None:
    point = Point(1.0, None)
    without = LegendEntry(0, small(4).replace(attention="none"), "")
    figure = across(SPEC, ENDS["logit_std"], [Swept(without, [point], [point])])
    assert figure.layout.annotations[0].text == "This design has no attention."
