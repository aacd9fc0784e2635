"""Spectral norms and stable ranks of models that are not ours, against torch's singular values of
their parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import odd_models
import pytest
import small_models
import torch
import transformers
from torch import Tensor

from explorer import Config, measure, predict, preset, probe
from explorer.model import Transformer, batch
from explorer.profile import Profile


def exact(weight: Tensor) -> tuple[float, float]:
    """Of `[fan_out, fan_in]`, by all singular values."""
    values = torch.linalg.svdvals(weight.detach().double())
    size = float(values[0]) * math.sqrt(weight.shape[1] / weight.shape[0])
    return size, float(values.square().sum() / values[0] ** 2)


def check(profile: Profile, name: str, weights: list[Tensor]) -> None:
    for index, weight in enumerate(weights):
        values = profile["spectral_norm", name][0, index], profile["stable_rank", name][0, index]
        assert values == pytest.approx(exact(weight), rel=1e-3), (name, index)


def test_parts_of_packed_and_transposed_parameters() -> None:
    model = small_models.gpt2()
    profile = probe(model, small_models.batch(0), spectra=True)
    width = small_models.WIDTH
    blocks = list(model.h)  # type: ignore[arg-type]
    check(profile, "W_Q", [block.attn.c_attn.weight[:, :width].T for block in blocks])
    check(profile, "W_V", [block.attn.c_attn.weight[:, 2 * width :].T for block in blocks])
    check(profile, "W_out", [block.mlp.c_proj.weight.T for block in blocks])
    assert "spectral_norm" not in probe(model, small_models.batch(0))


def test_grouped_keys_and_a_gated_mlp() -> None:
    model = small_models.llama()
    profile = probe(model, small_models.batch(0), spectra=True)
    layers = list(model.layers)  # type: ignore[arg-type]
    check(profile, "W_K", [layer.self_attn.k_proj.weight for layer in layers])
    check(profile, "W_gate", [layer.mlp.gate_proj.weight for layer in layers])
    assert Profile.from_json(profile.to_json())["stable_rank", "W_K"].shape == (1, len(layers))


def test_of_several_experts_the_largest() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(odd_models.PreNorm(odd_models.Attention(), odd_models.Experts()) for _ in range(2))
    )
    words, seen = torch.randn(2, 10, odd_models.D), list[Tensor]()
    hooks = [
        part.register_forward_hook(lambda module, *_: seen.append(module[0].weight))
        for part in model[0].second.experts
    ]  # type: ignore[union-attr]
    profile = probe(model, words, spectra=True)
    [hook.remove() for hook in hooks]
    largest = max(map(exact, {id(weight): weight for weight in seen}.values()))
    assert (
        profile["spectral_norm", "W_in"][0, 0],
        profile["stable_rank", "W_in"][0, 0],
    ) == pytest.approx(largest, rel=1e-3)


def test_a_matrix_of_zeros_has_no_rank_in_its_layer_alone() -> None:
    model = small_models.gpt2()
    with torch.no_grad():
        model.h[1].mlp.c_proj.weight.zero_()  # type: ignore[union-attr,index]
    profile = probe(model, small_models.batch(0), spectra=True)
    assert profile["spectral_norm", "W_out"][0, 1] == 0
    assert np.isnan(profile["stable_rank", "W_out"][0]).tolist() == [False, True, False]
    assert profile.absent["stable_rank", "W_out"] == (2,)
    # nan of zeros, too
    known = {key: value for key, value in profile.values.items() if key[0] != "weight_likeness"}
    assert replace(profile, values=known).first_nonfinite is None


def heads(profile: Profile, layer: int) -> list[tuple[float, float]]:
    """Largest possible logit and stable rank of each head of a layer from 0."""
    return list(
        zip(
            *(
                profile[name][0, layer].tolist()
                for name in ("largest_possible_logit", "logit_rank")
            ),
            strict=True,
        )
    )


def exact_heads(queries: Tensor, keys: Tensor, divisor: float = 2.0) -> list[tuple[float, float]]:
    """The same by all singular values, of W_Q and W_K `[head, d_head, d]`."""
    values = torch.linalg.svdvals((queries.mT @ keys).detach().double())
    return [
        (float(row[0]) * queries.shape[-1] / divisor, float(row.square().sum() / row[0] ** 2))
        for row in values
    ]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "encoder", "neox"])
def test_heads_of_packed_shared_joined_and_interleaved_queries_and_keys(
    name: str, attention: str
) -> None:
    """Query and key of a head lie beside each other in GPT-NeoX's matrix, and far apart in
    GPT-2's."""
    width, count = small_models.WIDTH, small_models.HEADS
    size = (count, width // count, width)
    model: torch.nn.Module
    if name == "encoder":
        model = small_models.Encoder()
        packed = model.encoder.layers[1].self_attn.in_proj_weight  # type: ignore[union-attr]
        queries, keys = packed[:width].reshape(size), packed[width : 2 * width].reshape(size)
    elif name == "neox":
        settings = transformers.GPTNeoXConfig(
            hidden_size=width,
            num_hidden_layers=2,
            num_attention_heads=count,
            intermediate_size=32,
            vocab_size=32,
            initializer_range=0.3,
            attn_implementation=attention,
            bos_token_id=None,
            eos_token_id=None,
        )
        torch.manual_seed(0)
        model = transformers.GPTNeoXModel(settings)
        queries, keys, _ = (
            model.layers[1].attention.query_key_value.weight.view(count, 3, *size[1:]).unbind(1)
        )
    elif name == "gpt2":
        model = small_models.gpt2(attention)
        packed = model.h[1].attn.c_attn.weight.T  # type: ignore[union-attr,index]
        queries, keys = packed[:width].reshape(size), packed[width : 2 * width].reshape(size)
    else:
        model = small_models.llama(attention)
        part = model.layers[1].self_attn  # type: ignore[union-attr,index]
        queries = part.q_proj.weight.reshape(size)
        keys = part.k_proj.weight.reshape(count // 2, *size[1:]).repeat_interleave(2, 0)
    profile = probe(model, small_models.batch(0), spectra=True)
    np.testing.assert_allclose(heads(profile, 1), exact_heads(queries, keys), rtol=1e-5)
    assert "logit_rank" not in probe(model, small_models.batch(0))


def test_heads_are_those_that_our_own_model_is_measured_to_have() -> None:
    for design in ("llama3", "t5", "gemma2", "nanochat"):
        config = preset(
            design, n_layers=2, d_model=32, n_heads=4, n_ctx=10, batch_size=2, n_seeds=1
        )
        model, inputs = Transformer(config, config.seed), batch.draw(config, config.seed)
        probed = probe(
            model, partial(lambda words, whole: whole(whole.embed(words)), inputs), spectra=True
        )
        measured = measure(config, spectra=True)
        for name in ("largest_possible_logit", "logit_rank"):
            assert (name in probed) == (name in measured) == (design != "nanochat"), (
                "none behind a norm"
            )
            if name in probed:
                np.testing.assert_allclose(probed[name], measured[name], rtol=1e-5, err_msg=design)


class Summed(torch.nn.Module):
    """The sum of two products."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.Linear(odd_models.D, odd_models.D) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.one(x) + self.two(x)
        return out


class TwoQueries(odd_models.Attention):
    """No rows of one matrix make a head's queries."""

    def __init__(self) -> None:
        super().__init__()
        self.q = Summed()  # type: ignore[assignment]


def test_heads_that_cannot_be_read_are_noted() -> None:
    torch.manual_seed(0)
    blocks = [odd_models.PreNorm(made()) for made in (odd_models.Attention, TwoQueries, TwoQueries)]
    words = torch.randn(2, 10, odd_models.D)
    profile = probe(torch.nn.Sequential(*blocks), words, spectra=True)
    for statistic in ("largest_possible_logit", "logit_rank"):
        assert profile.absent[statistic, "attn_scores"] == (2, 3)
        assert profile.notes[statistic] == (
            "the heads of layer 2 and 1 more could not be read: ValueError: a head's queries and keys are not rows of "
            "one matrix each"
        )
    read = probe(
        torch.nn.Sequential(*(odd_models.PreNorm() for _ in range(3))), words, spectra=True
    )
    assert "logit_rank" in read
    assert "logit_rank" not in read.notes


def test_the_law_of_the_nearest_design_stands_beside_them() -> None:
    """A model of ours, read as a stranger's: random matrices end where theory says, to the scatter
    of a draw."""
    config = Config(n_layers=4, d_model=128, n_heads=2, n_ctx=8, batch_size=2)
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    profile = probe(model, lambda whole: whole(whole.embed(inputs)), spectra=True)
    assert profile.twin is not None
    theory = predict(profile.twin, spectra=True)
    for name in config.design.matrices:
        for statistic in ("spectral_norm", "stable_rank"):
            ratio = profile[statistic, name].mean() / theory[statistic, name].mean()
            assert ratio == pytest.approx(1, abs=0.05), (statistic, name)
    for statistic in ("largest_possible_logit", "logit_rank"):
        assert profile[statistic].mean() / theory[statistic].mean() == pytest.approx(1, abs=0.05), (
            statistic
        )
    assert profile.plot("spectral_norm", theory).data
    assert profile.plot("logit_rank", theory).data
