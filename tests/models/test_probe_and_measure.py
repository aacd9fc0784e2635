"""probe() against measure(): our own model, read as a stranger's, has the same numbers at every
site."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from explorer import Config, measure, preset, probe
from explorer.model import Transformer, batch
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS

SIZES: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 32,
    "n_heads": 4,
    "n_ctx": 10,
    "batch_size": 2,
    "n_seeds": 1,
}
CONFIGS = {
    **{name: preset(name, **SIZES) for name in PRESETS},
    "text": Config(input="text", loss="next_token", causal=True, **SIZES),
    "correlated": Config(input="correlated", input_correlation=0.5, norm_placement="post", **SIZES),
}
SEVERAL = [name for name, config in CONFIGS.items() if config.design.stream.mixes]
"""Designs of several streams, whose inner sites no single tensor shows."""


def both(config: Config) -> tuple[Profile, Profile]:
    """The same weights and the same batch, measured and probed."""
    model, inputs = Transformer(config, config.seed), batch.draw(config, config.seed)
    probed = probe(
        model, lambda whole: whole(whole.embed(inputs)), loss=lambda out: model.loss(out, inputs)
    )
    return measure(config), probed


def compare(measured: Profile, probed: Profile, keys: set[tuple[str, str]]) -> None:
    for key in keys:
        assert probed[key].shape == measured[key].shape
        np.testing.assert_allclose(
            probed[key], measured[key], rtol=2e-5, atol=1e-7, err_msg=str(key)
        )


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in SEVERAL])
def test_every_statistic_at_every_site(name: str) -> None:
    measured, probed = both(CONFIGS[name])
    own = {key for key in probed if key[0] not in ("weight_variance", "weight_likeness")}
    assert own == {key for key in measured if key[1] != "logits"}, (
        "what the readout makes of a layer is not seen"
    )
    compare(measured, probed, own)
    assert measured.pattern is not None
    assert probed.pattern is not None
    np.testing.assert_allclose(probed.pattern, measured.pattern, atol=1e-6)


@pytest.mark.parametrize("name", SEVERAL)
def test_of_several_streams_what_is_shown_is_right(name: str) -> None:
    """Nothing is invented: the block's input and output, attention, and the matrices that can be
    told."""
    measured, probed = both(CONFIGS[name])
    own = {key for key in probed if not key[0].startswith("weight")}
    assert own < set(measured)
    assert {
        ("second_moment", "resid_post"),
        ("logit_std", "attn_scores"),
        ("parameter_gradient", "W_V"),
    } <= own
    compare(measured, probed, own)


@pytest.mark.parametrize(("name", "expected"), [("gpt2", 0.02**2 * 32), ("pre_ln", 1.0)])
def test_weights_are_what_the_config_drew(name: str, expected: float) -> None:
    """fan_in · mean W² is the rule's variance, up to the scatter √(2/1024) of 1024 entries; layers
    are drawn apart."""
    probed = both(CONFIGS[name].replace(init_variance=1.0))[1]
    model = Transformer(CONFIGS[name].replace(init_variance=1.0), 0)
    exact = [float(layer.weights["W_Q"].detach().square().mean()) * 32 for layer in model.layers]  # type: ignore
    np.testing.assert_allclose(probed["weight_variance", "W_Q"][0], exact, rtol=1e-5)
    np.testing.assert_allclose(exact, expected, rtol=0.2)
    assert np.abs(probed["weight_likeness", "W_Q"]).max() < 0.3


def test_shared_layers_are_copies() -> None:
    probed = both(CONFIGS["albert"])[1]
    np.testing.assert_allclose(probed["weight_likeness", "W_in"], 1, rtol=1e-6)


def test_a_probe_leaves_the_seeds_alone() -> None:
    state = torch.random.get_rng_state()
    both(CONFIGS["pre_ln"])
    assert torch.equal(torch.random.get_rng_state(), state)
