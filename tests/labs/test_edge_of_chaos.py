"""The edge of chaos lab: both edges where theory has them, in closed form, and maps that show them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import every, named

from explorer.choices import ConfigError
from explorer.labs import maps
from explorer.labs.edge_of_chaos import pictures
from explorer.labs.edge_of_chaos.experiment import (
    D_HEAD,
    DEPTHS,
    TOKENS,
    VARIANCES,
    EdgeOfChaos,
    EdgeResult,
    edges,
    freezing,
    halves,
    run,
    spread,
    verdict,
)
from explorer.labs.edge_of_chaos.row import ROW
from explorer.labs.maps import crossing, same_side
from explorer.stopping import Stopped
from explorer.theory.tables import softmax


@pytest.fixture(scope="module")
def result() -> EdgeResult:
    return run(EdgeOfChaos(n_layers=6, n_seeds=1))


def test_relus_second_moment_is_a_power_of_the_variance(result: EdgeResult) -> None:
    """Two matrices a layer: q_N = σ^(4N) exactly, in theory; an exponent wrong by a tenth is far outside."""
    found = result.depth["second_moment"].transpose("origin", "n_layers", "init_variance")
    expected = np.array(VARIANCES) ** (2 * np.array(DEPTHS)[:, None])
    predicted = found.sel(origin="predicted").values
    # on its way it leaves float32's range, and theory says no more
    np.testing.assert_array_equal(np.isnan(predicted), np.abs(np.log10(expected)) > 62)
    np.testing.assert_allclose(predicted[~np.isnan(predicted)], expected[~np.isnan(predicted)], rtol=1e-3)
    measured = found.sel(origin="measured").values
    seen = np.isfinite(measured) & (measured > 0)
    # log q of a finite stack wanders by √(5N / d) or so
    room = np.broadcast_to(4 * np.sqrt(5 * np.array(DEPTHS)[:, None] / 64), seen.shape)[seen]
    assert (np.abs(np.log(measured[seen] / expected[seen])) < room).all()
    assert (np.abs(np.log(measured[seen] / expected[seen] ** 1.1)) > room).any()


def test_the_edge_is_where_theory_has_it_and_sharper_with_depth(result: EdgeResult) -> None:
    assert edges(result.depth, "predicted") == pytest.approx(1.0, abs=1e-6)
    measured = edges(result.depth, "measured")
    assert measured == pytest.approx(1.0, abs=0.06)
    assert abs(math.log(measured[-1])) < 0.02
    alike, asked = same_side(result.depth, "activation_gradient", room=0.5)
    assert alike == asked > 40


def test_tanhs_edge_comes_from_above() -> None:
    """What saturates passes less: the edge lies above 1, falls with depth, and theory says by how much."""
    found = run(EdgeOfChaos(activation="tanh", n_layers=1, n_seeds=1))
    every(ROW, found)
    predicted, measured = (edges(found.depth, origin) for origin in ("predicted", "measured"))
    assert (np.diff(predicted) < 0).all()
    assert predicted[-1] > 1.1
    np.testing.assert_allclose(measured[2:], predicted[2:], rtol=0.08)


def test_half_of_the_entropy_is_gone_near_the_freezing_spread(result: EdgeResult) -> None:
    """Within 12 % from 16 tokens on, heads being 64 wide; and ever nearer to 1/√2 as rows grow."""
    predicted, measured = (halves(result.attention, origin) for origin in ("predicted", "measured"))
    np.testing.assert_allclose(measured[1:], predicted[1:], rtol=0.12)
    assert (np.diff(predicted) < 0).all()
    assert predicted[-1] > 2**-0.5
    fine = np.geomspace(0.25, 16, 61)
    rows = softmax(TOKENS[-1], D_HEAD, False).rows(fine).entropy / math.log(TOKENS[-1])
    assert predicted[-1] == pytest.approx(crossing(fine.tolist(), rows, 0.5) / freezing(TOKENS[-1]), rel=0.02)


def test_the_logits_spread_is_what_the_line_takes_it_for(result: EdgeResult) -> None:
    """s = σ² √d, less the part 1/n that centering takes away."""
    rows = result.attention["logit_std"].transpose("origin", "n_ctx", "init_variance")
    taken = np.array([[spread(v) * math.sqrt(1 - 1 / n) for v in rows["init_variance"].values] for n in TOKENS])
    np.testing.assert_allclose(rows.sel(origin="predicted"), taken, rtol=0.01)
    np.testing.assert_allclose(rows.sel(origin="measured")[1:], taken[1:], rtol=0.1)
    assert spread(1.0) == math.sqrt(D_HEAD)


def test_with_residuals_nothing_vanishes(result: EdgeResult) -> None:
    for origin in ("predicted", "measured"):
        values = result.shares["second_moment"].sel(origin=origin).values
        assert np.nanmin(values) > 0.9
        assert not (values[-1, -1] < 1e3)
    alike, asked = same_side(result.shares, "second_moment", level=100.0, room=0.5)
    assert alike >= 0.95 * asked > 0


def test_the_verdict_follows_the_cells(result: EdgeResult) -> None:
    severity, words, evidence = verdict(result)
    assert severity == "good"
    assert words.startswith("Both edges lie where theory draws them")
    assert "cells vanish or explode as predicted" in evidence
    wrong = result.depth.copy(deep=True)
    wrong["activation_gradient"][1] = 1 / wrong["activation_gradient"][1]
    severity, words, _ = verdict(EdgeResult(result.settings, wrong, result.shares, result.attention))
    assert (severity, words) == ("warning", "Only 0 % of the cells lie on the side that theory says.")


def test_what_is_known_is_not_measured_again_and_it_stops_when_told(result: EdgeResult) -> None:
    told: list[float] = []
    maps._known.clear()
    first = run(result.settings)
    again = run(result.settings, progress=told.append)
    assert again.depth is first.depth
    assert told == pytest.approx([1 / 3, 2 / 3, 1])
    maps._known.clear()
    for before in (0, 1, 30):
        with pytest.raises(Stopped):
            run(result.settings, stop=iter([False] * before + [True] * 9999).__next__)


@pytest.mark.parametrize(("values", "expected"), [
    ([0.1, 1.0, 10.0], 2.0), ([10.0, 0.1], math.sqrt(2)), ([0.1, 0.2], math.nan), ([0.1, math.inf], math.sqrt(2)),
])
def test_crossings_are_even_on_log_axes(values: list[float], expected: float) -> None:
    assert crossing([1.0, 2.0, 4.0][: len(values)], np.array(values), 1.0) == pytest.approx(expected, nan_ok=True)


# --- pictures -------------------------------------------------------------------------------------------------


def test_every_picture_is_whole(result: EdgeResult) -> None:
    every(ROW, result)


def test_laws_lie_over_the_maps(result: EdgeResult) -> None:
    line = named(pictures.freezes(result), "s = √(2 ln n), line")
    np.testing.assert_allclose(line.x * math.sqrt(D_HEAD), np.sqrt(2 * np.log(line.y)), rtol=1e-6)
    assert (line.y[0], line.y[-1]) == (TOKENS[0], TOKENS[-1])
    assert freezing(math.exp(2)) == 2
    assert named(pictures.moments(result), "σ² = 1, line").x.tolist() == [1, 1]
    heat = named(pictures.gradients(result), "Gradient, first / last layer, measured")
    np.testing.assert_allclose(heat.customdata[..., 0], result.depth["activation_gradient"].sel(origin="measured"),
                               rtol=1e-6)


def test_it_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^activation must be one of relu, tanh; got 'gelu'$"):
        EdgeOfChaos(activation="gelu")
