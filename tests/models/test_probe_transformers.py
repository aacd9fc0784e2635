"""probe() of Hugging Face transformers' models: eager and fused attention alike, and against hooks
written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_twin import ALIKE, SIZES, differing
from torch import Tensor, nn

from benchmarks.models import MODELS, STATISTICS, build, ours_of, run
from explorer import diagnose, probe
from explorer.measuring.statistics import Signal, second_moment
from explorer.profile import Profile
from explorer_models.probe import probed

transformers = pytest.importorskip("transformers", reason="needs the extra `models`")

TINY: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "vocab_size": 50,
}
GROUPED: dict[str, Any] = {**TINY, "num_key_value_heads": 2, "intermediate_size": 64}
ATTENTION = ("logit_std", "attention_entropy", "attention_entropy_normalized", "attention_max")


def tokens(shape: tuple[int, int] = (2, 12)) -> Tensor:
    return torch.randint(1, 50, shape, generator=torch.Generator().manual_seed(1))


def model(name: str, attention: str, **fields: Any) -> nn.Module:
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    made: nn.Module = kind(kind.config_class(**fields, attn_implementation=attention))
    with torch.no_grad():
        for parameter in made.parameters():  # at 0.02 attention is uniform, whatever the masks are
            parameter.mul_(6.0 if parameter.ndim > 1 else 1.0)
    return made.eval()


def values(profile: Profile) -> dict[str, np.ndarray[Any, Any]]:
    """At the places that `benchmarks.models` reads."""
    return {
        name: profile[name, "pattern"][0].mean(-1)
        if name == "attention_entropy"
        else np.concatenate([profile[name, "embed"], profile[name, "resid_post"]], axis=1)[0]
        for name in STATISTICS
    }


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_that_others_wrote(name: str) -> None:
    """The stream by plain hooks, the patterns as the model itself gives them, gradients by
    torch.autograd.grad; the twin is its preset."""
    config = ours_of(name, **SIZES)
    torch.manual_seed(0)
    theirs = build(MODELS[name], config)
    torch.manual_seed(1)
    found = run(MODELS[name], theirs, config)
    torch.manual_seed(1)
    ids = torch.randperm(config.batch_size * config.n_ctx).view(config.batch_size, config.n_ctx)
    profile, read = probed(
        theirs, {"input_ids": ids}, lambda out: (out.last_hidden_state * found.direction).sum()
    )
    # one sum of both there
    inner = {"attn_out", "mlp_out"} if name == "gptj" else {"attn_out", "resid_mid", "mlp_out"}
    assert {site for statistic, site in profile if statistic == "second_moment"} == {
        "embed",
        "resid_post",
        *inner,
    }
    assert {"W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"} <= {
        site for statistic, site in profile if statistic == "parameter_gradient"
    }
    signal, gradient = Signal.of(found.stream), second_moment(found.gradient)
    rows = found.pattern / found.pattern.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(rows).sum(dim=-1).mean(dim=(1, 2, 3))
    expected = (signal.q, signal.overlap / signal.q, entropy, gradient / gradient[-1])
    for (statistic, mine), exact in zip(values(profile).items(), expected, strict=True):
        np.testing.assert_allclose(mine, exact.double(), rtol=3e-5, err_msg=statistic)
    twin = read.twin
    assert twin is not None
    left = differing(twin.config, config)
    assert left.keys() <= ALIKE.get(name, set()), left
    assert twin.distance < 0.05  # of a matrix of 64 × 16 entries the variance is known to 4 %
    assert not twin.unread
    assert bool(twin.differs) == (name == "gpt_oss")  # whose MLPs are experts
    assert twin.config.input_second_moment == pytest.approx(config.input_second_moment, rel=0.15)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "GPT2Model",
            {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 50, "n_positions": 16},
        ),
        ("MistralModel", {**GROUPED, "sliding_window": 4}),
    ],
)
def test_fused_attention_is_the_eager_one(name: str, fields: dict[str, Any]) -> None:
    """Causal masks, padding and sliding windows, additive or boolean; padding on the right, so that
    no row is empty."""
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, 9:] = 0
    given = {"input_ids": tokens(), "attention_mask": mask}
    eager, fused = (probe(model(name, kind, **fields), given) for kind in ("eager", "sdpa"))
    assert set(eager) == set(fused)
    assert {*ATTENTION} <= {statistic for statistic, _ in eager}
    for key in eager:
        np.testing.assert_allclose(fused[key], eager[key], rtol=2e-4, atol=1e-6, err_msg=str(key))


def test_rows_of_padding_on_the_left_are_left_out() -> None:
    """A row that may look nowhere is no attention; eager code makes it uniform, fused code makes it
    nothing."""
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, :4] = 0
    whole = [
        probe(model("LlamaModel", kind, **GROUPED), {"input_ids": tokens(), "attention_mask": mask})
        for kind in ("eager", "sdpa")
    ]
    short = probe(model("LlamaModel", "eager", **GROUPED), {"input_ids": tokens()[:, :]})
    for profile in whole:
        assert all(np.isfinite(value).all() for value in profile.values.values())
        assert np.all(profile["attention_entropy", "pattern"] < np.log(12))
        assert not np.allclose(
            profile["attention_entropy", "pattern"], short["attention_entropy", "pattern"]
        )


def test_a_decoder_comes_before_its_encoder_and_cross_attention_is_not_its_own() -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        num_layers=2, d_model=32, num_heads=4, d_kv=8, d_ff=64, vocab_size=50
    )
    t5 = transformers.T5Model(config).eval()
    t5.set_attn_implementation("eager")
    given = {"input_ids": tokens((2, 9)), "decoder_input_ids": tokens((2, 5))}
    profile = probe(t5, given)
    assert profile.layers == ("decoder.block.0", "decoder.block.1")
    assert [other.layers for other in profile.others] == [("encoder.block.0", "encoder.block.1")]
    with torch.no_grad():
        out = t5(**given, output_attentions=True)
    for found, patterns in (
        (profile, out.decoder_attentions),
        (profile.others[0], out.encoder_attentions),
    ):
        exact = torch.stack([torch.special.entr(one).sum(-1).mean(dim=(0, 2)) for one in patterns])
        np.testing.assert_allclose(found["attention_entropy", "pattern"][0], exact, rtol=1e-4)
        assert found.first_nonfinite is None
    again = Profile.from_json(profile.to_json())
    assert again.others[0].layers == profile.others[0].layers
    np.testing.assert_array_equal(
        again.others[0]["second_moment", "resid_post"],
        profile.others[0]["second_moment", "resid_post"],
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_nothing(reentrant: bool) -> None:
    plain, kept = (model("LlamaModel", "sdpa", **GROUPED).train() for _ in range(2))
    kept.activation_checkpointing_enable({"use_reentrant": reentrant})  # type: ignore[operator]
    first, second = (
        probe(one, {"input_ids": tokens(), "use_cache": False}) for one in (plain, kept)
    )
    assert list(first) == list(second)
    for key in first:
        np.testing.assert_allclose(second[key], first[key], rtol=1e-6, err_msg=str(key))


def test_weights_by_their_own_names() -> None:
    gpt2 = model("GPT2Model", "sdpa", n_layer=2, n_embd=32, n_head=4, vocab_size=50, n_positions=16)
    llama = model("LlamaModel", "sdpa", **GROUPED)
    block, layer = gpt2.h[0], llama.layers[0]  # type: ignore[index,union-attr]
    packed = block.attn.c_attn.weight.detach()  # type: ignore[union-attr]
    of_gpt2 = {"W_Q": packed[:, :32], "W_V": packed[:, 64:], "W_out": block.mlp.c_proj.weight}  # type: ignore[union-attr]
    of_llama = {
        "W_K": layer.self_attn.k_proj.weight.T,
        "W_gate": layer.mlp.gate_proj.weight.T,  # type: ignore
        "W_in": layer.mlp.up_proj.weight.T,
    }  # type: ignore[union-attr]
    for found, expected in ((probe(gpt2, tokens()), of_gpt2), (probe(llama, tokens()), of_llama)):
        for name, weight in expected.items():  # [fan_in, fan_out]
            exact = float(weight.detach().square().mean()) * len(weight)
            assert found["weight_variance", name][0, 0] == pytest.approx(exact, rel=1e-5), name


HYBRID: dict[str, Any] = {**GROUPED, "num_hidden_layers": 6, "head_dim": 8, "pad_token_id": 0}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
PART: dict[str, Any] = {**HYBRID, "sliding_window": 4}
PUBLISHED: dict[str, dict[str, Any]] = {
    "DeepseekV3ForCausalLM": {
        **HYBRID,
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "head_dim": 4,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    },
    "Qwen3NextForCausalLM": {
        **HYBRID,
        **EXPERTS,
        "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
    "NemotronHForCausalLM": {
        **HYBRID,
        "num_hidden_layers": 10,
        "hybrid_override_pattern": "M-M-M*-M-M",
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
    },
    "T5GemmaForConditionalGeneration": {"encoder": HYBRID, "decoder": HYBRID, "vocab_size": 50},
    "Cohere2ForCausalLM": PART,
    "ModernBertForMaskedLM": {**HYBRID, "local_attention": 4},
}


def published(name: str) -> nn.Module:
    """With its own initialization."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    made: nn.Module = kind(kind.config_class(**PUBLISHED[name]))
    return made.eval()


def given(name: str) -> dict[str, Tensor]:
    ids = tokens()
    # a loss that does not shift them itself
    labels = ids.roll(1, -1) if name.startswith("T5") else ids
    return {"input_ids": ids, "labels": labels} | (
        {"decoder_input_ids": ids} if name.startswith("T5") else {}
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_design_has_no_odd_layer_and_no_disease(name: str) -> None:
    """All that may be said is that no design of ours is like it."""
    profile = probe(published(name), given(name))
    assert profile.differences == ()
    found = diagnose(profile)
    assert {finding.meaning for finding in found if finding.severity != "good"} <= {
        "The model matches no known design: there are no lines."
    }
    assert not any("siblings" in finding.meaning + finding.evidence for finding in found)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("DeepseekV3ForCausalLM", 3),
        ("Qwen3NextForCausalLM", 2),
    ],
)
def test_a_mistake_in_one_layer_of_a_published_design_is_named(name: str, at: int) -> None:
    whole = published(name)
    layer: Any = whole.get_submodule(f"model.layers.{at - 1}")
    layer.mlp.register_forward_hook(lambda module, arguments, out: 3 * out)
    ((found, site, words),) = probe(whole, given(name)).differences
    assert (found, site) == (at, "mlp_out")
    assert words.startswith("multiplies the output of the MLP by 3")
