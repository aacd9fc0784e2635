"""A sweep's dataset: equal to one cell after the other, of full shape whatever fails, stopped and
gone on with."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer import Config, ConfigError, Sweep, measure, predict, sweep
from explorer.ends import ENDS, Ending, endings
from explorer.sweeping.cell import body_of, compute, result_of
from explorer.sweeping.sweeps import CellResult
from explorer.sweeping.workers import Here
from explorer.tasks.pool import Call
from explorer.vocabulary import STATISTICS

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, n_seeds=2)
OVER = {"alpha": [0.0, 0.5, 2.0], "n_layers": [1, 3]}


@pytest.fixture(scope="module")
def serial() -> xr.Dataset:
    return sweep(SMALL, OVER, executor=Here())


def test_the_dataset_equals_predicting_and_measuring_cell_by_cell(serial: xr.Dataset) -> None:
    for origin, find in (("predicted", predict), ("measured", measure)):
        for alpha in OVER["alpha"]:
            for n_layers in OVER["n_layers"]:
                ends = endings(find(SMALL.replace(alpha=alpha, n_layers=n_layers)))
                cell = serial.sel(origin=origin, alpha=alpha, n_layers=n_layers)
                assert {*ENDS} - {*ends} == {"output_logit_rms", "output_logit_largest"}, (
                    "linear loss: no readout"
                )
                for name in ENDS:
                    end = ends.get(name, Ending(math.nan, math.nan, math.nan, 0))
                    # designs side by side add up in another order
                    np.testing.assert_allclose(
                        [cell[name], cell[f"{name}_low"], cell[f"{name}_high"]],
                        [end.middle, end.low, end.high],
                        rtol=1e-12 if origin == "predicted" else 0,
                        err_msg=f"{origin} {name} at {alpha}",
                    )


def test_it_is_labelled(serial: xr.Dataset) -> None:
    assert dict(serial.sizes) == {"origin": 2, "alpha": 3, "n_layers": 2}
    assert serial["second_moment"].dims == ("origin", "alpha", "n_layers")
    assert serial["n_layers"].attrs == {"long_name": "Depth", "units": "layers", "symbol": "N"}
    assert serial["second_moment"].attrs["units"] == "input² units"
    assert serial["second_moment_high"].attrs["long_name"] == "Second moment, highest seed"
    record = json.loads(serial.attrs["sweep"])
    assert Config(**record["config"]) == SMALL
    assert record["over"] == OVER
    assert serial.attrs["version"]
    assert (serial["seconds"] > 0).all()
    assert (serial["failure"] == "").all()


def test_processes_and_threads_find_the_same_numbers_bit_for_bit(serial: xr.Dataset) -> None:
    with ThreadPoolExecutor(2) as pool:
        beside = sweep(SMALL, OVER, executor=pool)
    for other in (sweep(SMALL, OVER), beside):
        assert other.drop_vars("seconds").identical(serial.drop_vars("seconds"))


def test_layers_of_a_site_are_padded_to_the_deepest() -> None:
    found = sweep(
        SMALL,
        {"n_layers": [1, 3]},
        ["second_moment@resid_post", "logit_std@attn_scores", "second_moment@embed"],
        Here(),
        origins="measured",
    )
    assert found["second_moment@resid_post"].dims == ("origin", "n_layers", "layer")
    assert found["second_moment@embed"].dims == ("origin", "n_layers")
    profile = measure(SMALL.replace(n_layers=3))
    deep = found.sel(origin="measured", n_layers=3)
    np.testing.assert_array_equal(
        deep["second_moment@resid_post"],
        STATISTICS["second_moment"].mean(profile["second_moment", "resid_post"]),
    )
    np.testing.assert_array_equal(
        deep["logit_std@attn_scores"], STATISTICS["logit_std"].mean(profile["logit_std"], (0, 2))
    )
    assert np.isnan(found.sel(n_layers=1)["second_moment@resid_post"]).values.ravel().tolist() == [
        False,
        True,
        True,
    ]


def test_words_are_an_axis_and_a_refused_design_a_failure_with_its_reason() -> None:
    found = sweep(
        SMALL, {"norm_placement": ["none", "post"], "n_heads": [2, 3]}, ["second_moment"], Here()
    )
    assert list(found["norm_placement"].values) == ["none", "post"]
    assert (
        found["failure"]
        .sel(n_heads=3)
        .str.startswith("d_model must be divisible by n_heads; got 16 and 3")
        .all()
    )
    assert np.isnan(found["second_moment"].sel(n_heads=3)).all()
    assert np.isfinite(found["second_moment"].sel(n_heads=2)).all()


def test_a_design_that_explodes_keeps_its_values_that_are_not_finite() -> None:
    wild = SMALL.replace(norm_placement="none", init_variance=1e3, n_layers=64)
    found = sweep(wild, {"n_layers": [1, 64]}, ["second_moment"], Here(), origins="measured").sel(
        origin="measured"
    )
    assert np.isfinite(found["second_moment"].sel(n_layers=1))
    assert not np.isfinite(found["second_moment"].sel(n_layers=64))
    assert (found["failure"] == "").all()


def test_three_axes() -> None:
    found = sweep(
        SMALL,
        {"alpha": [0.5, 1], "n_layers": [1, 2], "causal": [False, True]},
        ["second_moment"],
        origins="predicted",
    )
    assert found["second_moment"].shape == (1, 2, 2, 2)
    alone = endings(predict(SMALL.replace(alpha=0.5, n_layers=2, causal=True)))
    cell = found["second_moment"].sel(alpha=0.5, n_layers=2, causal=True)
    assert float(cell[0]) == pytest.approx(alone["second_moment"].middle, rel=1e-12)


@pytest.mark.parametrize("n_layers", [12, 24, 48])
def test_a_predicted_cell_is_a_typical_draw(n_layers: int) -> None:
    """Of a plain stack, whose second moment is a product over layers: the mean over draws is 2 to
    20 times a typical draw."""
    config = Config(
        norm_placement="none",
        residual="absent",
        d_model=64,
        n_ctx=32,
        n_layers=n_layers,
        batch_size=2,
        n_seeds=8,
    )
    found = sweep(config, {"n_layers": [n_layers]}, ["second_moment"], Here(), origins="predicted")
    predicted = float(found["second_moment"].squeeze())
    draws = measure(config)["second_moment", "resid_post"][:, -1]
    typical = float(np.exp(np.mean(np.log(draws))))
    assert 1 / 2 < predicted / typical < 2


def test_a_sweep_that_was_stopped_goes_on_and_every_cell_is_told_once() -> None:
    told: list[CellResult] = []
    whole = Sweep(SMALL, OVER, ["second_moment"], Here())
    whole.run(stop=lambda: len(told) >= 8, on_cell=told.append)
    assert whole.done == len(told) == 8
    assert int(np.isfinite(whole.dataset()["second_moment"]).sum()) == 8
    assert [cell.origin for cell in told] == ["predicted"] * 6 + ["measured"] * 2
    whole.run(on_cell=told.append)
    assert whole.done == whole.total == len(told) == 12
    assert len({(cell.origin, *cell.at.values()) for cell in told}) == 12
    first = told[0]
    assert first.at == {"alpha": 0.0, "n_layers": 1}
    assert (
        first.values["second_moment"]
        == endings(predict(SMALL.replace(**first.at)))["second_moment"].middle
    )


def test_notes_of_predictions_come_with_their_cells_and_are_counted() -> None:
    """Another process gives the same ones."""
    told: list[CellResult] = []
    deep = SMALL.replace(norm_placement="post", d_model=16, n_heads=2)
    whole = Sweep(deep, {"n_layers": [1, 64]}, ["logit_std"], Here())
    whole.run(on_cell=told.append)
    reasons = {
        n_layers: predict(deep.replace(n_layers=n_layers)).notes.get("logit_std", "")
        for n_layers in (1, 64)
    }
    assert reasons[1] == ""
    assert reasons[64]
    assert [dict(cell.notes) for cell in told if cell.origin == "predicted"] == [
        {"logit_std": reason} if reason else {} for reason in reasons.values()
    ]
    assert whole.notes == {"logit_std": {reasons[64]: 1}}
    cell = whole.grid.points[0, 1].cell
    assert cell is not None
    call = Call(
        body_of([cell], 1), b"", lambda: False, lambda: False, lambda _: None, lambda _: None
    )
    (found,) = result_of(compute(call))
    assert found.notes == {"logit_std": reasons[64]}


def test_a_measurement_in_this_process_is_stopped_half_way() -> None:
    asked = 0

    def soon() -> bool:
        nonlocal asked
        asked += 1
        return asked > 12

    deep = Sweep(
        SMALL.replace(n_layers=200),
        {"alpha": [0.1, 0.2]},
        ["second_moment"],
        Here(),
        origins="measured",
    )
    assert deep.run(soon).done == 0, "12 questions do not reach the end of 200 layers"
    assert (deep.dataset()["failure"] == "").all()
    assert deep.run().done == 2


@given(
    st.lists(
        st.sampled_from([1, 2, 0, -3, 2000, "many", 2.5, None]), min_size=1, max_size=4, unique=True
    ),
    st.lists(
        st.sampled_from([0.0, 1.0, -1.0, 4.5, float("nan"), float("inf"), "one", True]),
        min_size=1,
        max_size=4,
        unique_by=lambda value: f"{float(value) if not isinstance(value, str) else value}",
    ),
)
@settings(max_examples=25, deadline=None)
def test_any_mix_of_valid_and_invalid_cells_gives_a_full_shape(
    depths: list[Any], alphas: list[Any]
) -> None:
    found = sweep(
        SMALL.replace(n_seeds=1), {"n_layers": depths, "alpha": alphas}, ["second_moment"], Here()
    )
    assert found["second_moment"].shape == (2, len(depths), len(alphas))
    for i, depth in enumerate(depths):
        for j, alpha in enumerate(alphas):
            accepted = SMALL.accepts(n_layers=depth, alpha=alpha)
            cell = found.isel(n_layers=i, alpha=j)
            assert (np.isfinite(cell["second_moment"]) == accepted).all()
            assert ((cell["failure"] == "") == accepted).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"settings": 3}, ConfigError, "settings must be left out where no origin has any; got 3"),
        ({"executor": 2}, TypeError, "executor must be an Executor; got 2"),
    ],
)
def test_arguments_of_another_kind_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sweep(SMALL, {"alpha": [1]}, **arguments)


def test_it_says_how_far_it_is() -> None:
    whole = Sweep(SMALL, OVER, ["second_moment"], origins="predicted")
    assert repr(whole) == f"Sweep({SMALL} over alpha (3), n_layers (2); 0 of 6 cells)"
    assert "6 of 6 cells" in repr(whole.run())
