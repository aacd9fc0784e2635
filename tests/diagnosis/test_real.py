"""Real models with random weights: their own rules of initialization, of all kinds, are nobody's
mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from mistakes import weighed
from torch import nn

from benchmarks.models import MODELS, build, ours_of
from explorer import Profile, diagnose, measure
from explorer.sites import MATRICES
from tests.test_models import weights

pytest.importorskip("transformers", reason="needs the extra `models`")

SIZES: dict[str, Any] = {
    "n_layers": 6,
    "d_model": 64,
    "n_heads": 4,
    "n_ctx": 32,
    "batch_size": 2,
    "n_seeds": 1,
}


@pytest.mark.parametrize(
    "name", ["gpt2", "bert", "t5", "t5_v1_1", "llama3", "gptj", "gemma2", "command_r"]
)
def test_a_real_model_has_weights_that_no_rule_minds(name: str) -> None:
    """Their weights beside the signal of ours, which is of the same law: `tests/test_models.py`."""
    config, row = ours_of(name, **SIZES), MODELS[name]
    torch.manual_seed(0)
    layers = [
        {
            matrix: value
            for matrix, value in weights(block, config, name).items()
            if matrix in MATRICES
        }
        for block in build(row, config).get_submodule(row.blocks)
    ]
    measured = measure(config)
    profile = replace(
        measured,
        config=None,
        twin=config,
        model=row.name,
        dtype="bfloat16",
        layers=tuple(f"{row.blocks}.{layer}" for layer in range(len(layers))),
        values={**measured.values, **weighed(layers)},
        shapes={matrix: (value.shape[1], value.shape[0]) for matrix, value in layers[0].items()},
    )
    assert [finding.severity for finding in diagnose(profile)] == ["good"]


def test_torchs_encoder_is_made_of_copies() -> None:
    """`nn.TransformerEncoder` copies one layer; its layers by themselves, with torch's own rule,
    are healthy."""

    def profile(blocks: nn.ModuleList) -> Profile:
        layers = [
            {
                **dict(
                    zip(("W_Q", "W_K", "W_V"), block.self_attn.in_proj_weight.chunk(3), strict=True)
                ),
                "W_O": block.self_attn.out_proj.weight,
                "W_in": block.linear1.weight,
                "W_out": block.linear2.weight,
            }
            for block in blocks
        ]
        shapes = {matrix: (value.shape[1], value.shape[0]) for matrix, value in layers[0].items()}
        return Profile("measured", weighed(layers), shapes=shapes, seeds=(0,))

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    copied = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).layers
    assert diagnose(profile(copied))[0].meaning == "All 6 layers start as copies of one another."
    apart = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 256) for _ in range(6))
    assert diagnose(profile(apart))[0].severity == "good"
    apart[4].load_state_dict(apart[1].state_dict())
    assert diagnose(profile(apart))[0].meaning == "2 of 6 layers start as copies of one another."
