"""Presets of real models against Hugging Face transformers: the same weights, and the same law of
the weights."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.models import MODELS, OUTPUT, Pass, build, compare, gathered, ours_of, run
from explorer import Config
from explorer.model import Transformer

pytest.importorskip("transformers", reason="needs the extra `models`")

SIZES: dict[str, Any] = {
    "n_layers": 4,
    "d_model": 64,
    "n_heads": 4,
    "n_ctx": 32,
    "batch_size": 2,
    "n_seeds": 32,
}
SIGMAS = 3.0
"""Combined standard errors between their mean and ours."""
GREAT = 64.0
"""Factor on the weights' variance, with which these narrow models have the gains of models of width
4096."""
ROUNDING = 3e-5
"""Of float32 after four layers, forward and back, relative."""
WEIGHTS = {
    "W_Q": "q_proj|query|q",
    "W_K": "k_proj|key|k",
    "W_V": "v_proj|value|v",
    "W_O": "o_proj|out_proj|o|attention.output.dense|attention.dense|attn.c_proj",
    "W_gate": "gate_proj|wi_0",
    "W_in": "up_proj|fc1|fc_in|c_fc|intermediate.dense|wi_1|wi|ffn",
    "sink": "sinks",
    "W_out": "down_proj|fc2|fc_out|mlp.c_proj|output.dense|wo|ffn_output",
}
"""Our name of a parameter, and the ends of theirs."""


def neighbors(count: int) -> list[int]:
    """Coordinates of a head in our order, where pairs that turn together are neighbors."""
    return [*range(0, count, 2), *range(1, count, 2)]


def backwards(count: int) -> list[int]:
    """The same, where pairs turn the other way."""
    return [*range(count // 2, count), *range(count // 2)]


ORDERS = {"gptj": neighbors, "command_r": neighbors, "nanochat": backwards}


def weights(block: nn.Module, config: Config, name: str) -> dict[str, Tensor]:
    """Their parameters of a layer by our names, matrices as `[fan_out, fan_in]`."""
    found: dict[str, Tensor] = {}
    for path, value in block.state_dict().items():
        end = path.removesuffix(".weight")
        ours = next(
            (ours for ours, ends in WEIGHTS.items() if re.search(rf"(^|\.)({ends})$", end)), ""
        )
        if ".c_" in end and value.ndim == 2:  # GPT-2's Conv1D is the other way round
            value = value.T
        if end.endswith(("c_attn", "Wqkv")):
            found |= dict(zip(("W_Q", "W_K", "W_V"), value.chunk(3), strict=True))
        elif end.endswith("experts.gate_up_proj"):  # of one expert, the two in turn
            found |= {"W_gate": value[0, :, ::2].T, "W_in": value[0, :, 1::2].T}
        elif end.endswith("experts.down_proj"):
            found["W_out"] = value[0].T
        elif (
            ours == "W_Q" and len(value) > config.n_heads * config.d_head
        ):  # each head's gate after it
            both = value.unflatten(0, (config.n_heads, 2, -1))
            found |= {"W_Q": both[:, 0].flatten(0, 1), "W_G": both[:, 1].flatten(0, 1)}
        elif ours:
            found[ours] = value
    if name in ORDERS:  # our pairs of coordinates are half of what is rotated apart
        turned = config.design.rotated
        order = [*ORDERS[name](turned), *range(turned, config.d_head)]
        for matrix in ("W_Q", "W_K"):
            found[matrix] = found[matrix].unflatten(0, (-1, config.d_head))[:, order].flatten(0, 1)
    return found


def with_weights(config: Config, blocks: list[nn.Module], name: str) -> Transformer:
    """Our model with theirs."""
    model = Transformer(config, 0)
    with torch.no_grad():
        for layer, block in zip(model.layers, blocks, strict=True):
            found = weights(block, config, name)
            for matrix, parameter in layer.weights.items():
                parameter.copy_(found[matrix])
    return model


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest over layers of the root mean square of the difference, relative to that of what is
    expected."""
    size = [
        torch.linalg.vector_norm(part.flatten(1), dim=1) for part in (found - expected, expected)
    ]
    return float((size[0] / size[1]).max())


def pair(name: str, config: Config) -> tuple[Pass, Pass]:
    """A pass of their model, and one of ours with the same weights, input and direction."""
    torch.manual_seed(0)
    row = MODELS[name]._replace(drawn={})  # as the class draws: none is zero
    model = build(row, config)
    expected = run(row, model, config)
    blocks = list(model.get_submodule(row.blocks)) * config.n_layers
    same = with_weights(config, blocks[: config.n_layers], name)
    stream, pattern = [], []

    def tap(site: str, layer: int, tensor: Tensor) -> None:
        if site in ("embed", "resid_post"):
            stream.append(tensor)
        elif site == "pattern":
            pattern.append(tensor)

    output = same(expected.stream[0].requires_grad_(), tap)
    return gathered(stream, pattern, output, expected.direction), expected


def worst(pair: tuple[Pass, Pass]) -> float:
    """Largest difference of stream, pattern and gradient."""
    return max(
        difference(getattr(pair[0], part), getattr(pair[1], part))
        for part in ("stream", "pattern", "gradient")
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_same_weights_give_the_same_stream_pattern_and_gradient(name: str) -> None:
    """One draw, their weights in our model, as large as at a greater width."""
    assert worst(pair(name, ours_of(name, **SIZES, init_variance=GREAT))) < ROUNDING


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gpt2", {"activation": "gelu"}),
        ("bert", {"activation": "gelu_tanh"}),
        ("t5", {"attention_scale": "sqrt_d"}),
        ("llama3", {"rope_base": 1e4}),
        ("olmo2", {"qk_norm_over": "head"}),
        ("qwen3", {"norm": "layer"}),
        ("qwen3_next", {"rope_fraction": 0.5}),
        ("gemma2", {"logit_cap": 0.0}),
        ("gpt_oss", {"sink": "zero"}),
        ("gptj", {"stream": "one"}),
        ("mpt", {"position": "none"}),
        ("albert", {"activation": "gelu"}),
        ("gemma4", {"norm_placement": "peri"}),
        ("gemma4", {"attention_scale": "sqrt_d"}),
    ],
    ids=str,
)
def test_a_model_with_one_other_choice_is_told_apart(name: str, change: dict[str, Any]) -> None:
    assert (
        worst(pair(name, ours_of(name, **SIZES, init_variance=GREAT).replace(**change))) > ROUNDING
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_statistic_by_layer_is_that_of_their_model(name: str) -> None:
    """Both draw their own weights."""
    row = MODELS[name]
    for found in compare(row, ours_of(name, **SIZES)):
        # at the input, as the preset says
        unlike = row.normalized and found.statistic == "activation_gradient"
        assert (abs(found.deviation[unlike:]) <= SIGMAS).all(), found


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("t5", "t5_v1_1"),
        ("llama3", "qwen3"),
        ("gemma2", "gemma3"),
        ("gemma3", "gemma4"),
    ],
)
def test_the_statistics_tell_a_model_from_its_neighbor(name: str, other: str) -> None:
    found = compare(MODELS[name], ours_of(other, **SIZES))
    assert max(abs(one.deviation).max() for one in found) > 2 * SIGMAS


def test_the_table_has_every_model_within_three_standard_errors() -> None:
    """docs/models.csv: twelve layers of width 256."""
    with OUTPUT.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(dict.fromkeys(row["model"] for row in rows)) == list(MODELS)
    assert {row["layer"] for row in rows} == set(map(str, range(13)))
    for row in rows:
        unlike = (
            MODELS[row["model"]].normalized
            and row["statistic"] == "activation_gradient"
            and row["layer"] == "0"
        )
        assert unlike or abs(float(row["deviation"])) <= SIGMAS, row
