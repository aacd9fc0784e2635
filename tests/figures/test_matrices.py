"""Gradient by matrix: one design shows its matrices, several show their layers' whole gradients."""

from __future__ import annotations

import math

import numpy as np
from handmade import SEEDS, measured, predicted, traces

from explorer import measure, predict
from explorer.config import Config
from explorer.figures import gradient_by_matrix
from explorer.figures.palette import HUES, MATRIX_MARKS

NAMES = (
    "W<sub>Q</sub>",
    "W<sub>K</sub>",
    "W<sub>V</sub>",
    "W<sub>O</sub>",
    "W<sub>in</sub>",
    "W<sub>out</sub>",
)


def dots(figure):
    return {trace.name: trace for trace in figure.data if trace.mode == "markers"}


def test_one_design_shows_every_matrix_in_its_own_symbol_and_hue():
    shown = dots(gradient_by_matrix([measured(layers=3)]))
    assert tuple(shown) == NAMES
    for k, name in enumerate(NAMES):
        assert shown[name].x.tolist() == [1, 2, 3]
        np.testing.assert_allclose(shown[name].y, 10.0**k, rtol=1e-6)
    assert len({trace.marker.symbol for trace in shown.values()}) == len(NAMES)
    assert {trace.marker.color for trace in shown.values()} == set(HUES)


def test_the_legend_names_each_matrix_once():
    figure = gradient_by_matrix([measured(), predicted()])
    assert figure.layout.showlegend is True
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == list(NAMES)


def test_a_prediction_of_a_matrix_is_a_line_of_the_same_hue():
    figure = gradient_by_matrix([measured(), predicted()])
    lines = {
        trace.name: trace
        for trace in figure.data
        if trace.mode == "lines" and trace.fill != "toself"
    }
    assert tuple(lines) == NAMES
    assert {name: trace.line.color for name, trace in lines.items()} == {
        name: trace.marker.color for name, trace in dots(figure).items()
    }
    np.testing.assert_allclose(lines["W<sub>O</sub>"].y, 1000)


def test_alpha_is_shown_where_it_is_learned():
    alpha = {("parameter_gradient", "alpha"): np.full((SEEDS, 4), 7.0)}
    shown = dots(gradient_by_matrix([measured(values=alpha)]))
    np.testing.assert_allclose(shown["α"].y, 7.0)
    assert shown["α"].marker.symbol == MATRIX_MARKS["alpha"].symbol


def test_several_designs_show_the_norm_of_all_matrices_together():
    post, pre = Config(n_layers=4, norm_placement="post"), Config(n_layers=4, norm_placement="pre")
    figure = gradient_by_matrix([measured(config=post), measured(config=pre)])
    whole = math.sqrt(sum(100.0**k for k in range(6)))
    for name in ("norm placement post, measured", "norm placement pre, measured"):
        np.testing.assert_allclose(traces(figure)[name].y, whole, rtol=1e-6)
    assert figure.layout.showlegend is False
    assert figure.layout.yaxis.title.text == "norm of ∂L/∂layer (loss/weight)"


def test_flat_lies_at_the_geometric_mean():
    flat = traces_without_repeats(gradient_by_matrix([measured()]))["flat"]
    np.testing.assert_allclose(flat.y[0], 10**2.5, rtol=1e-6)


def test_axes_name_quantity_and_unit():
    layout = gradient_by_matrix([measured(layers=8)]).layout
    assert layout.xaxis.title.text == "depth (layers)"
    assert layout.yaxis.title.text == "norm of ∂L/∂W (loss/weight)"
    assert layout.yaxis.type == "log"
    assert -1 < layout.yaxis.range[0] < 0
    assert 5 < layout.yaxis.range[1] < 6


def test_matrices_without_a_gradient_are_named_on_the_floor():
    still = {("parameter_gradient", matrix): np.zeros((SEEDS, 4)) for matrix in ("W_Q", "W_K")}
    floor = traces_without_repeats(gradient_by_matrix([measured(values=still)]))["zero"]
    assert floor.x.tolist() == [1, 2, 3, 4]
    assert floor.text[0].startswith("W<sub>Q</sub>, W<sub>K</sub><br>= 0")


def test_a_gradient_that_is_not_finite_is_marked():
    lost = {("parameter_gradient", "W_V"): np.full((SEEDS, 4), math.inf)}
    mark = traces_without_repeats(gradient_by_matrix([measured(values=lost)]))["not finite"]
    assert "not finite from layer 4 down<br>(gradient of W<sub>V</sub>)" in mark.text


def test_nothing_gives_empty_axes():
    figure = gradient_by_matrix([])
    assert len(figure.data) == 0
    low, high = figure.layout.yaxis.range
    assert low < high


def traces_without_repeats(figure):
    """By name, the last of a name: bands of one design share theirs."""
    return {trace.name: trace for trace in figure.data}


def test_spectra_are_drawn_by_matrix_beside_their_law_and_the_spectral_condition():
    config = Config(n_layers=2, d_model=64, n_heads=2, n_ctx=4, batch_size=1, n_seeds=2)
    profile, theory = (
        function(config, backward=False, spectra=True) for function in (measure, predict)
    )
    figure = profile.plot("spectral_norm", theory)
    assert tuple(dots(figure)) == NAMES
    lines = {
        trace.name: trace for trace in figure.data if trace.mode == "lines" and trace.name in NAMES
    }
    np.testing.assert_allclose(
        lines["W<sub>in</sub>"].y, theory["spectral_norm", "W_in"][0], rtol=1e-5
    )
    marked = [
        trace
        for trace in figure.data
        if "fan" in "".join(trace.text if trace.text is not None else ())
    ]
    assert [trace.y[0] for trace in marked] == [1.0]
    assert "fan" in figure.layout.yaxis.title.text
    assert tuple(dots(profile.plot("stable_rank", theory))) == NAMES
    assert theory.plot("stable_rank").layout.meta["description"]
    heads = profile.plot("largest_possible_logit", theory)
    law = theory["largest_possible_logit", "attn_scores"][0, :, 0]
    drawn = [trace.y for trace in heads.data if trace.mode == "lines" and len(trace.y) == len(law)]
    assert any(np.allclose(line, law) for line in drawn), "by layer"
