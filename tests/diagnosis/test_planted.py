"""One mistake planted in a torch model: the finding names the layer, what is wrong there, and a
line that fixes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mistakes import model, profiled
from torch import nn

from explorer import Profile, diagnose
from explorer.diagnosis import CAUSES
from explorer.diagnosis.structure import no_norm_on_sum, no_residual

AT = 6
"""Index of the layer with the mistake: layer 7, block h.6."""


def scale(name: str, factor: float) -> Callable[[nn.ModuleList], None]:
    return lambda blocks: blocks[AT].get_submodule(name).weight.data.mul_(factor)


def forget(name: str) -> Callable[[nn.ModuleList], None]:
    return lambda blocks: setattr(blocks[AT], name, False)


PLANTED: list[tuple[str, Callable[[nn.ModuleList], None], dict[str, Any], str, str]] = [
    (
        "W_out × 1.66",
        scale("W_out", 1.66),
        {},
        "Layer 7 (h.6) has weights unlike its siblings'.",
        "second moment of the MLP output leaves the line",
    ),
    ("W_V / 2", scale("W_V", 0.5), {}, "Layer 7 (h.6) has weights", "W_V is 1.9"),
    (
        "W_Q × 2",
        scale("W_Q", 2.0),
        {},
        "Layer 7 (h.6) has weights",
        "spread of the attention logits leaves the line",
    ),
    (
        "fan_out",
        scale("W_out", 2.0),
        {},
        "Layer 7 (h.6) has weights",
        "fan_out 64 for fan_in 256 does this",
    ),
    ("no √d", forget("divided"), {}, "Layer 7 (h.6) does not divide its logits by √d.", "√16 is 4"),
    (
        "no √d, Post-LN",
        forget("divided"),
        {"post": True},
        "Layer 7 (h.6) does not divide",
        "√16 is 4",
    ),
    (
        "no norm",
        forget("normed"),
        {},
        "Layer 7 (h.6) may leave out the norm before a branch.",
        "would without one",
    ),
    (
        "no norm on the sum",
        forget("summed"),
        {"post": True},
        "Layer 7 (h.6) leaves out the norm after the sum.",
        "1 in all other layers",
    ),
    (
        "no residual, attention",
        forget("attention_added"),
        {},
        "Layer 7 (h.6) leaves out a residual connection.",
        "of the attention output alone",
    ),
    (
        "no residual, MLP",
        forget("mlp_added"),
        {},
        "Layer 7 (h.6) leaves out a residual",
        "of the MLP output alone",
    ),
    (
        "no residual, Post-LN",
        forget("attention_added"),
        {"post": True},
        "Layer 7 (h.6) may leave out a residual",
        "of 1 − ρ",
    ),
    ("dead", scale("W_out", 0.0), {}, "A branch of layer 7 (h.6) is dead.", "as W_out is"),
]


@pytest.mark.parametrize(
    ("plant", "choices", "meaning", "evidence"),
    [row[1:] for row in PLANTED],
    ids=[row[0] for row in PLANTED],
)
def test_a_mistake_in_one_layer_is_named(
    plant: Callable[[nn.ModuleList], None], choices: dict[str, Any], meaning: str, evidence: str
) -> None:
    blocks = model(**choices)
    plant(blocks)
    first = diagnose(profiled(blocks))[0]
    assert first.meaning.startswith(meaning)
    assert evidence in first.evidence
    assert first.evidence.endswith(".")
    assert first.remedy
    assert not first.config_change
    compile(first.code, "remedy", "exec")


@pytest.mark.parametrize("choices", [{}, {"post": True}, {"std": 0.02}, {"std": 0.3}], ids=str)
@pytest.mark.parametrize("n_layers", [1, 2, 3, 4, 7, 12, 24])
def test_healthy_blocks_have_no_cause(n_layers: int, choices: dict[str, Any]) -> None:
    profile = profiled(model(n_layers, seed=n_layers, **choices))
    assert [rule(profile) for rule in CAUSES] == [None] * len(CAUSES)
    assert diagnose(profile)


def test_the_line_of_torch_fixes_what_it_names() -> None:
    """The code that the finding prints is run on the model, and the finding is gone."""
    blocks = model()
    scale("W_out", 1.66)(blocks)
    code = diagnose(profiled(blocks))[0].code
    torch.manual_seed(1)
    exec(code, {"nn": nn, "W_out": blocks[AT].W_out})  # noqa: S102
    assert diagnose(profiled(blocks))[0].severity == "good"


@pytest.mark.parametrize("layers", [(0,), (11,), (3, 8)])
def test_mistakes_at_the_ends_and_in_two_layers(layers: tuple[int, ...]) -> None:
    blocks = model()
    for layer in layers:
        blocks[layer].W_in.weight.data.mul_(2.0)
    first = diagnose(profiled(blocks))[0]
    assert all(f"h.{layer}" in first.meaning + first.evidence for layer in layers)


def test_what_a_probe_does_not_see_is_left_out() -> None:
    """Without attention, without the stream's middle, without weights: rules that need them are
    silent, others hold."""
    blocks = model()
    scale("W_out", 3.0)(blocks)
    profile = profiled(blocks)
    for lacking in (
        {"attn_scores", "pattern"},
        {"resid_mid"},
        {"embed"},
        {"resid_mid", "attn_out", "mlp_out"},
        {"embed", "resid_mid", "resid_post"},
    ):
        found = diagnose(
            profiled(
                blocks,
                values={
                    key: value for key, value in profile.values.items() if key[1] not in lacking
                },
            )
        )
        assert found[0].meaning.startswith("Layer 7 (h.6) has weights"), lacking
    bare = {key: value for key, value in profile.values.items() if not key[0].startswith("weight")}
    assert (
        diagnose(profiled(blocks, values=bare))[0].meaning
        == "Layer 7 (h.6) has a branch unlike its siblings'."
    )
    for statistic in (
        "second_moment",
        "token_correlation",
        "activation_gradient",
        "weight_variance",
    ):
        only = {key: value for key, value in profile.values.items() if key[0] == statistic}
        assert diagnose(profiled(blocks, values=only))


def test_copies_are_told_and_shared_layers_are_not() -> None:
    blocks = model()
    for block in blocks:
        block.load_state_dict(blocks[0].state_dict())
    assert diagnose(profiled(blocks))[0].meaning == "All 12 layers start as copies of one another."
    assert diagnose(profiled(blocks, layers=("group.0",) * 12))[0].severity == "good"
    some = model()
    for block in some[:3]:
        block.load_state_dict(some[0].state_dict())
    first = diagnose(profiled(some))[0]
    assert first.meaning == "3 of 12 layers start as copies of one another."
    assert "layer 1 (h.0), layer 2 (h.1), layer 3 (h.2)" in first.evidence


def test_a_fan_that_was_taken_for_the_other() -> None:
    """W_in alone by the wrong side; W_out only where the signal suffers, for a constant std looks
    the same."""
    narrow, wide, explodes = model(), model(), model()
    for block in narrow:
        block.W_in.weight.data.mul_(0.5)
    for block in (*wide, *explodes):
        block.W_out.weight.data.mul_(2.0)
    for block in explodes:
        block.normed = False
    assert diagnose(profiled(narrow))[0].meaning == "W_in may be drawn with the wrong fan_in."
    assert diagnose(profiled(wide))[0].severity == "good"
    told = diagnose(profiled(explodes))
    assert (told[0].severity, told[0].meaning) == (
        "bad",
        "W_out may be drawn with the wrong fan_in.",
    )
    assert any(finding.meaning.startswith("The signal explodes over depth: ") for finding in told)


def test_a_sum_that_epsilon_moves_a_little_has_its_norm() -> None:
    """MBart's fifth layer has second moment 0.986 after a sum, and 0.988 in the others."""
    values = {
        ("second_moment", "resid_mid"): np.array([[0.988, 0.988, 0.988, 0.988, 0.986, 0.988]])
    }
    assert no_norm_on_sum(Profile("measured", values)) is None
    values["second_moment", "resid_mid"] = np.array([[0.988, 0.988, 0.988, 0.988, 1.4, 0.988]])
    assert no_norm_on_sum(Profile("measured", values)) is not None


def test_a_small_stream_is_not_lost_by_chance() -> None:
    """LFM3's first MLP adds 0.434 to a stream of 0.0005, and 0.434 is the sum's second moment,
    too."""
    values = {
        ("second_moment", "resid_mid"): np.array([[0.0005, 0.434, 0.867, 1.3]]),
        ("second_moment", "mlp_out"): np.array([[0.434, 0.433, 0.433, 0.432]]),
        ("second_moment", "resid_post"): np.array([[0.434, 0.867, 1.3, 1.73]]),
    }
    assert no_residual(Profile("measured", values)) is None
    values["second_moment", "resid_mid"][0, 0] = 0.05
    assert no_residual(Profile("measured", values)) is not None


def test_one_of_a_few_layers_that_does_not_divide() -> None:
    """Four layers say little of their scatter; W_Q, W_K and the tokens say what the logits should
    be."""
    blocks = model(4)
    blocks[2].divided = False
    assert (
        diagnose(profiled(blocks))[0].meaning == "Layer 3 (h.2) does not divide its logits by √d."
    )


def test_what_collapses_is_not_blamed_on_a_layer() -> None:
    """Without any residual the logits shrink with the tokens' difference, faster and faster."""
    for n_layers in (4, 12):
        blocks = model(n_layers)
        for block in blocks:
            block.attention_added = block.mlp_added = False
        (only,) = diagnose(profiled(blocks))
        assert only.meaning.startswith("The tokens become alike: ")


def test_logits_that_no_layer_divides() -> None:
    blocks = model()
    for block in blocks:
        block.divided = False
    first = diagnose(profiled(blocks))[0]
    assert first.meaning == "The attention logits are not divided by √d."
    assert "√16 is 4" in first.evidence


def test_a_cause_is_as_serious_as_what_it_does() -> None:
    blocks = model(post=True)
    scale("W_out", 1.66)(blocks)
    told = diagnose(profiled(blocks))
    assert [finding.severity for finding in told] == ["bad", "bad"]
    assert told[1].meaning.startswith("The tokens become alike: ")
