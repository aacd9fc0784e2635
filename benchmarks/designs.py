"""Random designs: every scheme that `Config` accepts and text can be learned with, by the number of
the draw.

Depth is log-uniform from 2 to 48 layers, the init variance log-uniform over the three decades
around the rule's. Every other field is drawn in a random order, with its own chance of being drawn
at all; a value that `Config` refuses beside those before it, and one that makes no difference
beside the others, is left out. Stacks without a norm and Post-LN are drawn three times as often as
other placements, so that a good part of the designs does not train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from explorer.config import Config
from explorer_race.tasks import Task

SIZES: Mapping[str, int] = MappingProxyType(
    {"d_model": 32, "n_heads": 2, "mlp_ratio": 2, "n_ctx": 32, "batch_size": 8}
)
"""The one size of all designs, but for their depth."""
DEPTHS, VARIANCES = (2, 48), (10**-1.5, 10**1.5)
OFTEN = {"none": 3.0, "post": 3.0}
"""Weight of a norm placement; of the others 1."""
LATER = dict.fromkeys(("nope", "peri_heads", "zero_last", "mitchell", "torchtitan", "looped"), 0.0)
"""Weight of the options that came after the designs were trained: with these, the others would be
drawn otherwise."""

Draw = Callable[[np.random.Generator], Any]


def _any(field: str, weights: Mapping[str, float] = {}) -> Draw:
    choices = Config.specs()[field].choices
    chance = np.array([{**weights, **LATER}.get(one, 1.0) for one in choices])
    return lambda rng: str(rng.choice(choices, p=chance / chance.sum()))


def _between(low: float, high: float) -> Draw:
    """Log-uniform, to three digits."""
    return lambda rng: float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")


FIELDS: Mapping[str, tuple[float, Draw]] = {
    "norm_placement": (0.9, _any("norm_placement", OFTEN)),
    "norm": (0.6, _any("norm")),
    "norm_alpha": (0.5, _between(0.1, 2)),
    "final_norm": (0.2, _any("final_norm")),
    "residual": (0.6, _any("residual")),
    "alpha": (0.4, _between(0.1, 4)),
    "stream": (0.4, _any("stream")),
    "scale_rule": (0.6, _any("scale_rule")),
    "distribution": (0.3, _any("distribution")),
    "layer_weights": (0.2, _any("layer_weights")),
    "parametrization": (0.5, _any("parametrization")),
    "bias_variance": (0.15, lambda rng: 0.333),
    "biases": (0.5, _any("biases")),
    "mlp": (0.5, _any("mlp")),
    "activation": (0.8, _any("activation")),
    "activation_rescaled": (0.4, lambda rng: False),
    "attention": (0.08, lambda rng: "none"),
    "attention_scale": (0.6, _any("attention_scale")),
    "residual_attention": (0.2, _any("residual_attention")),
    "qk_norm": (0.2, lambda rng: True),
    "qk_norm_over": (0.5, _any("qk_norm_over")),
    "n_kv_heads": (0.15, lambda rng: 1),
    "logit_cap": (0.1, _between(5, 50)),
    "sink": (0.2, _any("sink")),
    "attention_gate": (0.2, _any("attention_gate")),
    "value_residual": (0.15, lambda rng: True),
    "position": (0.6, _any("position")),
    "input_second_moment": (0.2, _between(1e-3, 10)),
    "readout": (0.3, _any("readout")),
}
"""Chance that a field is drawn, and the draw."""


def random_design(number: int, seed: int = 0) -> Config:
    """A design, ready for the task; the same number gives the same design."""
    rng = np.random.default_rng([seed, number])
    config = Task().fit(
        Config(
            **SIZES,
            n_layers=int(math.exp(rng.uniform(math.log(DEPTHS[0]), math.log(DEPTHS[1] + 1)))),
            init_variance=_between(*VARIANCES)(rng),
        )
    )
    for field in rng.permutation(list(FIELDS)).tolist():
        chance, draw = FIELDS[field]
        value = draw(rng)
        if rng.random() < chance and config.accepts(**{field: value}):
            config = config.replace(**{field: value})
    return _without_idle(config)


def _without_idle(config: Config) -> Config:
    """The same with fields that make no difference at their defaults."""
    specs = Config.specs()
    idle = {field: specs[field].default for field in FIELDS if not config.matters(field)}
    return config.replace(**idle)


def choices(config: Config) -> dict[str, Any]:
    """The fields in which a design differs from the plain one of these sizes."""
    plain = Task().fit(Config(**SIZES))
    return {name: value for name, value in config if value != getattr(plain, name)}
