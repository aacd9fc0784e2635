"""Up to six designs in one figure, in the marks that the caller gave them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from handmade import SEEDS, measured, predicted, small, stream, traces

from explorer.figures import FIGURES, LegendEntry, by_layer, gradient_by_matrix
from explorer.figures.kit import MOST_LINES
from explorer.figures.palette import HUES

CONFIGS = [small(4).replace(init_variance=1.0 + number) for number in range(6)]
SIX = [
    LegendEntry(5 - number, config, f"design {'abcdef'[number]}")
    for number, config in enumerate(CONFIGS)
]
LAYERED = [name for name, row in FIGURES.items() if row.statistic]


@pytest.mark.parametrize("name", LAYERED)
def test_every_design_has_its_dots_band_and_line_in_its_own_hue(name):
    profiles = [
        each for config in CONFIGS for each in (predicted(config=config), measured(config=config))
    ]
    drawn = traces(FIGURES[name].draw(profiles, [design for design in SIX for _ in range(2)]))
    for design in SIX:
        assert drawn[f"{design.label}, measured"].marker.color == design.hue
        assert drawn[f"{design.label}, measured"].marker.symbol == design.symbol
        assert drawn[f"{design.label}, predicted"].line.color == design.hue
    assert {drawn[f"{design.label}, measured"].marker.color for design in SIX} == set(HUES)


@pytest.mark.parametrize("name", LAYERED)
def test_without_one_of_them_the_others_look_the_same(name):
    profiles = [measured(config=config) for config in CONFIGS]
    drawn = traces(FIGURES[name].draw(profiles[1:], SIX[1:]))
    for design in SIX[1:]:
        assert drawn[f"{design.label}, measured"].marker.color == design.hue


def test_a_measurement_of_another_config_is_drawn_as_whose_it_is():
    now = LegendEntry(0, CONFIGS[1], "now")
    figure = gradient_by_matrix(
        [predicted(config=CONFIGS[1]), measured(config=CONFIGS[0])], [now, now]
    )
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(dots) == 6, "one design: its matrices"
    assert {trace.marker.color for trace in dots} == set(HUES)


def test_the_pattern_is_that_of_the_one_design_that_kept_it():
    kept = measured(
        config=CONFIGS[0], pattern=np.array([[1.0, 0.0], [0.5, 0.5]]), pattern_of=(2, 1)
    )
    figure = FIGURES["attention_pattern"].draw(
        [measured(config=CONFIGS[1]), kept], [SIX[1], SIX[0]]
    )
    assert figure.layout.title.text == "layer 2, head 2"


def test_breakdowns_of_six_designs_are_told_below_each_other():
    lost = stream("second_moment", np.full(9, math.inf))
    figure = by_layer(
        "second_moment", [measured(config=config, values=lost) for config in CONFIGS], SIX
    )
    marks = [trace for trace in figure.data if trace.name.endswith("not finite")]
    assert [mark.line.color for mark in marks] == [design.hue for design in SIX]
    told = [(mark.y[1], mark.text[1]) for mark in marks if mark.text[1]]
    heights = [height for height, _ in told]
    assert heights == sorted(set(heights), reverse=True)
    assert len(heights) == MOST_LINES, "more would leave the data no room"
    assert {words for _, words in told} == {"not finite from the input on"}, "one line each"
    assert all("not finite from the input on" in mark.hovertemplate for mark in marks)


def test_zeros_of_several_designs_stand_in_rows_and_are_named_once():
    none = {
        ("parameter_gradient", matrix): np.zeros((SEEDS, 4))
        for matrix in ("W_Q", "W_K", "W_V", "W_O", "W_in")
    }
    none |= {("parameter_gradient", "W_out"): np.array([[0.0, 1, 1, 1]] * SEEDS)}
    figure = gradient_by_matrix(
        [measured(config=config, values=none) for config in CONFIGS[:3]], SIX[:3]
    )
    floor = [trace for trace in figure.data if trace.name.endswith("zero")]
    heights = [math.log10(trace.y[0]) for trace in floor]
    assert heights == sorted(set(heights))
    assert [len(trace.text or ()) for trace in floor] == [1, 0, 0]
    assert floor[2].hovertemplate.startswith("<b>design c</b><br>0 after")


def test_one_matrix_of_several_designs_is_drawn_where_one_is_chosen():
    drawn = gradient_by_matrix([measured(config=config) for config in CONFIGS], SIX, matrix="W_V")
    for design in SIX:
        np.testing.assert_allclose(traces(drawn)[f"{design.label}, measured"].y, 100.0)
    assert drawn.layout.yaxis.title.text == "norm of ∂L/∂W<sub>V</sub> (loss/weight)"
    assert drawn.layout.meta["description"].startswith(
        "Gradient norm of W_V, over depth. Design a, measured:"
    )
    assert (
        len(
            gradient_by_matrix(
                [measured(config=config) for config in CONFIGS], SIX, matrix="alpha"
            ).data
        )
        == 0
    )
