"""Profiles written by hand, with known numbers, and a way to look traces up by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from explorer.config import Config
from explorer.profile import Profile
from explorer.vocabulary import Array, Key

SEEDS = 3
PLAIN = tuple(Config().design.shapes)
"""The matrices of a design without a gate."""


def stream(statistic: str, by_depth: Array, spread: float = 0.5) -> dict[Key, Array]:
    """A statistic of the stream from its values at depth 0, ½, 1, …; seeds stand at 1 − spread, 1,
    1 / (1 − spread)."""
    seeds = np.array([1 - spread, 1.0, 1 / (1 - spread)])[:, None] * by_depth
    return {
        (statistic, "embed"): seeds[:, :1],
        (statistic, "resid_mid"): seeds[:, 1::2],
        (statistic, "resid_post"): seeds[:, 2::2],
    }


def healthy(layers: int) -> dict[Key, Array]:
    """Every statistic that is drawn: q doubles a layer, γ is V-shaped, heads differ, matrices
    differ by tenfold."""
    depth = np.arange(2 * layers + 1) / 2
    growth = np.exp2(np.minimum(depth, 60))
    heads = np.broadcast_to(np.array([0.2, 0.6, 1.0]), (SEEDS, layers, 3))
    gradients = {
        ("parameter_gradient", matrix): np.full((SEEDS, layers), 10.0**k)
        for k, matrix in enumerate(PLAIN)
    }
    return (
        stream("second_moment", growth)
        | stream("token_correlation", depth / layers, 0.0)
        | stream(
            "activation_gradient", 10.0 ** -np.abs(np.minimum(depth, layers - depth)).clip(max=6)
        )
        | {("attention_entropy_normalized", "pattern"): np.array(heads)}
        | gradients
    )


def small(layers: int) -> Config:
    """A config of that depth that no limit refuses."""
    return Config(n_layers=layers, d_model=16)


def measured(
    layers: int = 4,
    config: Config | None = None,
    values: Mapping[Key, Array] | None = None,
    **more: Any,
) -> Profile:
    """A measured profile of three seeds; `values` replace the healthy ones of the same key."""
    return Profile(
        "measured",
        healthy(layers) | dict(values or {}),
        config=config or small(layers),
        seeds=tuple(range(SEEDS)),
        **more,
    )


def predicted(
    layers: int = 4, config: Config | None = None, values: Mapping[Key, Array] | None = None
) -> Profile:
    """The same numbers, as a prediction: one seed, the middle one."""
    every = healthy(layers) | dict(values or {})
    values = {key: value[1:2] for key, value in every.items()}
    return Profile("predicted", values, config=config or small(layers))


def traces(figure: go.Figure) -> dict[str, Any]:
    """The traces by name; two of one name would be an error."""
    named = {trace.name: trace for trace in figure.data}
    assert len(named) == len(figure.data), [trace.name for trace in figure.data]
    return named
