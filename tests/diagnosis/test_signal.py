"""Diagnosis: the right verdict for designs whose fate is known, and a remedy that fixes them."""

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.table import SIZES
from explorer import Config, ConfigError, Finding, Profile, diagnose, measure, preset
from explorer.diagnosis import token_difference
from explorer.diagnosis.remedies import STEPS, Candidates, Step, remedy
from explorer.diagnosis.signal import healthy, runs_away
from explorer.schemes.placement import PLACEMENTS
from explorer.schemes.residual import RESIDUALS
from explorer_race.tasks import Task

BASE = Config(d_model=128, n_heads=2, n_seeds=1)


def kind(finding: Finding) -> str:
    """A finding's sentence without its numbers."""
    return finding.meaning.partition(":")[0]


SICK: list[tuple[dict[str, Any], str, str]] = [
    ({"attention_scale": "none"}, "bad", "Attention starts close to one-hot"),
    ({"norm_placement": "post", "n_layers": 24}, "bad", "The tokens become alike"),
    (
        {"norm_placement": "post", "n_layers": 24, "alpha": 0.27},
        "warning",
        "The tokens become more alike",
    ),
    (
        {"norm_placement": "post", "residual": "admin", "n_layers": 48},
        "bad",
        "The tokens become alike",
    ),
    ({"alpha": 0.0}, "bad", "Nothing learns."),
    ({"norm_placement": "none", "init_variance": 4.0}, "bad", "The signal explodes"),
    (
        {"norm_placement": "none", "init_variance": 30.0, "n_layers": 48},
        "bad",
        "The signal stops being finite",
    ),
    (
        {"norm_placement": "none", "residual": "absent", "init_variance": 0.01},
        "bad",
        "The signal dies out",
    ),
    (
        {
            "norm_placement": "none",
            "residual": "inverse_depth",
            "residual_attention": "qk",
            "n_layers": 24,
        },
        "bad",
        "Attention starts close to one-hot",
    ),
    ({"residual": "absent"}, "bad", "The tokens become alike"),
    (
        {"norm_placement": "post", "residual": "absent", "n_layers": 48},
        "bad",
        "The tokens become alike",
    ),
    ({"residual": "scaled_skip", "alpha": 0.5}, "bad", "The tokens become alike"),
    ({"residual": "scaled_skip", "alpha": 4.0}, "bad", "The signal explodes"),
]


@pytest.mark.parametrize(
    "choices",
    [
        {"input_second_moment": 8e-4},
        {"input_second_moment": 8e-4, "scale_rule": "gpt2", "causal": True},
        {"input_second_moment": 1e8},
        {"input_second_moment": 1e-6, "norm_placement": "post", "residual": "deepnorm"},
        {"input_second_moment": 1e-6, "norm_placement": "none", "residual": "inverse_sqrt_depth"},
    ],
)
def test_an_input_of_another_size_than_the_branches_is_no_disease(choices: dict[str, Any]) -> None:
    assert [finding.severity for finding in diagnose(measure(BASE.replace(**choices)))] == ["good"]


def test_what_a_small_input_loses_is_measured_beside_the_first_layer() -> None:
    """Attention's average replaces tokens of 1e-8; without a norm before branches nothing is
    lost."""
    found = diagnose(measure(BASE.replace(input_second_moment=1e-8)))[0]
    assert (found.severity, kind(found)) == ("bad", "The tokens become alike")


@pytest.mark.parametrize("n_layers", [6, 12])
def test_tokens_beside_which_branches_are_large_are_not_lost(n_layers: int) -> None:
    """Small embeddings beside branches of size 1, in a model whose config is not ours:
    `docs/training.csv` has Gemma 2 of both depths train."""
    ours = measure(Task().fit(preset("gemma2", n_layers=n_layers, **SIZES)))
    assert token_difference(ours).min() < 0.42
    profile = replace(ours, config=None)
    (found,) = diagnose(profile)
    assert found.severity == "good"
    assert not any("token difference" in number.name for number in found.numbers)


def handmade(signal: float, gradient: float, layers: int = 4) -> Profile:
    """A stack after which the second moment is so many times the input's, and at whose input the
    gradient is so many times the output's."""
    depth = np.arange(layers + 1) / layers
    q, gamma = signal**depth, gradient ** (1 - depth)
    return Profile(
        "measured",
        {
            ("second_moment", "embed"): q[None, :1],
            ("second_moment", "resid_post"): q[None, 1:],
            ("activation_gradient", "embed"): gamma[None, :1],
            ("activation_gradient", "resid_post"): gamma[None, 1:],
        },
    )


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (4.0, "grows 4 ×"),
        (0.25, "shrinks 4 ×"),
        (1.02, "is level"),
        (1 / 1.02, "is level"),
    ],
)
def test_a_healthy_change_is_said_by_its_larger_side(ratio: float, words: str) -> None:
    assert f"signal {words}" in healthy(handmade(ratio, 1.0)).meaning
    assert f"gradient {words}" in healthy(handmade(1.0, ratio)).meaning


@pytest.mark.parametrize(("layers", "limit"), [(4, 1000), (100, 1000), (200, 1604), (1000, 8004)])
def test_growth_is_judged_by_four_times_what_unit_branches_add(layers: int, limit: float) -> None:
    """Each of the 2 L branches adds at most the second moment of the input; below 1,000 × nothing
    is said."""
    assert runs_away(handmade(0.99 * limit, 1.0, layers)) is None
    found = runs_away(handmade(1.01 * limit, 1.0, layers))
    assert found is not None
    assert found.severity == "bad"
    assert runs_away(handmade(1.01 / 1000, 1.0, layers)) is None
    assert runs_away(handmade(0.99 / 1000, 1.0, layers)) is not None, "what shrinks has one limit"


def test_branches_of_one_size_are_no_explosion() -> None:
    """A small input and norms whose ε is above its first branches, as OLMo 2 starts; it trains."""
    stream = np.array([0.0027, 0.049, 0.67, 2.3, 4.6, 6.5])
    branches = np.array([0.0022, 0.044, 0.63, 1.2, 1.7, 1.75])
    values = {
        ("second_moment", "embed"): np.array([[4e-4]]),
        ("second_moment", "resid_post"): stream[None],
        ("second_moment", "attn_out"): branches[None],
    }
    assert [found.severity for found in diagnose(Profile("measured", values))] == ["good"]
    grown = np.geomspace(0.0027, 6.5, 6)[None]
    values |= {("second_moment", "resid_post"): grown, ("second_moment", "attn_out"): grown / 2}
    assert diagnose(Profile("measured", values))[0].meaning.startswith("The signal explodes")


@pytest.mark.parametrize(("choices", "severity", "meaning"), SICK)
def test_the_verdict_and_its_remedy(choices: dict[str, Any], severity: str, meaning: str) -> None:
    config = BASE.replace(**choices)
    first = diagnose(measure(config))[0]
    assert (first.severity, first.meaning[: len(meaning)]) == (severity, meaning)
    assert first.evidence.endswith(".")
    assert first.remedy
    fixed = config.replace(**first.config_change)
    assert fixed != config
    after = diagnose(measure(fixed))
    assert kind(first) not in map(kind, after)
    assert "bad" not in [finding.severity for finding in after]


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"norm_placement": "peri"},
        {"n_layers": 48, "input": "text", "causal": True},
        {"alpha": 4.0, "n_layers": 24},
        {"norm_placement": "peri", "n_layers": 48},
        {"norm_placement": "branch_output", "n_layers": 48, "qk_norm": True},
        {"norm_placement": "post", "init_variance": 0.01, "n_layers": 24},
        {"norm_placement": "post", "residual": "deepnorm", "n_layers": 24},
        {"residual": "inverse_sqrt_depth", "norm_placement": "none", "n_layers": 48},
        *(
            {"residual": rule, "norm_placement": "none"}
            for rule in ("rezero", "skipinit", "fixup", "t_fixup")
        ),
        {"attention": "none", "norm_placement": "post"},
        {"norm_placement": "scaled_pre"},
    ],
)
def test_a_sound_design_gets_one_good_word_and_no_button(choices: dict[str, Any]) -> None:
    findings = diagnose(measure(BASE.replace(**choices)))
    assert [(found.severity, found.remedy, dict(found.config_change)) for found in findings] == [
        ("good", "", {})
    ]


def test_rezero_is_told_why_its_weights_get_no_gradient() -> None:
    assert (
        "W_Q, W_K, W_V, W_O, W_in, W_out get no gradient at all; α does"
        in diagnose(measure(BASE.replace(residual="rezero")))[0].evidence
    )
    assert (
        "W_Q, W_K, W_V, W_in get no gradient at all; W_out does"
        in diagnose(measure(BASE.replace(residual="fixup", norm_placement="none")))[0].evidence
    )


def test_the_most_serious_comes_first() -> None:
    findings = diagnose(measure(BASE.replace(norm_placement="none", init_variance=4.0)))
    order = [("bad", "warning", "good").index(finding.severity) for finding in findings]
    assert order == sorted(order)
    assert len(order) > 1


def test_a_model_that_is_not_ours_gets_evidence_and_no_change() -> None:
    """The same numbers without a config: a verdict still, but no field to turn."""
    profile = measure(BASE.replace(attention_scale="none"))
    findings = diagnose(replace(profile, config=None))
    assert findings[0].meaning.startswith("Attention starts close to one-hot")
    assert not any(finding.config_change for finding in findings)


def test_a_healthy_profile_with_one_sick_layer_is_found_out() -> None:
    """The rule reads the numbers: an infinity put into a healthy profile changes the verdict."""
    profile = measure(BASE)
    values = {**profile.values, ("second_moment", "mlp_out"): np.full((1, 12), np.inf)}
    first = diagnose(replace(profile, values=values))[0]
    assert first == Finding(
        "bad", first.meaning, first.evidence, first.remedy, first.config_change, "", first.numbers
    )
    assert "MLP output, layer 1" in first.evidence


def test_nothing_learns_where_the_matrices_are_zero() -> None:
    """Exact zeros in every matrix, or in one layer's; ReZero's, beside an α that learns, are
    another matter."""
    profile = measure(BASE)
    gradients = [key for key in profile.values if key[0] == "parameter_gradient"]
    every = diagnose(
        replace(profile, values={**profile.values, **{key: np.zeros((1, 12)) for key in gradients}})
    )
    assert [(found.severity, found.meaning, found.remedy) for found in every] == [
        ("bad", "Nothing learns.", "")
    ]
    one = {key: profile[key] * (np.arange(12) != 4) for key in gradients}
    first = diagnose(replace(profile, values={**profile.values, **one}))[0]
    assert (first.severity, first.meaning) == ("bad", "Some layers do not learn.")
    assert "1 of 12 layers, the first of them 5" in first.evidence


def test_what_is_kept_is_the_part_in_which_tokens_differ() -> None:
    profile = measure(BASE.replace(norm_placement="post"))
    q, rho = (profile.stream(name)[1][0] for name in ("second_moment", "token_correlation"))
    share = token_difference(profile)
    np.testing.assert_allclose(share, q * (1 - rho) / (q[0] * (1 - rho[0])))
    assert not len(
        token_difference(measure(BASE.replace(input="correlated", input_correlation=1.0)))
    )


SMALL = Config(d_model=32, n_heads=2, n_ctx=16, batch_size=2, n_seeds=1)
EARLIER = [name for name in RESIDUALS if name != "looped"]
"""Without the rule that came last, with which the other designs would be paired anew."""
TRIED = [
    SMALL.replace(
        norm_placement=placement, residual=residual, n_layers=depth, init_variance=variance, **more
    )
    for (placement, residual, (depth, variance)), more in zip(
        product(PLACEMENTS, EARLIER, ((4, 1.0), (24, 1.0), (24, 0.01), (12, 30.0))),
        np.resize(
            [
                {},
                {"attention_scale": "none"},
                {"alpha": 4.0},
                {"residual_attention": "scores"},
                {"alpha": 0.1},
                {"qk_norm": True},
                {"residual_attention": "qk", "causal": True},
            ],
            1000,
        ),
        strict=False,
    )
    if SMALL.accepts(norm_placement=placement, residual=residual)
]
"""Designs of all kinds, sound and sick."""
LOOPED = [
    SMALL.replace(
        layer_weights="looped", residual="looped", n_layers=12, init_variance=variance, **more
    )
    for variance in (1.0, 30.0)
    for more in ({}, {"alpha": 4.0}, {"attention_scale": "none"})
]
FUNCTIONS = [
    SMALL.replace(norm="dyt", norm_placement=placement, n_layers=12, init_variance=variance, **more)
    for placement in ("pre", "peri", "post")
    for variance in (1.0, 30.0)
    for more in ({"attention_scale": "none"}, {"residual_attention": "scores"})
]
"""Designs with a function in the norms' place, where there is one."""
WORDS = {(step.field, step.value): step.words for step in STEPS.values()}


@pytest.mark.parametrize("step", STEPS.values(), ids=lambda step: f"{step.field}-{step.value}")
def test_every_step_is_one_that_a_config_takes(step: Step) -> None:
    assert getattr(BASE.replace(**{step.field: step.value}), step.field) == step.value


def test_a_remedy_is_the_first_candidate_that_changes_a_design_and_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(STEPS, "peri", Step("norm_placement", "peri", "refused"))

    def candidates(config: Config) -> Candidates:
        return [("unit_variance",), ("peri",), ("qk_norm", "unit_variance")]

    fixup = BASE.replace(residual="fixup")
    with pytest.raises(ConfigError):
        fixup.replace(norm_placement="peri")
    assert remedy(fixup, candidates) == ("Normalize queries and keys", {"qk_norm": True}, "")
    assert remedy(BASE.replace(qk_norm=True, residual="fixup"), candidates) == ("", {}, "")


@pytest.mark.parametrize(
    "config",
    TRIED[::5] + FUNCTIONS + LOOPED,
    ids=lambda one: f"{one.norm_placement}-{one.residual}-{one.n_layers}",
)
def test_every_sentence_reads_well_and_every_remedy_fixes_what_it_names(config: Config) -> None:
    for finding in diagnose(measure(config)):
        told = f"{finding.meaning} {finding.evidence} {finding.remedy}"
        assert not re.search(r"\de[+-]\d", told), told
        assert all(
            float(share.replace(",", "")) <= 100
            for share in re.findall(r"(?<![\d⁻·])([\d.,]+) %", told)
        ), told
        assert finding.evidence.endswith(".") or (finding.numbers and not finding.evidence)
        assert len(finding.meaning.split()) <= 14, finding
        if finding.severity == "good":
            assert not finding.config_change
            continue
        assert finding.remedy
        words = [WORDS[step] for step in finding.config_change.items()]
        assert finding.remedy == ". ".join(words)
        after = diagnose(measure(config.replace(**finding.config_change)))
        assert kind(finding) not in map(kind, after), (config, finding)
