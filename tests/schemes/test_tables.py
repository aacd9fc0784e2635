"""A design is one row: rows that are made up here work in model, theory, options and controls."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import Config, ConfigError, Recipe, measure, predict, preset, solve
from explorer.app.explore.selections import NamedDesigns
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.wording import unused
from explorer.fields import Option
from explorer.schemes.activation import ACTIVATIONS, Activation
from explorer.schemes.attention import (
    ATTENTION_GATES,
    ATTENTIONS,
    DIVISORS,
    INHERITANCES,
    NORMALIZED,
    SINKS,
    AttentionKind,
    Divisor,
    Inheritance,
    Normalized,
    OutputGate,
    Sink,
)
from explorer.schemes.data import (
    INPUTS,
    LOSSES,
    POSITIONS,
    READOUTS,
    Input,
    Loss,
    Position,
    Readout,
)
from explorer.schemes.distribution import DISTRIBUTIONS, LAYER_WEIGHTS, Distribution, LayerWeights
from explorer.schemes.mlp import MLPS, MLPKind
from explorer.schemes.parametrization import MUP, PARAMETRIZATIONS, Parametrization
from explorer.schemes.placement import (
    FINAL_NORMS,
    NORMS,
    PLACEMENTS,
    FinalNorm,
    Norm,
    PlacementRule,
    normed,
)
from explorer.schemes.preset import GROUPS, PRESETS, Preset
from explorer.schemes.residual import RESIDUALS, STREAMS, ResidualRule, Rule, StreamRule
from explorer.schemes.scale import BIASES, SCALE_RULES, Biased, ScaleRule
from explorer.sites import STREAM

SIZES = {"n_layers": 3, "d_model": 128, "n_heads": 4, "n_ctx": 16, "batch_size": 2, "n_seeds": 12}
WORDS = ("made up", "nobody")

ROWS: dict[str, tuple[dict[str, Any], Option]] = {
    "norm_placement": (
        PLACEMENTS,
        PlacementRule(  # wherever one may be but on the branch's output
            *WORDS,
            sublayer=lambda index, n_layers: normed(
                "input", "sum", "read", *([] if index % 2 else ["heads"]), skip=0.7
            ),
            final=False,
        ),
    ),
    "norm": (NORMS, Norm(*WORDS, ("norm_alpha",), title="ELU", short="ELU", point="elu")),
    "residual": (RESIDUALS, ResidualRule(*WORDS, multipliers=lambda config: Rule(0.8, 0.6))),
    "stream": (STREAMS, StreamRule(*WORDS, parallel=True)),
    "scale_rule": (
        SCALE_RULES,
        ScaleRule(*WORDS, variance=lambda config, matrix, fan_in, fan_out: 1.3 / fan_in),
    ),
    "activation": (
        ACTIVATIONS,
        Activation(
            *WORDS, value=lambda x: np.sin(x), slope=lambda x: np.cos(x), torch=lambda F, z: z.sin()
        ),
    ),
    "mlp": (MLPS, MLPKind(*WORDS, gated=True, shift=2.0)),
    "attention_scale": (
        DIVISORS,
        Divisor(
            *WORDS, short="q·k", of=lambda d_head: 0.5 * d_head**0.75, row=lambda config, n: n**0.1
        ),
    ),
    "qk_norm_over": (NORMALIZED, Normalized(*WORDS, joins=True)),
    "position": (POSITIONS, Position(*WORDS, rotates=True, embeds_vectors=True)),
    "residual_attention": (INHERITANCES, Inheritance(*WORDS, adds="scores")),
    "attention": (ATTENTIONS, AttentionKind(*WORDS, present=False)),
    "sink": (SINKS, Sink(*WORDS, logit=2.0)),
    "attention_gate": (ATTENTION_GATES, OutputGate(*WORDS, per_head=lambda d_head: d_head // 2)),
    "final_norm": (FINAL_NORMS, FinalNorm(*WORDS, present=lambda rule: not rule.final)),
    "distribution": (DISTRIBUTIONS, Distribution(*WORDS, transform=lambda z: z.sign_())),
    "layer_weights": (LAYER_WEIGHTS, LayerWeights(*WORDS, unique=lambda config: 1)),
    "parametrization": (PARAMETRIZATIONS, Parametrization(*WORDS, scales_forward=True, powers=MUP)),
    "input": (INPUTS, Input(*WORDS, overlap=lambda config: 0.3)),
    "loss": (LOSSES, Loss(*WORDS, predicts=True)),
    "readout": (
        READOUTS,
        Readout(*WORDS, tied=True, variance=lambda d, embedded: 2 * embedded / d),
    ),
    "biases": (BIASES, Biased(*WORDS, attention=True)),
}
NEEDS: dict[str, dict[str, Any]] = {
    "loss": {"input": "text"},
    "qk_norm_over": {"qk_norm": True},
    "biases": {"bias_variance": 64.0},
    "readout": {"input": "text", "loss": "next_token"},
}
"""Choices that a row cannot do without."""
WITHOUT_LAW = {"distribution"}
"""Fields that the theory does not read: it knows a weight by its variance alone."""


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
    controls = Controls(Config(**NEEDS.get(field, {})))
    described = {item["name"]: item for section in controls.sections for item in section["fields"]}
    assert {"value": "made_up", "label": "made up", "formula": "made up", "source": "nobody"} in (
        described[field]["options"]
    )
    controls.apply({field: "made_up"})
    assert (controls.refusal, getattr(controls.config, field)) == ("", "made_up")


def test_an_added_row_is_built_and_predicted(field: str) -> None:
    """Second moments, overlaps and gradients, to five standard errors and 5 % of what the first
    order leaves out."""
    config = Config(**SIZES, **NEEDS.get(field, {}), **{field: "made_up"})
    measured, predicted = measure(config), predict(config)
    for statistic in ("second_moment", "token_correlation", "activation_gradient"):
        if statistic in predicted.notes:
            continue
        for site in STREAM:
            found, expected = measured[statistic, site], predicted[statistic, site][0]
            error = found.std(0, ddof=1) / np.sqrt(len(found))
            scale = 1.0 if statistic == "token_correlation" else expected
            assert (abs(found.mean(0) - expected) <= 5 * error + 0.05 * scale).all(), (
                statistic,
                site,
                expected,
            )


def test_an_added_row_differs_from_the_default(field: str) -> None:
    """A row that the theory or the model passed over would leave the default's numbers."""
    default = Config(**{**SIZES, "n_seeds": 1}, **NEEDS.get(field, {}))
    made_up = default.replace(**{field: "made_up"})
    for profile in (measure,) if field in WITHOUT_LAW else (predict, measure):
        there = profile(default).values
        assert any(
            not np.allclose(value, there[key], rtol=1e-5)
            for key, value in profile(made_up).values.items()
            if key in there
        )


def test_every_preset_is_in_a_group() -> None:
    assert {row.group for row in PRESETS.values()} <= {*GROUPS}
    assert PRESETS["gpt2"].group == "model"


def test_an_added_preset_is_a_design_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PRESETS, "made_up", Preset("Made up", "mlp", "of nothing", {"alpha": 0.3}, "nobody")
    )
    assert preset("made_up", n_layers=3) == Config(alpha=0.3, n_layers=3)
    picker = NamedDesigns(preset("made_up"), lambda changes: None)
    assert picker.values == {"preset": "made_up"}
    assert "made_up" in {option["value"] for option in picker.sections[0]["fields"][0]["options"]}


def test_a_field_matters_only_where_a_row_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = Config.specs()
    for name, field, idle, used in (
        ("alpha", "residual", "rezero", "scaled_skip"),
        ("norm", "norm_placement", "none", "mix"),
        ("qk_norm", "attention", "none", "softmax"),
        ("input_correlation", "input", "text", "correlated"),
        ("biases", "bias_variance", 0.0, 1.0),
        ("biases", "bias_variance", 0.0, 0.3),
    ):
        assert unused(specs[name], Config(**{field: idle})), name
        assert not unused(specs[name], Config(**{field: used})), name
    text = Config(input="text", loss="next_token")
    assert unused(specs["readout"], Config()) == "used when loss = next token; it is linear"
    assert unused(specs["biases"], Config()) == "used when bias variance > 0; it is 0"
    assert not unused(specs["readout"], text)
    monkeypatch.setitem(
        RESIDUALS,
        "made_up",
        ResidualRule(*WORDS, ("alpha",), multipliers=lambda config: Rule(1.0, config.alpha / 2)),
    )
    assert not unused(specs["alpha"], Config(residual="made_up"))


@pytest.mark.parametrize(
    "base",
    [
        {"norm_placement": "none", "qk_norm": True},
        {"norm_placement": "none"},
        {"residual": "admin"},
        {"attention": "none"},
        {"input": "text"},
        {"input": "correlated", "residual": "scaled_skip"},
    ],
    ids=str,
)
def test_a_field_that_is_said_not_to_matter_changes_nothing(base: dict[str, Any]) -> None:
    """And one that matters is not said to be idle: the norm still divides queries and keys where no
    layer has one."""
    config = Config(n_layers=2, d_model=32, n_ctx=8, n_seeds=1, **base)
    expected = measure(config).values
    for name, spec in Config.specs().items():
        other = next(
            (
                value
                for value in (*spec.choices, not spec.default)
                if value != getattr(config, name)
            ),
            None,
        )
        if spec.kind in ("integer", "number"):
            other = type(spec.default)(spec.high / 2)
        if unused(spec, config) and config.accepts(**{name: other}):
            found = measure(config.replace(**{name: other})).values
            assert all(np.array_equal(found[key], value) for key, value in expected.items()), (
                name,
                other,
            )
    idle = {name for name, spec in Config.specs().items() if unused(spec, config)}
    assert ("norm" in idle) == (config.norm_placement == "none" and not config.qk_norm)


def test_rows_use_what_their_law_reads() -> None:
    for name, rule in PLACEMENTS.items():
        assert (rule.uses == ("norm",)) == (name != "none"), name
    for name, residual in RESIDUALS.items():
        small, large = (
            Config(residual=name, alpha=alpha, norm_placement="post").design.rule
            for alpha in (0.5, 2.0)
        )
        assert (small != large) == ("alpha" in residual.uses), name
    for name, row in INPUTS.items():
        low, high = (
            row.overlap(Config(input=name, input_correlation=value)) for value in (0.1, 0.9)
        )
        assert (low != high) == ("input_correlation" in row.uses), name

    for name, divisor in DIVISORS.items():
        weak, strong = (divisor.row(Config(ssmax_scale=s), 8) for s in (0.1, 1.0))
        assert (weak != strong) == ("ssmax_scale" in divisor.uses), name
    for name, position in POSITIONS.items():
        assert (position.uses == ("rope_base", "rope_fraction")) == position.rotates, name


def test_a_field_does_not_matter_where_what_uses_it_does_not() -> None:
    specs = Config.specs()
    for choices, idle in (
        ({}, {"norm_alpha"}),
        ({"norm": "dyt"}, {"norm_epsilon"}),
        ({"norm": "dyt", "norm_placement": "none"}, {"norm", "norm_epsilon", "norm_alpha"}),
        ({"norm_placement": "none", "qk_norm": True}, {"norm_alpha"}),
    ):
        config = Config(**choices)
        assert {
            name for name in ("norm", "norm_epsilon", "norm_alpha") if unused(specs[name], config)
        } == idle


def test_a_rule_whose_branches_are_multiplied_by_alpha_is_solved_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        RESIDUALS,
        "made_up",
        ResidualRule(*WORDS, ("alpha",), multipliers=lambda config: Rule(1.0, config.alpha / 2)),
    )
    config = Config(residual="made_up", norm_placement="post")
    half, whole = (
        solve(one, "alpha", "flat_gradient").config
        for one in (config, config.replace(residual="constant"))
    )
    assert half.residual == "made_up"
    assert half.alpha == pytest.approx(2 * whole.alpha, rel=1e-2)
    assert (
        solve(config.replace(residual="scaled_skip"), "alpha", "flat_gradient").config.residual
        == "constant"
    )


def test_a_scale_in_the_forward_pass_changes_what_a_weight_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same signal; the gradient by the stored weight is σ times the usual one, measured and
    predicted."""
    monkeypatch.setitem(
        PARAMETRIZATIONS, "made_up", Parametrization(*WORDS, scales_forward=True, powers=MUP)
    )
    usual, made_up = Config(**SIZES), Config(**SIZES, parametrization="made_up")
    for profile in (measure, predict):
        before, after = profile(usual), profile(made_up)
        for name, matrix in usual.design.matrices.items():
            np.testing.assert_allclose(
                after["parameter_gradient", name],
                before["parameter_gradient", name] * matrix.variance**0.5,
                rtol=1e-3,
            )


def test_nothing_decides_by_the_name_of_a_row() -> None:
    """No module compares a choice of a config or recipe with a name."""
    fields = {
        name for kind in (Config, Recipe) for name, spec in kind.specs().items() if spec.choices
    }
    package = Path(explorer.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare):
                continue
            inner = list(ast.walk(node))
            choices = {
                ast.unparse(one)
                for one in inner
                if isinstance(one, ast.Attribute) and one.attr in fields
            }
            words = [
                one.value
                for one in inner
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            assert not (words and choices), f"{path}:{node.lineno} {ast.unparse(node)}"
