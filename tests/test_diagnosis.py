"""Diagnosis: the right verdict for designs whose fate is known, and a mend that mends."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer import Config, Finding, diagnose, measure

BASE = Config(d_model=128, n_heads=2, n_seeds=1)

SICK: list[tuple[dict[str, Any], str, str]] = [
    ({"attention_scale": "none"}, "bad", "Attention is close to one-hot"),
    ({"norm_placement": "post", "n_layers": 24}, "warning", "The gradient is V-shaped"),
    ({"norm_placement": "none", "init_variance": 4.0}, "bad", "The signal explodes"),
    ({"norm_placement": "none", "init_variance": 30.0, "n_layers": 48}, "bad", "The signal stops being a number"),
    ({"norm_placement": "none", "residual": "absent", "init_variance": 0.01}, "bad", "The signal dies out"),
    ({"norm_placement": "none", "residual": "inverse_depth", "residual_attention": "qk", "n_layers": 24}, "bad",
     "Attention is close to one-hot"),
    ({"residual": "absent"}, "warning", "The gradient is V-shaped"),
    ({"alpha": 4.0, "n_layers": 24}, "warning", "The gradient explodes"),
    ({"norm_placement": "post", "residual": "absent", "n_layers": 48}, "warning", "The gradient is V-shaped"),
]


@pytest.mark.parametrize(("choices", "severity", "meaning"), SICK)
def test_the_verdict_and_its_mend(choices: dict[str, Any], severity: str, meaning: str) -> None:
    config = BASE.replace(**choices)
    first = diagnose(measure(config))[0]
    assert (first.severity, first.meaning[: len(meaning)]) == (severity, meaning)
    assert first.evidence.endswith(".")
    assert first.remedy
    mended = config.replace(**first.config_change)
    assert mended != config
    after = diagnose(measure(mended))
    assert first.meaning not in [finding.meaning for finding in after]
    assert "bad" not in [finding.severity for finding in after]


@pytest.mark.parametrize(
    "choices",
    [{}, {"norm_placement": "peri"}, {"norm_placement": "post", "residual": "deepnorm", "n_layers": 24},
     {"residual": "inverse_sqrt_depth", "norm_placement": "none", "n_layers": 48},
     *({"residual": rule, "norm_placement": "none"} for rule in ("rezero", "skipinit", "fixup", "t_fixup")),
     {"attention": "none", "norm_placement": "post"}, {"norm_placement": "scaled_pre"}],
)
def test_a_sound_design_gets_one_good_word_and_no_button(choices: dict[str, Any]) -> None:
    findings = diagnose(measure(BASE.replace(**choices)))
    assert [(found.severity, found.remedy, dict(found.config_change)) for found in findings] == [("good", "", {})]


def test_rezero_is_told_why_its_weights_get_no_gradient() -> None:
    assert "W_Q, W_K, W_V, W_O, W_in, W_out get no gradient at all; α does" in diagnose(
        measure(BASE.replace(residual="rezero"))
    )[0].evidence
    assert "W_Q, W_K, W_V, W_in get no gradient at all; W_out does" in diagnose(
        measure(BASE.replace(residual="fixup", norm_placement="none"))
    )[0].evidence


def test_the_most_serious_comes_first() -> None:
    findings = diagnose(measure(BASE.replace(norm_placement="none", init_variance=4.0)))
    order = [("bad", "warning", "good").index(finding.severity) for finding in findings]
    assert order == sorted(order)
    assert len(order) > 1


def test_a_model_that_is_not_ours_gets_evidence_and_no_change() -> None:
    """The same numbers without a config: a verdict still, but no field to turn."""
    profile = measure(BASE.replace(attention_scale="none"))
    findings = diagnose(replace(profile, config=None))
    assert findings[0].meaning.startswith("Attention is close to one-hot")
    assert not any(finding.config_change for finding in findings)


def test_a_healthy_profile_with_one_sick_layer_is_found_out() -> None:
    """The rule reads the numbers: an infinity put into a healthy profile changes the verdict."""
    profile = measure(BASE)
    values = {**profile.values, ("second_moment", "mlp_out"): np.full((1, 12), np.inf)}
    first = diagnose(replace(profile, values=values))[0]
    assert first == Finding("bad", first.meaning, first.evidence, first.remedy, first.config_change)
    assert "MLP output, layer 1" in first.evidence
