"""The twin of a model of known design is that design; layers that are built otherwise are named,
healthy ones never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from explorer import Config, Profile, Twin, diagnose, predict, preset, probe, twin
from explorer.model import Transformer, batch
from explorer_models.facts import Facts
from explorer_models.fields import EXACT
from explorer_models.probe import probed

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {"n_layers": 3, "d_model": 64, "n_heads": 4, "n_ctx": 16, "batch_size": 2}
FOUR = {**SIZES, "n_layers": 4}
"""For designs that treat half of the layers otherwise."""
UNSEEN = {"n_seeds", "seed", "loss", "output_cap", "parametrization", "base_depth"}
"""What no block shows: how many draws there were, and how it is to be trained."""
DRAWN = {"input_second_moment", "input_correlation"}
"""Read off one batch, of which they are the mean."""
ALIKE = {"nanochat": {"mlp_variance", "scale_rule"}}
"""Fields of which other values say the same: with W_out = 0, 0.64 over fan_out is W_in's 0.16 over
fan_in."""
BIASES = 0.12
"""Error of the variance of 4 × 64 biases, twice."""


def differing(found: Config, asked: Config, near: float = EXACT) -> dict[str, Any]:
    """Fields of the twin that are not what was asked for."""
    near = max(near, BIASES) if asked.bias_variance else near
    pairs = {
        name: (value, getattr(asked, name)) for name, value in found if name not in UNSEEN | DRAWN
    }
    return {
        name: pair
        for name, pair in pairs.items()
        if pair[0] != pair[1]
        and not (
            isinstance(pair[0], float) and abs(pair[0] - pair[1]) <= near * max(map(abs, pair))
        )
    }


OURS = {
    **{
        name: preset(name, **SIZES, n_seeds=1)
        for name in (
            "post_ln",
            "pre_ln",
            "peri_ln",
            "branch_output",
            "layernorm_scaling",
            "keel",
            "hybrid_norm",
            "sub_ln",
            "norm_former",
            "dyt",
            "deepnorm",
            "admin",
            "realformer",
            "realformer_qk",
            "rezero",
            "skipinit",
            "fixup",
            "t_fixup",
            "layer_scale",
            "inverse_sqrt_depth",
            "parallel",
            "deepnet",
            "qwen3_next",
            "ngpt",
            "gpt_oss",
        )
    },
    "mix_ln": preset("mix_ln", **FOUR, n_seeds=1),
    "uniform": Config(
        distribution="uniform",
        scale_rule="torch_default",
        bias_variance=1 / 3,
        norm_epsilon=0.1,
        **SIZES,
    ),
    "louder": Config(scale_rule="xavier", attention_variance=3.0, mlp_variance=0.2, **SIZES),
    "copied": Config(layer_weights="copied", activation="erf", logit_cap=5.0, sink="zero", **SIZES),
    "looped": Config(layer_weights="looped", n_loops=2, residual="looped", **FOUR),
    "narrow": Config(
        head_size=8, n_kv_heads=2, mlp_ratio=0.5, attention_gate="head", causal=True, **SIZES
    ),
    "gain": Config(qk_norm=True, qk_gain=3.0, attention_scale="d", value_residual=True, **SIZES),
    "mlps": Config(attention="none", activation="tanh", activation_rescaled=False, **SIZES),
    "no last norm": Config(final_norm="no", mlp="gated", activation="sigmoid", **SIZES),
}
SAME = {
    "gain": {"attention_scale", "qk_gain"},  # 3 q·k / d is (3 / √d) q·k / √d
    "mlps": {"n_heads"},
    "looped": {"residual", "alpha"},  # a factor on the branches is α, whatever it is made of
    "copied": {"init_variance"},  # one draw for all layers
}


def of_ours(config: Config) -> tuple[Profile, Twin]:
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    profile, read = probed(model, lambda whole: whole(whole.embed(inputs)))
    assert read.twin is not None
    return profile, read.twin


@pytest.mark.parametrize("name", OURS)
def test_the_twin_of_our_own_model_is_its_config(name: str) -> None:
    """And what a design does by layer is no fault."""
    profile, found = of_ours(OURS[name])
    left = differing(found.config, OURS[name], near=0.06)
    assert {*left} <= SAME.get(name, set()), left
    assert profile.differences == ()


def test_a_wrong_variance_is_not_taken_for_right() -> None:
    """Weights 10 % too large are seen as such: the twin says so, and is not the config that was
    asked for."""
    asked = Config(**SIZES)
    found = of_ours(asked.replace(init_variance=1.21))[1]
    assert found.config.init_variance == pytest.approx(1.21, rel=0.03)
    assert "nearest design" in found._repr_html_()


def gpt2() -> tuple[nn.Module, Any, str]:
    config = transformers.GPT2Config(
        n_layer=8, n_embd=64, n_head=4, vocab_size=64, n_positions=16, attn_implementation="eager"
    )
    return transformers.GPT2Model(config).eval(), torch.arange(32).view(2, 16), "h"


def llama(n_layers: int = 8) -> tuple[nn.Module, Any, str]:
    config = transformers.LlamaConfig(
        num_hidden_layers=n_layers,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=64,
    )
    return transformers.LlamaModel(config).eval(), torch.arange(32).view(2, 16), "layers"


class Block(nn.Module):
    """Written by hand, as in a course."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192, bias=False), nn.Linear(64, 64, bias=False)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.scale, self.keep, self.branch = 0.25, 1.0, 1.0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = ((q @ k.mT * self.scale).softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 64)
        x = (x if self.keep else 0) + self.out(mixed)
        return x + self.branch * self.down(torch.relu(self.up(self.norm_2(x))))


@pytest.mark.parametrize("base", [1e4, 5e5])
def test_rotary_positions_as_complex_numbers(base: float) -> None:
    """As in Meta's code: pairs of neighbors are one complex number."""

    class Turning(Block):
        def forward(self, x: Tensor) -> Tensor:
            angles = torch.outer(torch.arange(16), base ** (-torch.arange(0, 16, 2) / 16))
            turns = torch.polar(torch.ones(16, 8), angles)[:, None]
            q, k, v = self.qkv(self.norm_1(x)).view(2, 16, 3, 4, 16).unbind(2)
            q, k = (
                torch.view_as_real(
                    torch.view_as_complex(part.reshape(2, 16, 4, 8, 2)) * turns
                ).flatten(3)
                for part in (q, k)
            )
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(2, 16, 64)
            return x + self.out(mixed)

    torch.manual_seed(0)
    found = twin(nn.Sequential(*(Turning() for _ in range(2))), torch.randn(2, 16, 64)).config
    assert (found.position, found.rope_base, found.rope_fraction, found.causal) == (
        "rotary",
        base,
        1.0,
        True,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, inputs, _ = llama(4)
    exact, rounded = twin(model, inputs), twin(model.to(dtype), inputs)
    assert not differing(rounded.config, exact.config)


def plain(n_layers: int = 8) -> tuple[nn.Module, Any, str]:
    return nn.Sequential(*(Block() for _ in range(n_layers))), torch.randn(2, 16, 64), ""


MODELS_WITH_FAULTS = {"gpt2": gpt2, "llama": llama, "plain": plain}


def attribute(block: Any, *names: str) -> str:
    return next(name for name in names if hasattr(block, name))


FIRST, SECOND = (
    ("ln_1", "input_layernorm", "norm_1"),
    ("ln_2", "post_attention_layernorm", "norm_2"),
)


def no_norm(block: Any) -> None:
    setattr(block, attribute(block, *FIRST), nn.Identity())


def no_second_norm(block: Any) -> None:
    setattr(block, attribute(block, *SECOND), nn.Identity())


def epsilon(block: Any) -> None:
    norm = getattr(block, attribute(block, *SECOND))
    setattr(norm, attribute(norm, "eps", "variance_epsilon"), 0.1)


def no_divisor(block: Any) -> None:
    if hasattr(block, "scale"):
        block.scale = 1.0
    else:
        attention = getattr(block, attribute(block, "attn", "self_attn"))
        attention.scaling, attention.scale_attn_weights = 1.0, False


def times(factor: float) -> Callable[[Any], None]:
    def change(block: Any) -> None:
        if hasattr(block, "mlp"):
            block.mlp.register_forward_hook(lambda module, given, out: factor * out)
        else:
            block.branch = factor

    return change


FAULTS: tuple[dict[int, tuple[Callable[[Any], None], str, str]], ...] = (
    {
        1: (no_norm, "attn_out", "no norm on attention's input"),
        4: (epsilon, "mlp_out", "ε 0.1"),
        5: (no_divisor, "attn_scores", "divides its attention logits by 1"),
        7: (times(3.0), "mlp_out", "output of the MLP by 3"),
        8: (times(0.0), "mlp_out", "output of the MLP by 0"),
    },
    {3: (no_second_norm, "mlp_out", "no norm on the MLP's input")},
    {},
)
"""By layer from 1, of a model each; site and words."""


def seen(name: str, *faults: tuple[int, Callable[[Any], object]]) -> Profile:
    torch.manual_seed(0)
    model, inputs, stack = MODELS_WITH_FAULTS[name]()
    blocks: Any = model.get_submodule(stack)
    for layer, fault in faults:
        fault(blocks[layer - 1])
    return probe(model, inputs)


@pytest.mark.parametrize("faults", FAULTS, ids=len)
@pytest.mark.parametrize("name", MODELS_WITH_FAULTS)
def test_layers_that_are_built_otherwise_are_named(
    name: str, faults: dict[int, tuple[Callable[[Any], None], str, str]]
) -> None:
    """Each in its own way; the others are not."""
    profile = seen(name, *((layer, row[0]) for layer, row in faults.items()))
    assert [row[:2] for row in profile.differences] == [
        (layer, site) for layer, (_, site, _) in faults.items()
    ]
    for layer, _, words in profile.differences:
        assert faults[layer][2] in words
        own = words.partition(", where")[0]
        first = diagnose(profile)[0]
        assert f"ayer {layer} " in first.meaning + first.evidence
        assert own in first.meaning + first.evidence
    assert Profile.from_json(profile.to_json()).twin == profile.twin


def test_a_residual_that_is_left_out_is_named() -> None:
    ((layer, site, words),) = seen(
        "plain", (5, lambda block: setattr(block, "keep", 0.0))
    ).differences
    assert (layer, site) == (5, "attn_out")
    assert words.startswith("leaves out the stream")


def test_an_alternating_design_has_no_odd_layers() -> None:
    assert seen("plain", *((layer, no_norm) for layer in (1, 3, 5, 7))).differences == ()


def test_faults_of_weights_stand_in_the_profile() -> None:
    """A wrong fan_in and a copied layer are no matter of structure: the weights' own statistics
    show them."""
    profile = seen("plain", (5, lambda block: block.down.weight.data.mul_(2)))
    variances = profile["weight_variance", "W_out"][0]
    assert variances[4] / variances.mean() == pytest.approx(4 * 8 / 11, rel=0.05)
    torch.manual_seed(0)
    model, inputs, _ = plain()
    model[5].load_state_dict(model[4].state_dict())  # type: ignore[index, union-attr]
    likeness = probe(model, inputs)["weight_likeness", "W_in"][0]
    assert likeness[4] == pytest.approx(1) == pytest.approx(likeness[5])
    assert abs(likeness[:4]).max() < 0.2


def test_faults_in_every_layer_are_in_the_twin() -> None:
    torch.manual_seed(0)
    model, inputs, _ = plain(3)
    for block in model.children():
        no_divisor(block)
        epsilon(block)
        block.keep = 0.0  # type: ignore[assignment]
    profile, read = probed(model, inputs)
    assert read.twin is not None
    assert read.twin.config.attention_scale == "none"
    assert profile.differences == ()


def test_larger_than_any_config() -> None:
    """What Config cannot hold is said, and fan_in · variance stays."""
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Wide() for _ in range(2)))
    found = twin(blocks, torch.randn(1, 4, 2304))
    assert found.config.d_model == 2048
    assert any("d_model is 2,304" in one for one in found.differs)
    assert found.distance < 0.05


class Wide(nn.Module):
    """An MLP that is wider than any of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(2304, 576, bias=False), nn.Linear(576, 2304, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


def test_no_sum_no_twin() -> None:
    with pytest.raises(ValueError, match="blocks must add branches to a stream; no sum was seen"):
        twin(
            Transformer(preset("hyper_connections", **SIZES), 0),
            lambda whole: whole(torch.randn(2, 16, 64)),
        )


def test_the_theory_stands_under_a_healthy_stranger() -> None:
    """GPT-2's dots lie on its twin's line: within 5 %, where a twin of twice the variance is 40 %
    off."""
    torch.manual_seed(0)
    model, inputs, _ = gpt2()
    profile = probe(model, inputs)
    assert profile.twin is not None
    measured = profile["second_moment", "resid_post"][0, -1]

    def expected(config: Config) -> float:
        return float(predict(config)["second_moment", "resid_post"][0, -1])

    assert measured == pytest.approx(expected(profile.twin), rel=0.05)
    assert measured != pytest.approx(expected(profile.twin.replace(init_variance=2.0)), rel=0.2)


def test_an_unreadable_block_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Facts:
        raise RuntimeError("no such shape")

    monkeypatch.setattr("explorer_models.stack.read_facts", fails)
    profile = seen("plain")
    assert profile.twin is None
    assert ("second_moment", "resid_post") in profile
