"""Products over depth: growth by a small change a layer, coefficient of the input, and size of one update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.profile import MATRICES, Array, Key, Profile
from explorer.schemes.residual import profiled_factor


def aligned_growth(epsilon: float, n: int) -> float:
    """(1 + ε)ⁿ: growth of the length when every branch points along the stream, as in one dimension."""
    return float((1 + epsilon) ** n)


def random_growth(epsilon: float, n: int) -> float:
    """(1 + ε²)ⁿ: mean growth of the squared length through n layers x + ε W x, W ~ N(0, 1/d), in any dimension."""
    return float((1 + epsilon * epsilon) ** n)


def identity_path(n_branches: int, skip: float = 1.0, branch: float = 1.0) -> Array:
    """Weight of the input in a post-norm stream after 0 … n branches of unit second moment, `[n + 1]`: 2^(−l/2) at one.

    Each norm divides skip · x + branch · F by the root of its second moment, skip² + branch².
    """
    return np.power(skip / math.hypot(skip, branch), np.arange(n_branches + 1))


class DeepNorm(NamedTuple):
    """α on the skip path and β on the value, output and MLP matrices."""

    alpha: float
    beta: float


def deepnorm(n: int, other: int | None = None, decoder: bool = False) -> DeepNorm:
    """DeepNet's constants (Wang et al. 2022, figure 2) for a stack of n layers.

    Args:
        n: layers of this stack.
        other: layers of the other stack of an encoder-decoder; None when the model has one stack.
        decoder: whether this stack is the decoder of an encoder-decoder.
    """
    if other is None:
        return DeepNorm((2 * n) ** 0.25, (8 * n) ** -0.25)
    if decoder:
        return DeepNorm((3 * n) ** 0.25, (12 * n) ** -0.25)
    product = (n**4 * other) ** (1 / 16)
    return DeepNorm(0.81 * product, 0.87 / product)


def branch_share(profile: Profile) -> float:
    """Part of the last stream's second moment that its branches put there, mean over seeds; the rest is the input's.

    At each sum the stream keeps skip² q / (skip² q + branch² q_F) of what it was; 1 where nothing of it is finite.
    """
    if profile.config is None:
        raise ValueError("branch_share needs a profile of a Config; this one has none")
    return 1 - input_share(profile.config, profile.values)


def input_share(config: Config, values: Mapping[Key, Array]) -> float:
    """Part of the last stream's second moment that is the input's, 1 − `branch_share`; values are `[seed, layer]`."""
    design = config.design
    q = {site: value.mean(axis=0) for (name, site), value in values.items() if name == "second_moment"}
    streams = np.concatenate([q["embed"], np.stack([q["resid_mid"], q["resid_post"]], axis=1).ravel()])
    added = np.stack([q.get("attn_out", 0 * q["mlp_out"]), q["mlp_out"]], axis=1).ravel()
    factors: Sequence[float] = design.skips
    if design.profiled:
        below = np.arange(len(added)) // (1 if "attn_out" in q else 2)
        factors = list(map(profiled_factor, below.tolist(), np.cumsum([streams[0], *added]).tolist()))
    skip, branch = np.square(factors) * streams[:-1], np.square(design.branches) * added
    return float(np.prod(np.divide(skip, skip + branch, out=np.zeros_like(skip), where=skip + branch > 0)))


def update_size(profile: Profile) -> float:
    """Σ‖∂L/∂W‖² over all matrices and layers, mean over seeds: one SGD step changes the loss by −η times this."""
    keys = [("parameter_gradient", name) for name in MATRICES]
    sizes = [profile.values[key] for key in keys if key in profile.values]
    return float(sum((size**2).sum(axis=1).mean() for size in sizes))
