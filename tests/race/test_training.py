"""Pictures of a race: what was recorded is what is drawn, in short curves and on shared scales."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import pytest
from handmade import PLAIN, traces
from numpy.testing import assert_allclose

from explorer.figures import LegendEntry
from explorer.figures.palette import HUES
from explorer_race.figures import (
    CURVES,
    MOST_POINTS,
    Course,
    Track,
    extremes,
    medians,
    snapshot,
    stride,
    thinned,
)
from explorer_race.history import History
from explorer_race.maps import MAPS, MOST_COLUMNS, MOST_ROWS, extent, layer_map
from explorer_race.tasks import Levels

LEVELS = Levels(3.25, 2.5)
LAYERS = 3
DRAW = {row.name: row.draw for row in CURVES}


def recorded(steps=21, every=10, scale=1.0, layers=LAYERS, learning_rate=1e-3, **more) -> History:
    """The loss falls from 5 by 0.1 a step; gradients fall tenfold a layer; every other number is
    known by heart."""
    history = History()
    history.losses = [5.0 - 0.1 * step for step in range(steps)]
    for step in range(0, steps, every):
        by_layer = scale * 10.0 ** -np.arange(1.0, layers + 1)
        found = {("parameter_gradient", name): by_layer for name in PLAIN}
        found |= {
            ("update_ratio", name): np.full(layers, 10.0**-index)
            for index, name in enumerate(PLAIN)
        }
        found |= {
            ("held_out_loss", ""): np.array(5.0 - 0.1 * step),
            ("learning_rate", ""): np.array(learning_rate),
        }
        for index, site in enumerate(("embed", "resid_mid", "resid_post")):
            found["second_moment", site] = np.full(1 if site == "embed" else layers, 1.0 + index)
        found["attention_entropy_normalized", "pattern"] = np.tile([0.1, 0.5, 0.6], (layers, 1))
        history.record(
            step, found | {key: np.asarray(value) for key, value in more.get("found", {}).items()}
        )
    return history


def track(index=0, name="one", history=None, step=21, **more) -> Track:
    return Track(LegendEntry(index, None, name), history or recorded(), step, **more)


def course(*tracks: Track, steps=40) -> Course:
    return Course(tracks or (track(), track(1, "two", recorded(scale=100))), steps, LEVELS)


def named(figure: go.Figure, name: str) -> list:
    return [trace for trace in figure.data if trace.name == name]


@pytest.mark.parametrize("name", DRAW)
def test_every_curve_keeps_the_marks_of_its_contender_in_a_frame_as_long_as_the_race(name):
    history = recorded(found={("update_spectral_norm", "W_Q"): np.ones(LAYERS)})
    figure = DRAW[name](course(track(2, history=history), track(5, "two", history)))
    assert {trace.line.color for trace in named(figure, "two")} == {HUES[5]}
    assert {trace.line.dash for trace in named(figure, "one")} == {"dot"}
    low, high = figure.layout.xaxis.range
    assert low <= 0 <= 40 <= high < 42
    assert figure.layout.xaxis.title.text == "step"
    assert figure.layout.yaxis.title.text.endswith(")"), "a unit in brackets"
    assert "one" in figure.layout.meta["description"]


@pytest.mark.parametrize("row", CURVES, ids=lambda row: row.name)
def test_captions_are_sentences(row):
    assert row.caption.endswith(".")
    assert len(row.caption) <= 90


@pytest.mark.parametrize("name", DRAW)
def test_a_race_that_has_not_begun_has_frames(name):
    figure = DRAW[name](course(track(history=History(), step=0)))
    assert all(len(trace.x) == 0 for trace in named(figure, "one"))
    assert figure.layout.meta["description"].endswith("nothing yet.")


def test_training_loss_is_drawn_raw_and_smoothed_with_the_levels():
    figure = DRAW["training_loss"](course(track()))
    raw, smooth = traces(figure)["one, each batch"], traces(figure)["one"]
    assert_allclose(raw.y, [5.0 - 0.1 * step for step in range(21)], rtol=1e-6)
    assert raw.line.color == "rgba(0, 114, 178, 0.28)"
    assert_allclose(smooth.y[7:-7], 5.0 - 0.1 * np.arange(7, 14), rtol=1e-6)
    assert smooth.y[0] == pytest.approx(5.0 - 0.1 * 3.5), "the median of the first eight"
    assert traces(figure)["unigram"].y[:2] == (3.25, 3.25)
    assert traces(figure)["bigram"].y[:2] == (2.5, 2.5)
    assert figure.layout.meta["description"] == (
        "Training loss, nats a character, at the latest step. one 3.35."
    )


def test_a_loss_that_runs_away_does_not_flatten_the_others():
    away = History()
    away.losses = [5.0, 50.0, 1e30, math.inf]
    figure = DRAW["training_loss"](
        course(track(), track(1, "two", away, 3, retired="the training loss is inf"))
    )
    assert figure.layout.yaxis.range[1] < 2 * LEVELS.unigram
    raw = traces(figure)["two, each batch"]
    assert len(raw.y) == 3, "up to the last finite one"


@pytest.mark.parametrize("name", ["training_loss", "held_out_loss"])
def test_who_fell_out_is_marked_and_named(name):
    gone = track(1, "two", step=12, retired="the training loss is <inf>")
    other = track(2, "three", step=13, retired="the training loss is nan")
    figure = DRAW[name](course(track(), gone, other))
    mark = traces(figure)["two, diverged at step 12"]
    assert (set(mark.x), mark.text[1], mark.line.color) == ({12}, "diverged at step 12", HUES[1])
    assert "the training loss is &lt;inf&gt;" in mark.hovertemplate
    assert traces(figure)["three, diverged at step 13"].y[1] < mark.y[1], "below each other"
    assert "two" in figure.layout.meta["description"]
    assert "diverged at step 12" in figure.layout.meta["description"]


@pytest.mark.parametrize("name", ["training_loss", "held_out_loss"])
def test_a_curve_that_leaves_the_frame_is_marked_with_where_it_went(name):
    away = recorded()
    away.losses[11:] = [1006.4] * 10
    away.values["held_out_loss", ""][2] = np.array(1006.4)
    figure = DRAW[name](course(track(), track(1, "two", away, 21)))
    (mark,) = [trace for trace in figure.data if trace.text and "nats" in str(trace.text)]
    low, high = figure.layout.yaxis.range
    assert (mark.marker.color, mark.marker.symbol) == (HUES[1], "arrow-up")
    assert mark.text[0].startswith("1,010 nats at step 20")
    assert low < mark.y[0] < high
    assert mark.x[0] == (11 if name == "training_loss" else 20)
    assert "two 1,010" in figure.layout.meta["description"]


def test_the_held_out_curve_ends_where_the_weights_stand():
    (curve,) = named(DRAW["held_out_loss"](course(track(final_loss=2.25))), "one")
    assert_allclose(curve.x, [0, 10, 20, 21])
    assert_allclose(curve.y, [5.0, 4.0, 3.0, 2.25])
    (curve,) = named(DRAW["held_out_loss"](course(track())), "one")
    assert_allclose(curve.x, [0, 10, 20])


@pytest.mark.parametrize(("steps", "mode"), [(1, "lines+markers"), (21, "lines")])
def test_a_single_reading_is_a_dot(steps, mode):
    (curve,) = named(
        DRAW["learning_rate"](course(track(history=recorded(steps=steps), step=steps))), "one"
    )
    assert curve.mode == mode


def test_learning_rates_far_apart_stand_on_a_logarithmic_axis():
    near = track(1, "two", recorded(learning_rate=2e-3))
    far = track(1, "two", recorded(learning_rate=0.1))
    assert DRAW["learning_rate"](course(track(), near)).layout.yaxis.type is None
    figure = DRAW["learning_rate"](course(track(), far))
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.title.text == "learning rate η (per step)"
    assert_allclose(named(figure, "two")[0].y, 0.1)


def test_gradient_ratio_is_that_of_first_and_last_layer():
    figure = DRAW["gradient_ratio"](course(track()))
    assert_allclose(named(figure, "one")[0].y, 10.0 ** (LAYERS - 1))
    assert traces(figure)["even"].y[:2] == (1.0, 1.0)
    dead = track(history=recorded(scale=0.0))
    assert np.isnan(named(DRAW["gradient_ratio"](course(dead)), "one")[0].y).all()


def test_updates_are_drawn_beside_their_equilibrium():
    rest = {("equilibrium_update", name): np.full(LAYERS, 0.02) for name in PLAIN}
    figure = DRAW["update_ratio"](course(track(), track(1, "two", recorded(found=rest))))
    middle = np.median(10.0 ** -np.arange(6.0))
    for name in ("one", "two"):
        assert_allclose(named(figure, name)[0].y, middle, rtol=1e-6)
    assert "one, predicted" not in traces(figure)
    law = traces(figure)["two, predicted"]
    assert_allclose(law.y, 0.02, rtol=1e-6)
    assert (law.line.color, law.line.dash, law.meta) == (HUES[1], "dash", None), (
        "a line without a kind is theory's"
    )
    low, high = figure.layout.yaxis.range
    assert 10**low < middle < 0.02 < 10**high


def test_singular_values_of_updates_are_drawn_with_the_spectral_condition():
    found = {
        ("update_spectral_norm", name): np.full(LAYERS, 10.0**-index)
        for index, name in enumerate(PLAIN)
    }
    race = course(track(), track(1, "two", recorded(found=found)))
    figure = DRAW["update_spectral_norm"](race)
    assert_allclose(named(figure, "two")[0].y, np.median(10.0 ** -np.arange(6.0)), rtol=1e-6)
    assert len(named(figure, "one")[0].y) == 0
    assert traces(figure)["‖ΔW‖₂ = √(fan_out / fan_in)"].y[:2] == (1.0, 1.0)
    assert race.has("update_spectral_norm")
    assert not course().has("update_spectral_norm")
    assert {row.needs for row in CURVES} == {"", "update_spectral_norm", "equilibrium_update"}
    drawn, _ = heat("update_spectral_norm", 1, track(), track(1, "two", recorded(found=found)))
    assert_allclose(drawn.customdata, np.median(10.0 ** -np.arange(6.0)), rtol=1e-5)


def test_names_are_shown_to_the_letter():
    figure = DRAW["training_loss"](course(track(name="<b>%{x}")))
    assert all("<b>%{x}" not in (trace.hovertemplate or "") for trace in figure.data)
    assert (
        layer_map(course(track(name="<i>")), 0, MAPS["weight_gradient"]).layout.title.text
        == "&lt;i&gt;"
    )


# --- heat maps ------------------------------------------------------------------------------------


def heat(row="weight_gradient", chosen=0, *tracks) -> tuple[go.Heatmap, go.Figure]:
    figure = layer_map(course(*tracks), chosen, MAPS[row])
    return figure.data[0], figure


def test_a_heat_map_has_a_column_a_reading_and_a_row_a_layer():
    drawn, figure = heat()
    assert_allclose(drawn.x, [0, 10, 20])
    assert_allclose(drawn.y, [1, 2, 3])
    assert figure.layout.yaxis.range == (0.5, 3.5)
    norms = math.sqrt(len(PLAIN)) * 10.0 ** -np.arange(1.0, 4)
    assert_allclose(drawn.z, np.log10(norms)[:, None] * np.ones(3), rtol=1e-5)
    assert_allclose(drawn.customdata[:, 0], norms, rtol=1e-5)
    assert figure.layout.title.text == "one"
    assert "0.245 in the first and 0.00245 in the last layer" in figure.layout.meta["description"]


def test_all_contenders_share_the_color_scale():
    (one, _), (two, _) = heat(chosen=0), heat(chosen=1)
    assert (one.zmin, one.zmax) == (two.zmin, two.zmax)
    assert one.zmin < math.log10(math.sqrt(6) * 1e-3) + 0.1
    assert two.zmax > math.log10(math.sqrt(6) * 10) - 0.1
    assert one.colorscale == two.colorscale


def test_who_fell_out_does_not_stretch_the_scale():
    gone = track(1, "two", recorded(scale=1e30), retired="the training loss is nan")
    (drawn, figure) = heat("weight_gradient", 1, track(), gone)
    assert drawn.zmax < 1
    assert figure.layout.title.text == "two, diverged at step 21"


def test_zeros_are_blank_on_a_logarithmic_scale():
    drawn, _ = heat("weight_gradient", 0, track(history=recorded(scale=0.0)), track(1, "two"))
    assert np.isnan(drawn.z).all()
    assert (np.asarray(drawn.customdata) == 0).all()


def test_the_stream_runs_from_the_input_through_half_layers():
    drawn, figure = heat("second_moment")
    assert_allclose(drawn.y, np.arange(7) / 2)
    assert figure.layout.yaxis.range == (-0.25, 3.25)
    assert_allclose(drawn.customdata[:, 0], [1, 2, 3, 2, 3, 2, 3])


def test_heads_and_matrices_are_told_by_their_median():
    assert_allclose(heat("attention_entropy")[0].z, 0.5)
    assert_allclose(
        heat("update_ratio")[0].customdata, np.median(10.0 ** -np.arange(6.0)), rtol=1e-5
    )


def test_a_map_by_position_has_the_last_layers_tokens():
    # [layer, token]
    found = {("attention_received", "pattern"): [[0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.2, 0.1]]}
    drawn, figure = heat("attention_received", 0, track(history=recorded(found=found)))
    assert_allclose(drawn.y, [1, 2, 3, 4])
    assert_allclose(drawn.customdata[:, 0], [0.4, 0.3, 0.2, 0.1], rtol=1e-6)
    assert drawn.hovertemplate.startswith("step %{x}, token %{y}:")
    assert figure.layout.yaxis.title.text == "token position, last layer"
    assert "0.4 in the first and 0.1 in the last token" in figure.layout.meta["description"]


def test_what_a_design_has_not_is_said():
    figure = layer_map(course(), 1, MAPS["alpha_mlp"])
    assert len(figure.data) == 0
    assert figure.layout.title.text == "two: has none"
    assert figure.layout.yaxis.range == (0.5, 1.5)
    alpha = {("alpha", "mlp_out"): [0.0, 0.1, 0.2]}
    drawn, _ = heat("alpha_mlp", 1, track(), track(1, "two", recorded(found=alpha)))
    assert_allclose(drawn.z[:, -1], [0.0, 0.1, 0.2], rtol=1e-6)


@pytest.mark.parametrize("name", MAPS)
def test_every_map_has_axes_a_unit_and_words(name):
    figure = layer_map(course(), 0, MAPS[name])
    up = "depth (layers)" if MAPS[name].each == "depth" else "token position, last layer"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("step", up)
    assert MAPS[name].unit.endswith(")")
    assert "one" in figure.layout.meta["description"]


def test_long_and_deep_races_travel_as_few_cells():
    history = recorded(steps=1000, every=1, layers=200)
    drawn, _ = heat("weight_gradient", 0, track(history=history))
    assert drawn.z.shape[0] <= MOST_ROWS
    assert drawn.z.shape[1] <= MOST_COLUMNS


def test_the_scale_leaves_out_the_outermost_hundredths():
    values = np.ones((100, 10))
    values[0, 0] = 1e9
    grid = MAPS["weight_gradient"].grid(recorded())._replace(values=values)
    assert extent([grid], log=True) == pytest.approx((-0.15, 0.15))


# --- short curves ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 399, 400, 401, 5000, 100_000])
def test_a_curve_of_any_length_has_few_points_and_both_ends(count):
    places = thinned(count)
    assert len(places) <= MOST_POINTS + 1
    assert set(places[[0, -1]] if count else ()) == ({0, count - 1} if count else set())
    assert len(extremes(np.zeros(count))) <= MOST_POINTS


def test_points_are_every_second_fourth_and_so_on():
    assert [stride(count, 100) for count in (1, 100, 101, 200, 201, 1000)] == [1, 1, 2, 2, 4, 16]


def test_a_spike_survives_both_ways():
    values = np.zeros(10_000)
    values[1234], values[4321] = 7.0, -7.0
    kept_values = values[extremes(values)]
    assert (kept_values.max(), kept_values.min()) == (7.0, -7.0)
    assert list(extremes(values)) == sorted(extremes(values))


def test_medians_are_those_of_a_window():
    values = np.array([9.0, 1.0, 5.0, 3.0, 7.0])
    assert_allclose(medians(values, np.arange(5), window=3), [5.0, 5.0, 3.0, 5.0, 5.0])


def test_numbers_that_were_kept_stay_while_the_race_goes_on():
    history = recorded(steps=11)
    held = snapshot(history)
    history.losses.append(1.0)
    history.record(20, {("held_out_loss", ""): np.array(1.0)})
    assert len(held.losses) == 11
    assert list(held.series("held_out_loss")[0]) == [0, 10]
