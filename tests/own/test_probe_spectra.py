"""Spectral norms and stable ranks of models that are not ours, against torch's singular values of their parameters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import odd_models
import pytest
import small_models
import torch
from torch import Tensor

from explorer import Config, predict, probe
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
    check(profile, "W_V", [block.attn.c_attn.weight[:, 2 * width:].T for block in blocks])
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
    model = torch.nn.Sequential(*(odd_models.PreNorm(odd_models.Attention(), odd_models.Experts()) for _ in range(2)))
    words, seen = torch.randn(2, 10, odd_models.D), list[Tensor]()
    hooks = [part.register_forward_hook(lambda module, *_: seen.append(module[0].weight))
             for part in model[0].second.experts]  # type: ignore[union-attr]
    profile = probe(model, words, spectra=True)
    [hook.remove() for hook in hooks]
    largest = max(map(exact, {id(weight): weight for weight in seen}.values()))
    assert (profile["spectral_norm", "W_in"][0, 0], profile["stable_rank", "W_in"][0, 0]) == pytest.approx(
        largest, rel=1e-3)


def test_a_matrix_of_zeros_has_no_rank_in_its_layer_alone() -> None:
    model = small_models.gpt2()
    with torch.no_grad():
        model.h[1].mlp.c_proj.weight.zero_()  # type: ignore[union-attr,index]
    profile = probe(model, small_models.batch(0), spectra=True)
    assert profile["spectral_norm", "W_out"][0, 1] == 0
    assert np.isnan(profile["stable_rank", "W_out"][0]).tolist() == [False, True, False]
    assert profile.absent["stable_rank", "W_out"] == (2,)
    known = {key: value for key, value in profile.values.items() if key[0] != "weight_likeness"}  # nan of zeros, too
    assert replace(profile, values=known).first_nonfinite is None


def test_the_law_of_the_nearest_design_stands_beside_them() -> None:
    """A model of ours, read as a stranger's: random matrices end where theory says, to the scatter of a draw."""
    config = Config(n_layers=4, d_model=128, n_heads=2, n_ctx=8, batch_size=2)
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    profile = probe(model, lambda whole: whole(whole.embed(inputs)), spectra=True)
    assert profile.twin is not None
    theory = predict(profile.twin, spectra=True)
    for name in config.design.matrices:
        for statistic in ("spectral_norm", "stable_rank"):
            ratio = profile[statistic, name].mean() / theory[statistic, name].mean()
            assert ratio == pytest.approx(1, abs=0.05), (statistic, name)
    assert profile.plot("spectral_norm", theory).data
