"""Designs that are predicted side by side have the predictions that each has alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.fuzz import designs
from explorer import Config, ConfigError, Profile
from explorer.schemes.placement import PLACEMENTS
from explorer.schemes.residual import RESIDUALS
from explorer.theory import predict
from explorer.theory.predict import MOST, VARIED, predict_all, structure

SAME = 1e-10
"""Relative difference by the order of sums alone."""
LOOSE = {"max_abs": 1e-7}
"""`laws._with_uneven_lengths` takes small differences near its limit."""
NUMBERS: dict[str, Sequence[Any]] = {
    "d_model": (64, 96, 128),
    "mlp_ratio": (2.0, 4.0, 3.0),
    "batch_size": (2, 2, 5),
    "init_variance": (0.4, 1.0, 3.0),
    "attention_variance": (1.0, 5.0, 0.5),
    "bias_variance": (0.1, 0.3, 1.0),
    "alpha": (0.3, 1.0, 2.0),
    "qk_gain": (1.0, 2.0, 0.5),
    "norm_epsilon": (1e-5, 1e-3, 0.0),
    "input_second_moment": (1.0, 0.5, 2.0),
    "input_correlation": (0.5, 0.1, 0.9),
}
"""Three values of a field."""
KINDS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    *({"norm_placement": name} for name in PLACEMENTS),
    *({"residual": name} for name, row in RESIDUALS.items() if not row.profiled),
    {"residual": "admin_profiled", "norm_placement": "post"},
    {"norm_placement": "post", "norm": "rms", "causal": True},
    {"norm_placement": "none", "residual": "inverse_sqrt_depth", "activation": "gelu"},
    {"activation": "tanh", "norm_placement": "none", "residual": "inverse_sqrt_depth"},
    {"mlp": "gated", "activation": "silu", "position": "rotary", "causal": True},
    {"activation": "relu2", "causal": True},
    {"biases": "all", "bias_variance": 0.2, "causal": True},
    {"biases": "all", "bias_variance": 0.2, "value_residual": True},
    {"residual_attention": "scores", "causal": True},
    {"residual_attention": "qk", "position": "rotary"},
    {"qk_norm": True, "n_heads": 4},
    {"qk_norm": True, "qk_norm_over": "all", "causal": True},
    {"stream": "parallel"},
    {"norm": "dyt"},
    {"attention": "none"},
    {"attention_gate": "head"},
    {"sink": "zero", "causal": True},
    {"position": "alibi", "causal": True},
    {"logit_cap": 5.0},
    {"input": "sentence"},
    {"input": "text", "loss": "next_token", "readout": "tied"},
    {"layer_weights": "copied"},
]
"""Designs of every structure."""


def assert_same(configs: Sequence[Config]) -> list[Profile]:
    """Predicts designs side by side and alone, and compares all values, scatter and notes."""
    profiles = dict(predict_all(configs))
    together = [profiles[index] for index in range(len(configs))]
    for config, profile in zip(configs, together, strict=True):
        alone = predict(config)
        assert profile.config == config
        assert profile.notes == alone.notes, config
        assert list(profile) == list(alone)
        for key in alone:
            tolerance = LOOSE.get(key[0], SAME)
            np.testing.assert_allclose(
                profile[key], alone[key], tolerance, 1e-14, err_msg=f"{config} {key}"
            )
        assert list(profile.scatter) == list(alone.scatter)
        for key, scatter in alone.scatter.items():
            # variances, for the root of a rounded 0 is not small
            np.testing.assert_allclose(
                profile.scatter[key] ** 2, scatter**2, SAME, 1e-14, err_msg=f"{config} {key}"
            )
    return together


def variants(config: Config, fields: Sequence[str]) -> list[Config]:
    """A design with three values of some fields; fewer where they are refused."""
    out = []
    for values in zip(*(NUMBERS[name] for name in fields), strict=True):
        try:
            out.append(config.replace(**dict(zip(fields, values, strict=True))))
        except ConfigError:
            continue
    return out


@pytest.mark.parametrize("choices", KINDS, ids=str)
def test_designs_of_every_structure(choices: dict[str, Any]) -> None:
    sizes = {"n_layers": 3, "d_model": 64, "n_heads": 2, "n_ctx": 24}
    base = Config(**{**sizes, **choices})
    fields = ["d_model", "init_variance", "alpha"]
    if "bias_variance" in choices:
        fields.append("bias_variance")
    assert_same([*variants(base, fields), *variants(base, ["input_second_moment", "mlp_ratio"])])


def test_random_designs() -> None:
    rng = np.random.default_rng(5)
    configs: list[Config] = []
    for config in designs(11, 40):
        fields = rng.choice(list(NUMBERS), 4, replace=False).tolist()
        configs += variants(config.replace(n_layers=min(config.n_layers, 3)), fields)
    assert len(configs) > 60
    order = rng.permutation(len(configs))
    assert_same([configs[index] for index in order])


def test_a_map_is_one_group_and_each_depth_another() -> None:
    base = Config(n_layers=2)
    assert set(NUMBERS) <= set(VARIED)
    keys = {structure(config) for config in variants(base, ["init_variance", "alpha", "d_model"])}
    assert len(keys) == 1
    assert structure(base.replace(n_layers=3)) not in keys
    assert structure(base.replace(logit_cap=3.0)) is None


def test_designs_that_leave_the_range_beside_others() -> None:
    """What is not covered ends where it ends alone, and the others go on."""
    base = Config(n_layers=24, norm_placement="none", residual="constant")
    profiles = assert_same([base.replace(init_variance=x) for x in (1.0, 300.0, 1000.0)])
    ends = [profile["second_moment", "resid_post"][0, -1] for profile in profiles]
    assert np.isfinite(ends).tolist() == [True, False, False]


def test_more_designs_than_go_side_by_side_keep_their_order() -> None:
    alphas = np.linspace(0.1, 1.0, MOST + 3).tolist()
    configs = [Config(n_layers=1, alpha=alpha) for alpha in alphas]
    profiles = dict(predict_all(configs, backward=False))
    assert [profiles[index].config for index in range(len(configs))] == configs
