"""Trained cells of sweeps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_sweeps import SMALL

from explorer import ConfigError
from explorer.sweeping.cell import Cell, body_of, compute, result_of
from explorer.sweeping.grid import Grid
from explorer.sweeping.sweeps import sweep
from explorer.sweeping.workers import Here
from explorer_race.cells import Training
from explorer_race.race import Contender, race
from explorer_race.recipe import Recipe
from explorer_race.runner import build
from explorer_race.tasks import Task


def test_trained_cells_are_short_races_and_an_end_before_time_is_said() -> None:
    over = {"learning_rate": [1e-3, 1e-2], "n_layers": [1, 2]}
    text = SMALL.replace(n_seeds=1, batch_size=4)
    found = sweep(
        text,
        over,
        executor=Here(),
        origins=("measured", "trained"),
        settings=Training(Recipe(warmup=2), steps=4),
    )
    trained = found.sel(origin="trained")
    one = race(
        [
            Contender(
                "one",
                text.replace(n_layers=2, input="text", loss="next_token", causal=True),
                Recipe(learning_rate=1e-2, warmup=2),
            )
        ],
        steps=4,
    )
    assert (
        float(trained["held_out_loss"].sel(learning_rate=1e-2, n_layers=2))
        == one.verdict()[0].final_loss
    )
    np.testing.assert_allclose(trained["loss_drop"] + trained["held_out_loss"], one.levels.unigram)
    runner = one.runners[0]
    with torch.no_grad():
        outputs = [
            model(model.embed(runner.tensors(one.data.held_out)))
            for model in (build(runner.config, one.data), runner.model)
        ]
    change = float((outputs[1] - outputs[0]).square().mean().sqrt())
    assert float(trained["feature_change"].sel(learning_rate=1e-2, n_layers=2)) == pytest.approx(
        change, rel=1e-5
    )
    assert np.isnan(trained["second_moment"]).all()
    assert np.isnan(found.sel(origin="measured")["held_out_loss"]).all()
    assert (found.sel(origin="measured")["second_moment"].std("learning_rate") == 0).all(), (
        "measured once"
    )
    wild = sweep(
        text.replace(norm_placement="none", init_variance=1e3),
        {"n_layers": [64]},
        executor=Here(),
        origins="trained",
        settings=Training(steps=5),
    ).squeeze()
    assert np.isnan(wild["held_out_loss"])
    assert str(wild["failure"].values) == "training ended at step 0: the training loss is nan"
    assert float(wild["steps"]) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, ConfigError, "steps must be between 1 and 1,000,000; got 0"),
        ({"steps": "many"}, TypeError, "steps must be an int; got 'many'"),
        ({"recipe": 3}, TypeError, "recipe must be a Recipe; got 3"),
        ({"task": "learn"}, TypeError, "task must be a Task; got 'learn'"),
    ],
)
def test_a_training_of_another_kind_is_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Training(**arguments)  # type: ignore[arg-type]


def test_settings_of_another_origin_are_refused() -> None:
    with pytest.raises(TypeError, match="settings must be a Training; got Recipe"):
        Grid(SMALL, {"alpha": [1]}, ("trained",), None, Recipe())  # type: ignore[arg-type]


def test_a_cell_is_the_same_from_its_text() -> None:
    """A worker of another process is handed the text alone."""
    training = Training(Recipe(learning_rate=0.01), Task(seed=3), 2)
    config = SMALL.replace(n_layers=1, batch_size=2)
    here = sweep(config, {"alpha": [1.0]}, None, Here(), origins="trained", settings=training)
    from explorer.tasks.pool import Call

    call = Call(
        body_of([Cell("trained", config, (), training)], 1),
        b"",
        lambda: False,
        lambda: False,
        lambda _: None,
        lambda _: None,
    )
    (found,) = result_of(compute(call))
    assert found.numbers["held_out_loss"] == float(here["held_out_loss"].squeeze())
