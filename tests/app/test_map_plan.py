"""The choices of a map without widgets: values of an axis, what goes along with a choice, and what
is refused."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from explorer.app.map.plan import (
    FIELDS,
    MOST_VALUES,
    NOTHING,
    STATISTICS,
    Plan,
    axis_fields,
    axis_values,
    fitted,
    origin_of,
    over,
    place_of,
    title,
    together,
    usual,
)
from explorer.app.setups import setups
from explorer.app.widgets.slider_steps import sliders
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.ends import ENDS
from explorer.sweeping.sweeps import sweep
from explorer.sweeping.workers import Here
from explorer_models.coordinates import GRID
from explorer_race.cells import Training
from explorer_race.recipe import Recipe


@pytest.mark.parametrize("name", FIELDS)
def test_the_values_of_an_axis_rise_from_end_to_end_and_are_accepted(name: str) -> None:
    spec, kind = axis_fields()[name], Recipe if origin_of(name) else Config
    for first, last in (usual(name), (spec.low, spec.high)):
        for count in (2, 7, MOST_VALUES):
            values = axis_values(name, first, last, count)
            assert (values[0], values[-1]) == (first, last)
            assert list(values) == sorted(set(values))
            assert 2 <= len(values) <= count
            assert all(spec.low <= value <= spec.high for value in values)
            assert {type(value) for value in values} <= (
                {int} if spec.kind == "integer" else {float, int}
            )
    assert kind.specs()[name] is spec


def test_a_short_range_has_every_whole_number() -> None:
    assert axis_values("n_layers", 3, 9, 12) == (3, 4, 5, 6, 7, 8, 9)
    assert axis_values("d_model", 64, 256, 12) == (64, 96, 128, 192, 256)
    assert axis_values("init_variance", 0.01, 100, 5) == (0.01, 0.1, 1.0, 10.0, 100)
    assert axis_values("alpha", 0, 1, 5) == (0, 0.25, 0.5, 0.75, 1)


def changes(plan: Plan, **choice: object) -> dict[str, object]:
    """What a person's choice changes; it is accepted."""
    found = fitted(plan, {**plan.model_dump(), **choice})
    Plan(**found)
    return {name: value for name, value in found.items() if getattr(plan, name) != value}


def test_what_goes_along_with_a_choice() -> None:
    plan = Plan()
    assert changes(plan, x="alpha") == {"x": "alpha", "x_from": 0, "x_to": 1.5}
    assert changes(plan, x="n_layers") == {
        "x": "n_layers",
        "x_from": plan.y_from,
        "x_to": plan.y_to,
        "x_count": plan.y_count,
        "y": "init_variance",
        "y_from": plan.x_from,
        "y_to": plan.x_to,
        "y_count": plan.x_count,
    }
    training = {"compute": "trained", "statistic": "loss_drop"}
    assert changes(plan, compute="trained") == training
    assert changes(plan, y="learning_rate") == {
        "y": "learning_rate",
        "y_from": 1e-4,
        "y_to": 0.1,
        **training,
    }
    assert changes(plan, statistic="held_out_loss") == {
        "compute": "trained",
        "statistic": "held_out_loss",
    }
    trained = plan.replace(**training)
    assert changes(trained, statistic="kurtosis") == {
        "compute": "measured",
        "statistic": "kurtosis",
    }
    assert changes(trained, compute="theory") == {"compute": "theory", "statistic": "second_moment"}
    assert changes(plan, x_from=0.5) == {"x_from": 0.5}


def test_a_map_of_one_axis_keeps_its_own_field_alone() -> None:
    plan = Plan().replace(y=NOTHING)
    assert plan.sides == ("x",)
    job = plan.job(Config())
    assert job.fields == {"init_variance": Plan().job(Config()).fields["init_variance"]}
    assert title(plan) == "Second moment over init variance"
    assert place_of(Config(n_layers=999), plan) == {"init_variance": 1.0}
    assert place_of(Config(init_variance=100), plan) is None
    # what is not asked of the other axis is not checked either
    assert Plan(y=NOTHING, y_from=9, y_to=1) == plan.replace(y_from=9, y_to=1)
    assert changes(Plan(), y=NOTHING) == {"y": NOTHING}
    assert changes(plan, y="alpha") == {"y": "alpha", "y_from": 0, "y_to": 1.5}
    assert changes(plan, x="learning_rate")["compute"] == "trained"
    with pytest.raises(ConfigError, match=r"^y must be another field than x; got Init variance"):
        Plan(**fitted(plan, {**plan.model_dump(), "y": "init_variance"}))
    with pytest.raises(ConfigError, match=r"^x must be one of n_layers"):
        Plan(x=NOTHING)


@pytest.mark.parametrize("name", sliders(Config))
def test_a_slider_s_map_has_its_usual_range_and_the_design_s_own_value(name: str) -> None:
    spec = Config.specs()[name]
    plan = over(name, Config())
    assert (plan.x, plan.y, plan.statistic) == (name, NOTHING, Plan().statistic)
    for value in (spec.low, spec.high):
        with suppress(ConfigError):  # another rule of the design may forbid it
            config = Config().replace(**{name: value})
            assert place_of(config, over(name, config)) == {name: value}


def test_any_field_and_any_statistic_can_be_chosen() -> None:
    for name in FIELDS:
        changes(Plan(), x=name)
        changes(Plan(), y=name)
    for name in STATISTICS:
        changes(Plan(), statistic=name)


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        (
            {"x": "learning_rate"},
            "x must be a field of the design unless cells are trained; got Learning rate",
        ),
        ({"y": "init_variance"}, "y must be another field than x; got Init variance twice"),
        ({"statistic": "loss_drop"}, "statistic must be one of measured cells"),
        ({"compute": "trained"}, "statistic must be one of trained cells"),
        ({"x_from": 2.0, "x_to": 2.0}, "x_from must be less than x_to; got 2 and 2"),
        ({"y_from": 5, "y_to": 5}, "y_from must be less than y_to; got 5 and 5"),
        ({"y_from": 6, "y_to": 5}, "y_from must be less than y_to; got 6 and 5"),
        ({"x_from": float("nan")}, "x_from must be a finite number; got nan"),
        ({"steps": 0}, "steps must be a whole number between 1 and 1000; got 0"),
    ],
)
def test_what_a_plan_refuses(choices: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        Plan(**choices)
    assert str(told.value).startswith(sentence)


def test_a_design_has_a_place_on_its_map_or_none() -> None:
    assert place_of(Config(n_layers=3), Plan()) == {"init_variance": 1.0, "n_layers": 3.0}
    assert place_of(Config(n_layers=65), Plan()) is None


def test_the_maps_of_the_buttons_are_plans() -> None:
    for name, row in setups("map").items():
        design, plan = row.part
        job = plan.job(design)
        assert (row.name, len(job.over)) == (name, 2)


@pytest.mark.parametrize(("name", "power"), [("features", 1.0), ("features_mup", 0.0)])
def test_features_change_with_the_width_as_the_words_of_a_coordinate_check_say(
    name: str, power: float
) -> None:
    """Where steps are small. A power is a multiple of ½: another one is two standard errors or more
    away."""
    design, plan = setups("map")[name].part
    assert (plan.statistic, plan.y) == ("feature_change", "d_model")
    found = [
        sweep(
            design.replace(seed=seed),
            {"d_model": [16, 256]},
            "second_moment",
            Here(),
            origins="trained",
            settings=Training(Recipe(learning_rate=3e-5), steps=plan.steps),
        )["feature_change"].values.ravel()
        for seed in range(3)
    ]
    slopes = np.diff(np.log(found)).ravel() / np.log(256 / 16)
    assert abs(slopes.mean() - power) + 2 * slopes.std(ddof=1) / 3**0.5 < GRID / 2, slopes


def test_a_map_asks_for_gradients_only_where_it_shows_them() -> None:
    forward = together("second_moment")
    assert "attention_entropy_normalized" in forward
    assert set(ENDS) - set(forward) == {"activation_gradient", "parameter_gradient"}
    assert together("parameter_gradient") == tuple(ENDS)
    assert together("loss_drop") == forward
