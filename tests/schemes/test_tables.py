"""A design is one row: rows that are made up here work in model, theory, options and controls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer import Config, ConfigError, measure, predict
from explorer.app.widgets.controls import Controls, unused
from explorer.fields import Option
from explorer.profile import STREAM
from explorer.schemes.activation import ACTIVATIONS, Activation
from explorer.schemes.attention import DIVISORS, INHERITANCES, Divisor, Inheritance
from explorer.schemes.placement import NORMS, PLACEMENTS, Norm, Placement, PlacementRule
from explorer.schemes.residual import RESIDUALS, Multipliers, ResidualRule
from explorer.schemes.scale import SCALE_RULES, ScaleRule

SIZES = {"n_layers": 3, "d_model": 128, "n_heads": 4, "n_ctx": 16, "batch_size": 2, "n_seeds": 24}
WORDS = ("made up", "nobody")

ROWS: dict[str, tuple[dict[str, Any], Option]] = {
    "norm_placement": (PLACEMENTS, PlacementRule(  # before the branch and on the sum
        *WORDS, ("norm",), layer=lambda layer, n_layers: Placement(before=True, after=True), final=False)),
    "norm": (NORMS, Norm(*WORDS, centers=False)),
    "residual": (RESIDUALS, ResidualRule(*WORDS, multipliers=lambda config: Multipliers(0.8, 0.6))),
    "scale_rule": (SCALE_RULES, ScaleRule(*WORDS, variance=lambda config, matrix, fan_in, fan_out: 1.3 / fan_in)),
    "activation": (ACTIVATIONS, Activation(
        *WORDS, value=lambda x: np.sin(x), slope=lambda x: np.cos(x), torch=lambda F, z: z.sin())),
    "attention_scale": (DIVISORS, Divisor(*WORDS, of=lambda d_head: 0.5 * d_head**0.75)),
    "residual_attention": (INHERITANCES, Inheritance(*WORDS, adds="scores")),
}


@pytest.fixture(params=ROWS)
def field(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A field whose table has one row more, until the test is over."""
    table, row = ROWS[request.param]
    monkeypatch.setitem(table, "made_up", row)
    return str(request.param)


def test_a_row_that_is_not_there_is_refused() -> None:
    for field in ROWS:
        with pytest.raises(ConfigError, match=rf"^{field} must be one of .*; got 'made_up'$"):
            Config(**{field: "made_up"})


def test_an_added_row_is_an_option_with_its_words(field: str) -> None:
    controls = Controls(Config())
    described = {item["name"]: item for section in controls.sections for item in section["fields"]}
    assert {"value": "made_up", "label": "made up", "formula": "made up", "source": "nobody"} in (
        described[field]["options"])
    controls.apply({field: "made_up"})
    assert (controls.refusal, getattr(controls.config, field)) == ("", "made_up")


def test_an_added_row_is_built_and_predicted(field: str) -> None:
    """Second moments, overlaps and gradients, to five standard errors and 5 % of what the first order leaves out."""
    config = Config(**SIZES, **{field: "made_up"})
    measured, predicted = measure(config), predict(config)
    for statistic in ("second_moment", "token_correlation", "activation_gradient"):
        for site in STREAM:
            found, expected = measured[statistic, site], predicted[statistic, site][0]
            error = found.std(0, ddof=1) / np.sqrt(len(found))
            scale = 1.0 if statistic == "token_correlation" else expected
            assert (abs(found.mean(0) - expected) <= 5 * error + 0.05 * scale).all(), (statistic, site, expected)


def test_an_added_row_differs_from_the_default(field: str) -> None:
    """A row that the theory or the model passed over would leave the default's numbers."""
    default, made_up = Config(**SIZES), Config(**SIZES, **{field: "made_up"})
    for profile in (predict, measure):
        assert any(
            not np.allclose(value, profile(default).values[key], rtol=1e-5)
            for key, value in profile(made_up).values.items() if key in profile(default).values
        )


def test_a_field_matters_only_where_a_row_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = Config.specs()
    for name, field, idle, used in (
        ("alpha", "residual", "rezero", "scaled_skip"), ("norm", "norm_placement", "none", "mix"),
        ("qk_norm", "attention", "none", "softmax"), ("input_correlation", "input", "text", "correlated"),
    ):
        assert unused(specs[name], Config(**{field: idle})), name
        assert not unused(specs[name], Config(**{field: used})), name
    monkeypatch.setitem(RESIDUALS, "made_up", ResidualRule(
        *WORDS, ("alpha",), multipliers=lambda config: Multipliers(1.0, config.alpha / 2)))
    assert not unused(specs["alpha"], Config(residual="made_up"))


def test_every_placement_that_has_norms_uses_the_norm() -> None:
    for name, rule in PLACEMENTS.items():
        assert rule.normalizes == ("norm" in rule.uses), name
