"""Figures over depth: what is drawn is what the profile says, and what cannot be drawn is said."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from handmade import SEEDS, healthy, measured, predicted, stream, traces

from explorer.config import Config
from explorer.figures import row_of
from explorer.profile import Profile
from explorer.sites import SITE_WORDS
from explorer.vocabulary import STATISTICS

second_moment, token_correlation, attention_entropy, gradient_by_layer = OVER_DEPTH = [
    row_of(name).draw
    for name in (
        "second_moment",
        "token_correlation",
        "attention_entropy_normalized",
        "activation_gradient",
    )
]


def exponents(figure):
    return [
        math.log10(value)
        for trace in figure.data
        if trace.y is not None
        for value in trace.y
        if value is not None and np.isfinite(value)
    ]


def test_dots_are_the_mean_over_seeds_and_the_band_runs_from_lowest_to_highest():
    drawn = traces(second_moment([measured(layers=2)]))
    dots, band = drawn["measured"], drawn["measured, spread"]
    assert dots.mode == "markers"
    assert dots.x.tolist() == [0, 0.5, 1, 1.5, 2]
    np.testing.assert_allclose(dots.y, 2.0 ** np.array([0, 0.5, 1, 1.5, 2]), rtol=1e-6)
    np.testing.assert_allclose(
        dots.customdata, np.outer(dots.y, [0.5, 2.0, math.log(2) / 3**0.5]), rtol=1e-6
    )
    assert band.fill == "toself"
    np.testing.assert_allclose(band.x, [0, 0.5, 1, 1.5, 2, 2, 1.5, 1, 0.5, 0])
    np.testing.assert_allclose(band.y, [*(dots.y * 0.5), *(dots.y[::-1] * 2)], rtol=1e-6)


def test_a_prediction_is_a_line_in_the_hue_of_its_design():
    profile = measured()
    drawn = traces(second_moment([profile, predicted(config=profile.config)]))
    line = drawn["predicted"]
    assert line.mode == "lines"
    assert line.line.color == drawn["measured"].marker.color == "#0072B2"
    np.testing.assert_allclose(line.y, drawn["measured"].y, rtol=1e-6)
    assert "predicted, spread" not in drawn


def test_designs_differ_in_hue_and_symbol_and_say_what_sets_them_apart():
    post, pre = Config(n_layers=4, norm_placement="post"), Config(n_layers=4, norm_placement="pre")
    drawn = traces(
        gradient_by_layer([measured(config=post), measured(config=pre), predicted(config=pre)])
    )
    first, second = drawn["norm placement post, measured"], drawn["norm placement pre, measured"]
    assert (first.marker.color, second.marker.color) == ("#0072B2", "#E69F00")
    assert first.marker.symbol != second.marker.symbol
    assert drawn["norm placement pre, predicted"].line.color == "#E69F00"


@pytest.mark.parametrize(
    ("draw", "title", "log"),
    [
        (second_moment, "q = mean x² (input² units)", True),
        (token_correlation, "ρ = p / q (ratio)", False),
        (attention_entropy, "H / ln n (ratio)", False),
        (gradient_by_layer, "γ / γ<sub>N</sub> (ratio)", True),
    ],
)
def test_axes_name_quantity_and_unit(draw, title, log):
    layout = draw([measured()]).layout
    assert layout.xaxis.title.text == "depth (layers)"
    assert layout.yaxis.title.text == title
    assert (layout.yaxis.type == "log") == log


@pytest.mark.parametrize(
    ("draw", "marks"),
    [
        (second_moment, {"q = 1": 1.0}),
        (gradient_by_layer, {"flat": 1.0}),
        (attention_entropy, {"uniform": 1.0, "one-hot": 0.0}),
        (token_correlation, {"all tokens alike": 1.0, "unrelated": 0.0}),
    ],
)
def test_reference_marks_cross_the_whole_axis_and_carry_their_name(draw, marks):
    figure = draw([measured()])
    for words, level in marks.items():
        mark = traces(figure)[words]
        assert mark.y[:2] == (level, level)
        assert mark.x[:2] == tuple(figure.layout.xaxis.range)
        assert mark.text[-1] == words


@pytest.mark.parametrize("draw", OVER_DEPTH)
def test_everything_drawn_lies_inside_the_ranges(draw):
    figure = draw([measured(layers=6), predicted(layers=6)])
    low, high = figure.layout.yaxis.range
    for trace in figure.data:
        y = np.array([value for value in trace.y if value is not None], dtype=float)
        y = np.log10(y) if figure.layout.yaxis.type == "log" else y
        assert low < y.min(), trace.name
        assert y.max() < high, trace.name
    assert figure.layout.xaxis.range[0] < 0 < 6 < figure.layout.xaxis.range[1]


def test_a_log_range_is_in_exponents():
    low, high = second_moment([measured(layers=20)]).layout.yaxis.range
    least, largest = math.log10(0.5), math.log10(2 * 2.0**20)
    assert least - 1 < low < least
    assert largest < high < largest + 1


def test_rounding_errors_look_flat():
    noisy = stream("activation_gradient", 1 + 1e-7 * np.arange(9), spread=1e-7)
    low, high = gradient_by_layer([measured(values=noisy)]).layout.yaxis.range
    assert high - low >= 1
    assert low < -0.4 < 0.4 < high


def test_a_v_shape_reaches_its_bottom_in_the_middle():
    dots = traces(gradient_by_layer([measured(layers=6)]))["measured"]
    assert dots.x[np.argmin(dots.y)] == 3
    np.testing.assert_allclose(dots.y[[0, 6, 12]], [1, 1e-3, 1], rtol=1e-6)


def test_entropy_is_the_median_head_and_the_band_holds_every_head_of_every_seed():
    heads = np.array(healthy(4)["attention_entropy_normalized", "pattern"])
    heads[2, 1, 0] = 0.05  # one head of one seed
    drawn = traces(
        attention_entropy([measured(values={("attention_entropy_normalized", "pattern"): heads})])
    )
    assert drawn["measured"].x.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(drawn["measured"].y, 0.6, rtol=1e-6)
    np.testing.assert_allclose(drawn["measured, spread"].y[:4], [0.2, 0.05, 0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(drawn["measured, spread"].y[4:], 1.0)


def broken_at(layer: int, value: float) -> dict:
    values = stream("second_moment", 2.0 ** (np.arange(9) / 2))
    for site, first in (("resid_mid", layer), ("resid_post", layer)):
        values["second_moment", site][:, first - 1 :] = value
    branch = np.ones((SEEDS, 4))
    branch[:, layer - 1 :] = value
    return values | {("second_moment", "attn_out"): branch}


@pytest.mark.parametrize(("layer", "place"), [(1, "top right"), (2, "top center"), (4, "top left")])
def test_words_of_what_is_not_finite_cover_neither_data_nor_ticks(layer, place):
    """They stand above everything that is drawn, and from an end they run to the middle."""
    drawn = traces(second_moment([measured(values=broken_at(layer, math.inf))]))
    mark = drawn["not finite"]
    assert mark.textposition == place
    assert np.nanmax(np.asarray(drawn["measured"].y, dtype=float)) < mark.y[1]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite_is_left_out_of_the_dots_and_marked(value):
    profile = measured(values=broken_at(3, value))
    figure = second_moment([profile])
    drawn = traces(figure)
    assert np.isfinite(drawn["measured"].y).tolist() == [True] * 5 + [False] * 4
    assert len(drawn["measured, spread"].x) == 10
    mark = drawn["not finite"]
    assert mark.x == (2.5, 2.5, 2.5)
    assert (
        f"not finite from layer 3 on<br>({SITE_WORDS[profile.first_nonfinite.site]})" in mark.text
    )
    low, high = figure.layout.yaxis.range
    assert math.log10(mark.y[0]) == pytest.approx(low)
    assert math.log10(mark.y[1]) < high, "its words stand on top of it"
    assert mark.y[2] is None


@pytest.mark.parametrize(
    ("statistic", "site", "depth"),
    [
        ("second_moment", "embed", 0),
        ("logit_std", "attn_scores", 2.5),
        ("attention_entropy_normalized", "pattern", 2.5),
        ("second_moment", "attn_out", 2.5),
        ("second_moment", "resid_mid", 2.5),
        ("second_moment", "mlp_out", 3),
        ("second_moment", "resid_post", 3),
    ],
)
def test_the_line_of_a_break_stands_where_the_site_does(statistic, site, depth):
    """Attention is half a layer before the MLP, as on the axis of the dots."""
    heads = (SEEDS, 4, 3) if statistic != "second_moment" else (SEEDS, 1 if site == "embed" else 4)
    first = np.ones(heads)
    first[:, 0 if site == "embed" else 2 :] = math.inf
    after = stream("second_moment", np.ones(9))
    after["second_moment", "resid_post"][:, 2:] = math.inf
    drawn = traces(second_moment([measured(values=after | {(statistic, site): first})]))
    assert set(drawn["not finite"].x) == {depth}


def test_every_site_has_a_name_in_words():
    sites = {
        site
        for row in STATISTICS.values()
        if row.name != "parameter_gradient"
        for site in row.sites
    }
    assert set(SITE_WORDS) == sites


def test_one_broken_seed_is_enough_to_be_marked():
    values = stream("second_moment", np.ones(9))
    values["second_moment", "resid_post"][1, 3] = math.inf
    drawn = traces(second_moment([measured(values=values)]))
    assert drawn["not finite"].x[0] == 4
    assert np.isnan(drawn["measured"].y[-1])


def test_a_gradient_that_breaks_on_its_way_back_is_marked_downwards():
    values = stream("activation_gradient", np.ones(9))
    for site in ("resid_mid", "resid_post"):
        values["activation_gradient", site][:, :2] = math.inf
    values["activation_gradient", "embed"][:] = math.inf
    drawn = traces(gradient_by_layer([measured(values=values)]))
    assert (
        "not finite from layer 2 down<br>(gradient at stream after MLP)" in drawn["not finite"].text
    )
    assert "not finite" not in traces(second_moment([measured(values=values)]))


def test_what_a_prediction_does_not_cover_is_a_gap_and_no_breakdown():
    values = {
        key: value[1:2] for key, value in stream("second_moment", np.full(9, math.nan)).items()
    }
    profile = Profile(
        "predicted", values, config=Config(n_layers=4), notes={"second_moment": "not covered"}
    )
    drawn = traces(second_moment([profile]))
    assert np.isnan(drawn["predicted"].y).all()
    assert "not finite" not in drawn


def test_zeros_stand_on_the_floor_of_a_log_axis():
    values = stream("second_moment", np.array([1.0, 1, 1, 0, 0, 0, 0, 0, 0]))
    figure = second_moment([measured(values=values)])
    floor = traces(figure)["zero"]
    assert floor.x.tolist() == [1.5, 2, 2.5, 3, 3.5, 4]
    assert np.isnan(traces(figure)["measured"].y[3:]).all()
    low, high = figure.layout.yaxis.range
    assert low < math.log10(floor.y[0]) < low + 0.05 * (high - low)
    assert "log axis" in floor.text[0]


def test_a_gap_breaks_the_band_into_pieces():
    values = stream("second_moment", np.array([1.0, 2, 4, np.nan, 4, 4, 4, 4, 4]))
    band = traces(second_moment([measured(values=values)]))["measured, spread"]
    assert np.flatnonzero(np.isnan(band.x)).tolist() == [6]
    assert len(band.x) == 2 * 3 + 1 + 2 * 5


def test_a_single_seed_has_no_band():
    one = {key: value[:1] for key, value in healthy(4).items()}
    drawn = traces(
        second_moment([Profile("measured", one, config=Config(n_layers=4, n_seeds=1), seeds=(0,))])
    )
    assert "measured, spread" not in drawn
    assert "1 seed," in drawn["measured"].hovertemplate


@pytest.mark.parametrize("layers", [4, 100], ids=["", "of more layers than have dots"])
def test_the_first_of_several_seeds_has_a_band_that_is_not_seen_so_that_the_others_only_move_it(
    layers,
):
    first = {key: value[:1] for key, value in healthy(layers).items()}
    drawn = traces(
        second_moment([Profile("measured", first, config=Config(n_layers=layers), seeds=(0,))])
    )
    band = drawn["measured, spread"]
    half = len(band.y) // 2
    np.testing.assert_array_equal(band.y[:half], band.y[half:][::-1])
    assert band.line.width == 0
    assert "1 seed," in drawn["measured"].hovertemplate


@pytest.mark.parametrize("draw", OVER_DEPTH)
def test_hover_text_reads_as_a_sentence(draw):
    text = traces(draw([measured()]))["measured"].hovertemplate
    assert text.startswith("<b>Measured</b><br>")
    assert "layer" in text
    assert "is %{y:.3g}" in text
    assert "3 seeds, from %{customdata[0]:.3g} to %{customdata[1]:.3g}" in text
    assert text.endswith("<extra></extra>")


@pytest.mark.parametrize("draw", OVER_DEPTH)
def test_a_thousand_layers_stay_light(draw):
    profiles = [measured(layers=1000), predicted(layers=1000)]
    figure = draw(profiles)
    assert len(figure.data) <= 5
    dots = traces(figure)["measured"]
    assert dots.y.dtype == dots.x.dtype == np.float32
    assert len(dots.y) in (1000, 2001)
    assert dots.marker.maxdisplayed <= 64
    assert len(json.dumps(figure.to_dict())) < 125_000


def test_values_beyond_float32_are_kept():
    values = stream("second_moment", 10.0 ** (50.0 * np.arange(5)), spread=0.0)
    line = traces(second_moment([predicted(layers=2, values=values)]))["predicted"]
    np.testing.assert_allclose(line.y, 10.0 ** (50.0 * np.arange(5)))
    assert line.y.dtype == np.float64


@pytest.mark.parametrize("draw", OVER_DEPTH)
def test_no_profiles_give_the_empty_axes_with_their_marks(draw):
    figure = draw([])
    assert (
        len(figure.data) == len([trace for trace in figure.data if trace.mode == "lines+text"]) >= 1
    )
    assert "Nothing measured yet" in figure.layout.meta["description"]


@pytest.mark.parametrize("draw", OVER_DEPTH)
def test_figures_bring_no_theme(draw):
    layout = draw([measured()]).to_dict()["layout"]
    assert not layout["template"].get("layout")
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0, 0, 0, 0)"
    assert "font" not in layout
    assert layout["showlegend"] is False


def test_the_description_tells_start_end_and_extremes():
    text = second_moment([measured(layers=2)]).layout.meta["description"]
    assert text == (
        "Second moment, residual stream, over depth. Measured: 1 at depth 0, 4 at depth 2; "
        "lowest 1 at depth 0, highest 4 at depth 2."
    )


@pytest.mark.parametrize("draw", OVER_DEPTH)
def test_drawing_leaves_the_profile_as_it_is_and_gives_the_same_again(draw):
    profile = measured()
    before = profile.to_json()
    assert draw([profile]) == draw([profile])
    assert profile.to_json() == before
